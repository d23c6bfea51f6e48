//! TCP-friendly rate control (RFC 5348) for a Saratoga sender, after
//! draft-eddy-tsvwg-saratoga-tfrc-12: the receiver only reports holes and echoes timestamps, so the
//! sender itself finds loss events and received rate.
//!
//! Throughput (RFC 5348, section 3.1), in octets per second, for packets of s octets, a round trip
//! of R seconds, t_RTO = 4R, b = 1 and a loss event rate p:
//!
//! X = s / (R·√(2p/3) + t_RTO·3·√(3p/8)·p·(1 + 32p²))
//!
//! Deviations:
//! - p is the loss *event* rate of RFC 5348 (section 5: the mean of eight loss intervals, the open
//!   one included when that lowers p), not the draft's ratio of packets lost, which throttles a link
//!   that corrupts singly as hard as one that is congested.
//! - A packet is not lost when three later ones have arrived (section 5.1) but when it stays missing for half a round trip, or
//!   as long as others were late, up to three quarters of one (`suspects`). Nothing is taken back. What is missing does not
//!   count as received from the first report on that names it, and the rate does not double meanwhile.
//! - Losses are dated by the report that shows them: those of reports within one round trip are one
//!   event. Reports come four times a round trip, so intervals are exact to a quarter of one.
//! - What is lost in an outage (nothing came back for a round trip) ends no slow start: it would make
//!   one interval of what was left of the rate (section 6.3.1), out of which it grows by a packet a round trip at most. Slow
//!   start goes on from there.
//! - No oscillation prevention (section 4.5), and no history discounting (section 5.5).

use crate::suspects::Verdict;
use bentpipe_base::{Bytes, Instant, Rate};
use core::time::Duration;
use std::collections::VecDeque;

/// Weights of the loss intervals, the youngest first (section 5.4).
const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];
/// Reports of which the received rate is remembered at most.
const MOST_REPORTS: usize = 64;
/// In so many reports after an outage, of two round trips, is shown what was lost in it.
const EXCUSED: u32 = 8;
/// The longest back-off interval, t_mbi (section 4.3).
const T_MBI: f64 = 64.0;

/// What one report tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feedback {
    /// The number of the packet it answers.
    pub(crate) number: u64,
    /// What it tells of octets that are missing, or were.
    pub(crate) verdict: Verdict,
    /// The smoothed round trip.
    pub(crate) round_trip: Duration,
    /// Between two questions: no report comes sooner.
    pub(crate) interval: Duration,
}

/// The allowed rate of one sender.
#[derive(Clone, Debug)]
pub(crate) struct Tfrc {
    /// s: octets of a full packet.
    segment: f64,
    /// X: octets per second.
    rate: f64,
    /// Closed loss intervals in packets, the youngest first.
    intervals: VecDeque<u64>,
    /// Where the open interval began, and when the event that began it was reported.
    event: Option<(u64, Instant)>,
    /// What the last report answered, and when it came.
    last: (u64, Instant),
    /// X_recv of the reports of two round trips, in octets per second, when they came, and X then.
    received: VecDeque<(Instant, f64)>,
    /// In how long the last of them was received.
    passed: f64,
    /// When the rate is halved for want of reports.
    halve_at: Instant,
    /// Reports that may still show what was lost in an outage.
    excused: u32,
}

impl Tfrc {
    /// Before anything is known: one packet a second (section 4.2), and much more from the first
    /// report on.
    pub(crate) fn new(segment: Bytes, now: Instant) -> Self {
        let segment = segment.0.max(1) as f64;
        Self {
            segment,
            rate: segment,
            intervals: VecDeque::new(),
            event: None,
            last: (0, now),
            received: VecDeque::new(),
            passed: 1.0,
            halve_at: now + Duration::from_secs(2),
            excused: 0,
        }
    }

    /// Packets have this length now.
    pub(crate) const fn resize(&mut self, segment: Bytes) {
        if segment.0 > 0 {
            self.segment = segment.0 as f64;
        }
    }

    pub(crate) fn rate(&self) -> Rate {
        Rate::from_bits_per_sec((self.rate * 8.0).max(1.0) as u64)
    }

    /// A report arrives (section 4.3).
    pub(crate) fn report(&mut self, feedback: Feedback, now: Instant) {
        let round_trip = feedback.round_trip.as_secs_f64().max(1e-4);
        let first = self.last.0 == 0;
        let Verdict {
            named,
            late,
            lost,
            doubt,
        } = feedback.verdict;
        if lost > 0 && (self.event.is_some() || self.excused == 0) {
            self.lose(feedback.number, feedback.round_trip, now);
        }
        let arrived = late as f64 - named as f64;
        let again = !first && feedback.number <= self.last.0;
        if again {
            // The rest of a report that takes several frames tells of the same packets.
            if let Some((_, received)) = self.received.back_mut() {
                *received = (*received + arrived / self.passed).max(0.0);
            }
        } else {
            self.passed = now.since(self.last.1).as_secs_f64().max(1e-4);
            let silent = self.passed > round_trip.max(4.0 * feedback.interval.as_secs_f64());
            self.excused = match silent {
                true => EXCUSED,
                false => self.excused.saturating_sub(1),
            };
            let sent = feedback.number.saturating_sub(self.last.0) as f64 * self.segment;
            self.last = (feedback.number, now);
            // Half a packet or more is cut off at either end of what is counted.
            let received = (sent + self.segment + arrived).max(0.0) / self.passed;
            self.receive(received, feedback.round_trip, now);
        }
        // The mean over what the report tells of; while the rate doubles once a round trip, it is higher at its end.
        let growth = match self.event {
            None => 2f64.powf(self.passed / (2.0 * round_trip)).min(2f64.sqrt()),
            Some(_) => 1.0,
        };
        let received = self.received.iter().map(|(_, rate)| *rate);
        let limit = 2.0 * growth * received.fold(0.0, f64::max);
        let initial = (4.0 * self.segment).min((2.0 * self.segment).max(4380.0)) / round_trip;
        self.rate = match self.loss_event_rate(feedback.number) {
            Some(p) => throughput(self.segment, round_trip, p)
                .min(limit)
                .max(self.segment / T_MBI),
            None if first => initial,
            None if doubt || again => self.rate.min(limit).max(initial),
            // Doubles once a round trip; reports come more often.
            None => {
                let growth = 2f64.powf(self.passed / round_trip).min(2.0);
                (self.rate * growth).min(limit).max(initial)
            }
        };
        self.arm(feedback.round_trip.max(feedback.interval), now);
    }

    /// Remembers what was `received` between two reports; what is older than two round trips is forgotten (section 4.3,
    /// X_recv_set).
    fn receive(&mut self, received: f64, round_trip: Duration, now: Instant) {
        let old = |at: Instant| now.since(at) > 2 * round_trip;
        while self.received.front().is_some_and(|(at, _)| old(*at))
            || self.received.len() >= MOST_REPORTS
        {
            self.received.pop_front();
        }
        self.received.push_back((now, received));
    }

    /// When [`Self::timeout`] is due.
    pub(crate) fn deadline(&self) -> Instant {
        self.halve_at
    }

    /// No report for four round trips, or two packets (section 4.4); or for four questions, which are what
    /// reports answer.
    pub(crate) fn timeout(
        &mut self,
        round_trip: Option<Duration>,
        interval: Duration,
        now: Instant,
    ) {
        if self.halve_at > now {
            return;
        }
        self.rate = (self.rate / 2.0).max(self.segment / T_MBI);
        let round_trip = round_trip.unwrap_or(Duration::from_millis(500));
        self.arm(round_trip.max(interval), now);
    }

    fn arm(&mut self, between: Duration, now: Instant) {
        let wait = (4.0 * between.as_secs_f64()).max(2.0 * self.segment / self.rate);
        self.halve_at = now + Duration::from_secs_f64(wait.min(T_MBI));
    }

    fn lose(&mut self, number: u64, round_trip: Duration, now: Instant) {
        match self.event {
            Some((_, at)) if now.since(at) <= round_trip => return,
            Some((start, _)) => self
                .intervals
                .push_front(number.saturating_sub(start).max(1)),
            // Slow start ends: the interval that gives the rate reached (section 6.3.1), at least
            // what was sent without loss.
            None => self
                .intervals
                .push_front(self.first_interval(number, round_trip)),
        }
        self.intervals.truncate(WEIGHTS.len());
        self.event = Some((number, now));
    }

    /// The loss interval whose equation gives half the rate of now.
    fn first_interval(&self, number: u64, round_trip: Duration) -> u64 {
        let round_trip = round_trip.as_secs_f64().max(1e-4);
        let target = self.rate / 2.0;
        // Throughput falls with p: halve the interval of its logarithm until it is found.
        let (mut low, mut high) = (1e-9f64.ln(), 0f64);
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if throughput(self.segment, round_trip, middle.exp()) > target {
                low = middle;
            } else {
                high = middle;
            }
        }
        (1.0 / high.exp()).max(1.0).min(number.max(1) as f64 * 1e3) as u64
    }

    /// p; `None` before the first loss (section 5.4).
    fn loss_event_rate(&self, number: u64) -> Option<f64> {
        let (start, _) = self.event?;
        let open = number.saturating_sub(start);
        let mean = |intervals: &mut dyn Iterator<Item = u64>| {
            let (mut total, mut weights) = (0.0, 0.0);
            for (interval, weight) in intervals.zip(WEIGHTS) {
                total += interval as f64 * weight;
                weights += weight;
            }
            total / weights
        };
        let closed = mean(&mut self.intervals.iter().copied());
        let with_open = mean(&mut std::iter::once(open).chain(self.intervals.iter().copied()));
        Some((1.0 / closed.max(with_open)).min(1.0))
    }
}

/// X of the equation in the file's head.
fn throughput(segment: f64, round_trip: f64, p: f64) -> f64 {
    let timeouts = 4.0 * round_trip * 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
    segment / (round_trip * (2.0 * p / 3.0).sqrt() + timeouts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: f64 = 1500.0;

    fn close(left: f64, right: f64, part: f64) -> bool {
        (left - right).abs() <= part * right
    }

    #[test]
    fn the_equation_has_the_values_of_its_closed_form() {
        // p = 1%, R = 100 ms: √(2p/3) = 0.081650, the time-outs' term 0.4·3·0.061237·0.01·1.0032.
        assert!(close(
            throughput(S, 0.1, 0.01),
            1500.0 / (0.0081650 + 0.00073721),
            1e-4
        ));
        // Small p: s/R · √(3/2p).
        let simple = S / 0.6 * (1.5f64 / 1e-6).sqrt();
        assert!(close(throughput(S, 0.6, 1e-6), simple, 0.01));
    }

    /// Reports four times a round trip on a path that loses each packet with rate `period`.
    fn settle(period: u64, round_trip: Duration, round_trips: u64) -> f64 {
        let mut tfrc = Tfrc::new(Bytes(1500), Instant::ZERO);
        let mut now = Instant::ZERO;
        let (mut number, mut credit) = (1u64, 0.0);
        for _ in 0..round_trips * 4 {
            now += round_trip / 4;
            let before = number;
            credit += tfrc.rate * round_trip.as_secs_f64() / 4.0 / S;
            number += credit as u64;
            credit -= (credit as u64) as f64;
            let lost = (number / period - before / period) * 1500;
            tfrc.report(
                Feedback {
                    number,
                    verdict: Verdict {
                        named: lost,
                        lost,
                        ..Verdict::default()
                    },
                    round_trip,
                    interval: round_trip / 4,
                },
                now,
            );
        }
        tfrc.rate
    }

    #[test]
    fn regular_loss_settles_at_the_equation() {
        let round_trip = Duration::from_millis(100);
        let rate = settle(500, round_trip, 2000);
        // One loss in 500 packets is an event each.
        let expected = throughput(S, 0.1, 1.0 / 500.0);
        assert!(close(rate, expected, 0.15), "{rate} against {expected}");
    }

    #[test]
    fn the_rest_of_a_report_tells_of_the_same_packets() {
        let mut tfrc = Tfrc::new(Bytes(1500), Instant::ZERO);
        let mut say = |number: u64, named: u64, at: u64| {
            let feedback = Feedback {
                number,
                verdict: Verdict {
                    named: 1500 * named,
                    ..Verdict::default()
                },
                round_trip: Duration::from_millis(100),
                interval: Duration::from_millis(25),
            };
            tfrc.report(feedback, Instant::from_nanos(1_000_000 * at));
            (tfrc.rate, tfrc.received.back().unwrap().1)
        };
        say(1, 0, 100);
        // 100 packets in 100 ms, 60 of which are missing.
        let (rate, received) = say(101, 30, 200);
        assert!(close(received, 71.0 * S / 0.1, 1e-9), "{received}");
        let (again, received) = say(101, 30, 200);
        assert!(close(received, 41.0 * S / 0.1, 1e-9), "{received}");
        assert!(again <= rate, "{again} after {rate}");
    }

    #[test]
    fn without_loss_the_rate_doubles_each_round_trip() {
        let round_trip = Duration::from_millis(100);
        let (early, late) = (
            settle(u64::MAX, round_trip, 8),
            settle(u64::MAX, round_trip, 10),
        );
        assert!(close(late / early, 4.0, 0.2), "{early} then {late}");
    }

    #[test]
    fn without_reports_the_rate_halves_down_to_a_packet_in_64_seconds() {
        let mut tfrc = Tfrc::new(Bytes(1500), Instant::ZERO);
        tfrc.rate = 1e6;
        let mut halvings = 0;
        while tfrc.rate > S / T_MBI {
            let at = tfrc.deadline();
            tfrc.timeout(Some(Duration::from_millis(600)), Duration::ZERO, at);
            halvings += 1;
            assert!(halvings < 100);
        }
        assert_eq!(halvings, 16, "1e6 / 2^16 is below 1500 / 64");
        tfrc.timeout(None, Duration::ZERO, tfrc.deadline());
        assert!(close(tfrc.rate, S / T_MBI, 1e-9));
    }
}
