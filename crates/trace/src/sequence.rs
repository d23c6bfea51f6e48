//! Sequence numbers that do not wrap.

/// Numbers of 32 bits as places in a stream of 64 bits: each is the place nearest to the highest seen, so that streams
/// of more than 4 GiB go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    highest: Option<u64>,
}

/// The first place: room for what was sent before.
const FIRST: u64 = 1 << 32;

impl Places {
    /// The place of `number`.
    pub(crate) fn of(&self, number: u32) -> u64 {
        let Some(highest) = self.highest else {
            return FIRST + u64::from(number);
        };
        // Nearest by the sign of the difference in 32 bits.
        let difference = i64::from(number.wrapping_sub(highest as u32) as i32);
        highest.saturating_add_signed(difference)
    }

    /// `place` was seen.
    pub(crate) fn see(&mut self, place: u64) {
        self.highest = Some(self.highest.map_or(place, |highest| highest.max(place)));
    }
}
