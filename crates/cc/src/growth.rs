//! What several controls share: round trips told by sequence number, windows that grow by fractions
//! of a segment, and the slow start of RFC 5681.

use crate::{Ack, Phase, Window};
use bentpipe_base::Seq;

/// Round trips: one lasts until a byte is acknowledged that was sent after it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    end: Option<Seq>,
}

impl Round {
    /// Whether the acknowledgement is the first of a round trip.
    pub(crate) fn turns(&mut self, ack: &Ack) -> bool {
        let turns = self.end.is_none_or(|end| ack.una.offset_from(end) > 0);
        if turns {
            self.end = Some(ack.next);
        }
        turns
    }
}

/// What a window has beyond whole segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fraction(f64);

impl Fraction {
    /// The window, in segments with the fraction.
    pub(crate) fn of(self, window: &Window) -> f64 {
        f64::from(window.cwnd) + self.0
    }

    /// Lets the window grow by `segments`, which is finite and not negative.
    pub(crate) fn grow(&mut self, window: &mut Window, segments: f64) {
        let sum = self.0 + segments;
        window.cwnd = window.cwnd.saturating_add(sum as u32);
        self.0 = sum.fract();
    }
}

/// Whether an acknowledgement may let the window grow: it was in use, and is not loss recovery's.
pub(crate) fn may_grow(ack: &Ack) -> bool {
    ack.cwnd_limited && !matches!(ack.phase, Phase::Cwr | Phase::Recovery)
}

/// Grows by the segments acknowledged up to ssthresh; returns how many of them are left.
pub(crate) fn slow_start(window: &mut Window, acked: u32) -> u32 {
    let grown = acked.min(window.ssthresh.saturating_sub(window.cwnd));
    window.cwnd += grown;
    acked - grown
}
