//! Whether packets of the length in use reach the peer at all.
//!
//! On some paths long packets vanish without a word while short ones pass: fragments are dropped behind
//! a link with a smaller MTU, or the ICMP message that would tell of it is. The peer then answers every question
//! and gets nothing, and both sides look alive. As the black-hole detection of RFC 8899 (section 4.3)
//! does, several reports in a row without one octet more halve the length, down to what IPv4
//! asks every path to carry (RFC 791), and only a packet and a question go out at a time until content arrives. Questions that long packets carry vanish with them:
//! where none is answered they go alone.

use bentpipe_base::Instant;

/// Octets of content in the shortest DATA that is tried: with its headers and those of IP and UDP, 576 at most.
const LEAST: u32 = 500;
/// Reports without anything new after which no packet of this length is thought to arrive.
const REPORTS: u32 = 4;
/// Packets with content that were sent before such a report was asked for, in full flight.
const PACKETS: u64 = 8;

/// What was sent since something new arrived.
#[derive(Clone, Copy, Debug)]
struct Since {
    /// The first packet with content, and when it went.
    number: u64,
    at: Instant,
    /// Reports that answered a question after enough packets, and told nothing new.
    reports: u32,
}

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reach {
    /// The most octets that the peer has ever told to have.
    most: u64,
    in_order: u64,
    since: Option<Since>,
    /// Whether one packet is tried at a time.
    careful: bool,
    /// Whether a packet is on its way of which was not yet asked.
    tried: bool,
    /// Questions went unanswered, and nothing has arrived since.
    doubtful: bool,
}

impl Reach {
    /// Questions go unanswered: it may be for the packets that carry them.
    pub(crate) const fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Whether questions are to go alone.
    pub(crate) const fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// DATA `number` went out, with content.
    pub(crate) fn sent(&mut self, number: u64, now: Instant) {
        self.tried = true;
        self.since.get_or_insert(Since {
            number,
            at: now,
            reports: 0,
        });
    }

    /// The peer was asked what has arrived.
    pub(crate) fn asked(&mut self) {
        self.tried = false;
    }

    /// A report that answers packet `number` tells of `have` octets, `in_order` of them before the first that is
    /// missing. Whether packets are to be shorter.
    pub(crate) fn told(&mut self, number: u64, have: u64, in_order: u64) -> bool {
        if have > self.most || in_order > self.in_order {
            self.most = self.most.max(have);
            self.in_order = self.in_order.max(in_order);
            self.arrives();
            return false;
        }
        let enough = if self.careful { 2 } else { PACKETS };
        let Some(since) = &mut self.since else {
            return false;
        };
        if number < since.number + enough {
            return false;
        }
        since.reports += 1;
        if since.reports < REPORTS {
            return false;
        }
        since.reports = 0;
        since.number = number;
        self.careful = true;
        true
    }

    /// Something arrives, or nothing is missing.
    pub(crate) fn arrives(&mut self) {
        (self.since, self.careful, self.doubtful) = (None, false, false);
    }

    /// Whether one packet is to go out at a time; whether it has gone.
    pub(crate) const fn careful(&self) -> Option<bool> {
        if self.careful { Some(self.tried) } else { None }
    }

    /// Since when nothing arrives of what is sent.
    pub(crate) fn vain_since(&self) -> Option<Instant> {
        self.since.map(|since| since.at)
    }
}

/// What is tried after packets with `payload` octets of content.
pub(crate) const fn shorter(payload: u32) -> u32 {
    let half = payload / 2;
    if payload <= LEAST {
        payload
    } else if half < LEAST {
        LEAST
    } else {
        half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_get_shorter_only_when_report_after_report_tells_nothing_new() {
        let mut reach = Reach::default();
        let now = Instant::ZERO;
        for number in 1..=20 {
            reach.sent(number, now);
        }
        assert!(!reach.told(5, 0, 0), "asked too early to know");
        for number in [9, 10, 11] {
            assert!(!reach.told(number, 0, 0));
        }
        assert!(reach.told(12, 0, 0) && reach.careful().is_some());
        assert_eq!(reach.vain_since(), Some(now));
        assert!(!reach.told(13, 1, 0) && reach.careful().is_none());
        assert_eq!(reach.vain_since(), None);
        // What came in the meantime counts, also when the order of reports is not that of sending.
        reach.sent(21, now);
        (0..3).for_each(|i| assert!(!reach.told(30 + i, 1, 0)));
        assert!(!reach.told(40, 2, 0) && !reach.told(41, 1, 0));
    }

    #[test]
    fn halves_end_at_the_least() {
        let all: Vec<u32> = [1448, 1224, 900, 500, 100].map(shorter).into();
        assert_eq!(all, [724, 612, 500, 500, 100]);
    }
}
