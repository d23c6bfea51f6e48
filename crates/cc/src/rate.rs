//! The rate control: for an operator who owns the link. Sends at the flow's share of its rate
//! ([`share`](crate::share)), the configured one or what the guard finds, and takes every loss for
//! corruption. The functions are the twins of `crates/bpf/src/bpf/rate.h`.
//!
//! ```text
//! pacing = share * mss / wire                [payload bytes a second]
//! cwnd   = windows * share * RTTmin / wire   [segments]; one such product until data is
//!          acknowledged and while a queue drains, half of one if that does not drain it, never
//!          less than 10
//! ```
//!
//! No published algorithm: SCPS-TP's pure rate control (CCSDS 714.0-B-2) with a share and a guard.
//! In the kernel, sockets of a link that nobody has configured are Reno (Hybla's rule with rho = 1).

use crate::control::{
    Params, RTT_MAX_US, RawAck, RawWindow, SEGMENTS_MAX, payload_rate, rtt_micros, segments,
};
use crate::guard::TICK_SHIFT;
use crate::share::{Member, Share, budget, join, share_ack, turn};
use crate::{Ack, Congestion, Gauge, Settings, Signal, Window};
use bentpipe_base::Instant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const WINDOW_MIN: u32 = 10;
const WINDOW_MAX: u32 = 1 << 20;

/// `struct bp_rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The flow's part in the link.
    pub member: Member,
    /// 1 once data was acknowledged under the rate control.
    pub started: u32,
}

/// Sets window and pacing for a budget in bytes a second on the wire; `acked` segments were
/// acknowledged.
pub fn rate_apply(r: &mut State, w: &mut RawWindow, p: &Params, budget: u64, acked: u32) {
    if acked != 0 {
        r.started = 1;
    }
    let windows = if r.started != 0 && r.member.draining == 0 {
        p.windows.clamp(1, 16)
    } else {
        1
    };
    let rtt_us = r.member.min_rtt_us;
    w.pacing = payload_rate(w, budget);
    if rtt_us != 0 {
        let cwnd = u64::from(windows).wrapping_mul(segments(budget, rtt_us, w.wire))
            >> u32::from(r.member.draining > 1);
        w.cwnd = cwnd.clamp(u64::from(WINDOW_MIN), u64::from(WINDOW_MAX)) as u32;
    } else {
        w.cwnd = w.cwnd.clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

/// The connection starts, its handshake took `a.rtt_us` (0: unknown).
pub fn rate_init(r: &mut State, a: &RawAck, path: u32) {
    let tick = (a.now_ns >> TICK_SHIFT) as u32;
    *r = State {
        member: Member {
            min_rtt_us: a.rtt_us.min(RTT_MAX_US),
            path,
            origin: if a.stamp_ms == 0 { 0 } else { tick.max(1) },
            origin_ms: a.stamp_ms,
            ..Member::default()
        },
        started: 0,
    };
}

/// The link's configuration has gone: what follows as Reno must not start from several windows, nor
/// end a recovery at a threshold that no loss has set.
pub fn rate_forget(r: &mut State, w: &mut RawWindow, acked: u32) {
    let cwnd = u64::from(w.in_flight) + u64::from(acked);
    if r.started != 0 {
        w.cwnd = (u64::from(w.cwnd).min(cwnd) as u32).max(WINDOW_MIN);
        if w.ssthresh > SEGMENTS_MAX {
            w.ssthresh = w.cwnd;
        }
    }
    r.started = 0;
}

/// A link of known rate that the flows on it share: clones are the same link.
#[derive(Clone, Debug, Default)]
pub struct Link(Arc<Mutex<Share>>);

impl Link {
    fn lock(&self) -> MutexGuard<'_, Share> {
        // No rule panics midway, so a poisoned share is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rate control as a congestion control.
#[derive(Clone, Debug)]
pub struct RateControl {
    params: Params,
    link: Link,
    state: State,
}

impl RateControl {
    /// For one connection that has its link to itself.
    pub fn new(settings: &Settings) -> Self {
        Self::on(Link::default(), settings)
    }

    /// For one connection on a link that others use as well.
    pub fn on(link: Link, settings: &Settings) -> Self {
        Self {
            params: Params::from(settings),
            link,
            state: State::default(),
        }
    }
}

impl Congestion for RateControl {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    fn init(&mut self, window: &mut Window, now: Instant, rtt: Option<Duration>) {
        let mut raw = RawWindow::from(&*window);
        let ack = RawAck {
            now_ns: now.as_nanos(),
            rtt_us: rtt_micros(rtt),
            ..RawAck::default()
        };
        let mut share = self.link.lock();
        turn(&mut share, now.as_nanos());
        rate_init(&mut self.state, &ack, share.guard.path);
        let budget = budget(&share, &self.params, 1);
        rate_apply(&mut self.state, &mut raw, &self.params, budget, 0);
        raw.apply(window);
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let mut raw = RawWindow::from(&*window);
        let ack = RawAck::from(ack);
        let member = &mut self.state.member;
        let budget = share_ack(&mut self.link.lock(), member, &self.params, &ack, raw.wire);
        rate_apply(&mut self.state, &mut raw, &self.params, budget, ack.acked);
        raw.apply(window);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        // Loss is corruption.
        window.ssthresh
    }

    fn on_signal(&mut self, window: &mut Window, signal: Signal, now: Instant) {
        if signal != Signal::Start {
            return;
        }
        let mut raw = RawWindow::from(&*window);
        let member = &mut self.state.member;
        let budget = join(&mut self.link.lock(), member, &self.params, now.as_nanos());
        rate_apply(&mut self.state, &mut raw, &self.params, budget, 0);
        raw.apply(window);
    }

    fn gauges(&self) -> Vec<Gauge> {
        let share = self.link.lock();
        let flows = share.past.flows.max(share.now.flows);
        vec![
            ("flows", f64::from(flows)),
            ("guard_bytes_per_s", share.guard.cap as f64),
            ("min_rtt_ms", f64::from(self.state.member.min_rtt_us) / 1e3),
        ]
    }
}
