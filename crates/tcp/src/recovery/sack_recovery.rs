//! What the recoveries that read SACK blocks share: retransmission of exactly what is lost while
//! the segments on their way ("pipe") leave room in the window (RFC 6675, section 5). How a loss is
//! detected is the [`Detect`]'s.
//!
//! Deviations from RFC 6675: pipe counts segments as they were sent, not bytes; rules 3 and 4 of
//! NextSeg (segments not known to be lost) are left out; after a retransmission timeout what the
//! peer holds is still believed unless it shows that it discarded it (RFC 2018, section 8).

use super::{Arrival, Pick, Recovery, SenderView};
use bentpipe_base::Instant;
use bentpipe_cc::Phase;
use std::fmt::Debug;

/// How losses are detected.
pub(super) trait Detect: Debug + Send {
    /// The recovery's name.
    const NAME: &'static str;
    /// The window shrinks in proportion to what is delivered (RFC 6937) rather than at once.
    const PROPORTIONAL: bool = false;
    /// Segments that SACK blocks name give samples of the round-trip time, and put the
    /// retransmission timer off.
    const CLOCKED_BY_SACK: bool = false;

    /// As many duplicate acknowledgements as the configuration says mean that the first segment is lost, whatever is
    /// held beyond it.
    const COUNTS_DUPACKS: bool = true;

    /// An acknowledgement came, in order or not: before [`Self::detect`], if that is asked at all.
    fn observe(&mut self, _tx: &mut SenderView<'_>, _arrival: &Arrival) {}

    /// A recovery, or the one after a timeout, is over.
    fn recovered(&mut self) {}

    /// Judges segments after an acknowledgement; returns how many are newly found lost.
    fn detect(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) -> u32;

    /// Judges segments when the timer of [`SenderView::set_timer`] expires; returns how many.
    fn late(&mut self, _tx: &mut SenderView<'_>, _now: Instant) -> u32 {
        0
    }
}

/// State of RFC 6937.
#[derive(Debug, Default)]
struct Prr {
    /// Segments delivered in this recovery.
    delivered: u64,
    /// Segments sent in it.
    out: u64,
    /// Segments in flight as it began.
    flight: u64,
}

impl Prr {
    /// The window, in segments, after `delivered` more arrived.
    fn window(&mut self, ssthresh: u32, pipe: u32, delivered: u32) -> u32 {
        self.delivered += u64::from(delivered);
        let (ssthresh, pipe) = (u64::from(ssthresh), u64::from(pipe));
        let room = if pipe > ssthresh {
            let due = (self.delivered * ssthresh).div_ceil(self.flight.max(1));
            due.saturating_sub(self.out)
        } else {
            // Slow start back up to the threshold.
            let due = self.delivered.saturating_sub(self.out);
            (due.max(u64::from(delivered)) + 1).min(ssthresh - pipe)
        };
        u32::try_from(pipe + room).unwrap_or(u32::MAX).max(1)
    }
}

/// A recovery that reads SACK blocks.
#[derive(Debug)]
pub(super) struct SackRecovery<D> {
    detect: D,
    /// Duplicate acknowledgements that told something new.
    dupacks: u32,
    /// The end of what was sent when the last loss was found.
    recover: u64,
    /// The first retransmission of a recovery does not wait for room.
    first: bool,
    proportion: Prr,
}

impl<D: Detect> SackRecovery<D> {
    pub(super) fn new(detect: D) -> Self {
        Self {
            detect,
            dupacks: 0,
            recover: 0,
            first: false,
            proportion: Prr::default(),
        }
    }

    fn process(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival, advanced: bool) {
        let mut arrival = *arrival;
        if D::CLOCKED_BY_SACK {
            tx.clock_by_sack(&mut arrival);
        }
        self.detect.observe(tx, &arrival);
        // A window without holes has nothing to detect.
        if !tx.board().sacked.is_empty() || tx.phase() != Phase::Open {
            arrival.lost = self.detect.detect(tx, &arrival);
        }
        let counts = D::COUNTS_DUPACKS && self.dupacks >= tx.dupthresh();
        if counts && tx.phase() != Phase::Loss {
            arrival.lost += u32::from(tx.board_mut().judge_first());
        }
        tx.set_in_flight(tx.board().pipe());
        match tx.phase() {
            Phase::Open | Phase::Disorder | Phase::Cwr if tx.board().lost_out() > 0 => {
                self.begin(tx, &arrival);
            }
            Phase::Open | Phase::Disorder | Phase::Cwr => {
                let ordered = tx.board().sacked.is_empty();
                tx.enter(if ordered {
                    Phase::Open
                } else {
                    Phase::Disorder
                });
                if advanced {
                    tx.grow(&arrival);
                }
            }
            Phase::Recovery if tx.una() >= self.recover => self.finish(tx, &arrival),
            Phase::Recovery => {
                tx.grow(&arrival);
                self.shrink(tx, &arrival);
            }
            Phase::Loss => {
                if advanced {
                    tx.grow(&arrival);
                }
                if tx.una() >= self.recover {
                    tx.enter(Phase::Open);
                    self.detect.recovered();
                }
            }
        }
        if advanced {
            tx.settle(arrival.now);
        }
    }

    fn begin(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        self.recover = tx.max();
        self.first = true;
        self.proportion = Prr {
            flight: u64::from(tx.segments(tx.flight())),
            ..Prr::default()
        };
        tx.count_recovery();
        tx.reduce(tx.board().pipe(), arrival.now);
        tx.enter(Phase::Recovery);
        tx.grow(arrival);
        self.shrink(tx, arrival);
        tx.restart(arrival.now);
    }

    fn shrink(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        if D::PROPORTIONAL && !tx.governs_recovery() {
            let (ssthresh, pipe) = (tx.ssthresh(), tx.board().pipe());
            let delivered = arrival.delivery.delivered;
            tx.set_cwnd(self.proportion.window(ssthresh, pipe, delivered));
        }
    }

    fn finish(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        self.dupacks = 0;
        self.first = false;
        tx.grow(arrival);
        if !tx.governs_recovery() {
            tx.set_cwnd(tx.ssthresh().max(1));
        }
        tx.enter(Phase::Open);
        tx.reduced(arrival.now);
        self.detect.recovered();
    }
}

impl<D: Detect> Recovery for SackRecovery<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn on_ack(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        self.dupacks = 0;
        self.process(tx, arrival, true);
    }

    fn on_dupack(&mut self, tx: &mut SenderView<'_>, arrival: &Arrival) {
        if arrival.delivery.news {
            self.dupacks += 1;
        }
        self.process(tx, arrival, false);
    }

    fn on_rto(&mut self, tx: &mut SenderView<'_>, now: Instant) {
        self.dupacks = 0;
        self.first = false;
        self.recover = tx.max();
        let pipe = tx.board().pipe();
        tx.board_mut().lose_all();
        tx.set_timer(Instant::MAX);
        tx.enter_loss(pipe, false, now);
    }

    fn on_timer(&mut self, tx: &mut SenderView<'_>, now: Instant) {
        let lost = self.detect.late(tx, now);
        let begins = matches!(tx.phase(), Phase::Open | Phase::Disorder | Phase::Cwr);
        if lost > 0 && begins {
            self.begin(
                tx,
                &Arrival {
                    now,
                    delivery: crate::scoreboard::Delivery::default(),
                    rtt: None,
                    lost,
                    highest: None,
                    duplicate: false,
                    stamp: None,
                },
            );
        }
    }

    fn pick(&mut self, tx: &mut SenderView<'_>) -> Pick {
        let lost = tx.board_mut().next_lost();
        if self.first
            && let Some((from, to)) = lost
        {
            return Pick::Again(from, to);
        }
        let quiet = !tx.limited_transmit() && tx.phase() == Phase::Disorder;
        let kept = if quiet { tx.board().sacked_out() } else { 0 };
        if tx.board().pipe() + kept >= tx.cwnd() {
            return Pick::Nothing;
        }
        match lost {
            Some((from, to)) => Pick::Again(from, to),
            None => Pick::Next,
        }
    }

    fn on_sent(&mut self, tx: &mut SenderView<'_>, _from: u64, _to: u64) {
        self.first = false;
        if tx.phase() == Phase::Recovery {
            self.proportion.out += 1;
        }
    }
}
