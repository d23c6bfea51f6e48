use super::{Channel, ChannelKind, Fate, Fault, Form, Key, Value, Values};
use bentpipe_base::{Bytes, Instant, Probability, Stream};

/// Independent bit errors: a packet of n bits arrives whole with probability (1 - BER)^n, as on a
/// binary symmetric channel.
///
/// One draw a packet decides whether any bit is hit; which one does not matter, for the CRC drops
/// the packet. (A CRC of finite length misses some; this one misses none.)
pub struct BitError {
    rate: Probability,
    /// The length met last and its probability of corruption: links see few lengths.
    last: (u64, f64),
}

impl BitError {
    /// A channel that inverts each bit with probability `rate`.
    pub const fn new(rate: Probability) -> Self {
        Self {
            rate,
            last: (0, 0.0),
        }
    }

    /// 1 - (1 - BER)^bits, exact also where BER is far below the resolution of 1 - BER.
    pub fn corruption(rate: Probability, bits: u64) -> f64 {
        if bits == 0 {
            return 0.0;
        }
        -((-rate.value()).ln_1p() * bits as f64).exp_m1()
    }
}

impl ChannelKind for BitError {
    const NAME: &'static str = "bit-error";
    const SUMMARY: &'static str = "each bit is inverted with the same probability, independently";
    const KEY: &'static str = "bit_error_rate";
    const FORM: Form = Form::Bare;
    const WAYS: &'static [&'static [Key]] =
        &[&[Key::or(Self::KEY, || Value::Chance(Probability::default()))]];

    /// (1 - BER)^bits.
    fn passes(values: &Values, size: Bytes) -> f64 {
        (size.bits() as f64 * (-values.chance(Self::KEY).value()).ln_1p()).exp()
    }

    fn build(values: &Values) -> Result<Self, Fault> {
        Ok(Self::new(values.chance(Self::KEY)))
    }
}

impl Channel for BitError {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn strike(&mut self, bits: u64, _now: Instant, draw: &mut Stream) -> Fate {
        if self.last.0 != bits {
            self.last = (bits, Self::corruption(self.rate, bits));
        }
        if draw.uniform() < self.last.1 {
            Fate::Corrupt
        } else {
            Fate::Deliver
        }
    }
}
