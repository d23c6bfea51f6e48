use super::{Channel, ChannelKind, Fate, Fault, Form, Key, Value, Values};
use bentpipe_base::{Bytes, Instant, Probability, Stream};

/// Independent packet losses: each packet vanishes with the same probability, whatever its length.
pub struct PacketError {
    rate: Probability,
}

impl PacketError {
    /// A channel that loses each packet with probability `rate`.
    pub const fn new(rate: Probability) -> Self {
        Self { rate }
    }
}

impl ChannelKind for PacketError {
    const NAME: &'static str = "packet-error";
    const SUMMARY: &'static str =
        "each packet is lost with the same probability, whatever its length";
    const KEY: &'static str = "packet_error_rate";
    const FORM: Form = Form::Bare;
    const WAYS: &'static [&'static [Key]] =
        &[&[Key::or(Self::KEY, || Value::Chance(Probability::default()))]];

    fn passes(values: &Values, _size: Bytes) -> f64 {
        1.0 - values.chance(Self::KEY).value()
    }

    fn build(values: &Values) -> Result<Self, Fault> {
        Ok(Self::new(values.chance(Self::KEY)))
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
