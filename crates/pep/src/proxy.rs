//! The contract of a proxy ([`Pep`]), and any proxy that a scenario may name ([`AnyPep`]).

use crate::BuildPacket;
use crate::ack_filter::AckFilter;
use crate::snoop::Snoop;
use crate::split::Split;
use bentpipe_base::{Bytes, Instant, Machine, Output};
use core::convert::Infallible;

/// Where packets enter and leave a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The terrestrial network.
    Ground,
    /// The satellite link.
    Space,
}

impl Side {
    /// The other one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Ground => Self::Space,
            Self::Space => Self::Ground,
        }
    }
}

/// A performance-enhancing proxy between the two sides.
pub trait Pep: Machine<Port = Side> {
    /// Its name in [`REGISTRY`](crate::REGISTRY).
    fn kind(&self) -> &'static str;

    /// Bytes that it holds: on the wire where it holds packets, of payload where it holds streams.
    fn buffered(&self) -> Bytes;

    /// What it has done so far: names and counts, always the same names in the same order.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// A proxy by name: the built-in ones by value, so that the simulator's hot path is inlined, any
/// other behind a pointer.
pub enum AnyPep<P: BuildPacket> {
    /// Old acknowledgements replaced by newer ones.
    AckFilter(Box<AckFilter<P>>),
    /// Local retransmission.
    Snoop(Box<Snoop<P>>),
    /// Both sides of a connection ended here.
    Split(Box<Split<P>>),
    /// One that is not built in.
    Other(Box<dyn Pep<Packet = P, Port = Side, Event = Infallible> + Send>),
}

/// Calls a method of the proxy, whichever it is.
macro_rules! either {
    ($self:expr, $pep:ident => $call:expr) => {
        match $self {
            AnyPep::AckFilter($pep) => $call,
            AnyPep::Snoop($pep) => $call,
            AnyPep::Split($pep) => $call,
            AnyPep::Other($pep) => $call,
        }
    };
}

impl<P: BuildPacket> Machine for AnyPep<P> {
    type Packet = P;
    type Port = Side;
    type Event = Infallible;

    fn input(&mut self, port: Side, packet: P, now: Instant) {
        either!(self, pep => pep.input(port, packet, now));
    }

    fn timeout(&mut self, now: Instant) {
        either!(self, pep => pep.timeout(now));
    }

    fn transmit(&mut self, now: Instant) -> Option<(Side, P)> {
        either!(self, pep => pep.transmit(now))
    }

    fn event(&mut self) -> Option<Infallible> {
        either!(self, pep => pep.event())
    }

    fn deadline(&self) -> Option<Instant> {
        either!(self, pep => pep.deadline())
    }

    /// Which proxy it is is asked once for all steps of a turn.
    fn turn(
        &mut self,
        arrived: Option<(Side, P)>,
        now: Instant,
        out: impl FnMut(Output<Side, P, Infallible>),
    ) -> Option<Instant> {
        either!(self, pep => pep.turn(arrived, now, out))
    }
}

impl<P: BuildPacket> Pep for AnyPep<P> {
    fn kind(&self) -> &'static str {
        either!(self, pep => pep.kind())
    }

    fn buffered(&self) -> Bytes {
        either!(self, pep => pep.buffered())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        either!(self, pep => pep.counters())
    }
}
