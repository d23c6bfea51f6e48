//! What the recoveries that read SACK blocks share, and the one that deduces what these would tell: retransmission of exactly
//! what is lost while the segments on their way ("pipe") leave room in the window (RFC 6675, section 5). How a loss is detected is the
//! [`Detect`]'s.
//!
//! Deviations from RFC 6675: pipe counts segments as they were sent, not bytes; rules 3 and 4 of
//! NextSeg (segments not known to be lost) are left out; after a retransmission timeout what the
//! peer holds is still believed unless it shows that it discarded it (RFC 2018, section 8).

use super::undo::Undo;
use super::{AckSample, NextSend, Recovery, RecoveryContext};
use crate::LossCause;
use bentpipe_base::Instant;
use bentpipe_cc::Phase;
use std::fmt::Debug;

/// How losses are detected.
pub(super) trait Detect: Debug + Send {
    /// The recovery's name.
    const NAME: &'static str;
    /// The window shrinks in proportion to what is delivered (RFC 9937) rather than at once.
    const PROPORTIONAL: bool = false;
    /// Segments that SACK blocks name give samples of the round-trip time, and put the
    /// retransmission timer off.
    const CLOCKED_BY_SACK: bool = false;

    /// As many duplicate acknowledgements as the configuration says mean that the first segment is lost, whatever is
    /// held beyond it.
    const COUNTS_DUPACKS: bool = true;

    /// There is no SACK: what the peer holds is deduced from counts of acknowledgements.
    const DEDUCES: bool = false;

    /// Deduces from `sample`, in order or not (`advanced`), how many segments arrived, and how many are [held](Self::held). The
    /// recovery under way ends at `recover`.
    fn deduce(
        &mut self,
        _tx: &RecoveryContext<'_>,
        _sample: &mut AckSample,
        _advanced: bool,
        _recover: u64,
    ) {
    }

    /// An acknowledgement came, in order or not: before [`Self::detect`], if that is asked at all.
    fn observe(&mut self, _tx: &mut RecoveryContext<'_>, _arrival: &AckSample) {}

    /// An acknowledgement came with nothing in flight; the bytes of `duplicate` arrived twice.
    fn idle(
        &mut self,
        _tx: &mut RecoveryContext<'_>,
        _duplicate: Option<(u64, u64)>,
        _now: Instant,
    ) {
    }

    /// An acknowledgement that told something new is dealt with, and the retransmission timer started anew.
    fn settled(&mut self, _tx: &mut RecoveryContext<'_>, _now: Instant) {}

    /// A recovery, or the one after a timeout, begins.
    fn began(&mut self) {}

    /// A recovery, or the one after a timeout, is over.
    fn recovered(&mut self) {}

    /// Whether what SACK blocks name lets the window grow where nothing is acknowledged in order.
    fn grows_by_sack(&self) -> bool {
        false
    }

    /// A segment that was taken for lost was only late, and `far` behind others: by more than the duplicate threshold.
    fn reordered(&mut self, _far: bool) {}

    /// Segments that the peer holds besides those that SACK blocks name.
    fn held(&self) -> u32 {
        0
    }

    /// What is to be sent whatever the window says.
    fn probe(&mut self, _tx: &mut RecoveryContext<'_>) -> Option<NextSend> {
        None
    }

    /// A segment was sent, `again` if not for the first time.
    fn sent(&mut self, _tx: &mut RecoveryContext<'_>, _again: bool) {}

    /// Judges segments after an acknowledgement; returns how many are newly found lost.
    fn detect(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) -> u32;

    /// Judges segments when the retransmission timer expires; returns whether those not found lost are still taken to be
    /// on their way.
    fn timed_out(&mut self, tx: &mut RecoveryContext<'_>, _now: Instant) -> bool {
        tx.board_mut().lose_all();
        false
    }

    /// Judges segments when the timer of [`RecoveryContext::set_timer`] expires; returns how many.
    fn late(&mut self, _tx: &mut RecoveryContext<'_>, _now: Instant) -> u32 {
        0
    }
}

/// State of RFC 9937.
#[derive(Debug, Default)]
struct Prr {
    /// Segments delivered in this recovery.
    delivered: u64,
    /// Segments sent in it.
    out: u64,
    /// The window as it began, in segments (Linux `prior_cwnd`; RFC 9937: what was in flight, which filled it).
    before: u64,
}

impl Prr {
    fn new(tx: &RecoveryContext<'_>) -> Self {
        Self {
            before: u64::from(tx.cwnd()),
            ..Self::default()
        }
    }

    /// The window, in segments, after `delivered` more arrived; `safe`: the peer has more in order, and nothing more is lost
    /// (SafeACK).
    fn window(&mut self, ssthresh: u32, pipe: u32, delivered: u32, safe: bool) -> u32 {
        self.delivered += u64::from(delivered);
        let (ssthresh, pipe) = (u64::from(ssthresh), u64::from(pipe));
        let room = if pipe > ssthresh {
            let due = (self.delivered * ssthresh).div_ceil(self.before.max(1));
            due.saturating_sub(self.out)
        } else {
            // Slow start back up to the threshold, unless losses go on.
            let due = self.delivered.saturating_sub(self.out);
            (due.max(u64::from(delivered)) + u64::from(safe)).min(ssthresh - pipe)
        };
        u32::try_from(pipe + room).unwrap_or(u32::MAX).max(1)
    }
}

/// How far F-RTO has come after a timeout (RFC 5682, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frto {
    /// Step 2: the first segment went again, and nothing else goes again before it is acknowledged.
    Resent,
    /// Step 3: new segments go out, and the next acknowledgement decides.
    Forward,
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
    /// The last acknowledgement told that segments are late: new ones go out for it, and none again.
    only_new: bool,
    proportion: Prr,
    /// Where the last segment ended that was sent for the first time.
    sent_until: u64,
    undo: Undo,
    /// Segments that D-SACKs told of.
    told: u64,
    /// `None`: F-RTO has decided, or is switched off.
    frto: Option<Frto>,
}

impl<D: Detect> SackRecovery<D> {
    pub(super) fn new(detect: D) -> Self {
        Self {
            detect,
            dupacks: 0,
            recover: 0,
            first: false,
            only_new: false,
            proportion: Prr::default(),
            sent_until: 0,
            undo: Undo::default(),
            told: 0,
            frto: None,
        }
    }

    fn process(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample, advanced: bool) {
        let mut sample = *sample;
        if D::CLOCKED_BY_SACK {
            tx.clock_by_sack(&mut sample);
        }
        self.detect.deduce(tx, &mut sample, advanced, self.recover);
        sample.duplicate = self.duplicate_of_ours(tx, sample.duplicate);
        self.detect.observe(tx, &sample);
        // For a D-SACK alone the window does not grow (Linux `FLAG_FORWARD_PROGRESS`).
        let by_sack = sample.newly_acked.delivered > 0 && self.detect.grows_by_sack();
        let grows = advanced || tx.samples_deliveries() || by_sack;
        if let Some((from, to)) = sample.duplicate {
            self.arrived_twice(tx, (from, to));
            if D::PROPORTIONAL {
                // What was sent again for nothing has left the network too (Linux `tcp_dsack_seen`).
                sample.newly_acked.delivered += tx.segments(to - from);
            }
        }
        self.only_new = advanced
            && matches!(tx.phase(), Phase::Recovery | Phase::Loss)
            && self.arrived_late(tx, &sample);
        // A window without holes has nothing to detect.
        let holes = !self.is_ordered(tx) || tx.phase() != Phase::Open;
        let again = tx.board().again_out();
        if !self.only_new && (holes || sample.snack) {
            sample.lost = self.detect.detect(tx, &sample);
        }
        let lost_again = tx.board().again_out() < again;
        let counts = D::COUNTS_DUPACKS && self.dupacks >= tx.dupthresh();
        if counts && tx.phase() != Phase::Loss {
            sample.lost += u32::from(tx.board_mut().judge_first());
        }
        if tx.phase() == Phase::Loss && self.is_spurious(tx, &sample, advanced) {
            self.undo.take_back(tx);
            self.reopen(tx);
            sample.lost = self.detect.detect(tx, &sample);
        }
        tx.set_in_flight(self.pipe(tx));
        match tx.phase() {
            Phase::Open | Phase::Disorder | Phase::Cwr if tx.board().lost_out() > 0 => {
                self.begin(tx, &sample, advanced);
            }
            Phase::Open | Phase::Disorder | Phase::Cwr => {
                let ordered = self.is_ordered(tx);
                tx.enter(if ordered {
                    Phase::Open
                } else {
                    Phase::Disorder
                });
                if grows {
                    Self::grow(tx, &sample);
                }
                if tx.phase() == Phase::Cwr {
                    self.shrink(tx, &sample, advanced);
                }
            }
            Phase::Recovery if self.is_over(tx) => {
                self.finish(tx, &sample);
                if D::PROPORTIONAL && tx.board().lost_out() > 0 {
                    self.begin(tx, &sample, advanced);
                }
            }
            Phase::Recovery => {
                Self::grow(tx, &sample);
                self.shrink(tx, &sample, advanced);
            }
            // The queue that lost them is full again: the window is too large even so (Linux `FLAG_LOST_RETRANS`).
            Phase::Loss if D::PROPORTIONAL && lost_again && !self.is_over(tx) => {
                self.begin(tx, &sample, advanced);
            }
            Phase::Loss => {
                if grows {
                    Self::grow(tx, &sample);
                }
                if self.is_over(tx) {
                    tx.enter(Phase::Open);
                    self.detect.recovered();
                    if D::PROPORTIONAL && tx.board().lost_out() > 0 {
                        self.begin(tx, &sample, advanced);
                    }
                }
            }
        }
        if advanced {
            tx.settle(sample.now);
        }
        if advanced || sample.newly_acked.delivered > 0 || sample.snack {
            self.detect.settled(tx, sample.now);
        }
    }

    /// Segments on their way.
    fn pipe(&self, tx: &RecoveryContext<'_>) -> u32 {
        let board = tx.board();
        if D::DEDUCES {
            (board.pipe() + board.sacked_out()).saturating_sub(self.detect.held())
        } else {
            board.pipe()
        }
    }

    /// Lets the window grow. Linux counts all that arrived, also after a timeout.
    fn grow(tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        if D::PROPORTIONAL {
            tx.grow_by(sample, sample.newly_acked.delivered);
        } else {
            tx.grow(sample);
        }
    }

    /// Whether the peer holds no whole segment beyond what it acknowledges: of parts of one Linux makes nothing (`tcp_match_skb_to_sack`).
    fn is_ordered(&self, tx: &RecoveryContext<'_>) -> bool {
        if D::DEDUCES {
            self.detect.held() == 0
        } else {
            tx.board().sacked_out() == 0
        }
    }

    /// Whether a recovery has ended. Without SACK it lasts until what was sent after it began is acknowledged too: copies that
    /// arrive late cause duplicate acknowledgements, which must not begin another one (RFC 6582, section 4; Linux
    /// `tcp_is_non_sack_preventing_reopen`).
    fn is_over(&self, tx: &RecoveryContext<'_>) -> bool {
        tx.una() > self.recover || tx.una() == self.recover && !D::DEDUCES
    }

    /// The bytes that the peer tells to have arrived twice, unless by now it told of more than were sent again: others have sent
    /// copies (Linux `tcp_dsack_seen`).
    fn duplicate_of_ours(
        &mut self,
        tx: &RecoveryContext<'_>,
        duplicate: Option<(u64, u64)>,
    ) -> Option<(u64, u64)> {
        let (from, to) = duplicate?;
        let segments = u64::from(tx.segments(to - from));
        self.told = self.told.saturating_add(segments);
        duplicate.filter(|_| self.told <= tx.retransmitted())
    }

    /// What the peer tells to have arrived twice may mean that the last reduction was for nothing.
    fn arrived_twice(&mut self, tx: &mut RecoveryContext<'_>, duplicate: (u64, u64)) {
        if self.undo.arrived_twice(tx, duplicate)
            && matches!(tx.phase(), Phase::Recovery | Phase::Loss)
        {
            self.reopen(tx);
        }
    }

    /// What an acknowledgement of new data tells by its timestamp: that the segment which was sent again had only been late.
    /// Returns whether it is too early to take the reduction back, for others that were sent again are under way.
    fn arrived_late(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) -> bool {
        if !self.undo.arrived_late(tx, sample) {
            return false;
        }
        if tx.una() < self.recover && tx.phase() == Phase::Recovery {
            let beyond = { sample.highest }.map_or(0, |to| to.saturating_sub(tx.una()));
            self.detect
                .reordered(sample.newly_acked.acked + tx.segments(beyond) > tx.dupthresh());
            if tx.board().again_out() > 0 {
                return true;
            }
        }
        self.undo.take_back(tx);
        self.reopen(tx);
        false
    }

    /// There is nothing to recover from.
    fn reopen(&mut self, tx: &mut RecoveryContext<'_>) {
        tx.board_mut().clear_loss_marks();
        (self.dupacks, self.first, self.frto) = (0, false, None);
        let ordered = self.is_ordered(tx);
        tx.enter(if ordered {
            Phase::Open
        } else {
            Phase::Disorder
        });
    }

    /// F-RTO: whether the acknowledgement shows that the timeout was spurious (RFC 5682, section 3, steps 2 and 3).
    fn is_spurious(
        &mut self,
        tx: &mut RecoveryContext<'_>,
        sample: &AckSample,
        advanced: bool,
    ) -> bool {
        let newly = &sample.newly_acked;
        // Without SACK it may have arrived long before the one that was sent again.
        let certain = !(D::DEDUCES && newly.again);
        let original = newly.highest <= self.recover && newly.lowest_once.is_some() && certain;
        match self.frto {
            None => false,
            // Linux needs no answer to new segments (`FLAG_ORIG_SACK_ACKED`).
            Some(_) if D::PROPORTIONAL && original => true,
            Some(Frto::Resent) => {
                if advanced {
                    let forward = tx.una() < self.recover && tx.has_new_data();
                    self.frto = forward.then_some(Frto::Forward);
                }
                if self.frto == Some(Frto::Forward) {
                    tx.force();
                }
                false
            }
            Some(Frto::Forward) => {
                self.frto = None;
                original
            }
        }
    }

    fn begin(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample, advanced: bool) {
        self.recover = tx.max();
        (self.first, self.frto) = (true, None);
        // A reduction for marks goes on.
        if tx.phase() != Phase::Cwr {
            self.proportion = Prr::new(tx);
        }
        tx.count_recovery();
        self.detect.began();
        self.undo.begin(tx);
        tx.reduce(self.pipe(tx), sample.now);
        tx.enter(Phase::Recovery);
        Self::grow(tx, sample);
        self.shrink(tx, sample, advanced);
        tx.restart(sample.now);
    }

    fn shrink(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample, advanced: bool) {
        if D::PROPORTIONAL && !tx.governs_recovery() {
            let (ssthresh, pipe) = (tx.ssthresh(), self.pipe(tx));
            let (delivered, safe) = (sample.newly_acked.delivered, advanced && sample.lost == 0);
            if delivered == 0 {
                return;
            }
            tx.set_cwnd(self.proportion.window(ssthresh, pipe, delivered, safe));
        }
    }

    fn finish(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample) {
        self.dupacks = 0;
        self.first = false;
        Self::grow(tx, sample);
        if !tx.governs_recovery() && tx.loss_cause(sample.now) == LossCause::Congestion {
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
        let recovering = matches!(tx.phase(), Phase::Recovery | Phase::Loss);
        let unfinished = recovering && tx.una() < self.recover;
        // Within a fast recovery the threshold was reduced for these segments; after a timeout it is once more, where the peer
        // acknowledged something since (Linux `tcp_enter_loss`).
        let reduces = match D::PROPORTIONAL {
            true => !unfinished || tx.phase() == Phase::Loss && tx.is_first_timeout(),
            false => tx.is_first_timeout(),
        };
        let begins = if D::PROPORTIONAL {
            reduces
        } else {
            !unfinished
        };
        // RFC 5682, section 3, step 1: not while a recovery is under way, but for one timeout after another (section 3.2). A
        // path that takes shorter segments only is no timeout, though all goes again for it.
        let looks = tx.looks_for_spurious_timeouts() && tx.has_timed_out();
        let looks = looks
            && match D::PROPORTIONAL {
                true => !recovering || !tx.is_first_timeout(),
                false => !(unfinished && tx.phase() == Phase::Loss),
            };
        self.frto = looks.then_some(Frto::Resent);
        self.detect.began();
        (self.dupacks, self.only_new) = (0, false);
        self.recover = tx.max();
        let pipe = self.pipe(tx);
        self.first = self.detect.timed_out(tx, now);
        if begins {
            self.undo.begin(tx);
        }
        tx.stop_timer();
        tx.enter_loss(pipe, reduces, now);
        if D::PROPORTIONAL {
            // Beside the first segment, what may be on its way.
            tx.set_cwnd(tx.cwnd() + self.pipe(tx));
        }
    }

    fn on_marks(&mut self, tx: &mut RecoveryContext<'_>) -> bool {
        self.proportion = Prr::new(tx);
        D::PROPORTIONAL
    }

    fn on_resume(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        (self.recover, self.frto, self.only_new) = (tx.max(), None, false);
        self.detect.began();
        tx.board_mut().lose_all();
        tx.enter(Phase::Loss);
        tx.restart(now);
    }

    fn on_timer(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.only_new = false;
        let lost = self.detect.late(tx, now);
        let begins = match tx.phase() {
            Phase::Open | Phase::Disorder | Phase::Cwr => true,
            Phase::Loss => D::PROPORTIONAL,
            Phase::Recovery => false,
        };
        if lost > 0 && begins {
            let mut sample = AckSample {
                lost,
                ..AckSample::at(now)
            };
            // One segment goes out (Linux `tcp_rack_reo_timeout`).
            sample.newly_acked.delivered = 1;
            self.begin(tx, &sample, false);
        }
    }

    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend {
        if let Some(probe) = self.detect.probe(tx) {
            return probe;
        }
        let lost = match self.frto {
            Some(Frto::Forward) => None,
            _ if self.only_new => None,
            _ => tx.board_mut().next_lost(),
        };
        if self.first
            && let Some((from, to)) = lost
        {
            return NextSend::Again(from, to);
        }
        let quiet = !tx.limited_transmit() && tx.phase() == Phase::Disorder;
        let held = self.detect.held();
        let kept = match quiet {
            true if D::DEDUCES => held,
            true => tx.board().sacked_out(),
            false => 0,
        };
        let pipe = if D::DEDUCES {
            self.pipe(tx)
        } else {
            tx.board().pipe().saturating_sub(held)
        };
        if pipe + kept >= tx.cwnd() {
            return NextSend::Nothing;
        }
        match lost {
            Some((from, to)) => NextSend::Again(from, to),
            None => NextSend::Next,
        }
    }

    fn on_idle(
        &mut self,
        tx: &mut RecoveryContext<'_>,
        duplicate: Option<(u64, u64)>,
        now: Instant,
    ) {
        let duplicate = self.duplicate_of_ours(tx, duplicate);
        if let Some(duplicate) = duplicate {
            self.arrived_twice(tx, duplicate);
        }
        self.detect.idle(tx, duplicate, now);
    }

    fn on_sent(&mut self, tx: &mut RecoveryContext<'_>, from: u64, to: u64) {
        self.first = false;
        let again = from < self.sent_until;
        self.sent_until = self.sent_until.max(to);
        if again {
            self.undo.resent(tx.last_sent());
        }
        self.detect.sent(tx, again);
        if matches!(tx.phase(), Phase::Recovery | Phase::Cwr) {
            self.proportion.out += 1;
        }
    }
}
