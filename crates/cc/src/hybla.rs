//! TCP Hybla: C. Caini, R. Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks",
//! Int. J. Satell. Commun. Network. 22(5), 2004, 547-566; fixed point as Linux
//! `net/ipv4/tcp_hybla.c`. The functions are the twins of `crates/bpf/src/bpf/hybla.h`.
//!
//! ```text
//! rho = max(RTT / RTT0, 1), from the smallest RTT seen
//! slow start,           each segment acknowledged: cwnd += 2^rho - 1    [segments]
//! congestion avoidance, each segment acknowledged: cwnd += rho^2 / cwnd [segments]
//! loss: ssthresh = max(cwnd / 2, 2)                                     [segments]
//! ```
//!
//! Deviations:
//! - segments are counted, not acknowledgements (delayed or thinned ACKs do not slow the growth);
//! - the exponent stops at 16 and, unless [`UNCAPPED`], a segment acknowledged adds at most rho;
//! - the first window is min(rho, 32) but not less than the sender's own, paced over one RTT;
//! - where the link's rate is configured, slow start ends at rate * RTT, at the start and after a
//!   recovery too; elsewhere at Hoe's estimate (J. Hoe, "Improving the start-up behavior of a
//!   congestion control scheme for TCP", SIGCOMM 1996) as in the paper: the spacing of the first
//!   acknowledgements, of segments that left unpaced (Linux has neither);
//! - a recovery that runs into the next is one recovery, halved once, unless more than 1/32 of its
//!   segments were lost;
//! - paced at the link rate, else at 2 (slow start) or 1.2 windows an RTT as the kernel does;
//! - the remainder of rho^2 / cwnd is kept exactly;
//! - [`AGGRESSIVE`] (off by default): the rule also runs in recovery.

use crate::fixed_point::{
    AGGRESSIVE, CWND_LIMITED, CWR, LOSS, OPEN, Params, RATE_MAX, RECOVERY, RawAck, RawWindow,
    SEGMENTS_MAX, UNCAPPED, UNPACED, link_rate, payload_rate, rtt_micros, segments, window_rate,
};
use crate::{Ack, Congestion, Gauge, Settings, Window};
use bentpipe_base::Instant;
use std::time::Duration;

/// TCP Hybla on kernel sockets, a BPF program, as users write it.
pub const KERNEL: &str = "bentpipe_hybla";

/// rho = 1: rho has three fractional bits ("3ls").
pub const RHO_ONE: u32 = 8;
/// The largest rho, in eighths.
pub const RHO_MAX: u32 = 65_535;
const EXPONENT_MAX: u32 = 16 << 3;
const FIRST_WINDOW: u32 = 32;

/// 2^(f/8) in units of 1/128 for f = 0..7.
const EIGHTHS: [u8; 8] = [128, 139, 152, 165, 181, 197, 215, 234];

/// [`State::flags`]: in CWR or recovery, the window shrinks towards ssthresh.
pub const REDUCING: u32 = 1;
/// [`State::flags`]: nothing of the first window is acknowledged yet.
pub const FLYING: u32 = 2;
/// [`State::flags`]: after a timeout.
pub const LOSING: u32 = 4;
/// [`State::flags`]: Hoe's estimate is made, or will not be.
pub const ESTIMATED: u32 = 8;

/// Segments whose spacing gives Hoe's estimate, after the first one's.
const TRAIN: u32 = 8;

/// Where the counts of a recovery stop.
const COUNT_MAX: u32 = 1 << 24;

/// `struct bp_hybla`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Smallest round-trip time, in microseconds; 0: unknown.
    pub min_rtt_us: u32,
    /// rho in eighths.
    pub rho: u32,
    /// Fraction of a segment grown in slow start, in 1/128.
    pub cents: u32,
    /// [`REDUCING`], [`FLYING`], [`LOSING`], [`ESTIMATED`].
    pub flags: u32,
    /// Remainder of rho^2 / cwnd, in 1/64 segments squared.
    pub count: u64,
    /// [`AGGRESSIVE`]: segments the window grew in this recovery.
    pub grown: u32,
    /// Segments delivered since this recovery began or ran into the next.
    pub delivered: u32,
    /// Segments delivered since the window was halved.
    pub acked: u32,
    /// Segments lost since the window was halved.
    pub lost: u32,
    /// Hoe's estimate: segments acknowledged.
    pub train: u32,
    /// Hoe's estimate: since then, in nanoseconds; 0: not begun.
    pub train_ns: u64,
}

/// rho in eighths.
pub fn rho(rtt_us: u32, rtt0_us: u32) -> u32 {
    let rho = (u64::from(rtt_us) << 3) / u64::from(rtt0_us.max(1));
    rho.clamp(u64::from(RHO_ONE), u64::from(RHO_MAX)) as u32
}

/// Growth in slow start for `acked` segments, in 1/128 segment.
pub fn slow_start(rho: u32, acked: u32, capped: bool) -> u64 {
    let exponent = rho.min(EXPONENT_MAX);
    let eighths = u64::from(EIGHTHS[(exponent & 7) as usize]);
    let mut each = (eighths << (exponent >> 3)) - 128;
    if capped {
        each = each.min(u64::from(rho) << 4);
    }
    each.wrapping_mul(u64::from(acked))
}

/// Growth in congestion avoidance for `acked` segments: whole segments; the rest stays in `h`.
pub fn avoidance(h: &mut State, rho: u32, cwnd: u32, acked: u32, capped: bool) -> u64 {
    let window = u64::from(cwnd.max(1)) << 3;
    let rho = u64::from(rho);
    let gain = if capped { rho.min(window) } else { rho };
    let grown = gain.wrapping_mul(rho).wrapping_mul(u64::from(acked));
    let sum = h.count.wrapping_add(grown);
    h.count = sum % (window << 3);
    sum / (window << 3)
}

/// One acknowledgement outside recovery, by rho in eighths.
pub fn grow(h: &mut State, w: &mut RawWindow, rho: u32, acked: u32, capped: bool) {
    let mut cwnd = u64::from(w.cwnd);
    if w.cwnd < w.ssthresh {
        let sum = u64::from(h.cents).wrapping_add(slow_start(rho, acked, capped));
        cwnd = cwnd.wrapping_add(sum >> 7).min(u64::from(w.ssthresh));
        h.cents = (sum & 127) as u32;
    } else {
        cwnd = cwnd.wrapping_add(avoidance(h, rho, w.cwnd, acked, capped));
    }
    w.cwnd = cwnd.min(u64::from(SEGMENTS_MAX)) as u32;
}

/// One acknowledgement in recovery: as RFC 6937, one segment goes out for two delivered until `goal`
/// is reached (halving at once would stall the retransmissions); below it, one for each delivered
/// and one more an acknowledgement, unless losses go on.
pub fn reduce(h: &mut State, w: &mut RawWindow, goal: u32, a: &RawAck) {
    let entering = u32::from(h.flags & REDUCING == 0);
    let room = if w.in_flight > goal {
        (h.delivered >> 1).saturating_sub(a.sent)
    } else {
        let due = h.delivered.saturating_sub(a.sent);
        let more = u32::from(a.lost == 0);
        (due.max(a.acked.min(SEGMENTS_MAX)) + more).min(goal - w.in_flight)
    };
    h.flags |= REDUCING;
    // The first retransmission goes at once.
    let cwnd = w.in_flight.saturating_add(room.max(entering));
    w.cwnd = cwnd.min(SEGMENTS_MAX);
}

/// Recovery, or a timeout, begins: where the window is to shrink to, in segments.
pub fn hybla_ssthresh(h: &mut State, w: &RawWindow) -> u32 {
    h.delivered = 0;
    if h.flags & REDUCING != 0 && u64::from(h.lost) << 5 <= u64::from(h.acked) {
        return w.ssthresh;
    }
    h.flags &= !REDUCING;
    (w.cwnd >> 1).max(2)
}

/// Segments that fill the link; 0 where its rate is not configured or no round-trip time is known.
pub fn product(h: &State, w: &RawWindow, p: &Params) -> u32 {
    let product = segments(p.rate.min(RATE_MAX), h.min_rtt_us, w.wire);
    product.min(u64::from(SEGMENTS_MAX)) as u32
}

/// A smaller round-trip time: rho follows; the first one known also gives ssthresh.
pub fn hybla_rtt(h: &mut State, w: &mut RawWindow, p: &Params, rtt_us: u32) {
    let first = h.min_rtt_us == 0;
    if rtt_us == 0 || (!first && rtt_us >= h.min_rtt_us) {
        return;
    }
    h.min_rtt_us = rtt_us;
    h.rho = rho(rtt_us, p.rtt0_us);
    if first && p.rate != 0 {
        w.ssthresh = product(h, w, p).max(2);
    }
}

/// Sets the pacing rate.
pub fn hybla_pace(h: &State, w: &mut RawWindow, p: &Params, srtt_us: u32) {
    let flying = h.flags & FLYING != 0;
    let mut pacing = UNPACED;
    if p.rate != 0 {
        pacing = payload_rate(w, link_rate(p));
    } else if srtt_us != 0 && !flying {
        let tenths = if w.cwnd < w.ssthresh >> 1 { 20 } else { 12 };
        pacing = window_rate(w, srtt_us) * tenths / 10;
    }
    if flying && h.min_rtt_us != 0 {
        pacing = pacing.min(window_rate(w, h.min_rtt_us));
    }
    w.pacing = pacing.max(1);
}

/// The connection starts, its handshake took `rtt_us` (0: unknown).
pub fn hybla_init(h: &mut State, w: &mut RawWindow, p: &Params, rtt_us: u32) {
    *h = State {
        rho: RHO_ONE,
        flags: FLYING,
        ..State::default()
    };
    hybla_rtt(h, w, p, rtt_us);
    w.cwnd = w.cwnd.max((h.rho >> 3).min(FIRST_WINDOW));
    hybla_pace(h, w, p, rtt_us);
}

/// The first segments left back to back: how far apart their acknowledgements come is the rate.
pub fn hoe_estimate(h: &mut State, w: &mut RawWindow, a: &RawAck) {
    if h.train_ns == 0 || a.now_ns < h.train_ns || h.min_rtt_us == 0 {
        h.train = 0;
        h.train_ns = a.now_ns;
        return;
    }
    let elapsed_us = (a.now_ns - h.train_ns) / 1000;
    h.train = h
        .train
        .wrapping_add(a.acked.min(SEGMENTS_MAX))
        .min(SEGMENTS_MAX);
    if elapsed_us > u64::from(h.min_rtt_us) {
        // These acknowledgements are not of one flight.
        h.train = 0;
        h.train_ns = a.now_ns;
        return;
    }
    if h.train < TRAIN {
        return;
    }
    let bytes = u64::from(h.train) * u64::from(w.wire.min(131_071));
    let rate = bytes * 1_000_000 / elapsed_us.max(1);
    let product = segments(rate.min(RATE_MAX), h.min_rtt_us, w.wire);
    let product = product.max(u64::from(w.cwnd)).min(u64::from(SEGMENTS_MAX));
    w.ssthresh = w.ssthresh.min(product as u32);
    h.flags |= ESTIMATED;
}

/// Where a recovery ends, in segments.
fn goal(h: &State, w: &RawWindow) -> u32 {
    w.ssthresh.saturating_add(h.grown).min(SEGMENTS_MAX)
}

/// One acknowledgement in CWR or recovery.
pub fn hybla_recover(h: &mut State, w: &mut RawWindow, a: &RawAck, p: &Params) {
    let acked = a.acked.min(SEGMENTS_MAX);
    let lost = a.lost.min(SEGMENTS_MAX);
    if h.flags & REDUCING == 0 {
        h.grown = 0;
        h.delivered = 0;
        h.acked = 0;
        h.lost = 0;
    }
    h.delivered = h.delivered.wrapping_add(acked).min(COUNT_MAX);
    h.acked = h.acked.wrapping_add(acked).min(COUNT_MAX);
    h.lost = h.lost.wrapping_add(lost).min(COUNT_MAX);
    if p.flags & AGGRESSIVE != 0 {
        let capped = p.flags & UNCAPPED == 0;
        let grown = avoidance(h, h.rho, goal(h, w), acked, capped);
        let grown = u64::from(h.grown).wrapping_add(grown);
        h.grown = grown.min(u64::from(SEGMENTS_MAX)) as u32;
    }
    let goal = goal(h, w);
    reduce(h, w, goal, a);
}

/// One acknowledgement.
pub fn hybla_ack(h: &mut State, w: &mut RawWindow, a: &RawAck, p: &Params) {
    let acked = a.acked.min(SEGMENTS_MAX);
    hybla_rtt(h, w, p, a.rtt_us);
    if acked != 0 {
        h.flags &= !FLYING;
    }
    if p.rate != 0 || a.phase != OPEN {
        h.flags |= ESTIMATED;
    }
    if acked != 0 && h.flags & ESTIMATED == 0 {
        hoe_estimate(h, w, a);
    }
    if a.phase == CWR || a.phase == RECOVERY {
        hybla_recover(h, w, a, p);
    } else {
        if a.phase == LOSS {
            h.flags = (h.flags & !REDUCING) | LOSING;
        } else if h.flags & (REDUCING | LOSING) != 0 {
            if h.flags & REDUCING != 0 {
                w.cwnd = goal(h, w);
            }
            w.ssthresh = w.ssthresh.max(product(h, w, p));
            h.flags &= !(REDUCING | LOSING);
        }
        if a.flags & CWND_LIMITED != 0 {
            let by_rho = a.phase == OPEN || p.flags & AGGRESSIVE != 0;
            let rho = if by_rho { h.rho } else { RHO_ONE };
            grow(h, w, rho, acked, p.flags & UNCAPPED == 0);
        }
    }
    w.cwnd = w.cwnd.max(1);
    hybla_pace(h, w, p, a.srtt_us);
}

/// TCP Hybla as a congestion control.
#[derive(Clone, Debug)]
pub struct Hybla {
    params: Params,
    state: State,
}

impl Hybla {
    /// For one connection.
    pub fn new(settings: &Settings) -> Self {
        Self {
            params: (&settings.link).into(),
            state: State {
                rho: RHO_ONE,
                flags: FLYING,
                ..State::default()
            },
        }
    }
}

impl Congestion for Hybla {
    fn name(&self) -> &'static str {
        "hybla"
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    fn init(&mut self, window: &mut Window, _now: Instant, rtt: Option<Duration>) {
        let mut raw = RawWindow::from(&*window);
        hybla_init(&mut self.state, &mut raw, &self.params, rtt_micros(rtt));
        raw.apply(window);
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let mut raw = RawWindow::from(&*window);
        hybla_ack(&mut self.state, &mut raw, &ack.into(), &self.params);
        raw.apply(window);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        hybla_ssthresh(&mut self.state, &RawWindow::from(window))
    }

    fn undo(&mut self, window: &Window, prior: u32) -> u32 {
        self.state.flags &= !REDUCING;
        window.cwnd.max(prior)
    }

    fn gauges(&self) -> Vec<Gauge> {
        vec![
            ("rho", f64::from(self.state.rho) / 8.0),
            ("min_rtt_ms", f64::from(self.state.min_rtt_us) / 1e3),
        ]
    }
}
