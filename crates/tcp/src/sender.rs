//! The sending half: sequence space, windows, timers; what acknowledgements mean and what may go
//! out next. Which segments are lost is the [`Recovery`](crate::recovery::Recovery)'s affair, how
//! the window grows the congestion control's.
//!
//! Sequence space is counted in 64-bit offsets: the SYN is 0, byte `k` of the stream `k + 1`, the
//! FIN follows the last byte.

mod delivery_sampler;
mod nagle;
mod pacer;
mod recovery_context;
mod round_trip_samples;

pub use recovery_context::RecoveryContext;

use crate::ecn::EcnSender;
use crate::rto::Rto;
use crate::user_timeout::in_milliseconds;
use crate::{Config, Counters, LossCause};
use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_cc::{self as cc, Congestion, FirstUnacked, Phase, Signal, Window};
use bentpipe_scoreboard::{MinRtt, NewlyAcked, Scoreboard};
use bentpipe_stream::SendBuffer;
use delivery_sampler::DeliverySampler;
use std::sync::Arc;
use std::time::Duration;

/// Segments that leave unpaced at the start of a connection, as Linux has it: their spacing tells
/// the link's rate.
const UNPACED: u32 = 10;

/// What one acknowledgement told, for loss recovery and congestion control.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckSample {
    /// When it arrived.
    pub(crate) now: Instant,
    /// What it told of segments in flight.
    pub(crate) newly_acked: NewlyAcked,
    /// Sample of the round-trip time, exact.
    pub(crate) rtt: Option<Duration>,
    /// Segments newly found lost.
    pub(crate) lost: u32,
    /// The highest byte that its SACK blocks name, plus one.
    pub(crate) highest: Option<u64>,
    /// The bytes that it reported to have arrived twice (D-SACK, RFC 2883).
    pub(crate) duplicate: Option<(u64, u64)>,
    /// It reported bytes to be missing (SNACK): those of [`Sender::missing`].
    pub(crate) snack: bool,
    /// The peer's timestamp, where timestamps were agreed on.
    pub(crate) stamp: Option<u32>,
    /// The age of our timestamp that the peer echoed, in whole milliseconds.
    pub(crate) echo: Option<Duration>,
}

impl AckSample {
    /// What an acknowledgement told that arrived at `now`: nothing yet.
    #[inline]
    pub(crate) fn at(now: Instant) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }
}

/// What to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextSend {
    /// Nothing now.
    Nothing,
    /// The segment at `Sender::next`: new bytes, or old ones after going back.
    Next,
    /// A retransmission of these bytes, at most one segment of them.
    Again(u64, u64),
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) config: Arc<Config>,
    /// Number of the SYN.
    pub(crate) iss: Seq,
    /// The first offset not acknowledged.
    pub(crate) una: u64,
    /// The offset to send next.
    pub(crate) next: u64,
    /// The end of all that was ever sent.
    pub(crate) max: u64,
    /// The peer tells by SACK what it holds.
    pub(crate) has_sack: bool,
    /// The right edge of the peer's window.
    pub(crate) limit: u64,
    /// The largest window that the peer offered, in bytes.
    pub(crate) largest: u64,
    /// Payload of a full segment.
    pub(crate) mss: u32,
    /// The congestion window.
    pub(crate) window: Window,
    pub(crate) congestion: Box<dyn Congestion>,
    /// For a congestion control that asks for it.
    sampler: Option<Box<DeliverySampler>>,
    pub(crate) ecn: EcnSender,
    /// The state of loss recovery, as congestion control was told.
    pub(crate) phase: Phase,
    pub(crate) board: Scoreboard,
    /// The bytes in flight that the latest SNACK reported to be missing, rising.
    pub(crate) missing: Vec<(u64, u64)>,
    /// Losses are taken for corruption until then, whatever the configuration says.
    pub(crate) corrupted_until: Instant,
    pub(crate) rto: Rto,
    /// The least round-trip time, where the recovery keeps it.
    pub(crate) min_rtt: MinRtt,
    /// The retransmission timer, or the persist timer.
    pub(crate) timer: Instant,
    /// The timer is the persist timer (RFC 9293, section 3.8.6.1).
    pub(crate) persisting: bool,
    /// The recovery's own timer.
    pub(crate) reorder: Instant,
    /// Expiries in a row.
    pub(crate) retries: u32,
    /// In milliseconds; 0: none.
    pub(crate) user_timeout: u32,
    /// Since when nothing was acknowledged of what is in flight, or waits before a shut window.
    pub(crate) stalled: Instant,
    /// The segment whose round trip is taken: where it ends, when it was sent.
    timed: Option<(u64, Instant)>,
    /// The round trip of the SYN, exact.
    handshake: Option<Duration>,
    pub(crate) stream: SendBuffer,
    /// A FIN follows the stream.
    pub(crate) fin: bool,
    /// A small segment may go out in spite of the silly window syndrome, because the persist timer expired.
    pub(crate) forced: bool,
    /// A small segment waits while data is in flight (RFC 9293, section 3.7.4).
    pub(crate) nagle: bool,
    /// Where the last small segment sent for the first time ends.
    small: u64,
    /// The application says that more follows: a small segment waits for it.
    pub(crate) corked: bool,
    /// The window was what stopped the last transmission.
    pub(crate) cwnd_limited: bool,
    /// Segments sent since the phase began.
    sent: u32,
    /// When the pacer lets the next segment go.
    pub(crate) pace: Instant,
    /// When the pacer last let segments go, and how many.
    together: (Instant, u32),
    unpaced: u32,
    /// How late the segment leaves for which the pacer waits: nothing in virtual time.
    late: Duration,
    /// When anything was last sent.
    last_sent: Instant,
    pub(crate) counters: Counters,
}

impl Sender {
    pub(crate) fn new(config: Arc<Config>, iss: Seq) -> Self {
        let mss = u32::from(config.mss.max(1));
        let congestion = (config.congestion.new)(&config.settings);
        let mut sender = Self {
            iss,
            una: 0,
            next: 0,
            max: 0,
            has_sack: false,
            limit: 0,
            largest: 0,
            mss,
            window: Window {
                cwnd: config.initial_window.max(1),
                ssthresh: u32::MAX,
                in_flight: 0,
                offered: u32::MAX,
                mss: Bytes(u64::from(mss)),
                wire: config.on_the_wire(mss),
                pacing: None,
            },
            congestion,
            sampler: None,
            ecn: EcnSender::default(),
            phase: Phase::Open,
            board: Scoreboard::default(),
            missing: Vec::new(),
            corrupted_until: Instant::ZERO,
            rto: Rto::new(&config),
            min_rtt: MinRtt::default(),
            timer: Instant::MAX,
            persisting: false,
            reorder: Instant::MAX,
            retries: 0,
            user_timeout: in_milliseconds(config.user_timeout),
            stalled: Instant::ZERO,
            timed: None,
            handshake: None,
            stream: SendBuffer::default(),
            fin: false,
            forced: false,
            nagle: config.nagle,
            small: 0,
            corked: false,
            cwnd_limited: true,
            sent: 0,
            pace: Instant::ZERO,
            together: (Instant::ZERO, 0),
            late: Duration::ZERO,
            unpaced: if config.pacing.is_some() || config.scps.is_some() {
                0
            } else {
                UNPACED
            },
            last_sent: Instant::ZERO,
            counters: Counters::default(),
            config,
        };
        sender.sample_deliveries();
        sender
    }

    /// Begins to send data, with `mss` payload bytes a segment: the handshake is complete.
    pub(crate) fn establish(&mut self, mss: u32, now: Instant) {
        self.mss = mss.max(1);
        self.window.mss = Bytes(u64::from(self.mss));
        self.window.wire = self.config.on_the_wire(self.mss);
        self.last_sent = now;
        self.heed_lost_syn();
        self.retries = 0;
        let rtt = self.handshake;
        self.congestion.init(&mut self.window, now, rtt);
    }

    /// A handshake whose SYN or SYN-ACK was lost is followed by a window of one segment.
    pub(crate) fn heed_lost_syn(&mut self) {
        let lost_syn = self.counters.timeouts > 0;
        if lost_syn && !self.config.ns2.after_lost_syn(&mut self.window) {
            // RFC 5681, section 3.1, and RFC 6298, section 5.7. The slow-start threshold stays as it was: equation 4 of
            // RFC 5681 is for lost data, of which a SYN has none; Linux restores it too (`tcp_init_metrics`).
            self.window.cwnd = 1;
            self.rto.start_over();
        }
    }

    /// The part of the sender that the recovery may see and change.
    #[inline]
    pub(crate) fn recovery_context(&mut self) -> RecoveryContext<'_> {
        RecoveryContext(self)
    }

    /// The sequence number at `offset`.
    pub(crate) fn seq(&self, offset: u64) -> Seq {
        self.iss + offset as u32
    }

    /// The offset that `seq` stands for, by its distance from `una`.
    pub(crate) fn offset(&self, seq: Seq) -> i64 {
        self.una as i64 + i64::from(seq.offset_from(self.seq(self.una)))
    }

    /// The end of the written bytes.
    pub(crate) fn data_end(&self) -> u64 {
        1 + self.stream.end()
    }

    /// The end of all there is to send.
    pub(crate) fn end(&self) -> u64 {
        self.data_end() + u64::from(self.fin)
    }

    pub(crate) fn fin_acked(&self) -> bool {
        self.fin && self.una == self.end()
    }

    /// Bytes sent and not acknowledged.
    pub(crate) fn flight(&self) -> u64 {
        self.next - self.una
    }

    /// Segments that `bytes` make.
    pub(crate) fn segments(&self, bytes: u64) -> u32 {
        (bytes.min(u64::from(u32::MAX)) as u32).div_ceil(self.mss)
    }

    /// Bytes of `segments` full segments.
    pub(crate) fn bytes(&self, segments: u32) -> u64 {
        u64::from(segments) * u64::from(self.mss)
    }

    /// Takes the peer's window: `window` bytes from `ack`.
    pub(crate) fn offer(&mut self, ack: u64, window: u64) {
        self.largest = self.largest.max(window);
        self.limit = ack + window;
        if self.persisting && !self.stuck() {
            self.persisting = false;
            self.timer = Instant::MAX;
            self.retries = 0;
            // The backoff was that of window probes, not of losses (Linux `tcp_ack_probe`).
            self.rto.reset_backoff();
        }
    }

    /// Takes an acknowledgement of all before `ack`, with SACK `blocks`; `sample` is told what it told. `echo` is the age of our
    /// timestamp that the peer echoed.
    pub(crate) fn acknowledge(
        &mut self,
        ack: u64,
        blocks: &[(u64, u64)],
        echo: Option<Duration>,
        sample: &mut AckSample,
    ) {
        self.check_app_limited();
        let now = sample.now;
        let prior_in_flight = self.board.pipe();
        let newly_acked = &mut sample.newly_acked;
        newly_acked.certain_until = self.certain_until(echo, now);
        sample.highest = blocks.iter().map(|block| block.1).max();
        for &(from, to) in blocks {
            self.board.sack(from, to, newly_acked);
        }
        if ack > self.una {
            self.counters.bytes_acked +=
                ack.min(self.data_end()) - self.una.clamp(1, self.data_end()).min(ack);
            self.board.acknowledge(ack, newly_acked);
            self.una = ack;
            self.next = self.next.max(ack);
            self.stream.release(ack - 1);
            self.retries = 0;
            self.stalled = now;
        }
        let rtt = self.round_trip(&sample.newly_acked, echo, now);
        let newly_acked = &mut sample.newly_acked;
        if let Some(sampler) = &mut self.sampler {
            sampler.acknowledge(newly_acked, (prior_in_flight, self.una), rtt, now);
        }
        self.clock(ack, newly_acked, echo, now);
        (sample.rtt, sample.echo) = (rtt, echo);
    }

    /// Tells congestion control of an acknowledgement by which `delivered` segments count.
    pub(crate) fn grow(&mut self, sample: &AckSample, delivered: u32) {
        self.tell_losses(sample.now);
        let rules = &self.config.ns2;
        let ack = cc::Ack {
            now: sample.now,
            una: self.seq(self.una),
            next: self.seq(self.next),
            rtt: sample.rtt,
            srtt: self.rto.srtt(),
            acked: rules.growth(delivered),
            lost: sample.lost,
            sent: self.sent,
            phase: self.phase,
            cwnd_limited: self.cwnd_limited || rules.ignores_use(),
            hungry: self.end().saturating_sub(self.next) > u64::from(self.mss),
            stamp: sample.stamp,
            delivery: self.sampler.as_mut().map(|sampler| sampler.take()),
        };
        self.congestion.on_ack(&mut self.window, &ack);
        if let Some(sampler) = &mut self.sampler
            && self.congestion.holds_back()
        {
            sampler.limit(self.board.pipe());
        }
    }

    /// The first segment that is not acknowledged, for which duplicate acknowledgements ask.
    pub(crate) fn first_unacked(&self, now: Instant) -> FirstUnacked {
        let first = self.board.get(self.una);
        FirstUnacked {
            now,
            sent: first.map_or(now, |sent| sent.at),
            transmits: first.map_or(1, |sent| u32::from(sent.transmits.max(1))),
        }
    }

    /// Tells congestion control what is in flight, in segments, and what the peer's window holds.
    pub(crate) fn look(&mut self, in_flight: u32) {
        let offered = self.largest / u64::from(self.mss);
        self.window.offered = u32::try_from(offered).unwrap_or(u32::MAX);
        self.window.in_flight = in_flight;
    }

    /// Takes a new slow-start threshold and the window that goes with it: a loss was found at `now`.
    pub(crate) fn reduce(&mut self, in_flight: u32, now: Instant) {
        self.look(in_flight);
        if self.loss_cause(now) == LossCause::Corruption || self.is_in_cwr() {
            return;
        }
        self.note_reduction();
        let hole = self.first_unacked(now);
        self.window.ssthresh = self.congestion.ssthresh_for(&self.window, &hole);
        if !self.congestion.governs_recovery() {
            self.window.cwnd = self.window.ssthresh.max(1);
        }
    }

    /// The state of loss recovery changes; a reduction for marks ends by itself.
    pub(crate) fn enter(&mut self, phase: Phase) {
        let stays_reduced = self.is_in_cwr() && matches!(phase, Phase::Open | Phase::Disorder);
        if self.phase != phase && !stays_reduced {
            self.phase = phase;
            if phase != Phase::Disorder {
                self.sent = 0;
            }
            self.congestion.on_phase(&mut self.window, phase);
        }
    }

    /// Enters loss state after a retransmission timeout: a window of one segment, and slow start from the first one.
    /// The threshold is reduced where that is asked for.
    pub(crate) fn enter_loss(&mut self, in_flight: u32, reduces: bool, now: Instant) {
        let congested = self.loss_cause(now) == LossCause::Congestion;
        if congested && reduces && !self.is_in_cwr() {
            self.look(in_flight);
            self.window.ssthresh = self.congestion.ssthresh(&self.window);
        }
        self.tell_losses(now);
        if congested {
            self.note_reduction();
            self.window.cwnd = 1;
        }
        self.enter(Phase::Loss);
        if congested {
            self.congestion
                .on_signal(&mut self.window, Signal::Timeout, now);
        }
        self.rto.back_off();
        self.restart(now);
    }

    /// Starts the retransmission timer anew where data is in flight, and stops it where none is.
    pub(crate) fn settle(&mut self, now: Instant) {
        if self.una < self.max {
            self.timer = self.within_user_timeout(self.rto.expiry(now));
            self.persisting = false;
        } else {
            self.timer = Instant::MAX;
        }
    }

    /// Starts the retransmission timer anew, and takes no round trip of what is sent again.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.timed = None;
        self.settle(now);
    }

    /// Records that the SYN is sent, for the first time or again.
    pub(crate) fn sent_syn(&mut self, now: Instant) {
        self.counters.segments_sent += 1;
        if self.max == 0 {
            self.stalled = now;
        }
        // Only the round trip of a SYN that was sent once is certain (Karn's rule).
        self.timed = (self.max == 0).then_some((1, now));
        // What a server sent before its answer to the SYN was acknowledged (Fast Open) stays sent.
        self.max = self.max.max(1);
        self.next = self.max;
        self.settle(now);
    }

    /// Records that the segment `[from, to)` is sent, `payload` bytes and a FIN if there is one more.
    #[inline]
    pub(crate) fn sent(&mut self, from: u64, to: u64, payload: u64, now: Instant) {
        self.counters.segments_sent += 1;
        if payload > 0 {
            self.counters.data_sent += 1;
            self.counters.bytes_sent += payload;
        }
        let idle = self.una == self.max;
        if idle && !self.persisting {
            self.stalled = now;
        }
        let before = self.sampler.is_some().then(|| self.board.pipe());
        if from < self.max {
            if payload > 0 {
                self.counters.retransmitted += 1;
                self.counters.bytes_retransmitted += payload.min(self.max - from);
            }
            self.board.resent(from, to.min(self.max), now);
        }
        if to > self.max {
            if payload > 0 && payload < u64::from(self.mss) {
                self.small = to;
            }
            self.board.push(from.max(self.max), to, now);
            if self.timed.is_none() && self.config.ns2.one_timed_segment {
                self.timed = Some((to, now));
            }
            self.max = to;
        }
        if let (Some(sampler), Some(before)) = (&mut self.sampler, before) {
            let after = self.board.pipe();
            sampler.sent(to, before, after, now);
            if after >= self.window.cwnd {
                sampler.fill(self.max);
            }
        }
        self.next = self.next.max(to);
        self.sent = self.sent.saturating_add(1);
        self.last_sent = now;
        self.forced = false;
        if idle || self.persisting || self.timer == Instant::MAX {
            self.settle(now);
        }
        self.hold_back(payload, now);
    }

    /// Data is about to be sent after a silence: tells congestion control, and after one longer
    /// than the timeout starts from the initial window (RFC 5681, section 4.1).
    #[inline]
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.una == self.max {
            self.wake_idle(now);
        }
    }

    fn wake_idle(&mut self, now: Instant) {
        // A control that models the path keeps its window (Linux `tcp_slow_start_after_idle_check`).
        let restarts = !self.config.ns2.ignores_use() && self.sampler.is_none();
        if restarts && self.max > 1 && now.since(self.last_sent) > self.rto.timeout() {
            self.restart_window(now);
        }
        self.congestion
            .on_signal(&mut self.window, Signal::Start, now);
    }

    /// After a silence the window is the initial one, or it is halved for each timeout of silence, and the threshold keeps three
    /// quarters of it in mind (RFC 2861; Linux `tcp_cwnd_restart`).
    fn restart_window(&mut self, now: Instant) {
        let least = self.window.cwnd.min(self.config.initial_window.max(1));
        if self.config.halves_when_idle {
            let timeout = self.rto.timeout();
            let mut silence = now.since(self.last_sent).saturating_sub(timeout);
            let cwnd = self.window.cwnd;
            self.window.ssthresh = self.window.ssthresh.max((cwnd >> 1) + (cwnd >> 2));
            while !silence.is_zero() && self.window.cwnd > least {
                self.window.cwnd /= 2;
                silence = silence.saturating_sub(timeout);
            }
            self.window.cwnd = self.window.cwnd.max(least);
        } else {
            self.window.cwnd = least;
        }
        let window = &mut self.window;
        self.congestion.on_signal(window, Signal::Restart, now);
    }

    /// The bytes to send at [`next`](Self::next) by Nagle's rule, and without the silly window
    /// syndrome (RFC 9293, sections 3.7.4 and 3.8.6.2.1); the end is after the FIN if that goes
    /// with them.
    #[inline]
    pub(crate) fn cut(&self) -> Option<u64> {
        let to = self.next + u64::from(self.mss);
        if to < self.data_end() && to <= self.limit.max(self.max) {
            return Some(to);
        }
        self.cut_short()
    }

    /// [`Self::cut`] at the end of what was written or of the window.
    fn cut_short(&self) -> Option<u64> {
        let end = self.data_end();
        let limit = self.limit.max(self.max);
        if self.next >= end {
            // Only the FIN can be left.
            let due = self.fin && self.next == end && (limit > self.next || self.forced);
            return due.then_some(end + 1);
        }
        let to = (self.next + u64::from(self.mss)).min(end).min(limit);
        let len = to.checked_sub(self.next).filter(|len| *len > 0)?;
        let whole = to == end;
        let small = len < u64::from(self.mss);
        if small && self.next >= self.max && !self.forced {
            let eager = !self.corked && !self.waits_by_nagle() || self.fin;
            if !(whole && eager || len * 2 >= self.largest && len * 2 > u64::from(self.mss)) {
                return None;
            }
        }
        Some(to + u64::from(whole && self.fin && limit > to))
    }

    /// Whether only the peer's window keeps bytes back, so that the persist timer must run.
    pub(crate) fn stuck(&self) -> bool {
        self.una == self.max && self.next < self.end() && {
            let len = self.limit.saturating_sub(self.next);
            len < (self.end() - self.next).min(u64::from(self.mss))
        }
    }
}
