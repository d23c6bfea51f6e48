use super::{Channel, Fate};
use bentpipe_base::{Instant, Probability, Stream};

/// Independent packet losses: each packet vanishes with the same probability, whatever its length.
pub struct PacketError {
    rate: Probability,
}

impl PacketError {
    pub(super) const NAME: &'static str = "packet-error";

    /// A channel that loses each packet with probability `rate`.
    pub const fn new(rate: Probability) -> Self {
        Self { rate }
    }
}

impl Channel for PacketError {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn strike(&mut self, _bits: u64, _now: Instant, draw: &mut Stream) -> Fate {
        if draw.uniform() < self.rate.value() {
            Fate::Lose
        } else {
            Fate::Deliver
        }
    }
}
