//! RACK's loss detection by time (RFC 8985) with proportional rate reduction (RFC 6937).
//!
//! ```text
//! lost: sent before the latest segment delivered, and longer ago than RTT + reordering window
//! reordering window = 0 in recovery or with 3 segments held, while no reordering was seen;
//!                     least RTT / 4 otherwise
//! ```
//!
//! A segment sent again and lost again is found too, which counts of segments cannot do.
//!
//! As Linux, round-trip times are also taken from segments that SACK blocks name, and one of them
//! that was sent before the first missing segment was last sent starts the retransmission timer
//! anew: until what was sent after it arrives, nothing tells that it was lost again.
//!
//! Deviations: no tail loss probe (section 7); the reordering window does not adapt to D-SACK.

use super::sack_recovery::Detect;
use super::{Arrival, Sender};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;
use std::time::Duration;

/// RACK's state.
#[derive(Debug, Default)]
pub(super) struct Rack {
    /// The segment delivered that was sent last: when, and where it ends.
    latest: (Instant, u64),
    /// Its round-trip time.
    rtt: Duration,
    least: Option<Duration>,
    /// The highest byte delivered.
    highest: u64,
    /// A segment sent once was delivered after a higher one.
    reordered: bool,
}

impl Rack {
    fn update(&mut self, arrival: &Arrival) {
        let Some(sent) = arrival.delivery.latest else {
            return;
        };
        let rtt = arrival.now.since(sent.at);
        if sent.transmits > 1 && self.least.is_some_and(|least| rtt < least) {
            // Of the transmission before.
            return;
        }
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.reordered |= sent.transmits == 1 && sent.to < self.highest;
        self.highest = self.highest.max(sent.to);
        if (sent.at, sent.to) >= self.latest {
            self.latest = (sent.at, sent.to);
            self.rtt = rtt;
        }
    }

    fn judge(&self, tx: &mut Sender, now: Instant) -> u32 {
        let certain = tx.phase == Phase::Recovery || tx.board.sacked_out() >= tx.config.dupthresh;
        let window = if certain && !self.reordered {
            Duration::ZERO
        } else {
            self.least.unwrap_or_default() / 4
        };
        let (latest, wait) = (self.latest, self.rtt + window);
        let lost = tx
            .board
            .judge_by_time(|sent| (sent.at, sent.to()) < latest && sent.at + wait <= now);
        let open = !window.is_zero() && !tx.board.sacked.is_empty();
        tx.reorder = if open && lost == 0 {
            now + window
        } else {
            Instant::MAX
        };
        lost
    }
}

impl Detect for Rack {
    const NAME: &'static str = "prr-rack";
    const PROPORTIONAL: bool = true;
    const CLOCKED_BY_SACK: bool = true;

    fn detect(&mut self, tx: &mut Sender, arrival: &Arrival) -> u32 {
        self.update(arrival);
        self.judge(tx, arrival.now)
    }

    fn late(&mut self, tx: &mut Sender, now: Instant) -> u32 {
        tx.reorder = Instant::MAX;
        self.judge(tx, now)
    }
}
