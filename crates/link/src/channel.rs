//! Channels: what the way through the air does to a packet.
//!
//! A new channel is one file here and one line in [`REGISTRY`]. Channels stack: a direction may have
//! several, each with its own stream of chance.

mod bit_error;
mod gilbert;
mod outage;
mod packet_error;
mod replay;
mod stack;

pub use bit_error::BitError;
pub use gilbert::{BurstError, Chain, Gilbert};
pub use outage::{Outage, PeriodError};
pub use packet_error::PacketError;
pub use replay::Replay;
pub(crate) use stack::Stack;

use bentpipe_base::{Instant, Probability, Stream};

/// What a channel does to one packet. The worse of two is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It arrives as it was sent.
    Deliver,
    /// Some of its bits arrive inverted; the link's CRC sees that and drops it.
    Corrupt,
    /// It vanishes.
    Lose,
}

/// A source of errors on the way.
pub trait Channel: Send {
    /// Its name in [`REGISTRY`]; part of the name of its stream of chance.
    fn name(&self) -> &'static str;

    /// The run begins at `at`: what it does at set times counts from there, and does not come before.
    fn begin(&mut self, _at: Instant) {}

    /// The fate of the next packet, of `bits` with its framing, whose last bit leaves at `now`.
    /// Packets come in order of departure. `draw` is the channel's own stream.
    fn strike(&mut self, bits: u64, now: Instant, draw: &mut Stream) -> Fate;
}

/// One kind of channel.
pub struct Entry {
    /// As scenarios name it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The channel with a mean error rate, everything else as its file recommends; `None` for a
    /// channel that follows a list.
    pub build: Option<fn(Probability) -> Box<dyn Channel>>,
}

/// Every kind of channel. A direction without any is free of errors.
pub const REGISTRY: &[Entry] = &[
    Entry {
        name: BitError::NAME,
        summary: "each bit is inverted with the same probability, independently",
        build: Some(|rate| Box::new(BitError::new(rate))),
    },
    Entry {
        name: PacketError::NAME,
        summary: "each packet is lost with the same probability, whatever its length",
        build: Some(|rate| Box::new(PacketError::new(rate))),
    },
    Entry {
        name: Gilbert::NAME,
        summary: "packets are hit in bursts, by a channel of a good and a bad state",
        build: Some(|rate| Box::new(Gilbert::with_rate(rate))),
    },
    Entry {
        name: Outage::NAME,
        summary: "the link is down at set times",
        build: None,
    },
    Entry {
        name: Replay::NAME,
        summary: "exactly the packets of a list are lost, such as those of another run",
        build: None,
    },
];
