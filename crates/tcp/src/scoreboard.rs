//! The segments in flight: when each was sent, which the peer holds by SACK (RFC 2018), which are
//! taken for lost, and how many are on their way ("pipe", RFC 6675). All counts are kept as they
//! change; no acknowledgement walks the window.
//!
//! Segments that were sent at one instant share an entry, a run, while nothing sets one apart: a
//! long window takes little memory. The first SACK block or retransmission gives each its own.

use bentpipe_base::{Instant, Ranges, append};
use std::collections::VecDeque;
use std::mem;

/// Segments in flight that were sent together, all of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) from: u64,
    /// When it was last sent.
    pub(crate) at: Instant,
    /// Bytes of each, a FIN among them.
    pub(crate) len: u32,
    /// How many.
    pub(crate) count: u32,
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
    /// The last segment acknowledged: when it was last sent, and how often it was.
    pub(crate) last: Option<(Instant, u16)>,
    /// Of all newly delivered segments the one sent last.
    pub(crate) latest: Option<Sending>,
    /// Of the segments acknowledged cumulatively, one was sent more than once.
    pub(crate) again: bool,
    /// A SACK block told something new.
    pub(crate) news: bool,
}

/// How a segment in flight was last sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    pub(crate) to: u64,
    pub(crate) at: Instant,
    /// How often it was sent.
    pub(crate) transmits: u16,
}

impl Sent {
    /// Where the last of them ends.
    #[inline]
    pub(crate) fn to(&self) -> u64 {
        self.from + u64::from(self.len) * u64::from(self.count)
    }

    /// Whether `next`, the segment behind them, is one of them.
    #[inline]
    fn goes_on_with(&self, next: &Self) -> bool {
        (self.at, self.len, self.transmits) == (next.at, next.len, next.transmits)
    }

    /// Takes off those that end at or below `end`, which is not before the end of the first.
    #[inline]
    fn take(&mut self, end: u64) -> Self {
        let count = match self.to() > end {
            true => ((end - self.from) / u64::from(self.len.max(1))) as u32,
            false => self.count,
        };
        let taken = Self { count, ..*self };
        self.from = taken.to();
        self.count -= count;
        taken
    }
}

// Tens of thousands may be in flight.
const _: () = assert!(size_of::<Sent>() <= 32);

impl Delivery {
    fn take(&mut self, sent: &Sent) {
        self.delivered += sent.count;
        let to = sent.to();
        let later = |latest: &Sending| (sent.at, to) >= (latest.at, latest.to);
        if self.latest.as_ref().is_none_or(later) {
            self.latest = Some(Sending {
                to,
                at: sent.at,
                transmits: sent.transmits,
            });
        }
    }
}

/// The segments in flight, in order of the stream, without gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scoreboard {
    ring: VecDeque<Sent>,
    /// Those of all runs together.
    segments: u32,
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
        self.segments + self.again_out - self.sacked_out - self.lost_out
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
            (Some(first), _) if at < first.to() => 0,
            (_, Some(last)) if at >= last.to() => self.ring.len(),
            _ => self.ring.partition_point(|sent| sent.to() <= at),
        }
    }

    /// The segment that byte `at` was last sent in, or its run.
    pub(crate) fn get(&self, at: u64) -> Option<&Sent> {
        self.ring.get(self.index(at))
    }

    /// A segment of new bytes was sent; they follow the last ones.
    #[inline]
    pub(crate) fn push(&mut self, sent: Sent) {
        self.segments += sent.count;
        let alike = self.sacked.is_empty() && self.lost_out == 0;
        match self.ring.back_mut() {
            Some(run) if alike && run.goes_on_with(&sent) => {
                run.count += sent.count;
            }
            _ => append(&mut self.ring, sent),
        }
    }

    /// Gives each segment its own entry.
    fn split(&mut self) {
        if self.ring.len() == self.segments as usize {
            return;
        }
        let mut runs = mem::take(&mut self.ring);
        while let Some(mut run) = runs.pop_front() {
            while run.count > 0 {
                append(&mut self.ring, run.take(run.from + u64::from(run.len)));
            }
        }
    }

    /// Bytes were sent again.
    pub(crate) fn resent(&mut self, from: u64, to: u64, now: Instant) {
        self.split();
        let first = self.index(from);
        for sent in self.ring.range_mut(first..) {
            if sent.from >= to {
                break;
            }
            sent.at = now;
            sent.transmits = sent.transmits.saturating_add(1);
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
        while let Some(run) = self.ring.front_mut()
            && run.from < una
        {
            if run.from + u64::from(run.len) > una {
                self.split();
                if let Some(sent) = self.ring.front_mut() {
                    sent.len -= (una - sent.from) as u32;
                    sent.from = una;
                }
                break;
            }
            let sent = run.take(una);
            if run.count == 0 {
                self.ring.pop_front();
            }
            self.segments -= sent.count;
            delivery.acked += sent.count;
            delivery.last = Some((sent.at, sent.transmits));
            delivery.again |= sent.transmits > 1;
            if sent.sacked {
                self.sacked_out -= 1;
            } else {
                self.lost_out -= u32::from(sent.lost);
                self.again_out -= u32::from(sent.again);
                delivery.take(&sent);
            }
        }
        self.sacked.trim(una);
        self.judged = self.judged.max(una);
        self.cursor = self.cursor.max(una);
    }

    /// The peer holds `[from, to)`.
    pub(crate) fn sack(&mut self, from: u64, to: u64, delivery: &mut Delivery) {
        while let Some((start, end)) = self.sacked.uncovered(from, to) {
            self.split();
            self.sacked.insert(start, end);
            delivery.news = true;
            let Some((left, right)) = self.sacked.covering(start) else {
                return;
            };
            let first = self.index(start);
            for held in self.ring.range_mut(first..) {
                let sent = *held;
                if sent.from >= end {
                    break;
                }
                if sent.sacked || sent.from < left || sent.to() > right {
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
        for sent in self.ring.range_mut(first..) {
            if sent.to() > edge {
                break;
            }
            self.judged = sent.to();
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
        self.split();
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
        for sent in self.ring.iter_mut() {
            if sent.to() > edge {
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
        self.split();
        let reneged = self.ring.front().is_some_and(|sent| sent.sacked);
        if reneged {
            self.sacked.clear();
        }
        for sent in self.ring.iter_mut() {
            sent.sacked &= !reneged;
            sent.lost = !sent.sacked;
            sent.again = false;
        }
        self.sacked_out = self.ring.iter().filter(|sent| sent.sacked).count() as u32;
        self.lost_out = self.segments - self.sacked_out;
        self.again_out = 0;
        self.judged = self.ring.back().map_or(self.judged, Sent::to);
        self.cursor = self.ring.front().map_or(self.cursor, |sent| sent.from);
    }

    /// The peer's SACK blocks are no longer believed.
    pub(crate) fn clear(&mut self) {
        self.sacked.clear();
        for sent in self.ring.iter_mut() {
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
            .range(first..)
            .find(|sent| sent.lost && !sent.again)?;
        self.cursor = sent.from;
        Some((sent.from, sent.to()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u64 = 100;

    /// Ten segments of 100 bytes in flight.
    fn board() -> Scoreboard {
        let mut board = Scoreboard::default();
        for i in 0..10 {
            board.push(segment(i * MSS, (i + 1) * MSS, i));
        }
        board
    }

    fn segment(from: u64, to: u64, at: u64) -> Sent {
        Sent {
            from,
            at: Instant::from_nanos(at),
            len: (to - from) as u32,
            count: 1,
            transmits: 1,
            sacked: false,
            lost: false,
            again: false,
        }
    }

    fn sack(board: &mut Scoreboard, from: u64, to: u64) -> Delivery {
        let mut delivery = Delivery::default();
        board.sack(from, to, &mut delivery);
        delivery
    }

    proptest! {
        /// Against a board without runs.
        #[test]
        fn runs_tell_what_their_segments_would(
            steps in prop::collection::vec((0u8..8, 0u64..40, 1u64..9), 1..80),
        ) {
            let mut boards = [Scoreboard::default(), Scoreboard::default()];
            let (mut una, mut end, mut clock) = (0, 0, 0);
            for (step, at, len) in steps {
                clock += u64::from(step == 0);
                let now = Instant::from_nanos(clock);
                let from = una + at * MSS / 2;
                let to = end.min(from + len * MSS);
                let step = match step {
                    0..=2 if from >= to => 5,
                    step => step,
                };
                let told = boards.each_mut().map(|board| {
                    let mut delivery = Delivery::default();
                    match step {
                        0 => board.sack(from, to, &mut delivery),
                        1 => board.resent(from, to, now),
                        2 => board.acknowledge(from, &mut delivery),
                        3 => {
                            board.lost_edge(3, MSS as u32).map(|edge| board.judge(edge));
                        }
                        4 if at < 2 => board.lose_all(),
                        4 => board.clear(),
                        _ => (0..len).for_each(|i| {
                            let [from, to] = [i, i + 1].map(|i| end + i * MSS);
                            board.push(segment(from, to, clock));
                        }),
                    }
                    let latest = delivery.latest.map(|sent| (sent.to, sent.at, sent.transmits));
                    let Delivery { acked, delivered, last, again, news, .. } = delivery;
                    let counts = (board.pipe(), board.sacked_out(), board.lost_out());
                    let told = (acked, delivered, again, news);
                    (told, last, latest, counts, board.next_lost())
                });
                prop_assert_eq!(&told[0], &told[1]);
                match step {
                    2 => una = from,
                    5.. => end += len * MSS,
                    _ => {}
                }
                boards[1].split();
            }
        }
    }

    #[test]
    fn three_segments_above_make_a_loss_and_the_pipe_follows() {
        let mut board = board();
        assert_eq!(board.pipe(), 10);
        assert_eq!(sack(&mut board, 100, 300).delivered, 2);
        assert_eq!((board.pipe(), board.lost_edge(3, 100)), (8, None));
        let delivery = sack(&mut board, 100, 400);
        assert_eq!(delivery.delivered, 1);
        let edge = board.lost_edge(3, 100).unwrap();
        assert_eq!(board.judge(edge), 1);
        // Three held, one lost.
        assert_eq!((board.pipe(), board.next_lost()), (6, Some((0, 100))));
        board.resent(0, 100, Instant::from_nanos(50));
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
