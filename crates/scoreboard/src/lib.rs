//! The segments in flight: when each was sent, which the peer holds by SACK (RFC 2018), which are
//! taken for lost, and how many are on their way ("pipe", RFC 6675). All counts are kept as they
//! change; no acknowledgement walks the window.
//!
//! Segments that were sent at one instant share an entry, a run, while nothing sets one apart: a
//! long window takes little memory. The first SACK block or retransmission gives each its own.
//!
//! Which of them are lost is said by the loss recoveries of crate `tcp`, which call what judges here. Begin with
//! [`Scoreboard`].
#![forbid(unsafe_code)]

mod counts;
mod holes;
mod loss_log;
mod min_rtt;
mod newly_acked;
mod send_time_order;
mod sent_run;

pub use holes::Embargo;
pub use min_rtt::MinRtt;
pub use newly_acked::NewlyAcked;
pub use send_time_order::Order;
pub use sent_run::{SentRun, SentState};

use bentpipe_base::{Instant, Ranges, append};
use loss_log::LossLog;
use send_time_order::Resent;
use std::collections::VecDeque;
use std::mem;

/// Room for so many runs costs little to make again.
const SPARE: usize = 64;

/// The segments in flight, in order of the stream, without gaps.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    ring: VecDeque<SentRun>,
    /// Segments of all runs together.
    segments: u32,
    /// What the peer holds beyond what it acknowledges.
    pub sacked: Ranges,
    sacked_out: u32,
    lost_out: u32,
    again_out: u32,
    /// All unsacked segments that end at or below this are judged.
    judged: u64,
    /// No lost segment that waits to be sent again begins below this.
    cursor: u64,
    /// The segments on their way that were sent more than once, in the order of sending; kept from the first
    /// [`Self::judge_by_time`] on.
    resent: Option<Resent>,
    losses: LossLog,
}

impl Scoreboard {
    fn index(&self, at: u64) -> usize {
        // The byte is nearly always in the first run, or beyond the last.
        match (self.ring.front(), self.ring.back()) {
            (Some(first), _) if at < first.to() => 0,
            (_, Some(last)) if at >= last.to() => self.ring.len(),
            _ => self.ring.partition_point(|sent| sent.to() <= at),
        }
    }

    /// The segment that byte `at` was last sent in, or its run.
    pub fn get(&self, at: u64) -> Option<&SentRun> {
        self.ring.get(self.index(at))
    }

    /// Records a segment of the new bytes `[from, to)`, which follow the last ones, sent at `now`.
    #[inline]
    pub fn push(&mut self, from: u64, to: u64, now: Instant) {
        self.segments += 1;
        // A segment's payload fits 32 bits, and a FIN is one more than less than that.
        let len = (to - from) as u32;
        if self.sacked.is_empty()
            && self.lost_out == 0
            && let Some(run) = self.ring.back_mut()
            && run.is_continued_by(len, now)
        {
            run.count += 1;
        } else {
            append(&mut self.ring, SentRun::segment(from, len, now));
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

    /// Splits segments longer than `most` bytes into shorter ones; returns whether there were any that the peer does
    /// not hold.
    pub fn cut_anew(&mut self, most: u32) -> bool {
        if self.ring.iter().all(|sent| sent.len <= most) {
            return false;
        }
        self.split();
        let mut missing = false;
        for whole in mem::take(&mut self.ring) {
            let end = whole.to();
            let mut from = whole.from;
            missing |= whole.len > most && !whole.is_sacked();
            while from < end {
                // At most what was one segment's length.
                let len = (end - from).min(most.into()) as u32;
                append(&mut self.ring, SentRun { from, len, ..whole });
                from += u64::from(len);
            }
            let more = whole.len.div_ceil(most.max(1)).max(1) - 1;
            self.segments += more;
            self.sacked_out += if whole.is_sacked() { more } else { 0 };
            self.lost_out += if whole.was_lost() { more } else { 0 };
            self.again_out += if whole.state == SentState::Resent {
                more
            } else {
                0
            };
        }
        self.resent = self.resent.take().map(|_| Resent::of(&self.ring));
        missing
    }

    /// Records a retransmission of `[from, to)`.
    pub fn resent(&mut self, from: u64, to: u64, now: Instant) {
        self.split();
        let first = self.index(from);
        for sent in self.ring.range_mut(first..) {
            if sent.from >= to {
                break;
            }
            if let Some(resent) = &mut self.resent {
                resent.remove(sent);
            }
            sent.at = now;
            sent.transmits = sent.transmits.saturating_add(1);
            if sent.state == SentState::Lost {
                sent.state = SentState::Resent;
                self.again_out += 1;
            }
            if let Some(resent) = &mut self.resent {
                resent.insert(sent);
            }
        }
        if from <= self.cursor {
            self.cursor = self.cursor.max(to);
        }
    }

    /// Removes everything before `una`, which is acknowledged cumulatively.
    pub fn acknowledge(&mut self, una: u64, newly_acked: &mut NewlyAcked) {
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
            if let Some(resent) = &mut self.resent {
                resent.remove(&sent);
            }
            self.segments -= u32::from(sent.count);
            newly_acked.acked += u32::from(sent.count);
            newly_acked.last = Some((sent.at, sent.transmits));
            newly_acked.again |= sent.transmits > 1;
            if sent.is_sacked() {
                self.sacked_out -= 1;
            } else {
                self.lost_out -= u32::from(sent.was_lost());
                self.again_out -= u32::from(sent.state == SentState::Resent);
                newly_acked.take_in_order(&sent);
            }
        }
        if self.ring.is_empty() && self.ring.capacity() <= SPARE {
            // A connection that is idle keeps no room for what it may send next.
            self.ring = VecDeque::new();
        }
        self.sacked.trim(una);
        self.judged = self.judged.max(una);
        self.cursor = self.cursor.max(una);
    }

    /// Records that the peer holds `[from, to)` by SACK.
    pub fn sack(&mut self, from: u64, to: u64, newly_acked: &mut NewlyAcked) {
        while let Some((start, end)) = self.sacked.uncovered(from, to) {
            self.split();
            self.sacked.insert(start, end);
            newly_acked.news = true;
            let Some((left, right)) = self.sacked.covering(start) else {
                return;
            };
            let first = self.index(start);
            for held in self.ring.range_mut(first..) {
                let sent = *held;
                if sent.from >= end {
                    break;
                }
                if sent.is_sacked() || sent.from < left || sent.to() > right {
                    continue;
                }
                if let Some(resent) = &mut self.resent {
                    resent.remove(&sent);
                }
                self.lost_out -= u32::from(sent.was_lost());
                self.again_out -= u32::from(sent.state == SentState::Resent);
                self.sacked_out += 1;
                newly_acked.take_sacked(&sent);
                held.state = SentState::Sacked;
            }
        }
    }

    /// The end of the bytes above which `segments` segments of `mss` bytes are held by SACK: what
    /// lies below and is not held is lost (RFC 6675, IsLost: that many bytes or stretches).
    pub fn lost_edge(&self, segments: u32, mss: u32) -> Option<u64> {
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

    /// Marks segments as lost that end at or below `edge` and are neither held nor judged yet; returns how many.
    pub fn judge(&mut self, edge: u64) -> u32 {
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
            if sent.state == SentState::Outstanding {
                if let Some(resent) = &mut self.resent {
                    resent.remove(sent);
                }
                self.losses.note(sent);
                sent.state = SentState::Lost;
                lost += 1;
                self.cursor = self.cursor.min(sent.from);
            }
        }
        self.lost_out += lost;
        lost
    }

    /// Marks the first segment as lost, whatever else is known; returns whether that is new.
    pub fn judge_first(&mut self) -> bool {
        self.split();
        match self.ring.front_mut() {
            Some(sent) if sent.state == SentState::Outstanding => {
                if let Some(resent) = &mut self.resent {
                    resent.remove(sent);
                }
                self.losses.note(sent);
                sent.state = SentState::Lost;
                self.lost_out += 1;
                self.cursor = self.cursor.min(sent.from);
                true
            }
            _ => false,
        }
    }

    /// After a retransmission timeout marks as lost all that the peer does not hold, retransmissions included. A peer
    /// that holds the first byte by SACK and yet does not acknowledge it has discarded what it held (RFC 2018, section
    /// 8).
    pub fn lose_all(&mut self) {
        self.split();
        let reneged = self.ring.front().is_some_and(SentRun::is_sacked);
        if reneged {
            self.sacked.clear();
        }
        for sent in self.ring.iter_mut() {
            if sent.is_sacked() && !reneged {
                continue;
            }
            // What it had and discarded was on its way until now.
            if sent.state != SentState::Lost {
                self.losses.note(sent);
            }
            sent.state = SentState::Lost;
        }
        self.sacked_out = self.ring.iter().filter(|sent| sent.is_sacked()).count() as u32;
        self.lost_out = self.segments - self.sacked_out;
        self.again_out = 0;
        // All that is on its way is taken for lost.
        self.resent = self.resent.take().map(|_| Resent::default());
        self.judged = self.ring.back().map_or(self.judged, SentRun::to);
        self.cursor = self.ring.front().map_or(self.cursor, |sent| sent.from);
    }

    /// Forgets the peer's SACK blocks and all judgements made by them.
    pub fn clear(&mut self) {
        self.sacked.clear();
        for sent in self.ring.iter_mut() {
            sent.state = SentState::Outstanding;
        }
        (self.sacked_out, self.lost_out, self.again_out) = (0, 0, 0);
        let first = self.ring.front().map(|sent| sent.from);
        self.judged = first.unwrap_or(self.judged);
        self.cursor = self.judged;
        self.resent = self.resent.take().map(|_| Resent::of(&self.ring));
    }

    /// Nothing is taken for lost any more; what the peer holds stays.
    pub fn clear_loss_marks(&mut self) {
        for sent in self.ring.iter_mut() {
            if sent.was_lost() {
                sent.state = SentState::Outstanding;
            }
        }
        (self.lost_out, self.again_out) = (0, 0);
        let first = self.ring.front().map(|sent| sent.from);
        self.judged = first.unwrap_or(self.judged);
        self.cursor = self.judged;
        self.resent = self.resent.take().map(|_| Resent::of(&self.ring));
    }

    /// The segment sent that ends last.
    pub fn last_segment(&self) -> Option<(u64, u64)> {
        let run = self.ring.back()?;
        Some((run.to() - u64::from(run.len), run.to()))
    }

    /// The next segment to send again: lost, not held, not on its way.
    pub fn next_lost(&mut self) -> Option<(u64, u64)> {
        if self.lost_out == self.again_out {
            return None;
        }
        let first = self.index(self.cursor);
        let sent = self
            .ring
            .range(first..)
            .find(|sent| sent.state == SentState::Lost)?;
        self.cursor = sent.from;
        Some((sent.from, sent.to()))
    }
}

#[cfg(test)]
mod tests {
    use super::send_time_order::Order;
    use super::*;
    use proptest::prelude::*;

    const MSS: u64 = 100;

    /// Ten segments of 100 bytes in flight.
    fn board() -> Scoreboard {
        let mut board = Scoreboard::default();
        for i in 0..10 {
            board.push(i * MSS, (i + 1) * MSS, Instant::from_nanos(i));
        }
        board
    }

    fn sack(board: &mut Scoreboard, from: u64, to: u64) -> NewlyAcked {
        let mut newly_acked = NewlyAcked::default();
        board.sack(from, to, &mut newly_acked);
        newly_acked
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
                let answers = boards.each_mut().map(|board| {
                    let mut newly_acked = NewlyAcked::default();
                    match step {
                        0 => board.sack(from, to, &mut newly_acked),
                        1 => board.resent(from, to, now),
                        2 => board.acknowledge(from, &mut newly_acked),
                        3 => {
                            board.lost_edge(3, MSS as u32).map(|edge| board.judge(edge));
                        }
                        4 if at < 2 => board.lose_all(),
                        4 => board.clear(),
                        _ => (0..len).for_each(|i| {
                            let [from, to] = [i, i + 1].map(|i| end + i * MSS);
                            board.push(from, to, now);
                        }),
                    }
                    let latest = newly_acked.latest.map(|sent| (sent.to, sent.at, sent.transmits));
                    let NewlyAcked { acked, delivered, last, again, news, .. } = newly_acked;
                    let counts = (board.pipe(), board.sacked_out(), board.lost_out());
                    let counted = (acked, delivered, again, news);
                    (counted, last, latest, counts, board.next_lost())
                });
                prop_assert_eq!(&answers[0], &answers[1]);
                match step {
                    2 => una = from,
                    5.. => end += len * MSS,
                    _ => {}
                }
                boards[1].split();
            }
        }
    }

    /// What RFC 8985, section 6.2, step 5, finds lost by a walk of the window, and the last that may yet be.
    fn walked(board: &Scoreboard, latest: Order, due: Instant) -> (Vec<u64>, Option<Instant>) {
        let mut split = board.clone();
        split.split();
        let out = split.ring.iter().filter(|sent| sent.is_out());
        let before = out.filter(|sent| (sent.at, sent.to()) < latest);
        let (lost, rest): (Vec<SentRun>, Vec<SentRun>) = before.partition(|sent| sent.at <= due);
        (
            lost.iter().map(SentRun::to).collect(),
            rest.iter().map(|sent| sent.at).max(),
        )
    }

    proptest! {
        /// Steps as RACK's sender makes them: what is sent again was lost, and what the peer holds is believed.
        #[test]
        fn judging_by_time_finds_what_a_walk_of_the_window_finds(
            steps in prop::collection::vec((0u8..10, 0u64..40, 1u64..9), 1..120),
        ) {
            let mut board = Scoreboard::default();
            let (mut una, mut end, mut clock) = (0, 0, 0);
            for (step, at, len) in steps {
                clock += at % 3;
                let now = Instant::from_nanos(clock);
                let from = una + at * MSS / 2;
                let to = end.min(from + len * MSS);
                match step {
                    0 | 1 if from < to => {
                        sack(&mut board, from, to);
                    }
                    2 if from <= end => {
                        board.acknowledge(from, &mut NewlyAcked::default());
                        una = from;
                    }
                    3 if at == 0 => board.lose_all(),
                    4 | 5 => for _ in 0..len {
                        if let Some((from, to)) = board.next_lost() {
                            board.resent(from, to, now);
                        }
                    },
                    6 | 7 => {
                        let latest = (Instant::from_nanos(clock.saturating_sub(at % 5)), from);
                        let due = Instant::from_nanos(clock.saturating_sub(len));
                        let (lost, last) = walked(&board, latest, due);
                        let waiting = |board: &Scoreboard| {
                            let sent = board.ring.iter();
                            sent.filter(|sent| sent.state == SentState::Lost).map(SentRun::to).collect::<Vec<_>>()
                        };
                        let mut expected = waiting(&board);
                        expected.extend(&lost);
                        expected.sort_unstable();
                        prop_assert_eq!(board.judge_by_time(latest, due) as usize, lost.len());
                        prop_assert_eq!(waiting(&board), expected);
                        prop_assert_eq!(board.last_out_before(latest), last);
                    }
                    _ => for _ in 0..len {
                        board.push(end, end + MSS, now);
                        end += MSS;
                    },
                }
                let counted = |which: fn(&SentRun) -> bool| -> u32 {
                    board.ring.iter().filter(|sent| which(sent)).map(|sent| u32::from(sent.count)).sum()
                };
                prop_assert_eq!(board.lost_out(), counted(SentRun::was_lost));
                prop_assert_eq!(board.sacked_out(), counted(SentRun::is_sacked));
                prop_assert_eq!(board.pipe(), counted(SentRun::is_out));
            }
        }
    }

    #[test]
    fn a_segment_of_which_the_peer_holds_what_is_left_is_in_flight() {
        let mut board = board();
        sack(&mut board, 850, 1000);
        board.acknowledge(850, &mut NewlyAcked::default());
        let latest = (Instant::from_nanos(20), 1000);
        assert_eq!(board.judge_by_time(latest, Instant::ZERO), 0);
        assert_eq!(board.last_out_before(latest), Some(Instant::from_nanos(8)));
    }

    #[test]
    fn three_segments_above_make_a_loss_and_the_pipe_follows() {
        let mut board = board();
        assert_eq!(board.pipe(), 10);
        assert_eq!(sack(&mut board, 100, 300).delivered, 2);
        assert_eq!((board.pipe(), board.lost_edge(3, 100)), (8, None));
        let newly_acked = sack(&mut board, 100, 400);
        assert_eq!(newly_acked.delivered, 1);
        let edge = board.lost_edge(3, 100).unwrap();
        assert_eq!(board.judge(edge), 1);
        // Three held, one lost.
        assert_eq!((board.pipe(), board.next_lost()), (6, Some((0, 100))));
        board.resent(0, 100, Instant::from_nanos(50));
        assert_eq!((board.pipe(), board.next_lost()), (7, None));
        assert!(!sack(&mut board, 100, 400).news);
        let mut newly_acked = NewlyAcked::default();
        board.acknowledge(400, &mut newly_acked);
        assert_eq!((newly_acked.acked, newly_acked.delivered), (4, 1));
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
