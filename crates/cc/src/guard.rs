//! The guard of a link: follows what the link carries where that is less than was configured, or where
//! nothing was. The functions are the twins of `crates/bpf/src/bpf/guard.h`. No published algorithm;
//! akin to BBR (N. Cardwell et al., ACM Queue 14(5), 2016), but for a link instead of a flow.
//!
//! Acknowledgements are gathered in slots of at least 2^27 ns (0.13 s) and eight samples of the
//! round-trip time: what was delivered, the mean and the least delay above each flow's smallest. What
//! is decided shows a round-trip time later; until then only a queue is judged.
//!
//! ```text
//! full    a delay that stands: known = delivered rate, cap = 31/32 known; drain
//! drain   no more than one product in flight, until the delay is gone; one that stays is a longer path
//! probe   cap + 3/32 known, twice; where it is not delivered, or waits, the link is full
//! grow    half as much again, then by e in about a round-trip time, while more is delivered
//! ```

use crate::control::{Params, RATE_MAX, RTT_MAX_US, link_rate};

/// A slot is at least 2 to this power nanoseconds long.
const SLOT_SHIFT: u32 = 27;
const SLOT_US: u64 = 134_217;
/// Samples of the round-trip time in a slot, at least.
const SAMPLES: u32 = 8;
/// After 2 to this power nanoseconds without an acknowledgement, a slot says nothing of the link.
const GAP_SHIFT: u32 = 30;
/// Where a link of unknown rate begins, in bytes a second: 1 Mbit/s.
const BEGIN: u64 = 125_000;
/// What waits this long on the link is no queue yet: a flow's first segments leave unpaced. Bytes.
const BURST: u64 = 8 * 1500;
/// Rounds in which a small delay may drain before it is taken for a longer path.
const PATIENCE: u32 = 8;
/// Rounds at the configured rate without delay that lift the cap.
pub const CALM: u32 = 16;

/// [`Guard::step`]: below what is known.
pub const REST: u32 = 0;
/// [`Guard::step`]: the first of the steps at which a little more is tried.
pub const PROBE: u32 = 1;
/// [`Guard::step`]: there is more, how much is not known.
pub const GROW: u32 = 3;

/// `struct bp_guard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The cap, in bytes a second on the wire; 0: none.
    pub cap: u64,
    /// What the link carries, as far as is known, in bytes a second on the wire.
    pub known: u64,
    /// What it delivered before the cap last rose; in a drain, what was known before.
    pub before: u64,
    /// What it delivered in the last slot.
    pub past: u64,
    /// When what was decided shows, in nanoseconds.
    pub due_ns: u64,
    /// When the slot began, in nanoseconds; 0: none has.
    pub start_ns: u64,
    /// The last acknowledgement, in nanoseconds.
    pub last_ns: u64,
    /// Bytes acknowledged in the slot, on the wire.
    pub bytes: u64,
    /// Sum of the delays in the slot, in microseconds.
    pub excess_us: u64,
    /// The least of them.
    pub least_us: u32,
    /// How many they are.
    pub samples: u32,
    /// The delay that drains, in microseconds; 0: none does.
    pub level_us: u32,
    /// Rounds since it does; at the configured rate, rounds without delay.
    pub age: u32,
    /// [`REST`], [`PROBE`], the one between, or [`GROW`].
    pub step: u32,
    /// Counts changes of the path: flows forget their smallest round-trip time.
    pub path: u32,
}

/// One acknowledgement, as the guard sees it: `struct bp_echo`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo {
    /// When, in nanoseconds.
    pub now_ns: u64,
    /// Bytes acknowledged, on the wire.
    pub bytes: u64,
    /// Sample of the round-trip time, in microseconds; 0: none.
    pub rtt_us: u32,
    /// How much of it lies above the flow's smallest.
    pub excess_us: u32,
    /// Not 0 when flows have more to send than they may.
    pub hungry: u32,
}

/// A finished slot: `struct bp_tale`.
#[derive(Clone, Copy, Debug)]
struct Tale {
    now_ns: u64,
    span_us: u64,
    /// Delivered, in bytes a second on the wire.
    rate: u64,
    rtt_us: u32,
    mean_us: u32,
    /// A mean delay above it is a queue.
    limit_us: u32,
    /// A least delay below it is none.
    quiet_us: u32,
    hungry: bool,
    /// What was decided last has come to show.
    due: bool,
}

/// The most that is ever sent, in bytes a second on the wire.
fn ceiling(p: &Params) -> u64 {
    if p.rate == 0 { RATE_MAX } else { link_rate(p) }
}

/// What the flows of the link may send together, in bytes a second on the wire.
pub fn allowed(g: &Guard, p: &Params) -> u64 {
    let none = if p.rate == 0 { BEGIN } else { ceiling(p) };
    if g.cap == 0 {
        none
    } else {
        g.cap.min(ceiling(p))
    }
}

fn restart(g: &mut Guard, now_ns: u64) {
    g.start_ns = now_ns;
    g.bytes = 0;
    g.excess_us = 0;
    g.samples = 0;
    g.least_us = RTT_MAX_US;
}

/// What is decided now shows in a round-trip time and `more_us`.
fn wait(g: &mut Guard, t: &Tale, more_us: u32) {
    let after_us = u64::from(t.rtt_us) + u64::from(more_us);
    g.due_ns = t.now_ns.wrapping_add(after_us * 1000);
}

/// The cap a little below `known`.
fn settle(g: &mut Guard, known: u64) {
    g.known = known.max(1);
    g.cap = (g.known - (g.known >> 5)).max(1);
}

/// The link is full: it carries `known`.
fn full(g: &mut Guard, p: &Params, t: &Tale, known: u64) {
    settle(g, known.min(ceiling(p)));
    let queue_us = if g.least_us > t.quiet_us {
        t.mean_us.max(1)
    } else {
        0
    };
    g.level_us = queue_us;
    g.before = 0;
    g.age = 0;
    g.step = REST;
    wait(g, t, queue_us);
}

/// A queue drains. One that still grows shows that the link carries less. One that a time for draining
/// leaves as it was shows that too, where less was delivered; and then a longer path.
fn drain(g: &mut Guard, t: &Tale) {
    let delivered = t.rate.max(g.past);
    if u64::from(g.least_us) > u64::from(g.level_us) + u64::from(t.limit_us) {
        let known = g.known.min(delivered);
        settle(g, known);
        g.level_us = t.mean_us.max(1);
        wait(g, t, t.mean_us);
        return;
    }
    if !t.due {
        return;
    }
    g.age = g.age.wrapping_add(1).min(PATIENCE);
    let stays = g.least_us > g.level_us - (g.level_us >> 2);
    if stays && g.before == 0 && delivered < g.known - (g.known >> 3) {
        g.before = g.known;
        settle(g, delivered);
        wait(g, t, t.mean_us);
    } else if g.age == PATIENCE || (stays && g.level_us > t.limit_us) {
        let known = g.known.max(g.before);
        settle(g, known);
        g.before = 0;
        g.path = g.path.wrapping_add(1);
        g.level_us = 0;
        g.age = 0;
        wait(g, t, 0);
    } else {
        if stays {
            let known = g.known - (g.known >> 5);
            settle(g, known);
        }
        g.level_us = t.mean_us.max(1);
        wait(g, t, 0);
    }
}

/// How much more is tried; as much by all who share a carrier of known rate.
fn probe(g: &Guard, p: &Params) -> u64 {
    ((g.known >> 4) + (g.known >> 5))
        .min(ceiling(p) >> 5)
        .max(1)
}

/// No queue, and flows that could send more: does the link carry more?
fn rise(g: &mut Guard, p: &Params, t: &Tale) {
    let quiet = g.least_us <= t.quiet_us;
    if g.step >= GROW {
        if !quiet || (t.due && t.rate < g.before.wrapping_add(g.before >> 3)) {
            full(g, p, t, t.rate.max(g.known));
            return;
        }
        let time_us = u64::from(t.rtt_us) + SLOT_US;
        let more = g.cap.wrapping_mul(t.span_us.min(time_us)) / time_us;
        let most = t.rate.max(BEGIN).wrapping_mul(4);
        g.cap = g.cap.wrapping_add(more).min(most);
    } else if !t.due {
        return;
    } else if g.step == REST {
        if !quiet {
            full(g, p, t, g.known - (g.known >> 5));
            return;
        }
        if g.cap >= ceiling(p) {
            g.age = g.age.wrapping_add(1).min(CALM);
            if g.age == CALM {
                g.cap = 0;
            }
            wait(g, t, 0);
            return;
        }
        g.cap = g.cap.max(g.known).wrapping_add(probe(g, p));
        g.step = PROBE;
    } else {
        // A full link delivers 1/31 more than at rest, one with room at least 2/31.
        let least = (g.before >> 5) + (g.before >> 6);
        if !quiet || t.rate < g.before.wrapping_add(least) {
            let known = g.known - (g.known >> 5);
            full(g, p, t, known.max(t.rate));
            return;
        }
        g.step = g.step.wrapping_add(1);
        g.known = g.cap;
        let more = if g.step == GROW {
            g.cap >> 1
        } else {
            probe(g, p)
        };
        g.cap = g.cap.wrapping_add(more);
    }
    if t.due {
        g.before = t.rate;
        g.known = g.known.max(t.rate);
        wait(g, t, 0);
    }
    if g.cap >= ceiling(p) {
        g.cap = ceiling(p);
        g.known = g.cap;
        g.step = REST;
        g.age = 0;
    }
}

fn judge(g: &mut Guard, p: &Params, t: &Tale) {
    if g.level_us != 0 && g.least_us <= t.quiet_us {
        g.level_us = 0;
        g.age = 0;
    }
    // Where nothing waits to be sent and the link is less than half full, a delay is no queue's:
    // single segments wait for the receiver's delayed acknowledgement.
    if !t.hungry && t.rate < allowed(g, p) >> 1 {
        wait(g, t, 0);
    } else if g.level_us != 0 {
        drain(g, t);
    } else if t.mean_us > t.limit_us && g.least_us > t.quiet_us {
        full(g, p, t, t.rate.max(g.past));
    } else if !t.hungry {
        wait(g, t, 0);
    } else if g.cap != 0 {
        rise(g, p, t);
    } else if p.rate == 0 {
        g.cap = BEGIN;
        g.known = t.rate;
        g.before = 0;
        g.step = GROW;
        wait(g, t, 0);
    }
}

/// Takes an acknowledgement.
pub fn guard_ack(g: &mut Guard, p: &Params, e: &Echo) {
    let silent = e.now_ns.wrapping_sub(g.last_ns) >> GAP_SHIFT != 0;
    let due = g.start_ns < g.due_ns && g.due_ns <= e.now_ns;
    if p.guard_us == 0 && p.rate != 0 {
        *g = Guard {
            path: g.path,
            ..Guard::default()
        };
        return;
    }
    g.last_ns = e.now_ns;
    if g.start_ns == 0 || silent || due {
        // What is counted came after this one.
        restart(g, e.now_ns);
        return;
    }
    g.bytes = g.bytes.wrapping_add(e.bytes);
    if e.rtt_us == 0 {
        return;
    }
    g.excess_us = g.excess_us.wrapping_add(u64::from(e.excess_us));
    g.least_us = g.least_us.min(e.excess_us);
    g.samples = g.samples.wrapping_add(1);
    let span_ns = e.now_ns.wrapping_sub(g.start_ns);
    if span_ns >> SLOT_SHIFT == 0 || g.samples < SAMPLES {
        return;
    }
    let span_us = span_ns / 1000;
    let burst_us = (BURST * 1_000_000 / allowed(g, p).max(1)).min(u64::from(RTT_MAX_US)) as u32;
    let mean_us = (g.excess_us / u64::from(g.samples)).min(u64::from(RTT_MAX_US)) as u32;
    let limit_us = p.guard_us.clamp(burst_us, RTT_MAX_US);
    let t = Tale {
        now_ns: e.now_ns,
        span_us,
        rate: g.bytes.min(RATE_MAX) * 1_000_000 / span_us,
        rtt_us: e.rtt_us.min(RTT_MAX_US),
        mean_us,
        limit_us,
        quiet_us: (limit_us >> 3).max((burst_us >> 3) * 3),
        hungry: e.hungry != 0,
        due: g.start_ns >= g.due_ns,
    };
    judge(g, p, &t);
    g.past = t.rate;
    restart(g, e.now_ns);
}
