//! What the recoveries that read SACK blocks share: retransmission of exactly what is lost while
//! the segments on their way ("pipe") leave room in the window (RFC 6675, section 5). How a loss is
//! detected is the [`Detect`]'s.
//!
//! Deviations from RFC 6675: pipe counts segments as they were sent, not bytes; rules 3 and 4 of
//! NextSeg (segments not known to be lost) are left out; after a retransmission timeout what the
//! peer holds is still believed unless it shows that it discarded it (RFC 2018, section 8).

use super::{AckSample, NextSend, Recovery, RecoveryContext};
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
    fn observe(&mut self, _tx: &mut RecoveryContext<'_>, _arrival: &AckSample) {}

    /// A recovery, or the one after a timeout, is over.
    fn recovered(&mut self) {}

    /// Judges segments after an acknowledgement; returns how many are newly found lost.
    fn detect(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) -> u32;

    /// Judges segments when the timer of [`RecoveryContext::set_timer`] expires; returns how many.
    fn late(&mut self, _tx: &mut RecoveryContext<'_>, _now: Instant) -> u32 {
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

    fn process(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample, advanced: bool) {
        let mut sample = *sample;
        if D::CLOCKED_BY_SACK {
            tx.clock_by_sack(&mut sample);
        }
        self.detect.observe(tx, &sample);
        // A window without holes has nothing to detect.
        if !tx.board().sacked.is_empty() || tx.phase() != Phase::Open {
            sample.lost = self.detect.detect(tx, &sample);
        }
        let counts = D::COUNTS_DUPACKS && self.dupacks >= tx.dupthresh();
        if counts && tx.phase() != Phase::Loss {
            sample.lost += u32::from(tx.board_mut().judge_first());
        }
        tx.set_in_flight(tx.board().pipe());
        match tx.phase() {
            Phase::Open | Phase::Disorder | Phase::Cwr if tx.board().lost_out() > 0 => {
                self.begin(tx, &sample);
            }
            Phase::Open | Phase::Disorder | Phase::Cwr => {
                let ordered = tx.board().sacked.is_empty();
                tx.enter(if ordered {
                    Phase::Open
                } else {
                    Phase::Disorder
                });
                if advanced {
                    tx.grow(&sample);
                }
            }
            Phase::Recovery if tx.una() >= self.recover => self.finish(tx, &sample),
            Phase::Recovery => {
                tx.grow(&sample);
                self.shrink(tx, &sample);
            }
            Phase::Loss => {
                if advanced {
                    tx.grow(&sample);
                }
                if tx.una() >= self.recover {
                    tx.enter(Phase::Open);
                    self.detect.recovered();
                }
            }
        }
        if advanced {
            tx.settle(sample.now);
        }
    }

    fn begin(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.recover = tx.max();
        self.first = true;
        self.proportion = Prr {
            flight: u64::from(tx.segments(tx.flight())),
            ..Prr::default()
        };
        tx.count_recovery();
        tx.reduce(tx.board().pipe(), sample.now);
        tx.enter(Phase::Recovery);
        tx.grow(sample);
        self.shrink(tx, sample);
        tx.restart(sample.now);
    }

    fn shrink(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if D::PROPORTIONAL && !tx.governs_recovery() {
            let (ssthresh, pipe) = (tx.ssthresh(), tx.board().pipe());
            let delivered = sample.newly_acked.delivered;
            tx.set_cwnd(self.proportion.window(ssthresh, pipe, delivered));
        }
    }

    fn finish(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks = 0;
        self.first = false;
        tx.grow(sample);
        if !tx.governs_recovery() {
            tx.set_cwnd(tx.ssthresh().max(1));
        }
        tx.enter(Phase::Open);
        tx.reduced(sample.now);
        self.detect.recovered();
    }
}

impl<D: Detect> Recovery for SackRecovery<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks = 0;
        self.process(tx, sample, true);
    }

    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if sample.newly_acked.news {
            self.dupacks += 1;
        }
        self.process(tx, sample, false);
    }

    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.dupacks = 0;
        self.first = false;
        self.recover = tx.max();
        let pipe = tx.board().pipe();
        tx.board_mut().lose_all();
        tx.set_timer(Instant::MAX);
        tx.enter_loss(pipe, false, now);
    }

    fn on_timer(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        let lost = self.detect.late(tx, now);
        let begins = matches!(tx.phase(), Phase::Open | Phase::Disorder | Phase::Cwr);
        if lost > 0 && begins {
            self.begin(
                tx,
                &AckSample {
                    now,
                    newly_acked: crate::scoreboard::NewlyAcked::default(),
                    rtt: None,
                    lost,
                    highest: None,
                    duplicate: false,
                    stamp: None,
                },
            );
        }
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        let lost = tx.board_mut().next_lost();
        if self.first
            && let Some((from, to)) = lost
        {
            return NextSend::Again(from, to);
        }
        let quiet = !tx.limited_transmit() && tx.phase() == Phase::Disorder;
        let kept = if quiet { tx.board().sacked_out() } else { 0 };
        if tx.board().pipe() + kept >= tx.cwnd() {
            return NextSend::Nothing;
        }
        match lost {
            Some((from, to)) => NextSend::Again(from, to),
            None => NextSend::Next,
        }
    }

    fn on_sent(&mut self, tx: &mut RecoveryContext<'_>, _from: u64, _to: u64) {
        self.first = false;
        if tx.phase() == Phase::Recovery {
            self.proportion.out += 1;
        }
    }
}
