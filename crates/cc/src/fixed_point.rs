//! What Hybla and the rate control share: parameters of a link, the window and one acknowledgement
//! in plain integers, and the arithmetic of pacing. The twin of `crates/bpf/src/bpf/control.h`: same
//! fields, same names without `bp_`, same integer arithmetic, wrapping where C wraps.

use crate::{Ack, LinkParams, Phase, Window};
use bentpipe_base::{Bytes, Rate};
use std::time::Duration;

/// Segments acknowledged at once; also Linux's clamp of Hybla's cwnd.
pub const SEGMENTS_MAX: u32 = 65_535;
/// The longest round-trip time reckoned with, 16.8 s, in microseconds.
pub const RTT_MAX_US: u32 = 1 << 24;
/// The highest rate reckoned with, in bytes a second: 137 Gbit/s.
pub const RATE_MAX: u64 = 1 << 34;
/// The pacing rate that means no pacing.
pub const UNPACED: u64 = u64::MAX;

/// [`Params::flags`]: Hybla keeps growing in recovery.
pub const AGGRESSIVE: u32 = 1;
/// [`Params::flags`]: Hybla grows without the bound of rho a segment.
pub const UNCAPPED: u32 = 2;

/// [`RawAck::phase`]: [`Phase::Open`].
pub const OPEN: u32 = 0;
/// [`RawAck::phase`]: [`Phase::Disorder`].
pub const DISORDER: u32 = 1;
/// [`RawAck::phase`]: [`Phase::Cwr`].
pub const CWR: u32 = 2;
/// [`RawAck::phase`]: [`Phase::Recovery`].
pub const RECOVERY: u32 = 3;
/// [`RawAck::phase`]: [`Phase::Loss`].
pub const LOSS: u32 = 4;

/// [`RawAck::flags`]: the window was what kept the sender from sending more.
pub const CWND_LIMITED: u32 = 1;
/// [`RawAck::flags`]: more data waits than the share of the link could carry.
pub const HUNGRY: u32 = 2;

/// How a link is to be used: `struct bp_params`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Params {
    /// Bytes a second on the wire; 0: unknown.
    pub rate: u64,
    /// Hybla's reference round-trip time, in microseconds.
    pub rtt0_us: u32,
    /// Share of the rate to pace at, 65536 = all of it.
    pub pace_q16: u32,
    /// Queueing delay at which the rate control yields, in microseconds; 0: never.
    pub guard_us: u32,
    /// Bytes that the link adds to a packet. No rule reads it: [`RawWindow::wire`] has it.
    pub overhead: u32,
    /// [`AGGRESSIVE`], [`UNCAPPED`].
    pub flags: u32,
    /// Window of the rate control, in bandwidth-delay products.
    pub windows: u32,
}

/// `struct bp_window`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawWindow {
    /// Segments.
    pub cwnd: u32,
    /// Segments.
    pub ssthresh: u32,
    /// Segments.
    pub in_flight: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Bytes of a full segment on the wire.
    pub wire: u32,
    /// Payload bytes a second, or [`UNPACED`].
    pub pacing: u64,
}

/// `struct bp_ack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawAck {
    /// Nanoseconds of the clock that epochs are cut from.
    pub now_ns: u64,
    /// Sample of the round-trip time, in microseconds; 0: none.
    pub rtt_us: u32,
    /// Smoothed round-trip time, in microseconds; 0: unknown.
    pub srtt_us: u32,
    /// Segments.
    pub acked: u32,
    /// Segments newly found lost.
    pub lost: u32,
    /// Segments sent since this recovery began.
    pub sent: u32,
    /// [`OPEN`] to [`LOSS`].
    pub phase: u32,
    /// [`CWND_LIMITED`], [`HUNGRY`].
    pub flags: u32,
    /// The receiver's timestamp clock when it sent this, in milliseconds; 0: none.
    pub stamp_ms: u32,
}

/// The rate to send at on the wire, in bytes a second.
pub fn link_rate(p: &Params) -> u64 {
    let rate = p.rate.min(RATE_MAX);
    (rate * u64::from(p.pace_q16.min(65_536))) >> 16
}

/// Payload rate whose segments take `wire` bytes a second on the wire, in bytes a second.
pub fn payload_rate(w: &RawWindow, wire: u64) -> u64 {
    let payload = wire.wrapping_mul(u64::from(w.mss.min(65_535)));
    (payload / u64::from(w.wire.clamp(1, 131_071))).max(1)
}

/// Segments of `wire` bytes that `rate` bytes a second carry in a round-trip time.
pub fn segments(rate: u64, rtt_us: u32, wire: u32) -> u64 {
    rate.wrapping_mul(u64::from(rtt_us.min(RTT_MAX_US))) / 1_000_000 / u64::from(wire.max(1))
}

/// Payload rate that sends `cwnd` segments in one round-trip time, in bytes a second.
pub fn window_rate(w: &RawWindow, rtt_us: u32) -> u64 {
    let bytes = u64::from(w.cwnd.min(SEGMENTS_MAX)) * u64::from(w.mss.min(65_535));
    (bytes * 1_000_000 / u64::from(rtt_us.max(1))).max(1)
}

/// Whole microseconds; a time that is not 0 is at least 1, for 0 stands for unknown.
pub(crate) fn micros(time: Duration) -> u32 {
    let whole = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    whole.max(u32::from(!time.is_zero()))
}

/// A round-trip time in microseconds as the kernel side clips it; 0: unknown.
pub(crate) fn rtt_micros(rtt: Option<Duration>) -> u32 {
    rtt.map_or(0, micros).min(RTT_MAX_US)
}

fn narrow(bytes: Bytes) -> u32 {
    u32::try_from(bytes.0).unwrap_or(u32::MAX)
}

impl From<&LinkParams> for Params {
    fn from(link: &LinkParams) -> Self {
        let mut flags = 0;
        if link.aggressive {
            flags |= AGGRESSIVE;
        }
        if link.uncapped {
            flags |= UNCAPPED;
        }
        Self {
            rate: link.rate.map_or(0, Rate::bytes_per_sec),
            rtt0_us: micros(link.rtt0),
            pace_q16: (link.pace.value() * 65_536.0) as u32,
            guard_us: link.guard.map_or(0, micros),
            overhead: narrow(link.overhead),
            flags,
            windows: link.windows,
        }
    }
}

impl From<&Window> for RawWindow {
    fn from(window: &Window) -> Self {
        Self {
            cwnd: window.cwnd,
            ssthresh: window.ssthresh,
            in_flight: window.in_flight,
            mss: narrow(window.mss),
            wire: narrow(window.wire),
            pacing: window.pacing.map_or(UNPACED, Rate::bytes_per_sec),
        }
    }
}

impl RawWindow {
    /// Hands what a control edits back to the sender.
    pub(crate) fn apply(&self, window: &mut Window) {
        window.cwnd = self.cwnd;
        window.ssthresh = self.ssthresh;
        window.pacing = (self.pacing != UNPACED)
            .then(|| Rate::from_bits_per_sec(self.pacing.saturating_mul(8)));
    }
}

impl From<&Ack> for RawAck {
    fn from(ack: &Ack) -> Self {
        let mut flags = 0;
        if ack.cwnd_limited {
            flags |= CWND_LIMITED;
        }
        if ack.hungry {
            flags |= HUNGRY;
        }
        Self {
            now_ns: ack.now.as_nanos(),
            rtt_us: rtt_micros(ack.rtt),
            srtt_us: rtt_micros(ack.srtt),
            acked: ack.acked,
            lost: ack.lost,
            sent: ack.sent,
            phase: match ack.phase {
                Phase::Open => OPEN,
                Phase::Disorder => DISORDER,
                Phase::Cwr => CWR,
                Phase::Recovery => RECOVERY,
                Phase::Loss => LOSS,
            },
            flags,
            stamp_ms: ack.stamp.unwrap_or(0),
        }
    }
}
