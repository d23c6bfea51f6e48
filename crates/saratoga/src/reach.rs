//! Detects whether packets of the length in use reach the peer at all (black-hole detection).
//!
//! On some paths long packets are lost without an ICMP message while short ones pass, for instance where fragments or
//! ICMP messages are dropped behind a link with a smaller MTU. The peer then answers every question and gets no
//! content, and both sides look alive. RFC 8899, section 4.3, asks for black-hole detection. Here it has two rules:
//! several reports in a row without one new octet, after which a single packet and a question are sent at a time until
//! content arrives; or less than a quarter of what was sent has arrived, because on some paths a long packet passes now
//! and then. Packets then become shorter ([`Plpmtu`]). Questions that long packets carry are lost with them, so where
//! none is answered they are sent alone.

use crate::plpmtu::Plpmtu;
use crate::repair::Horizon;
use bentpipe_base::Instant;
use std::collections::VecDeque;

/// Reports without anything new after which no packet of this length is thought to arrive.
const REPORTS: u32 = 4;
/// Packets with content that were sent before such a report was asked for, in full flight.
const PACKETS: u64 = 8;
/// Packets of which a share must arrive, and what it is at least: one of so many. Fewer arrive on no path that is worth using.
const SAMPLE: u64 = 64;
const SHARE: u64 = 4;
/// Questions that wait for their answer at most; beyond, the oldest are forgotten.
const MOST_OPEN: usize = 1024;

/// What was sent since something new arrived.
#[derive(Clone, Copy, Debug)]
struct Since {
    /// The first packet with content, and when it went.
    number: u64,
    at: Instant,
    /// Reports that answered a question after enough packets, and told nothing new.
    reports: u32,
}

/// What a report tells of content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard<'a> {
    /// The packet that it answers, where it says so.
    pub(crate) number: Option<u64>,
    /// It tells of what was sent before.
    pub(crate) horizon: Horizon,
    /// What is missing below `end`; all of that, unless the list is `incomplete`.
    pub(crate) holes: &'a [(u64, u64)],
    pub(crate) end: u64,
    pub(crate) incomplete: bool,
    /// Octets before the first that is missing.
    pub(crate) in_order: u64,
    /// Octets of the whole content, as far as it is known.
    pub(crate) available: u64,
}

/// See the file's head.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    plpmtu: Plpmtu,
    /// The most octets that the peer has ever told to have.
    most: u64,
    in_order: u64,
    since: Option<Since>,
    /// Octets sent but for copies, and of these before each open question.
    sent: u64,
    questions: VecDeque<(u64, u64)>,
    /// What was sent and what the peer had when the latest sample began.
    sample: Option<(u64, u64)>,
    /// Whether one packet is tried at a time.
    careful: bool,
    /// Whether a packet is on its way of which was not yet asked.
    tried: bool,
    /// Questions went unanswered, and nothing has arrived since.
    doubtful: bool,
}

impl Reach {
    /// What is known at the start, of packets with `most` octets of content at most, to which headers add `headers`.
    pub(crate) fn new(most: u32, headers: u32) -> Self {
        Self {
            plpmtu: Plpmtu::new(most, headers),
            most: 0,
            in_order: 0,
            since: None,
            sent: 0,
            questions: VecDeque::new(),
            sample: None,
            careful: false,
            tried: false,
            doubtful: false,
        }
    }

    /// Octets of content in a packet.
    pub(crate) const fn content(&self) -> u32 {
        self.plpmtu.content()
    }

    /// No packet is to have more than `most` octets of content from now on.
    pub(crate) fn limit(&mut self, most: u32) {
        self.plpmtu.limit(most);
    }

    /// Octets of content in a longer packet that is to be tried.
    pub(crate) fn probe(&mut self, now: Instant) -> Option<u32> {
        self.plpmtu.due(now).filter(|_| !self.careful)
    }

    /// DATA `number` with the content `[from, to)` went out as the probe.
    pub(crate) const fn probed(&mut self, number: u64, from: u64, to: u64, now: Instant) {
        self.plpmtu.sent(number, from, to, now);
    }

    /// Questions go unanswered: it may be for the packets that carry them.
    pub(crate) const fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Whether questions are to go alone.
    pub(crate) const fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// DATA `number` went out, with `len` octets of content.
    pub(crate) fn sent(&mut self, number: u64, len: u32, now: Instant) {
        self.tried = true;
        self.sent += u64::from(len);
        self.since.get_or_insert(Since {
            number,
            at: now,
            reports: 0,
        });
    }

    /// The last packet was a copy of one in flight, and does not count.
    pub(crate) fn copied(&mut self, len: u32) {
        self.sent = self.sent.saturating_sub(len.into());
    }

    /// DATA `number` asked the peer what has arrived.
    pub(crate) fn asked(&mut self, number: u64) {
        self.tried = false;
        if self.questions.len() == MOST_OPEN {
            self.questions.pop_front();
        }
        self.questions.push_back((number, self.sent));
    }

    /// A report came in. Returns the octets of a probe that is lost, which no congestion explains.
    pub(crate) fn on_report(&mut self, heard: &Heard<'_>, now: Instant) -> Option<(u64, u64)> {
        let end = Some(heard.end).filter(|_| !heard.incomplete);
        let lost = self.plpmtu.on_report(heard.holes, end, heard.horizon, now);
        if let Some(number) = heard.number {
            // A peer may name the same hole again and again.
            let holes = heard.holes.iter().map(|(from, to)| to - from);
            let lacking = holes.fold(0, u64::saturating_add);
            let have = heard.end - lacking.min(heard.end);
            if have == heard.available || heard.incomplete {
                self.arrives();
                self.sample = None;
            } else if self.vanishes(number, have, heard.in_order) {
                self.plpmtu.black_hole(now);
                self.sample = None;
            }
        }
        lost
    }

    /// A report that answers packet `number` tells of `have` octets, `in_order` of them before the first that is
    /// missing. Whether packets are to be shorter.
    fn vanishes(&mut self, number: u64, have: u64, in_order: u64) -> bool {
        let few = self.few_arrive(number, have);
        if have > self.most || in_order > self.in_order {
            self.most = self.most.max(have);
            self.in_order = self.in_order.max(in_order);
            self.arrives();
            return few;
        }
        let enough = if self.careful { 2 } else { PACKETS };
        let Some(since) = &mut self.since else {
            return few;
        };
        if number < since.number + enough {
            return few;
        }
        since.reports += 1;
        if since.reports < REPORTS {
            return few;
        }
        since.reports = 0;
        since.number = number;
        self.careful = true;
        true
    }

    /// Whether of enough that was sent before packet `number` hardly anything has arrived.
    fn few_arrive(&mut self, number: u64, have: u64) -> bool {
        let mut sent = None;
        while let Some(&(question, before)) = self.questions.front()
            && question <= number
        {
            sent = Some(before);
            self.questions.pop_front();
        }
        let Some(sent) = sent else {
            return false;
        };
        let (sent_then, had) = *self.sample.get_or_insert((sent, have));
        let sent_since = sent - sent_then.min(sent);
        if sent_since < SAMPLE * u64::from(self.content()) {
            return false;
        }
        self.sample = Some((sent, have));
        have.saturating_sub(had) < sent_since / SHARE
    }

    /// Resets the detection, because content has arrived or nothing is missing.
    fn arrives(&mut self) {
        (self.since, self.careful, self.doubtful) = (None, false, false);
    }

    /// Whether one packet is to go out at a time; whether it has gone.
    pub(crate) const fn careful(&self) -> Option<bool> {
        if self.careful { Some(self.tried) } else { None }
    }

    /// Since when nothing arrives of what is sent.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        self.since.map(|since| since.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn reach() -> Reach {
        Reach::new(1444, 56)
    }

    #[test]
    fn packets_get_shorter_only_when_report_after_report_tells_nothing_new() {
        let mut reach = reach();
        for number in 1..=20 {
            reach.sent(number, 1, NOW);
        }
        assert!(!reach.vanishes(5, 0, 0), "asked too early to know");
        for number in [9, 10, 11] {
            assert!(!reach.vanishes(number, 0, 0));
        }
        assert!(reach.vanishes(12, 0, 0) && reach.careful().is_some());
        assert_eq!(reach.stalled_since(), Some(NOW));
        assert!(!reach.vanishes(13, 1, 0) && reach.careful().is_none());
        assert_eq!(reach.stalled_since(), None);
        // What came in the meantime counts, also when the order of reports is not that of sending.
        reach.sent(21, 1, NOW);
        (0..3).for_each(|i| assert!(!reach.vanishes(30 + i, 1, 0)));
        assert!(!reach.vanishes(40, 2, 0) && !reach.vanishes(41, 1, 0));
    }

    /// `share` of each packet's octets arrives, of 1000 packets with a question after each tenth: when that is too few.
    fn after(share: f64) -> Option<u64> {
        let (mut reach, mut have) = (reach(), 0.0);
        (1..=1000).find(|&number| {
            reach.sent(number, 1144, NOW);
            have += 1144.0 * share;
            number % 10 == 0 && {
                reach.asked(number);
                reach.vanishes(number, have as u64, 0)
            }
        })
    }

    #[test]
    fn packets_get_shorter_when_one_passes_now_and_then() {
        assert_eq!(after(0.05), Some(80));
        assert_eq!(after(0.2), Some(80));
        assert_eq!(after(0.3), None);
        assert_eq!(after(1.0), None);
    }
}
