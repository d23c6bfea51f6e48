//! The send window: how many octets may be in flight that no report has covered yet. It keeps a sender from overrunning
//! a peer that cannot take in its rate.
//!
//! The rule is ours, because the draft has no flow control. The window is what leaves in several round trips, so that
//! it never holds back a sender that its rate paces, unless four questions in a row go unanswered.

use bentpipe_base::{Bytes, Instant, Rate};
use core::time::Duration;
use std::collections::VecDeque;

/// Octets that any peer's socket holds.
const LEAST: u64 = 4 << 20;
/// Round trips of what leaves.
const ROUND_TRIPS: u32 = 4;
/// Questions a window, where time alone does not ask more.
const QUESTIONS: u64 = 4;
/// Questions that wait for their answer at most; beyond, the oldest are forgotten.
const MOST_OPEN: usize = 1024;

/// See the file's head. All numbers are of packets, all counts octets of content.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    begun: Instant,
    sent: u64,
    /// Sent before the question that was answered last.
    reported: u64,
    /// Sent before the question that was asked last.
    asked: u64,
    /// What may be under way.
    size: u64,
    /// Open questions: the packet's number, and what was sent up to it.
    questions: VecDeque<(u64, u64)>,
}

impl Window {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            begun: now,
            sent: 0,
            reported: 0,
            asked: 0,
            size: u64::MAX,
            questions: VecDeque::new(),
        }
    }

    /// Packet `number` leaves with `len` octets; with `ask` it wants a report.
    pub(crate) fn sent(&mut self, number: u64, len: u64, ask: bool) {
        self.sent += len;
        if ask {
            self.asked = self.sent;
            if self.questions.len() == MOST_OPEN {
                self.questions.pop_front();
            }
            self.questions.push_back((number, self.sent));
        }
    }

    /// A report answers packet `number`, of a sender that may send at `rate`. Without a `round_trip`, the
    /// shortest measured, there is no bound: on a long path the first report is far.
    pub(crate) fn on_report(
        &mut self,
        number: u64,
        rate: Rate,
        round_trip: Option<Duration>,
        now: Instant,
    ) {
        while let Some(&(question, sent)) = self.questions.front()
            && question <= number
        {
            self.reported = sent;
            self.questions.pop_front();
        }
        if let Some(round_trip) = round_trip {
            let time = now.since(self.begun).as_secs_f64().max(1e-9);
            let left = Rate::from_bits_per_sec((self.sent as f64 * 8.0 / time) as u64);
            let Bytes(under_way) = rate.min(left).over(round_trip * ROUND_TRIPS);
            self.size = LEAST.saturating_add(under_way);
        }
    }

    /// Whether more may leave.
    pub(crate) const fn has_room(&self) -> bool {
        self.sent - self.reported < self.size
    }

    /// Whether so much has left since the last question that another is due.
    pub(crate) const fn wants_a_report(&self) -> bool {
        self.sent - self.asked >= self.size / QUESTIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_is_not_reported_is_bounded_by_round_trips_of_what_leaves() {
        let rate = Rate::from_bits_per_sec(80_000_000_000);
        let mut window = Window::new(at(0));
        window.sent(1, 10 << 20, true);
        assert!(window.has_room(), "no round trip is known");
        // 1 MiB each ms: the window is 4 MiB and four round trips of 1 MiB.
        let near = Some(Duration::from_millis(1));
        window.on_report(1, rate, near, at(10));
        assert!(!window.wants_a_report());
        for number in 2..=9 {
            assert!(window.has_room(), "{number}");
            window.sent(number, 1 << 20, number == 5);
        }
        assert!(!window.has_room());
        assert!(window.wants_a_report());
        // The answer to a packet between the questions tells of the question before it.
        window.on_report(7, rate, near, at(18));
        assert!(window.has_room());
        assert!(window.wants_a_report());
    }

    #[test]
    fn a_line_that_paces_never_fills_it() {
        let rate = Rate::from_bits_per_sec(1_000_000_000);
        let mut window = Window::new(at(0));
        window.sent(1, 125_000, true);
        window.on_report(1, rate, Some(Duration::from_millis(600)), at(1));
        // Three round trips without an answer.
        for ms in 2..=1800 {
            assert!(window.has_room(), "{ms}");
            window.sent(ms, 125_000, false);
        }
    }
}
