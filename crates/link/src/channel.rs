//! Channels: the errors that a link adds to packets (bit errors, losses, outages): after its queue and serialiser, or
//! before both ([`Settings::errors_before_queue`](crate::Settings::errors_before_queue)).
//!
//! A new channel is one file here, with its keys in scenarios ([`ChannelKind`]), and one line in [`REGISTRY`]. Channels
//! stack: a direction may have several, each with its own stream of chance.

mod bit_error;
mod gilbert;
mod kind;
mod outage;
mod packet_error;
mod replay;
mod stack;

pub use bit_error::BitError;
pub use gilbert::{BurstError, Chain, Gilbert};
pub use kind::{ChannelKind, ChannelSpec, Form};
pub use outage::{Outage, PeriodError};
pub use packet_error::PacketError;
pub use replay::Replay;
pub(crate) use stack::Stack;

use crate::keys::{Fault, Key, Value, Values};
use bentpipe_base::{Instant, Stream};

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
    /// The name of its kind; part of the name of its stream of chance.
    fn name(&self) -> &'static str;

    /// Begins the run at `at`. Errors at set times, such as outages, count from there and never come earlier.
    fn begin(&mut self, _at: Instant) {}

    /// The fate of the next packet, of `bits` with its framing, whose last bit leaves at `now`.
    /// Packets come in order of departure. `draw` is the channel's own stream.
    fn strike(&mut self, bits: u64, now: Instant, draw: &mut Stream) -> Fate;
}

/// Every kind of channel, in the order in which scenarios are written. A direction without any is free of errors.
pub const REGISTRY: &[ChannelSpec] = &[
    ChannelSpec::of::<PacketError>(),
    ChannelSpec::of::<BitError>(),
    ChannelSpec::of::<Gilbert>(),
    ChannelSpec::of::<Outage>(),
    ChannelSpec::of::<Replay>(),
];

/// The kind of channel that stands under `key` of a link.
pub fn find(key: &str) -> Option<&'static ChannelSpec> {
    REGISTRY.iter().find(|spec| spec.key == key)
}
