//! Paces packets: decides when the next one may leave.

use bentpipe_base::{Bytes, Instant, Rate};
use core::time::Duration;

/// A burst after there was nothing to send is never longer on the line than this.
const BURST: Duration = Duration::from_millis(2);
/// A burst after a busy host has let the sender wait is bounded too: to a few scheduling turns, which is less than most
/// queues hold. If a shorter queue drops a part of it, that part would otherwise not have been sent at all.
const LATE: Duration = Duration::from_millis(10);
/// Packets that are shorter on the line than this leave together, to save wake-ups.
const BATCH: Duration = Duration::from_millis(1);

/// Lets packets go at a rate, by deadlines.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    next: Instant,
    /// Time on the line of the packet sent last, its length, and when its turn was.
    last: Duration,
    size: Bytes,
    turn: Instant,
    /// The sender was idle: it had nothing to send when a packet could have left.
    idle: bool,
}

impl Pacer {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            next: now,
            last: Duration::ZERO,
            size: Bytes(0),
            turn: now,
            idle: true,
        }
    }

    /// Whether a packet may leave.
    pub(crate) fn ready(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Notes that there is nothing to send. The time until there is does not count for a later burst.
    pub(crate) const fn rest(&mut self) {
        self.idle = true;
    }

    /// A packet of `size` leaves at `rate`.
    pub(crate) fn sent(&mut self, size: Bytes, rate: Rate, now: Instant) {
        self.last = rate.serialisation(size);
        let burst = if self.idle { BURST } else { LATE };
        let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(burst.as_nanos() as u64));
        self.idle = false;
        (self.size, self.turn) = (size, self.next.max(earliest));
        self.next = self.turn + self.last;
    }

    /// The rate has risen to `rate`: the next packet need not wait for the last one's time at the old one.
    pub(crate) fn raise_rate(&mut self, rate: Rate) {
        self.next = self.next.min(self.turn + rate.serialisation(self.size));
        // The time before does not count at the new rate.
        self.idle = true;
    }

    /// The rate changes from `old` to `new` while what was sent last is still on the line: the rest of it goes out at the
    /// new one if that is higher. At a lower one it would end together with what others send, and all next packets
    /// would leave at once.
    pub(crate) fn change_rate(&mut self, old: Rate, new: Rate, now: Instant) {
        if new > old && !self.ready(now) {
            let left = self.next.since(now).as_nanos() * u128::from(old.bits_per_sec());
            let left = left / u128::from(new.bits_per_sec());
            self.next = now + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX));
        }
    }

    /// When what was sent last is off the line.
    pub(crate) const fn free_at(&self) -> Instant {
        self.next
    }

    /// When to come again: when a packet may leave, or some at once if they are short.
    pub(crate) fn deadline(&self) -> Instant {
        self.next + BATCH.saturating_sub(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What leaves in a second, in packets of 1 ms, when the sender runs each 8 ms.
    fn late(rest: bool) -> u32 {
        let mut pacer = Pacer::new(Instant::ZERO);
        let mut count = 0;
        for ms in (0..1000).step_by(8) {
            let now = Instant::from_nanos(ms * 1_000_000);
            while pacer.ready(now) {
                pacer.sent(Bytes(1000), Rate::from_bits_per_sec(8_000_000), now);
                count += 1;
            }
            if rest {
                pacer.rest();
            }
        }
        count
    }

    #[test]
    fn a_host_that_lets_the_sender_wait_does_not_cost_the_rate_and_idle_time_is_no_debt() {
        assert_eq!(late(false), 993);
        assert_eq!(late(true), 3 * 125 - 2);
    }

    #[test]
    fn the_rest_of_a_packet_goes_out_at_a_higher_rate() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let [high, low] = [8_000_000, 80_000].map(Rate::from_bits_per_sec);
        let mut pacer = Pacer::new(at(0));
        // 100 ms at the low rate.
        pacer.sent(Bytes(1000), low, at(0));
        pacer.change_rate(low, high, at(50));
        assert_eq!(pacer.free_at(), Instant::from_nanos(50_500_000));
        pacer.change_rate(high, low, at(50));
        assert_eq!(pacer.free_at(), Instant::from_nanos(50_500_000));
        // What is off the line is no credit.
        pacer.change_rate(low, high, at(60));
        assert_eq!(pacer.free_at(), Instant::from_nanos(50_500_000));
    }

    proptest! {
        /// Over every stretch of time, no more leaves than the rate allows and the burst after a wait.
        #[test]
        fn bursts_are_bounded(
            rate in 10_000u64..10_000_000_000,
            steps in prop::collection::vec((0u64..20_000_000, 20u64..9000), 1..30),
        ) {
            let rate = Rate::from_bits_per_sec(rate);
            let mut pacer = Pacer::new(Instant::ZERO);
            let mut now = 0;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (pause, size) in steps {
                now += pause;
                let at = Instant::from_nanos(now);
                let mut burst = 0;
                while pacer.ready(at) && burst < 12 {
                    pacer.sent(Bytes(size), rate, at);
                    sent.push((now, size));
                    burst += 1;
                }
            }
            for from in 0..sent.len() {
                let mut octets = 0;
                for &(at, size) in &sent[from..] {
                    // The last packet of a stretch leaves whole.
                    let allowed = LATE + Duration::from_nanos(at - sent[from].0 + 1000);
                    prop_assert!(octets <= rate.over(allowed).0 + 9000 + 1);
                    octets += size;
                }
            }
        }
    }
}
