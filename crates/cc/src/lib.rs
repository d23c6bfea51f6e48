//! Congestion controls, one file a variant, behind one trait: the image of Linux
//! `tcp_congestion_ops`, so that one trace of acknowledgements can be replayed through a control
//! here and through its BPF twin in the kernel.
//!
//! The sender owns the [`Window`], the control edits it. Which segments are lost and sent again is
//! loss recovery, which is apart. [`hybla`], [`share`] and [`rate_control`] repeat the integer arithmetic of
//! `crates/bpf/src/bpf/*.h` function by function; a property test in `bentpipe-bpf` holds the two
//! against each other. A new variant is one file and one entry in [`REGISTRY`].
//!
//! Begin with [`Congestion`] and `reno.rs`.
#![forbid(unsafe_code)]

pub mod bbr;
pub mod bbr1;
pub mod bic;
pub mod compound;
pub mod cubic;
pub mod cubic_rfc;
mod delivery;
pub mod fixed_point;
mod growth;
pub mod guard;
pub mod hybla;
mod hystart;
mod hystart_plus_plus;
mod link;
pub mod rate_control;
mod registry;
pub mod reno;
pub mod share;
pub mod vegas;
pub mod westwood;
mod windowed_max;

pub use delivery::{Delivery, LostSegment, RateSample};
pub use hystart::SlowStart;
pub use link::LinkParams;
pub use registry::{Algorithm, REGISTRY, RateUse, find, twin};

use bentpipe_base::{Bytes, Instant, Rate, Seq};
use std::fmt::Debug;
use std::time::Duration;

/// The sender's window. A control edits `cwnd`, `ssthresh` and `pacing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Congestion window, in segments, at least 1.
    pub cwnd: u32,
    /// Slow-start threshold, in segments; `u32::MAX`: none yet.
    pub ssthresh: u32,
    /// Segments sent and neither acknowledged nor taken for lost.
    pub in_flight: u32,
    /// The most full segments that the peer's receive window held; `u32::MAX`: not told yet.
    pub offered: u32,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// A full segment on the wire: payload, headers and what the link adds.
    pub wire: Bytes,
    /// Payload a second; `None`: as fast as the window allows.
    pub pacing: Option<Rate>,
}

/// States of loss recovery, as Linux `tcp_ca_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Nothing is missing.
    #[default]
    Open,
    /// Duplicate acknowledgements, too few to call it loss.
    Disorder,
    /// Reducing the window for a congestion signal that is not loss.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// What happens to the sender besides acknowledgements, as Linux `tcp_ca_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// Data is sent and none was in flight.
    Start,
    /// The window starts anew after idleness.
    Restart,
    /// A reduction of the window is complete.
    Reduced,
    /// The retransmission timer expired; comes after the sender has set cwnd to one segment.
    Timeout,
}

/// One acknowledgement, with its sample of the round-trip time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// When it arrived.
    pub now: Instant,
    /// The first byte not acknowledged after it (SND.UNA).
    pub una: Seq,
    /// The byte to be sent next (SND.NXT), before anything is sent in answer.
    pub next: Seq,
    /// Sample of the round-trip time: of the last segment it newly acknowledges, unless that one was
    /// sent again; exact, whatever the clock tick of the retransmission timer.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Segments newly acknowledged or selectively acknowledged; one where the window is to grow per
    /// acknowledgement.
    pub acked: u32,
    /// Segments newly found lost.
    pub lost: u32,
    /// Segments sent since this recovery began, retransmissions included.
    pub sent: u32,
    /// The state of loss recovery after it.
    pub phase: Phase,
    /// The window was what kept the sender from sending more.
    pub cwnd_limited: bool,
    /// More data waits than a flow's share of the link could carry.
    pub hungry: bool,
    /// The timestamp that it carries (TSval, RFC 7323), of a clock that counts milliseconds.
    pub stamp: Option<u32>,
    /// What it told of deliveries, for a control that [samples](Congestion::samples_deliveries) them.
    pub delivery: Option<Delivery>,
}

/// The segment that duplicate acknowledgements ask for: the first one not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstUnacked {
    /// When the acknowledgement arrived.
    pub now: Instant,
    /// When the segment was last sent.
    pub sent: Instant,
    /// How often it was sent, at least once.
    pub transmits: u32,
}

/// What a control is told when it is made. Reno heeds none of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The link that the flow is sent over.
    pub link: LinkParams,
    /// Vegas's thresholds.
    pub vegas: vegas::Thresholds,
    /// How Reno and CUBIC leave their first slow start.
    pub slow_start: SlowStart,
    /// The least window of the rate control, in time at the flow's rate, but no more than [`FLOOR_MAX`](rate_control::FLOOR_MAX) of it.
    pub window_floor: Duration,
}

impl Default for Settings {
    /// A link of which nothing is known; Vegas with 1/3/1; CUBIC with HyStart, Reno without; no floor of the window.
    fn default() -> Self {
        Self {
            link: LinkParams::default(),
            vegas: vegas::Thresholds::default(),
            slow_start: SlowStart::default(),
            window_floor: Duration::ZERO,
        }
    }
}

/// A figure of a control's inner state, for graphs: its name with the unit, and the value.
pub type Gauge = (&'static str, f64);

/// A congestion control of one connection.
pub trait Congestion: Debug + Send {
    /// Its name in [`REGISTRY`].
    fn name(&self) -> &'static str;

    /// An acknowledgement arrived; edits the window.
    fn on_ack(&mut self, window: &mut Window, ack: &Ack);

    /// The slow-start threshold, in segments, that the sender takes when it enters
    /// [`Phase::Cwr`], [`Phase::Recovery`] or [`Phase::Loss`]; called once for each.
    fn ssthresh(&mut self, window: &Window) -> u32;

    /// As [`ssthresh`](Self::ssthresh), when duplicate acknowledgements begin a recovery and the
    /// sender knows the segment they ask for.
    fn ssthresh_for(&mut self, window: &Window, _hole: &FirstUnacked) -> u32 {
        self.ssthresh(window)
    }

    /// Whether the segment is lost, however few duplicate acknowledgements ask for it (Vegas's
    /// fine-grained timeout). Asked at every duplicate acknowledgement, and at the first two new
    /// acknowledgements after a retransmission.
    fn expired(&self, _hole: &FirstUnacked) -> bool {
        false
    }

    /// Whether it also sets the window in CWR and recovery (Linux `cong_control`); otherwise the
    /// sender's loss recovery does.
    fn governs_recovery(&self) -> bool {
        false
    }

    /// Whether it models the path: then the sender notes with each segment what was delivered before, tells of
    /// [`Ack::delivery`] and of each lost segment, and calls [`on_ack`](Self::on_ack) at every acknowledgement, duplicate
    /// ones too. Asked once, before the connection starts.
    fn samples_deliveries(&self) -> bool {
        false
    }

    /// Whether it takes all by which a round trip exceeds the smallest so far, the handshake's included, for a queue.
    fn judges_by_base_rtt(&self) -> bool {
        false
    }

    /// Whether it sends less than the path would carry, on purpose: what is sent now gives no sample of the path's rate.
    /// Asked after each [`on_ack`](Self::on_ack) of a control that samples deliveries.
    fn holds_back(&self) -> bool {
        false
    }

    /// A segment was found lost; comes before the [`on_ack`](Self::on_ack) of the same acknowledgement, to a control that
    /// samples deliveries. A sender without SACK names none.
    fn on_lost(&mut self, _window: &Window, _lost: &LostSegment) {}

    /// The connection starts; its handshake took `rtt`, if known.
    fn init(&mut self, _window: &mut Window, _now: Instant, _rtt: Option<Duration>) {}

    /// Data is about to be paced, without an acknowledgement having come: a control that shares its link lowers
    /// [`Window::pacing`] where others have joined since. It raises nothing here. Senders that have the link by a rate alone
    /// ask (SCPS-TP); the kernel's never do. Returns what has left without waiting for the pacer ([`sent_unpaced`](Self::sent_unpaced))
    /// and no flow has waited for yet, for this one to do it.
    fn make_room(&mut self, _window: &mut Window) -> Bytes {
        Bytes(0)
    }

    /// A packet without data, of so many bytes at the IP layer, leaves without waiting for the pacer. Who asks by
    /// [`make_room`](Self::make_room) tells.
    fn sent_unpaced(&mut self, _length: Bytes) {}

    /// The state of loss recovery changes to `phase`.
    fn on_phase(&mut self, _window: &mut Window, _phase: Phase) {}

    /// Something else happened to the sender.
    fn on_signal(&mut self, _window: &mut Window, _signal: Signal, _now: Instant) {}

    /// The last reduction was for nothing; `prior` was the window before it, in segments. Returns
    /// the window to go on with.
    fn undo(&mut self, window: &Window, prior: u32) -> u32 {
        window.cwnd.max(prior)
    }

    /// Its inner state, for graphs.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
}
