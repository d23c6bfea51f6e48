//! The driver's token bucket: it decides when a connection may be asked for its next datagram.

use bentpipe_base::{Bytes, Instant, Rate};
use core::time::Duration;

/// What may leave at once after a pause, in time on the line. A host that is late by less loses none of its rate, and
/// no queue on the link is longer than this by our doing.
const DEPTH: Duration = Duration::from_millis(10);
/// Datagrams that are shorter on the line than this leave together, to save wake-ups.
const BATCH: Duration = Duration::from_millis(1);

/// A token bucket, full at first. As a class of tc-htb(8): a datagram leaves as long as there are any tokens, though it
/// may take more than there are.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// When it would be full again, if nothing more left.
    full: Instant,
    /// Time on the line of what left last.
    last: Duration,
}

impl Bucket {
    pub(crate) const fn new() -> Self {
        Self {
            full: Instant::ZERO,
            last: Duration::ZERO,
        }
    }

    /// How many datagrams of `size` may leave at `rate` now; 0: none before [`Self::deadline`].
    pub(crate) fn allows(&self, size: Bytes, rate: Rate, now: Instant) -> usize {
        let since_first = now + DEPTH;
        if self.full > since_first {
            return 0;
        }
        let room = since_first.nanos_since(self.full.max(now));
        let each = rate.serialisation(size).as_nanos().max(1);
        1 + usize::try_from(u128::from(room) / each).unwrap_or(usize::MAX - 1)
    }

    /// `size` leaves at `rate`.
    pub(crate) fn take(&mut self, size: Bytes, rate: Rate, now: Instant) {
        self.last = rate.serialisation(size);
        self.full = self.full.max(now) + self.last;
    }

    /// When to ask again after [`Self::allows`] gave none: when something may leave, or several at once if they are short.
    pub(crate) fn deadline(&self) -> Instant {
        let token = self.full.nanos_since(Instant::ZERO + DEPTH);
        Instant::from_nanos(token) + BATCH.saturating_sub(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EIGHT_MBPS: Rate = Rate::from_bits_per_sec(8_000_000);

    #[test]
    fn ten_milliseconds_leave_at_once_and_then_the_rate() {
        let mut bucket = Bucket::new();
        let start = Instant::from_nanos(1_000_000_000);
        // 1,000 bytes are 1 ms; the eleventh takes tokens that come later.
        assert_eq!(bucket.allows(Bytes(1000), EIGHT_MBPS, start), 11);
        let mut sent = 0;
        while bucket.allows(Bytes(1000), EIGHT_MBPS, start) > 0 {
            bucket.take(Bytes(1000), EIGHT_MBPS, start);
            sent += 1;
        }
        assert_eq!(sent, 11);
        assert_eq!(bucket.deadline(), start + Duration::from_millis(1));
    }

    proptest! {
        /// Over every stretch of time no more leaves than the rate allows, the depth and one datagram.
        #[test]
        fn what_leaves_is_bounded(
            rate in 10_000u64..10_000_000_000,
            steps in prop::collection::vec((0u64..20_000_000, 20u64..9000), 1..30),
        ) {
            let rate = Rate::from_bits_per_sec(rate);
            let mut bucket = Bucket::new();
            let mut now = 0;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (pause, size) in steps {
                now += pause;
                let at = Instant::from_nanos(now);
                for _ in 0..bucket.allows(Bytes(size), rate, at).min(12) {
                    bucket.take(Bytes(size), rate, at);
                    sent.push((now, size));
                }
            }
            for from in 0..sent.len() {
                let mut octets = 0;
                for &(at, size) in &sent[from..] {
                    let allowed = DEPTH + Duration::from_nanos(at - sent[from].0 + 1000);
                    prop_assert!(octets <= rate.over(allowed).0 + 9000 + 1);
                    octets += size;
                }
            }
        }
    }
}
