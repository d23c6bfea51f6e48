//! What a loss recovery sees of the sender, and what it may do with it: the sequence space and the scoreboard, the
//! window, and when timers start anew. The streams, the peer's window, the pacer and the counters are none of its
//! business.

use super::{AckSample, Sender};
use crate::LossCause;
use crate::ns2;
use bentpipe_base::Instant;
use bentpipe_cc::{FirstUnacked, Phase, Signal};
use bentpipe_scoreboard::Scoreboard;
use std::time::Duration;

/// The sender, as a [`Recovery`](crate::recovery::Recovery) sees it. Sequence space is counted in 64-bit offsets, the
/// window in segments.
#[derive(Debug)]
pub struct RecoveryContext<'a>(pub(super) &'a mut Sender);

/// What it sees.
impl RecoveryContext<'_> {
    /// The first offset not acknowledged (SND.UNA).
    #[inline]
    pub(crate) fn una(&self) -> u64 {
        self.0.una
    }

    /// The offset to send next (SND.NXT).
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.0.next
    }

    /// The end of all that was ever sent.
    #[inline]
    pub(crate) fn max(&self) -> u64 {
        self.0.max
    }

    /// The end of all there is to send.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.0.end()
    }

    /// Whether all there will ever be to send was sent once, the FIN too.
    pub(crate) fn has_sent_fin(&self) -> bool {
        let tx = &*self.0;
        tx.fin && tx.next == tx.end()
    }

    /// Payload of a full segment, in bytes.
    #[inline]
    pub(crate) fn mss(&self) -> u32 {
        self.0.mss
    }

    /// Bytes sent and not acknowledged, the SYN apart.
    #[inline]
    pub(crate) fn flight(&self) -> u64 {
        self.0.next.saturating_sub(self.0.una.max(1))
    }

    /// Segments that `bytes` make.
    #[inline]
    pub(crate) fn segments(&self, bytes: u64) -> u32 {
        self.0.segments(bytes)
    }

    /// Bytes of `segments` full segments.
    #[inline]
    pub(crate) fn bytes(&self, segments: u32) -> u64 {
        self.0.bytes(segments)
    }

    /// The segments in flight.
    #[inline]
    pub(crate) fn board(&self) -> &Scoreboard {
        &self.0.board
    }

    /// The segments in flight, to be judged.
    #[inline]
    pub(crate) fn board_mut(&mut self) -> &mut Scoreboard {
        &mut self.0.board
    }

    /// The segment that acknowledgements ask for.
    pub(crate) fn first_unacked(&self, now: Instant) -> FirstUnacked {
        self.0.first_unacked(now)
    }

    /// The state of loss recovery.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.0.phase
    }

    /// The congestion window.
    #[inline]
    pub(crate) fn cwnd(&self) -> u32 {
        self.0.window.cwnd
    }

    /// The slow-start threshold.
    #[inline]
    pub(crate) fn ssthresh(&self) -> u32 {
        self.0.window.ssthresh
    }

    /// The congestion control sets the window in recovery too.
    pub(crate) fn governs_recovery(&self) -> bool {
        self.0.congestion.governs_recovery()
    }

    /// The congestion control is told of every acknowledgement, duplicate ones too.
    pub(crate) fn samples_deliveries(&self) -> bool {
        self.0.samples_deliveries()
    }

    /// Whether the congestion control's own timeout of `first` has passed.
    pub(crate) fn expired(&self, first: &FirstUnacked) -> bool {
        self.0.congestion.expired(first)
    }

    /// Duplicate acknowledgements that mean a loss.
    #[inline]
    pub(crate) fn dupthresh(&self) -> u32 {
        self.0.config.dupthresh
    }

    /// The first duplicate acknowledgements each release a new segment (RFC 3042).
    #[inline]
    pub(crate) fn limited_transmit(&self) -> bool {
        self.0.config.limited_transmit
    }

    /// What losses that are found at `now` mean.
    pub(crate) fn loss_cause(&self, now: Instant) -> LossCause {
        self.0.loss_cause(now)
    }

    /// The bytes in flight that the acknowledgement being processed reported to be missing.
    pub(crate) fn take_missing(&mut self) -> Vec<(u64, u64)> {
        core::mem::take(&mut self.0.missing)
    }

    /// Whether SACK was agreed on.
    pub(crate) fn has_sack(&self) -> bool {
        self.0.has_sack
    }

    /// Whether D-SACK takes reductions back.
    pub(crate) fn undoes_by_dsack(&self) -> bool {
        self.0.config.dsack
    }

    /// Whether F-RTO looks for spurious timeouts.
    pub(crate) fn looks_for_spurious_timeouts(&self) -> bool {
        self.0.config.frto
    }

    /// Whether timestamps tell of reductions for nothing.
    pub(crate) fn undoes_by_timestamps(&self) -> bool {
        self.0.config.eifel
    }

    /// Segments with data that were sent again so far.
    pub(crate) fn retransmitted(&self) -> u64 {
        self.0.counters.retransmitted
    }

    /// Whether there are bytes that were never sent and that the peer's window lets go.
    pub(crate) fn has_new_data(&self) -> bool {
        let tx = &*self.0;
        tx.next == tx.max && tx.next < tx.end() && tx.limit > tx.next
    }

    /// Whether the retransmission timer expired since new data was last acknowledged.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.0.retries > 0
    }

    /// Whether the same data did not run into a timeout before (RFC 5681, section 3.1).
    pub(crate) fn is_first_timeout(&self) -> bool {
        self.0.retries <= 1
    }

    /// When the last segment was sent.
    pub(crate) fn last_sent(&self) -> Instant {
        self.0.last_sent
    }

    /// When the retransmission timer expires.
    pub(crate) fn expiry(&self) -> Instant {
        self.0.timer
    }

    /// The retransmission timeout.
    pub(crate) fn rto(&self) -> Duration {
        self.0.rto.timeout()
    }

    /// When [`on_timer`](crate::recovery::Recovery::on_timer) is called; `Instant::MAX`: not at all.
    pub(crate) fn recovery_timer(&self) -> Instant {
        self.0.reorder
    }

    /// First congestion window.
    pub(crate) fn initial_window(&self) -> u32 {
        self.0.config.initial_window
    }

    /// What is reckoned as in ns-2.
    pub(crate) fn ns2(&self) -> &ns2::Quirks {
        &self.0.config.ns2
    }

    /// The smoothed round-trip time.
    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.0.rto.srtt()
    }

    /// The least round-trip time of late, of the samples that [`Self::observe_min_rtt`] was given.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.0.min_rtt.get()
    }
}

/// What it does.
impl RecoveryContext<'_> {
    /// Goes on sending from `offset`: with what was sent before, or without.
    pub(crate) fn send_from(&mut self, offset: u64) {
        self.0.next = offset;
    }

    /// A recovery begins, for the count of them.
    pub(crate) fn count_recovery(&mut self) {
        self.0.counters.recoveries += 1;
    }

    /// Holds the congestion window at `segments`.
    #[inline]
    pub(crate) fn set_cwnd(&mut self, segments: u32) {
        self.0.window.cwnd = segments;
    }

    /// Sets the slow-start threshold.
    pub(crate) fn set_ssthresh(&mut self, segments: u32) {
        self.0.window.ssthresh = segments;
    }

    /// Tells the congestion control how many segments are in flight.
    #[inline]
    pub(crate) fn set_in_flight(&mut self, segments: u32) {
        self.0.window.in_flight = segments;
    }

    /// Tells the congestion control of an acknowledgement.
    #[inline]
    pub(crate) fn grow(&mut self, sample: &AckSample) {
        let newly = &sample.newly_acked;
        let delivered = match self.0.phase {
            Phase::Open => newly.acked,
            // Data that one acknowledgement covers after a timeout arrived long before, so it counts as one segment
            // (RFC 3465, section 2.3).
            Phase::Loss => newly.delivered.min(1),
            _ => newly.delivered,
        };
        self.0.grow(sample, delivered);
    }

    /// As [`Self::grow`], where `delivered` segments count whatever the state.
    #[inline]
    pub(crate) fn grow_by(&mut self, sample: &AckSample, delivered: u32) {
        self.0.grow(sample, delivered);
    }

    /// The state of loss recovery changes.
    #[inline]
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.0.enter(phase);
    }

    /// Takes a new slow-start threshold and the window that goes with it: a loss was found at `now`.
    pub(crate) fn reduce(&mut self, in_flight: u32, now: Instant) {
        self.0.reduce(in_flight, now);
    }

    /// The last reduction was for nothing: the window and the threshold are what they were before it, `cwnd` and
    /// `ssthresh`, where they are not greater.
    pub(crate) fn undo(&mut self, cwnd: u32, ssthresh: u32) {
        let tx = &mut *self.0;
        tx.window.cwnd = tx.congestion.undo(&tx.window, cwnd);
        tx.window.ssthresh = tx.window.ssthresh.max(ssthresh);
        tx.counters.undone += 1;
    }

    /// The next segment goes out however small it is.
    pub(crate) fn force(&mut self) {
        self.0.forced = true;
    }

    /// A loss probe goes out, for the count of them.
    pub(crate) fn count_loss_probe(&mut self) {
        self.0.counters.loss_probes += 1;
    }

    /// A reduction of the window is complete.
    pub(crate) fn reduced(&mut self, now: Instant) {
        self.signal(Signal::Reduced, now);
    }

    /// Tells the congestion control of `signal`.
    pub(crate) fn signal(&mut self, signal: Signal, now: Instant) {
        let tx = &mut *self.0;
        tx.congestion.on_signal(&mut tx.window, signal, now);
    }

    /// The retransmission timer expired: see [`Sender::enter_loss`].
    pub(crate) fn enter_loss(&mut self, in_flight: u32, reduces: bool, now: Instant) {
        self.0.enter_loss(in_flight, reduces, now);
    }

    /// Starts the retransmission timer anew where data is in flight, and stops it where none is.
    #[inline]
    pub(crate) fn settle(&mut self, now: Instant) {
        self.0.settle(now);
    }

    /// Starts the retransmission timer anew, and takes no round trip of what is sent again.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.0.restart(now);
    }

    /// Wants, at `now`, [`on_timer`](crate::recovery::Recovery::on_timer) to be called `at` a time; `Instant::MAX`: not at all.
    pub(crate) fn set_timer(&mut self, now: Instant, at: Instant) {
        self.0.reorder = self.0.config.timers.expiry(now, at);
    }

    /// Stops the timer of [`Self::set_timer`].
    pub(crate) fn stop_timer(&mut self) {
        self.0.reorder = Instant::MAX;
    }

    /// Backs the retransmission timeout off.
    pub(crate) fn back_off(&mut self) {
        self.0.rto.back_off();
    }

    /// What is sent is known to arrive, though no sample could be taken: ends the backoff.
    pub(crate) fn reset_backoff(&mut self) {
        self.0.rto.reset_backoff();
    }

    /// A sample of the round-trip time that leaves the backoff as it is.
    pub(crate) fn observe_rtt(&mut self, sent: Instant, now: Instant) {
        let flight = self.0.una..self.0.next;
        self.0.rto.observe(sent, now, flight);
    }

    /// A sample for the least round-trip time.
    pub(crate) fn observe_min_rtt(&mut self, rtt: Duration, now: Instant) {
        self.0.min_rtt.observe(rtt, now);
    }

    /// Takes samples of what SACK blocks name: see [`Sender::clock_by_sack`].
    pub(crate) fn clock_by_sack(&mut self, sample: &mut AckSample) {
        self.0.clock_by_sack(sample);
    }
}
