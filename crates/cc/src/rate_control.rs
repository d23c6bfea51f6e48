//! The rate control: for an operator who owns the link. Sends at the flow's share of its rate
//! ([`share`](crate::share)), the configured one or what the guard finds, and takes every loss for
//! corruption. The functions are the twins of `crates/bpf/src/bpf/rate.h`.
//!
//! ```text
//! pacing = share * mss / wire                [payload bytes a second]
//! cwnd   = windows * share * RTTmin / wire   [segments]; one such product until data is
//!          acknowledged and while a queue drains, half of one if that does not drain it, never
//!          less than 10
//!          + share * back / wire, unless half of one drains; back: what the way back takes longer
//! ```
//!
//! No published algorithm: SCPS-TP's pure rate control (CCSDS 714.0-B-2) with a share and a guard.
//! In the kernel, sockets of a link that nobody has configured are Reno (Hybla's rule with rho = 1).
//!
//! On a link of unknown rate, a connection whose path is too short to lead over a satellite is given to CUBIC: its
//! round trip is shorter than the delays of timers and schedulers, and a window suffices.

use crate::cubic::Cubic;
use crate::fixed_point::{
    Params, RTT_MAX_US, RawAck, RawWindow, SEGMENTS_MAX, payload_rate, rtt_micros, segments,
};
use crate::guard::TICK_SHIFT;
use crate::hystart::SlowStart;
use crate::share::{Member, Receiver, Share, begin, budget, join, share_ack};
use crate::{Ack, Congestion, Gauge, Phase, Settings, Signal, Window};
use bentpipe_base::{Bytes, Instant};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The rate control on kernel sockets, a BPF program, as users write it.
pub const KERNEL: &str = "bentpipe_rate";

const WINDOW_MIN: u32 = 10;
/// The least window of each of a crowd that nobody answers.
const WINDOW_CROWD: u32 = 1;
const WINDOW_MAX: u32 = 1 << 20;
/// Data waits at most for so much that left unpaced: for this part of what the rate carries in a second, or for two full packets.
const UNPACED_PER_SECOND: u64 = 100;
const UNPACED_LEAST: u64 = 3000;
/// The most of a window that [`Settings::window_floor`] gives.
pub const FLOOR_MAX: Bytes = Bytes(1 << 20);
/// A path with a shorter round trip leads over no satellite, in microseconds: up to 340 km and down,
/// twice, takes light 4.5 ms.
const SHORT_US: u32 = 4000;
/// How long a handshake may take on such a short path when the hosts are busy, in microseconds.
const NEAR_US: u32 = 16_000;

/// `struct bp_rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The flow's part in the link.
    pub member: Member,
    /// 1 once data was acknowledged under the rate control.
    pub started: u16,
    /// 1 when the handshake says that the path may be short.
    pub near: u16,
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
    let least = match r.member.joining {
        2.. => WINDOW_CROWD,
        _ => WINDOW_MIN,
    };
    w.pacing = payload_rate(w, budget);
    if rtt_us != 0 {
        let mut cwnd = u64::from(windows).wrapping_mul(segments(budget, rtt_us, w.wire));
        if r.member.draining > 1 {
            cwnd >>= 1;
        } else {
            cwnd = cwnd.wrapping_add(segments(budget, r.member.back_us, w.wire));
        }
        w.cwnd = cwnd.clamp(u64::from(least), u64::from(WINDOW_MAX)) as u32;
    } else {
        w.cwnd = w.cwnd.clamp(WINDOW_MIN, WINDOW_MAX);
    }
}

/// Whether the path is short. Acknowledgements can be sent before their data has come and so feign it,
/// but the answer to a SYN cannot: the handshake must have been quick, too.
pub fn rate_yields(r: &State, p: &Params) -> bool {
    p.rate == 0 && r.near != 0 && (1..SHORT_US).contains(&r.member.min_rtt_us)
}

/// The connection to `receiver` starts, its handshake took `a.rtt_us` (0: unknown). It begins on its link by
/// [`begin`].
pub fn rate_init(r: &mut State, a: &RawAck, receiver: u32) {
    let tick = (a.now_ns >> TICK_SHIFT) as u32;
    *r = State {
        member: Member {
            min_rtt_us: a.rtt_us.min(RTT_MAX_US),
            origin: if a.stamp_ms == 0 { 0 } else { tick.max(1) },
            origin_ms: a.stamp_ms,
            receiver: receiver.max(1),
            joining: 1,
            ..Member::default()
        },
        started: 0,
        near: u16::from((1..NEAR_US).contains(&a.rtt_us)),
    };
}

/// Prepares for Reno after the link's configuration was removed: Reno must not start from a window of several
/// bandwidth-delay products, nor end a recovery at a threshold that no loss has set.
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

/// A link that the flows on it share: clones are the same link.
#[derive(Clone, Debug, Default)]
pub struct Link(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    share: Share,
    /// Bytes on the wire that left without waiting for a pacer, and for which no flow's data has waited yet.
    unpaced: u64,
    /// Connections so far: to the guard each is a receiver of its own.
    connections: u32,
    receivers: Vec<Receiver>,
    /// Which of them is whose.
    by_host: BTreeMap<u64, usize>,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // No rule panics midway, so a poisoned share is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of `host` among the receivers.
    fn receiver(&self, host: u64) -> usize {
        let shared = &mut *self.lock();
        *shared.by_host.entry(host).or_insert_with(|| {
            shared.receivers.push(Receiver::default());
            shared.receivers.len() - 1
        })
    }
}

impl Shared {
    /// The share, and the receiver of this number.
    fn parts(&mut self, receiver: usize) -> (&mut Share, &mut Receiver) {
        (&mut self.share, &mut self.receivers[receiver])
    }
}

/// The rate control as a congestion control.
#[derive(Clone, Debug)]
pub struct RateControl {
    params: Params,
    link: Link,
    /// Which of the link's receivers this flow goes to.
    receiver: usize,
    state: State,
    slow_start: SlowStart,
    window_floor: Duration,
    /// What a connection on a short path was given to.
    instead: Option<Cubic>,
}

impl RateControl {
    /// For one connection that has its link to itself.
    pub fn new(settings: &Settings) -> Self {
        Self::on(Link::default(), 0, settings)
    }

    /// For one connection to `host`, on a link that others use as well.
    pub fn on(link: Link, host: u64, settings: &Settings) -> Self {
        Self {
            params: Params::from(&settings.link),
            receiver: link.receiver(host),
            link,
            state: State::default(),
            slow_start: settings.slow_start,
            window_floor: settings.window_floor,
            instead: None,
        }
    }

    /// Sets window and pacing for a budget, as [`rate_apply`], and raises the window to its floor: where a round trip is shorter than
    /// the delays of timers and schedulers, a few of its products would be the limit in the place of the rate. While a queue drains
    /// there is no floor, nor for one of a crowd that nobody answers.
    fn apply(&mut self, raw: &mut RawWindow, budget: u64, acked: u32) {
        rate_apply(&mut self.state, raw, &self.params, budget, acked);
        if self.state.member.draining == 0 && self.state.member.joining < 2 {
            let floor_us = self.window_floor.as_micros() as u32;
            let most = FLOOR_MAX.0 / u64::from(raw.wire.max(1));
            raw.cwnd = raw
                .cwnd
                .max(segments(budget, floor_us, raw.wire).min(most) as u32);
        }
    }

    /// Gives the connection to CUBIC where the path is short; whether it did.
    fn yields(&mut self, window: &mut Window) -> bool {
        let yields = rate_yields(&self.state, &self.params);
        if yields {
            window.pacing = None;
            self.instead = Some(Cubic::new(self.slow_start));
        }
        yields
    }
}

impl Congestion for RateControl {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn governs_recovery(&self) -> bool {
        self.instead.is_none()
    }

    fn init(&mut self, window: &mut Window, now: Instant, rtt: Option<Duration>) {
        let mut raw = RawWindow::from(&*window);
        let ack = RawAck {
            now_ns: now.as_nanos(),
            rtt_us: rtt_micros(rtt),
            ..RawAck::default()
        };
        let link = self.link.clone();
        let mut shared = link.lock();
        shared.connections = shared.connections.wrapping_add(1);
        rate_init(&mut self.state, &ack, shared.connections);
        let (share, receiver) = shared.parts(self.receiver);
        let member = &mut self.state.member;
        let budget = begin(share, receiver, member, &self.params, ack.now_ns);
        if self.yields(window) {
            return;
        }
        self.apply(&mut raw, budget, 0);
        raw.apply(window);
    }

    fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        if let Some(cubic) = &mut self.instead {
            return cubic.on_ack(window, ack);
        }
        let mut raw = RawWindow::from(&*window);
        let ack = RawAck::from(ack);
        let member = &mut self.state.member;
        let budget = {
            let mut shared = self.link.lock();
            let (share, receiver) = shared.parts(self.receiver);
            share_ack(share, receiver, member, &self.params, &ack, raw.wire)
        };
        if self.yields(window) {
            return;
        }
        self.apply(&mut raw, budget, ack.acked);
        raw.apply(window);
    }

    fn make_room(&mut self, window: &mut Window) -> Bytes {
        if self.instead.is_some() {
            return Bytes(0);
        }
        let mut raw = RawWindow::from(&*window);
        let (budget, unpaced) = {
            let mut shared = self.link.lock();
            let unpaced = core::mem::take(&mut shared.unpaced);
            let (share, receiver) = shared.parts(self.receiver);
            let member = &self.state.member;
            let budget = budget(share, receiver, member, &self.params, 0);
            (budget, unpaced)
        };
        let pacing = payload_rate(&raw, budget);
        if pacing < raw.pacing {
            raw.pacing = pacing;
            raw.apply(window);
        }
        Bytes(unpaced)
    }

    fn sent_unpaced(&mut self, length: Bytes) {
        // Where no data has been sent for longer, the link has had the time for what came before.
        let most = (self.params.rate / UNPACED_PER_SECOND).max(UNPACED_LEAST);
        let unpaced = &mut self.link.lock().unpaced;
        *unpaced = (*unpaced + length.0 + u64::from(self.params.overhead)).min(most);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        // Loss is corruption.
        let cubic = self.instead.as_mut();
        cubic.map_or(window.ssthresh, |cubic| cubic.ssthresh(window))
    }

    fn on_phase(&mut self, window: &mut Window, phase: Phase) {
        if let Some(cubic) = &mut self.instead {
            cubic.on_phase(window, phase);
        }
    }

    fn on_signal(&mut self, window: &mut Window, signal: Signal, now: Instant) {
        if let Some(cubic) = &mut self.instead {
            return cubic.on_signal(window, signal, now);
        }
        if signal != Signal::Start {
            return;
        }
        let mut raw = RawWindow::from(&*window);
        let member = &mut self.state.member;
        let budget = {
            let mut shared = self.link.lock();
            let (share, receiver) = shared.parts(self.receiver);
            join(share, receiver, member, &self.params, now.as_nanos())
        };
        self.apply(&mut raw, budget, 0);
        raw.apply(window);
    }

    fn gauges(&self) -> Vec<Gauge> {
        if let Some(cubic) = &self.instead {
            return cubic.gauges();
        }
        let share = &self.link.lock().share;
        let flows = share.past.flows.max(share.now.flows);
        vec![
            ("flows", f64::from(flows)),
            ("guard_bytes_per_s", share.guard.cap as f64),
            ("min_rtt_ms", f64::from(self.state.member.min_rtt_us) / 1e3),
        ]
    }
}
