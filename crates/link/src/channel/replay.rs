//! Replay: loses exactly the packets that another run lost, for instance a run of a real kernel over the emulator, so
//! that two senders meet the same losses.

use super::{Channel, ChannelKind, Fate, Fault, Form, Key, Value, Values};
use bentpipe_base::{Instant, Stream};

/// A channel that loses the packets of a list, by their numbers. It draws no random numbers.
///
/// Numbers count the packets that enter the channel, from 0: also handshakes, pure acknowledgements
/// and retransmissions, but not what the queue refused.
pub struct Replay {
    /// In order.
    numbers: Vec<u64>,
    /// How many of them have come.
    struck: usize,
    /// The number of the next packet.
    next: u64,
}

impl Replay {
    /// A channel that loses the packets of these `numbers`, in any order.
    pub fn new(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self {
            numbers,
            struck: 0,
            next: 0,
        }
    }
}

impl ChannelKind for Replay {
    const NAME: &'static str = "replay";
    const SUMMARY: &'static str =
        "exactly the packets of a list are lost, such as those of another run";
    const KEY: &'static str = "drops";
    const FORM: Form = Form::Bare;
    const WAYS: &'static [&'static [Key]] = &[&[Key::or(Self::KEY, || Value::Numbers(Vec::new()))]];

    fn faults(values: &Values) -> Vec<Fault> {
        if values.numbers(Self::KEY).is_sorted_by(|a, b| a < b) {
            return Vec::new();
        }
        vec![Fault {
            key: Self::KEY,
            what: "`drops` are not in order".to_owned(),
            expected: "numbers of packets in ascending order, the first packet being 0".to_owned(),
        }]
    }

    fn build(values: &Values) -> Result<Self, Fault> {
        Ok(Self::new(values.numbers(Self::KEY).iter().copied()))
    }
}

impl Channel for Replay {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn strike(&mut self, _bits: u64, _now: Instant, _draw: &mut Stream) -> Fate {
        let hit = self.numbers.get(self.struck) == Some(&self.next);
        self.struck += usize::from(hit);
        self.next += 1;
        if hit { Fate::Lose } else { Fate::Deliver }
    }
}
