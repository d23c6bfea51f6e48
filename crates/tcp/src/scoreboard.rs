//! The segments in flight: when each was sent, which the peer holds by SACK (RFC 2018), which are
//! taken for lost, and how many are on their way ("pipe", RFC 6675). All counts are kept as they
//! change; no acknowledgement walks the window.

use bentpipe_base::{Fifo, Instant, Ranges};

/// One segment in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// When it was last sent.
    pub(crate) at: Instant,
    /// Bytes delivered in all, and when the last of them were, as it was last sent.
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Instant,
    /// How often it was sent.
    pub(crate) transmits: u16,
    /// Held by the peer.
    pub(crate) sacked: bool,
    /// Taken for lost.
    pub(crate) lost: bool,
    /// Sent again since, and on its way.
    pub(crate) again: bool,
}

/// What an acknowledgement told about segments in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Segments acknowledged cumulatively.
    pub(crate) acked: u32,
    /// Segments newly known to have arrived, one way or the other.
    pub(crate) delivered: u32,
    /// Payload bytes newly known to have arrived.
    pub(crate) bytes: u64,
    /// The last segment acknowledged, as it was sent.
    pub(crate) last: Option<Sent>,
    /// Of all newly delivered segments the one sent last, as it was sent.
    pub(crate) latest: Option<Sent>,
    /// Of the segments acknowledged cumulatively, one was sent more than once.
    pub(crate) again: bool,
    /// A SACK block told something new.
    pub(crate) news: bool,
}

impl Delivery {
    fn take(&mut self, sent: &Sent) {
        self.delivered += 1;
        self.bytes += sent.to - sent.from;
        let later = |latest: &Sent| (sent.at, sent.to) >= (latest.at, latest.to);
        if self.latest.as_ref().is_none_or(later) {
            self.latest = Some(*sent);
        }
    }
}

/// The segments in flight, in order of the stream, without gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    ring: Fifo<Sent>,
    /// What the peer holds beyond what it acknowledges.
    pub(crate) sacked: Ranges,
    sacked_out: u32,
    lost_out: u32,
    again_out: u32,
    /// All unsacked segments that end at or below this are judged.
    judged: u64,
    /// No lost segment that waits to be sent again begins below this.
    cursor: u64,
}

impl Scoreboard {
    /// Segments in flight by the latest knowledge: RFC 6675's pipe, in segments.
    pub(crate) fn pipe(&self) -> u32 {
        self.ring.len() as u32 + self.again_out - self.sacked_out - self.lost_out
    }

    /// Segments that are held by SACK.
    pub(crate) fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    /// Segments taken for lost, sent again or not.
    pub(crate) fn lost_out(&self) -> u32 {
        self.lost_out
    }

    fn index(&self, at: u64) -> usize {
        // Nearly always the first or beyond the last.
        match (self.ring.front(), self.ring.back()) {
            (Some(first), _) if at < first.to => 0,
            (_, Some(last)) if at >= last.to => self.ring.len(),
            _ => self.ring.partition_point(|sent| sent.to <= at),
        }
    }

    /// The segment that byte `at` was last sent in.
    pub(crate) fn get(&self, at: u64) -> Option<&Sent> {
        self.ring.get(self.index(at))
    }

    /// New bytes were sent; they follow the last ones.
    pub(crate) fn push(&mut self, sent: Sent) {
        self.ring.push_back(sent);
    }

    /// Bytes were sent again.
    pub(crate) fn resent(&mut self, from: u64, to: u64, now: Instant, delivered: (u64, Instant)) {
        let first = self.index(from);
        for sent in self.ring.iter_mut_from(first) {
            if sent.from >= to {
                break;
            }
            sent.at = now;
            sent.transmits = sent.transmits.saturating_add(1);
            (sent.delivered, sent.delivered_at) = delivered;
            if sent.lost && !sent.again {
                sent.again = true;
                self.again_out += 1;
            }
        }
        if from <= self.cursor {
            self.cursor = self.cursor.max(to);
        }
    }

    /// All before `una` is acknowledged.
    pub(crate) fn acknowledge(&mut self, una: u64, delivery: &mut Delivery) {
        while let Some(sent) = self.ring.front_mut() {
            if sent.to > una {
                sent.from = sent.from.max(una);
                break;
            }
            delivery.acked += 1;
            delivery.last = Some(*sent);
            delivery.again |= sent.transmits > 1;
            if sent.sacked {
                self.sacked_out -= 1;
            } else {
                self.lost_out -= u32::from(sent.lost);
                self.again_out -= u32::from(sent.again);
                delivery.take(sent);
            }
            self.ring.drop_front();
        }
        self.sacked.trim(una);
        self.judged = self.judged.max(una);
        self.cursor = self.cursor.max(una);
    }

    /// The peer holds `[from, to)`.
    pub(crate) fn sack(&mut self, from: u64, to: u64, delivery: &mut Delivery) {
        while let Some((start, end)) = self.sacked.uncovered(from, to) {
            self.sacked.insert(start, end);
            delivery.news = true;
            let Some((left, right)) = self.sacked.covering(start) else {
                return;
            };
            let first = self.index(start);
            for held in self.ring.iter_mut_from(first) {
                let sent = *held;
                if sent.from >= end {
                    break;
                }
                if sent.sacked || sent.from < left || sent.to > right {
                    continue;
                }
                self.lost_out -= u32::from(sent.lost);
                self.again_out -= u32::from(sent.again);
                self.sacked_out += 1;
                delivery.take(&sent);
                *held = Sent {
                    sacked: true,
                    lost: false,
                    again: false,
                    ..sent
                };
            }
        }
    }

    /// The end of the bytes above which `segments` segments of `mss` bytes are held by SACK: what
    /// lies below and is not held is lost (RFC 6675, IsLost: that many bytes or stretches).
    pub(crate) fn lost_edge(&self, segments: u32, mss: u32) -> Option<u64> {
        let bytes = u64::from(segments.saturating_sub(1)) * u64::from(mss);
        let mut held = 0;
        for (stretches, (from, to)) in self.sacked.iter().rev().enumerate() {
            held += to - from;
            if held > bytes || stretches + 1 >= segments as usize {
                return Some(from);
            }
        }
        None
    }

    /// What ends at or below `edge` and is neither held nor judged is lost; returns how many
    /// segments.
    pub(crate) fn judge(&mut self, edge: u64) -> u32 {
        if edge <= self.judged {
            return 0;
        }
        let first = self.index(self.judged);
        let mut lost = 0;
        for sent in self.ring.iter_mut_from(first) {
            if sent.to > edge {
                break;
            }
            self.judged = sent.to;
            if !sent.sacked && !sent.lost {
                sent.lost = true;
                lost += 1;
                self.cursor = self.cursor.min(sent.from);
            }
        }
        self.lost_out += lost;
        lost
    }

    /// The first segment is lost, whatever else is known; returns whether that is new.
    pub(crate) fn judge_first(&mut self) -> bool {
        match self.ring.front_mut() {
            Some(sent) if !sent.sacked && !sent.lost => {
                sent.lost = true;
                self.lost_out += 1;
                self.cursor = self.cursor.min(sent.from);
                true
            }
            _ => false,
        }
    }

    /// Segments, up to the last one held by SACK, that `late` finds lost by when they were last
    /// sent; returns how many.
    pub(crate) fn judge_by_time(&mut self, late: impl Fn(&Sent) -> bool) -> u32 {
        let Some((_, edge)) = self.sacked.last() else {
            return 0;
        };
        let mut lost = 0;
        for sent in self.ring.iter_mut_from(0) {
            if sent.to > edge {
                break;
            }
            if sent.sacked || (sent.lost && !sent.again) || !late(sent) {
                continue;
            }
            if sent.again {
                sent.again = false;
                self.again_out -= 1;
            } else {
                sent.lost = true;
                self.lost_out += 1;
            }
            lost += 1;
            self.cursor = self.cursor.min(sent.from);
        }
        lost
    }

    /// The retransmission timer expired: all that the peer does not hold is lost, also what was sent
    /// again. A peer that holds the first byte by SACK and yet does not acknowledge it has discarded
    /// what it held (RFC 2018, section 8).
    pub(crate) fn lose_all(&mut self) {
        let reneged = self.ring.front().is_some_and(|sent| sent.sacked);
        if reneged {
            self.sacked.clear();
        }
        for sent in self.ring.iter_mut_from(0) {
            sent.sacked &= !reneged;
            sent.lost = !sent.sacked;
            sent.again = false;
        }
        self.sacked_out = self.ring.iter_from(0).filter(|sent| sent.sacked).count() as u32;
        self.lost_out = self.ring.len() as u32 - self.sacked_out;
        self.again_out = 0;
        self.judged = self.ring.back().map_or(self.judged, |sent| sent.to);
        self.cursor = self.ring.front().map_or(self.cursor, |sent| sent.from);
    }

    /// The peer's SACK blocks are no longer believed.
    pub(crate) fn clear(&mut self) {
        self.sacked.clear();
        for sent in self.ring.iter_mut_from(0) {
            (sent.sacked, sent.lost, sent.again) = (false, false, false);
        }
        (self.sacked_out, self.lost_out, self.again_out) = (0, 0, 0);
        let first = self.ring.front().map(|sent| sent.from);
        self.judged = first.unwrap_or(self.judged);
        self.cursor = self.judged;
    }

    /// The next segment to send again: lost, not held, not on its way.
    pub(crate) fn next_lost(&mut self) -> Option<(u64, u64)> {
        if self.lost_out == self.again_out {
            return None;
        }
        let first = self.index(self.cursor);
        let sent = self
            .ring
            .iter_from(first)
            .find(|sent| sent.lost && !sent.again)?;
        self.cursor = sent.from;
        Some((sent.from, sent.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 100;

    /// Ten segments of 100 bytes in flight.
    fn board() -> Scoreboard {
        let mut board = Scoreboard::default();
        for i in 0..10 {
            board.push(Sent {
                from: i * MSS,
                to: (i + 1) * MSS,
                at: Instant::from_nanos(i),
                delivered: 0,
                delivered_at: Instant::ZERO,
                transmits: 1,
                sacked: false,
                lost: false,
                again: false,
            });
        }
        board
    }

    fn sack(board: &mut Scoreboard, from: u64, to: u64) -> Delivery {
        let mut delivery = Delivery::default();
        board.sack(from, to, &mut delivery);
        delivery
    }

    #[test]
    fn three_segments_above_make_a_loss_and_the_pipe_follows() {
        let mut board = board();
        assert_eq!(board.pipe(), 10);
        assert_eq!(sack(&mut board, 100, 300).delivered, 2);
        assert_eq!((board.pipe(), board.lost_edge(3, 100)), (8, None));
        let delivery = sack(&mut board, 100, 400);
        assert_eq!((delivery.delivered, delivery.bytes), (1, 100));
        let edge = board.lost_edge(3, 100).unwrap();
        assert_eq!(board.judge(edge), 1);
        // Three held, one lost.
        assert_eq!((board.pipe(), board.next_lost()), (6, Some((0, 100))));
        board.resent(0, 100, Instant::from_nanos(50), (0, Instant::ZERO));
        assert_eq!((board.pipe(), board.next_lost()), (7, None));
        assert!(!sack(&mut board, 100, 400).news);
        let mut delivery = Delivery::default();
        board.acknowledge(400, &mut delivery);
        assert_eq!((delivery.acked, delivery.delivered), (4, 1));
        assert_eq!(
            (board.pipe(), board.lost_out(), board.sacked_out()),
            (6, 0, 0)
        );
    }

    #[test]
    fn three_separate_stretches_make_a_loss_too() {
        let mut board = board();
        for at in [150, 350, 550] {
            sack(&mut board, at, at + 20);
        }
        assert_eq!(board.lost_edge(3, 100), Some(150));
    }

    #[test]
    fn a_timeout_loses_all_that_is_not_held() {
        let mut board = board();
        sack(&mut board, 500, 700);
        board.lose_all();
        assert_eq!(
            (board.pipe(), board.lost_out(), board.sacked_out()),
            (0, 8, 2)
        );
        sack(&mut board, 0, 100);
        board.lose_all();
        assert_eq!(
            (board.lost_out(), board.sacked_out()),
            (10, 0),
            "it reneged"
        );
        assert!(board.sacked.is_empty());
    }

    #[test]
    fn a_segment_held_in_two_pieces_counts_once_whole() {
        let mut board = board();
        assert_eq!(sack(&mut board, 200, 250).delivered, 0);
        assert_eq!(sack(&mut board, 250, 300).delivered, 1);
        assert_eq!(board.sacked_out(), 1);
    }
}
