//! Loss by what the peer says that it misses: SNACK of SCPS-TP (CCSDS 714.0-B-2), with SACK beside it where both ends
//! offer that.
//!
//! ```text
//! lost: what a SNACK names, at once; what SACK says by the rule of RFC 6675;
//!       a retransmission of which nothing was heard for an embargo of 5/4 SRTT; behind the first missing segment,
//!       where no SACK tells what arrived, two of them; from the sixth transmission on twice as long each time; half of all that while
//!       there is nothing new to send, and a quarter once the FIN was sent, so that what is lost of a transfer's end goes three
//!       times a round trip
//! ```
//!
//! A segment is sent again by itself when its embargo ends, because the peer may never name a hole twice, but only if
//! anything was heard of the peer since it was sent: in an outage it would be for nothing. A SNACK that names it earlier
//! changes nothing.
//!
//! Where nothing that was sent is known to be missing, and nothing is heard for 2 SRTT, the tail of a flight may be lost,
//! whose loss no SNACK names: a tail loss probe (RFC 8985, section 7) is sent before the retransmission timer would expire.
//! Deviations from its section 7.2: 200 ms more with one segment in flight are not waited once the FIN was sent, which is
//! acknowledged at once; it is sent in a recovery too, when all is filled that the peer missed; and 20 ms are the least,
//! for schedulers of a busy host are late.
//!
//! Where losses mean corruption, a retransmission timeout loses the first segment only, not the whole window as in the reference implementation. Where
//! its acknowledgement names no hole and covers no more, the peer has nothing beyond, and all that was sent before is
//! lost.

use super::sack_detection::Sack;
use super::sack_recovery::Detect;
use super::tail_loss_probe::Probe;
use super::{AckSample, NextSend, RecoveryContext};
use crate::LossCause;
use bentpipe_base::Instant;
use bentpipe_cc::Phase;
use bentpipe_scoreboard::{Embargo, SentState};
use std::time::Duration;

/// The shortest embargo: what clocks and schedulers resolve.
const LEAST: Duration = Duration::from_millis(2);
/// The embargo before a round trip is known.
const BLIND: Duration = Duration::from_secs(1);
/// The shortest time until a tail loss probe.
const LEAST_PROBE: Duration = Duration::from_millis(20);

/// SNACK.
#[derive(Debug, Default)]
pub(super) struct Snack {
    /// When the retransmission timer last expired.
    timed_out: Instant,
    /// When the peer last told anything.
    heard: Instant,
    /// Segments that arrived beyond the first missing one, where no SACK tells which: one for each duplicate
    /// acknowledgement (Linux `tcp_add_reno_sack`).
    held: u32,
    probe: Probe,
}

impl Snack {
    /// The tail of what was sent at `now`, or before what was acknowledged then, is probed.
    fn schedule(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        let board = tx.board();
        let complete = board.lost_out() == 0 && board.sacked.is_empty();
        let waits = complete && tx.phase() != Phase::Loss && tx.una() < tx.max();
        let at = waits.then(|| {
            let alone = tx.board().pipe() == 1 && !tx.has_sent_fin();
            now + Probe::timeout(tx, alone).max(LEAST_PROBE)
        });
        let sooner = at.filter(|at| *at < tx.expiry());
        self.probe.schedule(tx, sooner, now);
    }

    fn embargo(tx: &RecoveryContext<'_>) -> Embargo {
        let whole = tx.srtt().map_or(BLIND, |srtt| srtt + srtt / 4);
        let part = if tx.has_sent_fin() {
            4
        } else if tx.next() == tx.end() {
            2
        } else {
            1
        };
        Embargo((whole / part).max(LEAST))
    }

    /// The embargo of segments behind the first missing one: only SACK tells whether they arrived.
    fn embargo_behind(tx: &RecoveryContext<'_>) -> Embargo {
        let Embargo(first) = Self::embargo(tx);
        Embargo(if tx.has_sack() { first } else { first * 2 })
    }

    /// Retransmissions whose embargo has passed go again; the next ones will be looked at when theirs does.
    fn lose_late(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> u32 {
        let (una, first, behind) = (tx.una(), Self::embargo(tx), Self::embargo_behind(tx));
        let board = tx.board_mut();
        // What the peer told later than a segment was sent again shows that the link is not out.
        let is_late = board
            .get(una)
            .is_some_and(|sent| sent.state == SentState::Resent && sent.at < self.heard);
        let head = if is_late {
            board.lose(una, una + 1, Some(first), now)
        } else {
            0
        };
        let lost = head + board.lose_late(behind, self.heard, now);
        if head > 0 {
            // The answer to it is waited for as long as to any, or the timer of its last transmission would expire before
            // (Linux starts its timer anew with each retransmission of the first segment).
            tx.restart(now);
        }
        let next = tx.board().first_resent().filter(|at| *at < self.heard);
        let due = next.map(|at| at + first.0);
        // What waits longer, by the count of its transmissions, is looked at again soon.
        let due = due.map(|due| if due > now { due } else { now + first.0 / 8 });
        self.probe.disarm();
        tx.set_timer(now, due.unwrap_or(Instant::MAX));
        lost
    }
}

impl Detect for Snack {
    const NAME: &'static str = "snack";
    const CLOCKED_BY_SACK: bool = true;
    const COUNTS_DUPACKS: bool = false;

    fn observe(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if let Some(rtt) = sample.rtt {
            tx.observe_min_rtt(rtt, sample.now);
        }
        self.heard = sample.now;
        self.probe.observe(tx, sample);
        if !tx.has_sack() {
            self.held = match sample.newly_acked.acked {
                0 => self.held.saturating_add(1),
                acked => self.held.saturating_sub(acked - 1),
            };
        }
    }

    fn detect(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) -> u32 {
        let now = sample.now;
        let mut lost = Sack.detect(tx, sample);
        if sample.snack {
            let embargo = Self::embargo(tx);
            for (from, to) in tx.take_missing() {
                lost += tx.board_mut().lose(from, to, Some(embargo), now);
            }
        } else if tx.phase() == Phase::Loss
            && tx.board().sacked.is_empty()
            && sample
                .newly_acked
                .latest
                .is_some_and(|sent| sent.transmits > 1)
        {
            lost += tx.board_mut().lose_sent_before(self.timed_out);
        }
        lost + self.lose_late(tx, now)
    }

    fn late(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> u32 {
        if self.probe.expired(tx, now) {
            return 0;
        }
        self.lose_late(tx, now)
    }

    fn idle(&mut self, tx: &mut RecoveryContext<'_>, duplicate: Option<(u64, u64)>, now: Instant) {
        self.probe.answered(tx, duplicate, true, now);
    }

    fn settled(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.schedule(tx, now);
    }

    fn began(&mut self) {
        self.probe = Probe::default();
    }

    fn probe(&mut self, tx: &mut RecoveryContext<'_>) -> Option<NextSend> {
        self.probe.pick(tx)
    }

    fn sent(&mut self, tx: &mut RecoveryContext<'_>, again: bool) {
        if !self.probe.sent(tx) && !again {
            self.schedule(tx, tx.last_sent());
        }
    }

    fn held(&self) -> u32 {
        self.held
    }

    fn timed_out(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) -> bool {
        (self.timed_out, self.held) = (now, 0);
        if tx.loss_cause(now) == LossCause::Congestion {
            tx.board_mut().lose_all();
            return false;
        }
        let una = tx.una();
        tx.board_mut().lose(una, una + 1, None, now);
        true
    }
}
