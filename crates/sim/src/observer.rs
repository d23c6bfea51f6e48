//! The contract of an observer, which sees every packet and segment of a run.

use crate::engine::PepNode;
use crate::{EndId, Packet};
use bentpipe_base::Instant;
use bentpipe_outcome::LinkLook;
use bentpipe_pep::AnyPep;
use bentpipe_tcp::Connection;
use bentpipe_wire::Segment;
use core::sync::atomic::{AtomicBool, Ordering};

/// Sees more of a run than its counters tell. Every method does nothing unless it is overridden; `()` observes nothing,
/// and costs nothing.
///
/// A link here is one direction of a link (ns-2's simplex link): number 2i leads from the first end of link i (in the
/// order of their names) to its second, 2i + 1 back.
pub trait Observer {
    /// Whether it wants to see packets. Without that the engine saves the events of arrivals that change nothing yet: such
    /// packets wait at the end of their link until the next link acts.
    const PACKETS: bool = true;

    /// Whether it wants to see what ends do: [`Self::segment`] and [`Self::acted`].
    const ENDS: bool = true;

    /// `packet` enters the queue of `link`.
    #[inline]
    fn sent(&mut self, _now: Instant, _link: usize, _packet: &Packet) {}

    /// `packet` arrives over `link`.
    #[inline]
    fn arrived(&mut self, _now: Instant, _link: usize, _packet: &Packet) {}

    /// `end` sends `segment`.
    #[inline]
    fn segment(&mut self, _now: Instant, _end: EndId, _segment: &Segment) {}

    /// `end` has received `bytes` in order so far.
    #[inline]
    fn progress(&mut self, _now: Instant, _end: EndId, _bytes: u64) {}

    /// `end` has acted, on a segment, a timer or its application; its TCP now looks like this.
    #[inline]
    fn acted(&mut self, _now: Instant, _end: EndId, _tcp: &Connection) {}

    /// When it wants to look at the links next.
    #[inline]
    fn next_look(&self) -> Instant {
        Instant::MAX
    }

    /// How links and proxies are at `at`, which is [`Self::next_look`], before anything of that instant happened.
    #[inline]
    fn look(&mut self, _at: Instant, _standing: &Standing<'_>) {}

    /// Whether the run is to end here, with its flows cut off. Asked before each event.
    #[inline]
    fn stops(&self) -> bool {
        false
    }
}

/// How links and proxies are while nothing happens.
pub struct Standing<'e> {
    /// The links, each as it was when a packet last came or went.
    pub links: Vec<LinkLook>,
    pub(crate) peps: &'e [PepNode],
}

impl Standing<'_> {
    /// The TCP by which the proxy called `name` sends to the end `to` what it split of the flow from the end `from`; `None`
    /// where it splits none now.
    pub fn connection_to(&self, name: &str, from: EndId, to: EndId) -> Option<&Connection> {
        let pep = self.peps.iter().find(|pep| pep.name == name)?;
        match &pep.proxy {
            AnyPep::Split(split) => split.connection_to(from, to),
            _ => None,
        }
    }
}

impl Observer for () {
    const PACKETS: bool = false;
    const ENDS: bool = false;
}

/// Ends the run once it is raised.
impl Observer for &AtomicBool {
    const PACKETS: bool = false;
    const ENDS: bool = false;

    #[inline]
    fn stops(&self) -> bool {
        self.load(Ordering::Relaxed)
    }
}

/// Two observers that both see everything.
impl<A: Observer, B: Observer> Observer for (A, B) {
    const PACKETS: bool = A::PACKETS || B::PACKETS;
    const ENDS: bool = A::ENDS || B::ENDS;

    fn sent(&mut self, now: Instant, link: usize, packet: &Packet) {
        self.0.sent(now, link, packet);
        self.1.sent(now, link, packet);
    }

    fn arrived(&mut self, now: Instant, link: usize, packet: &Packet) {
        self.0.arrived(now, link, packet);
        self.1.arrived(now, link, packet);
    }

    fn segment(&mut self, now: Instant, end: EndId, segment: &Segment) {
        self.0.segment(now, end, segment);
        self.1.segment(now, end, segment);
    }

    fn progress(&mut self, now: Instant, end: EndId, bytes: u64) {
        self.0.progress(now, end, bytes);
        self.1.progress(now, end, bytes);
    }

    fn acted(&mut self, now: Instant, end: EndId, tcp: &Connection) {
        self.0.acted(now, end, tcp);
        self.1.acted(now, end, tcp);
    }

    fn next_look(&self) -> Instant {
        self.0.next_look().min(self.1.next_look())
    }

    fn look(&mut self, at: Instant, standing: &Standing<'_>) {
        if self.0.next_look() <= at {
            self.0.look(at, standing);
        }
        if self.1.next_look() <= at {
            self.1.look(at, standing);
        }
    }

    fn stops(&self) -> bool {
        self.0.stops() || self.1.stops()
    }
}

/// An observer that may be switched off.
impl<O: Observer> Observer for Option<O> {
    const PACKETS: bool = O::PACKETS;
    const ENDS: bool = O::ENDS;

    fn sent(&mut self, now: Instant, link: usize, packet: &Packet) {
        if let Some(observer) = self {
            observer.sent(now, link, packet);
        }
    }

    fn arrived(&mut self, now: Instant, link: usize, packet: &Packet) {
        if let Some(observer) = self {
            observer.arrived(now, link, packet);
        }
    }

    fn segment(&mut self, now: Instant, end: EndId, segment: &Segment) {
        if let Some(observer) = self {
            observer.segment(now, end, segment);
        }
    }

    fn progress(&mut self, now: Instant, end: EndId, bytes: u64) {
        if let Some(observer) = self {
            observer.progress(now, end, bytes);
        }
    }

    fn acted(&mut self, now: Instant, end: EndId, tcp: &Connection) {
        if let Some(observer) = self {
            observer.acted(now, end, tcp);
        }
    }

    fn next_look(&self) -> Instant {
        self.as_ref().map_or(Instant::MAX, Observer::next_look)
    }

    fn look(&mut self, at: Instant, standing: &Standing<'_>) {
        if let Some(observer) = self {
            observer.look(at, standing);
        }
    }

    fn stops(&self) -> bool {
        self.as_ref().is_some_and(Observer::stops)
    }
}
