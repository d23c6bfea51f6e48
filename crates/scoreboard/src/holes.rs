//! Holes that the peer announced by SNACK, and what was sent again and is due once more by time.

use crate::send_time_order::Resent;
use crate::{Scoreboard, SentRun, SentState};
use bentpipe_base::Instant;
use std::time::Duration;

/// From this transmission on, a segment waits twice as long each time.
const PATIENT: u8 = 6;

/// How long a segment that was sent again is left alone.
#[derive(Clone, Copy, Debug)]
pub struct Embargo(
    /// From its last transmission on.
    pub Duration,
);

impl Embargo {
    /// Until when `sent` is.
    fn end(self, sent: &SentRun) -> Instant {
        let more = sent.transmits.saturating_sub(PATIENT - 1).min(6);
        sent.at + self.0.saturating_mul(1 << more)
    }
}

impl Scoreboard {
    /// Marks the segments as lost that reach into `[from, to)`, but for those that the peer holds, and those sent again
    /// whose `embargo` has not passed at `now` (`None`: all of these). Returns how many are to be sent.
    pub fn lose(&mut self, from: u64, to: u64, embargo: Option<Embargo>, now: Instant) -> u32 {
        self.split();
        self.resent.get_or_insert_with(|| Resent::of(&self.ring));
        let first = self.index(from);
        let mut count = 0;
        for sent in self.ring.range_mut(first..) {
            if sent.from >= to {
                break;
            }
            let waits =
                sent.transmits > 1 && embargo.is_some_and(|embargo| embargo.end(sent) > now);
            if !sent.is_out() || waits {
                continue;
            }
            if let Some(resent) = &mut self.resent {
                resent.remove(sent);
            }
            if sent.state == SentState::Resent {
                self.again_out -= 1;
            } else {
                self.lost_out += 1;
            }
            sent.state = SentState::Lost;
            self.losses.note(sent);
            self.cursor = self.cursor.min(sent.from);
            count += 1;
        }
        count
    }

    /// Marks the segments as lost that were sent again before `heard` and whose `embargo` has passed at `now`; returns how
    /// many.
    pub fn lose_late(&mut self, embargo: Embargo, heard: Instant, now: Instant) -> u32 {
        let late = self
            .resent
            .iter()
            .flat_map(Resent::iter)
            .take_while(|(at, _)| *at < heard && *at + embargo.0 <= now);
        let ends: Vec<u64> = late.map(|(_, end)| end).collect();
        // A segment ends there, and so holds the byte before.
        let lose = |end: u64| self.lose(end - 1, end, Some(embargo), now);
        ends.into_iter().map(lose).sum()
    }

    /// Marks the segments on their way as lost that were sent last before `then`; returns how many.
    pub fn lose_sent_before(&mut self, then: Instant) -> u32 {
        self.split();
        let old: Vec<(u64, u64)> = { self.ring.iter() }
            .filter(|sent| sent.at < then && sent.is_out())
            .map(|sent| (sent.from, sent.to()))
            .collect();
        let lose = |(from, to): (u64, u64)| self.lose(from, to, None, then);
        old.into_iter().map(lose).sum()
    }

    /// When the segment on its way that was sent again first of all was sent.
    pub fn first_resent(&self) -> Option<Instant> {
        let (at, _) = self.resent.as_ref()?.iter().next()?;
        Some(at)
    }
}
