//! The guard of a link: follows what the link carries where that is less than was configured, or where
//! nothing was. The functions are the twins of `crates/bpf/src/bpf/guard.h`. No published algorithm;
//! akin to BBR (N. Cardwell et al., ACM Queue 14(5), 2016), but for a link instead of a flow.
//!
//! Acknowledgements are gathered in slots of at least 2^27 ns (0.13 s) and eight milliseconds with a
//! sample of the round-trip time: what was delivered, and the least delay above each flow's smallest,
//! which noise can only raise. What is decided shows a round-trip time later; until then only a queue
//! is judged.
//!
//! ```text
//! full    a delay that is seen twice while less than 3/4 is delivered or it grows, or once while less
//!         than 1/4 is, or a small one for eight rounds: cap = 31/32 of what is delivered while it
//!         stands; drain
//! test    a delay that is there a round later though most is delivered: drain, at once with half a
//!         product, which lowers nothing
//! drain   no more than one product in flight, then half of one, until the delay is gone; one that
//!         stays all the same is a longer path, or a small one noise
//! starve  an eighth and more is lost in four rounds without a delay: cap = what is delivered; where as
//!         much is lost in four more, that is chance, and the cap is what it was
//! probe   cap + 3/32 known, twice or more; where it is not delivered, or waits, the link is full
//! grow    half as much again, then by e in about a round-trip time, while more is delivered
//! ```
//!
//! Where several gateways share a carrier of known rate, each sees its part f of it in what is delivered here. Each
//! probe adds the same amount for all of them, and each that fails takes f^2 min(5/4 f, 3/2 (1 - f)) of the own part,
//! so that the parts become equal (additive increase, multiplicative decrease: D. Chiu, R. Jain, Computer Networks and
//! ISDN Systems 17(1), 1989).
//!
//! A delay that falls faster than a queue can drain, though all that may be sent is delivered, is the link's own: by
//! so much it varies by itself, and what is less counts as no queue for some ten seconds.
//!
//! A receiver can lie about a delay, by its timestamps or by acknowledging data that it does not have yet. So the least
//! delay of each receiver is kept apart, and a single one counts for little. With three receivers or more, the second
//! least delay is taken for the link's. With two that differ it is unknown which is right: only a delay that both see
//! counts as a queue, but a delay that one sees is enough to stop probing.

mod receivers;

use crate::fixed_point::{Params, RATE_MAX, RTT_MAX_US, link_rate};
pub use receivers::Delays;
use receivers::{agree, is_lossy, lose, report};

/// A slot is at least 2 to this power nanoseconds long.
const SLOT_SHIFT: u32 = 27;
const SLOT_US: u64 = 134_217;
/// Milliseconds with a sample of the round-trip time in a slot, at least.
const SAMPLES: u32 = 8;
/// What comes within 2 to this power nanoseconds, about a millisecond, is one sample.
pub(crate) const TICK_SHIFT: u32 = 20;
/// After 2 to this power nanoseconds without an acknowledgement, a slot says nothing of the link.
const GAP_SHIFT: u32 = 30;
/// Where a link of unknown rate begins, in bytes a second: 1 Mbit/s.
const BEGIN: u64 = 125_000;
/// Fewer waiting bytes than this are no queue yet, because a flow's first segments leave unpaced.
const BURST: u64 = 8 * 1500;
/// So many rounds a small delay may last before it counts as a queue.
const PATIENCE: u32 = 8;
/// Rounds in which an eighth is lost until the cap falls, and as many more until it is known that a full link is not why.
const LOSSY: u32 = 4;
/// Slots in which a probe may be delivered.
const TRIES: u32 = 3;
/// A delay varies by itself by at most so many times what would be a queue.
const VARIES: u32 = 4;
/// Rounds at the configured rate without delay that lift the cap.
pub const CALM: u32 = 16;

/// [`Guard::step`]: below what is known.
pub const REST: u32 = 0;
/// [`Guard::step`]: the first of the steps at which a little more is tried.
pub const PROBE: u32 = 1;
/// [`Guard::step`]: there is more, how much is not known.
pub const GROW: u32 = 8;

/// `struct bp_guard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The cap, in bytes a second on the wire; 0: none.
    pub cap: u64,
    /// What the link carries, as far as is known, in bytes a second on the wire.
    pub known: u64,
    /// What it delivered before the cap last rose; in a drain, what was known before.
    pub before: u64,
    /// When what was decided shows, in nanoseconds.
    pub due_ns: u64,
    /// From when on a delay that is still there is tested, in nanoseconds.
    pub test_ns: u64,
    /// When the slot began, in nanoseconds; 0: none has.
    pub start_ns: u64,
    /// The last acknowledgement, in nanoseconds.
    pub last_ns: u64,
    /// Bytes acknowledged in the slot, on the wire.
    pub bytes: u64,
    /// Bytes found lost in the slot, on the wire: of the first receiver of which some were.
    pub lost: u64,
    /// And of all others.
    pub lost_else: u64,
    /// Bytes acknowledged while a queue stood, on the wire.
    pub busy: u64,
    /// And how long it has stood, in microseconds.
    pub busy_us: u64,
    /// The least delays in the slot.
    pub delays: Delays,
    /// Milliseconds with a sample of them.
    pub samples: u32,
    /// The last of them.
    pub tick: u32,
    /// The delay that drains, in microseconds; 0: none does.
    pub level_us: u32,
    /// The delay that did not, in microseconds: noise.
    pub floor_us: u32,
    /// The delay of the slot before, where all that may be sent was delivered, in microseconds; 0: it was not.
    pub last_us: u32,
    /// By how much the delay varies by itself, in microseconds.
    pub varies_us: u32,
    /// The delay that is looked at again before it counts as a queue, in microseconds; 0: none is.
    pub seen_us: u32,
    /// Rounds in which much was lost.
    pub lossy: u32,
    /// The receiver that `lost` is of; 0: none.
    pub lost_by: u32,
    /// Rounds of rest; slots of a probe; in a drain, 1 once half a product drains, 2 where that is a test.
    pub age: u32,
    /// [`REST`], [`PROBE`] and those that follow, or [`GROW`].
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
    /// Bytes found lost, on the wire.
    pub lost: u64,
    /// Sample of the round-trip time, in microseconds; 0: none.
    pub rtt_us: u32,
    /// How much of it lies above the flow's smallest.
    pub excess_us: u32,
    /// Not 0 when flows have more to send than they may.
    pub hungry: u32,
    /// Who sent it, if this flow has more to send; else 0.
    pub receiver: u32,
}

/// What a finished slot measured: `struct bp_sample`.
#[derive(Clone, Copy, Debug)]
struct Sample {
    now_ns: u64,
    span_us: u64,
    /// Delivered, in bytes a second on the wire.
    rate: u64,
    rtt_us: u32,
    /// The delay that all receivers see, but for one of three.
    least_us: u32,
    /// The delay that any sees, but for the greatest of three or more.
    delay_us: u32,
    /// A delay above it is a queue.
    limit_us: u32,
    /// A delay below it is none.
    quiet_us: u32,
    /// As far as it lies above this, which is no queue's.
    noise_us: u32,
    hungry: bool,
    /// Much of what was sent was lost.
    lossy: bool,
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

/// 0 when no queue drains, else 1 where one product may be in flight, 2 where half of one may.
pub fn draining(g: &Guard) -> u32 {
    if g.level_us == 0 { 0 } else { 1 + g.age.min(1) }
}

fn restart(g: &mut Guard, now_ns: u64) {
    g.start_ns = now_ns;
    g.bytes = 0;
    g.lost = 0;
    g.lost_else = 0;
    g.lost_by = 0;
    g.samples = 0;
    g.delays = Delays {
        modest_us: RTT_MAX_US,
        least_us: RTT_MAX_US,
        second_us: RTT_MAX_US,
        ..Delays::default()
    };
}

/// Waits a round-trip time, until the effect of a decision can be seen.
fn wait(g: &mut Guard, t: &Sample) {
    g.due_ns = t.now_ns.wrapping_add(u64::from(t.rtt_us) * 1000);
}

fn quiet(t: &Sample) -> bool {
    u64::from(t.delay_us) <= u64::from(t.noise_us) + u64::from(t.quiet_us)
}

/// Whether one of two receivers sees a queue and the other sees none.
fn doubtful(t: &Sample) -> bool {
    !quiet(t) && u64::from(t.least_us) <= u64::from(t.noise_us) + u64::from(t.quiet_us)
}

/// The cap a little below `known`.
fn settle(g: &mut Guard, p: &Params, known: u64) {
    g.known = known.min(ceiling(p)).max(1);
    g.cap = (g.known - (g.known >> 5)).max(1);
}

/// Makes room for others on a carrier of known rate.
fn make_room(g: &mut Guard, p: &Params) {
    let part = ((g.known << 8) / ceiling(p).max(1)).min(256);
    if p.rate != 0 {
        let part = part * part * (5 * part / 4).min(3 * (256 - part) / 2);
        let less = g.known.wrapping_mul(part >> 8) >> 16;
        settle(g, p, g.known.wrapping_sub(less));
    }
}

/// Returns to rest: no queue is being drained, and nothing is probed.
fn rest(g: &mut Guard, t: &Sample) {
    g.level_us = 0;
    g.last_us = 0;
    g.seen_us = 0;
    g.age = 0;
    g.step = REST;
    wait(g, t);
}

/// Measures the link's capacity while a queue stands, because then it delivers all that it can carry.
fn stands(g: &mut Guard, p: &Params, t: &Sample) {
    g.busy = g.busy.wrapping_add(g.bytes);
    g.busy_us = g.busy_us.wrapping_add(t.span_us);
    let known = g.busy.min(RATE_MAX) * 1_000_000 / g.busy_us.max(1);
    settle(g, p, known);
}

/// The link is full: its queue has to drain.
fn full(g: &mut Guard, p: &Params, t: &Sample) {
    rest(g, t);
    g.before = if g.cap == 0 { allowed(g, p) } else { g.known };
    g.busy = 0;
    g.busy_us = 0;
    g.level_us = t.delay_us.max(1);
    stands(g, p, t);
}

/// Starts a drain as a test, where what is sent arrives: whether a delay is a queue's. It lowers nothing.
fn test(g: &mut Guard, t: &Sample) {
    rest(g, t);
    g.before = g.known;
    g.level_us = t.delay_us.max(1);
    g.age = 2;
}

/// A queue drains. One that stays with half a product in flight is a longer path, or noise.
fn drain(g: &mut Guard, p: &Params, t: &Sample) {
    if quiet(t) {
        if g.age != 2 {
            make_room(g, p);
        }
        rest(g, t);
        return;
    }
    if g.age == 0 {
        stands(g, p, t);
    }
    if u64::from(t.delay_us) > u64::from(g.level_us) + u64::from(t.limit_us) {
        g.level_us = t.delay_us;
        wait(g, t);
        return;
    }
    if !t.due {
        return;
    }
    let stays = t.delay_us > g.level_us - (g.level_us >> 2);
    g.level_us = t.delay_us.max(1);
    wait(g, t);
    if stays && g.age != 0 {
        let longer = t.delay_us > t.limit_us;
        g.path = g.path.wrapping_add(u32::from(longer));
        g.floor_us = if longer { 0 } else { t.delay_us };
        rest(g, t);
        if g.cap != 0 {
            settle(g, p, g.known.max(g.before));
        }
    } else if stays {
        g.age = 1;
    }
}

/// How much more is tried; as much by all who share a carrier of known rate.
fn probe(g: &Guard, p: &Params) -> u64 {
    ((g.known >> 4) + (g.known >> 5))
        .min(ceiling(p) >> 5)
        .max(1)
}

/// As many probes find the room that others on the carrier have not just left.
fn probes(g: &Guard, p: &Params) -> u32 {
    if (g.known >> 4) + (g.known >> 5) < ceiling(p) >> 5 {
        2
    } else {
        GROW - 1
    }
}

/// The cap has risen: what is delivered now is what it has to show more than.
fn rose(g: &mut Guard, p: &Params, t: &Sample) {
    if t.due {
        g.before = t.rate;
        g.known = g.known.max(t.rate);
        wait(g, t);
    }
    if g.cap >= ceiling(p) {
        g.cap = ceiling(p);
        g.known = g.cap;
        g.step = REST;
        g.age = 0;
    }
}

/// Whether a delay ends what is tried: where the delay varies by itself it does not while `more` is delivered.
fn waits(g: &Guard, t: &Sample, more: bool) -> bool {
    !quiet(t) && (!more || g.varies_us == 0)
}

fn growing(g: &mut Guard, p: &Params, t: &Sample) {
    let more = t.rate >= g.before.wrapping_add(g.before >> 3);
    if waits(g, t, more) {
        full(g, p, t);
    } else if t.due && !more {
        settle(g, p, g.known.max(t.rate));
        rest(g, t);
    } else {
        let time_us = u64::from(t.rtt_us) + SLOT_US;
        let more = g.cap.wrapping_mul(t.span_us.min(time_us)) / time_us;
        let most = t.rate.max(BEGIN).wrapping_mul(4);
        g.cap = g.cap.wrapping_add(more).min(most);
        rose(g, p, t);
    }
}

/// Nothing has been tried for a round-trip time.
fn attempt(g: &mut Guard, p: &Params, t: &Sample) {
    if !quiet(t) {
        g.age = g.age.wrapping_add(1);
        wait(g, t);
        if g.age < PATIENCE {
            return;
        }
        if doubtful(t) && t.rate >= g.cap - (g.cap >> 3) {
            test(g, t);
        } else {
            full(g, p, t);
        }
        return;
    }
    g.floor_us = g.floor_us.min(t.delay_us);
    if g.cap >= ceiling(p) {
        g.age = g.age.wrapping_add(1).min(CALM);
        if g.age == CALM {
            g.cap = 0;
        }
        wait(g, t);
        return;
    }
    g.age = 0;
    g.cap = g.cap.max(g.known).wrapping_add(probe(g, p));
    g.step = PROBE;
    rose(g, p, t);
}

/// A probe has had its round-trip time.
fn probed(g: &mut Guard, p: &Params, t: &Sample) {
    // A full link delivers 1/31 more than at rest, one with room at least 2/31; then no more.
    let least = if g.step == PROBE {
        (g.before >> 5) + (g.before >> 6)
    } else {
        g.cap.wrapping_sub(g.known) >> 1
    };
    let more = t.rate >= g.before.wrapping_add(least);
    if doubtful(t) {
        settle(g, p, g.known);
        rest(g, t);
    } else if waits(g, t, more) {
        full(g, p, t);
    } else if more {
        g.age = 0;
        g.known = g.cap;
        g.step = if g.step >= probes(g, p) {
            GROW
        } else {
            g.step.wrapping_add(1)
        };
        let more = if g.step == GROW {
            g.cap >> 1
        } else {
            probe(g, p)
        };
        g.cap = g.cap.wrapping_add(more);
        rose(g, p, t);
    } else {
        g.age = g.age.wrapping_add(1);
        if g.age >= TRIES {
            settle(g, p, g.known);
            make_room(g, p);
            rest(g, t);
        }
    }
}

/// Learns by how much the delay varies by itself, of which 1/128 is forgotten each slot. What falls by less than 1/16
/// of the time may be a queue that drains, since as much of what may be sent need not have been. While more is tried on a link of
/// unknown rate no queue drains.
fn learn(g: &mut Guard, p: &Params, t: &Sample) {
    let all = allowed(g, p);
    let slow_us = t.delay_us.wrapping_add((t.span_us >> 4) as u32);
    let fall_us = g.last_us.saturating_sub(slow_us);
    g.varies_us -= g.varies_us >> 7;
    g.last_us = 0;
    let tries = p.rate == 0 && g.step != REST;
    let delivers = tries || t.rate >= all - (all >> 4) && t.due;
    if g.level_us == 0 && t.hungry && delivers {
        g.last_us = t.delay_us;
        g.varies_us = g.varies_us.max(fall_us.min(t.limit_us * VARIES));
    }
}

/// A delay above the limit. One look is not enough, but where little is delivered: delays vary by themselves too.
fn suspect(g: &mut Guard, p: &Params, t: &Sample) {
    let all = allowed(g, p);
    if g.seen_us == 0 && t.rate >= all >> 2 {
        g.seen_us = t.least_us;
        g.test_ns = t.now_ns.wrapping_add(u64::from(t.rtt_us) * 1000);
    } else if u64::from(t.least_us) > u64::from(g.seen_us) + u64::from(t.limit_us >> 2)
        || t.rate < all - (all >> 2)
    {
        full(g, p, t);
    } else if t.now_ns >= g.test_ns {
        test(g, t);
    }
}

/// Whether so much is lost, round after round, that the link may have less than is sent behind a queue too short to see, such as a
/// policer's. What is delivered is tried as the cap: a full link loses little then, and where as much is lost all the same, the cap is
/// what it was.
fn starves(g: &mut Guard, p: &Params, t: &Sample) -> bool {
    if !t.lossy || g.lossy >= 2 * LOSSY {
        g.lossy = if t.lossy { g.lossy } else { 0 };
        return false;
    }
    g.lossy += 1;
    if g.lossy == LOSSY {
        g.before = if g.cap == 0 { allowed(g, p) } else { g.known };
        settle(g, p, t.rate);
    } else if g.lossy == 2 * LOSSY {
        settle(g, p, g.before);
    }
    wait(g, t);
    true
}

/// No queue is seen.
fn go_on(g: &mut Guard, p: &Params, t: &Sample) {
    if !t.hungry {
        wait(g, t);
    } else if t.due && g.step == REST && starves(g, p, t) {
        // It waits for what comes of it.
    } else if g.cap != 0 && g.step >= GROW {
        growing(g, p, t);
    } else if g.cap != 0 && t.due {
        if g.step == REST {
            attempt(g, p, t);
        } else {
            probed(g, p, t);
        }
    } else if g.cap == 0 && p.rate == 0 {
        g.cap = BEGIN;
        g.known = t.rate;
        g.before = 0;
        g.step = GROW;
        wait(g, t);
    }
}

fn judge(g: &mut Guard, p: &Params, t: &Sample) {
    learn(g, p, t);
    // Where nothing waits to be sent and the link is less than half full, a delay is no queue's:
    // single segments wait for the receiver's delayed acknowledgement.
    if !t.hungry && t.rate < allowed(g, p) >> 1 {
        if g.level_us != 0 && quiet(t) {
            rest(g, t);
        }
        wait(g, t);
    } else if g.level_us != 0 {
        drain(g, p, t);
    } else if u64::from(t.least_us) > u64::from(t.noise_us) + u64::from(t.limit_us) {
        suspect(g, p, t);
    } else {
        g.seen_us = 0;
        go_on(g, p, t);
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
        if silent {
            g.last_us = 0;
        }
        return;
    }
    g.bytes = g.bytes.wrapping_add(e.bytes);
    lose(g, e);
    if e.rtt_us == 0 {
        return;
    }
    report(&mut g.delays, e.receiver, e.excess_us);
    let tick = (e.now_ns >> TICK_SHIFT) as u32;
    g.samples = g.samples.wrapping_add(u32::from(tick != g.tick));
    g.tick = tick;
    let span_ns = e.now_ns.wrapping_sub(g.start_ns);
    if span_ns >> SLOT_SHIFT == 0 || g.samples < SAMPLES {
        return;
    }
    let span_us = span_ns / 1000;
    let burst_us = (BURST * 1_000_000 / allowed(g, p).max(1)).min(u64::from(RTT_MAX_US)) as u32;
    let limit_us = p.guard_us.clamp(burst_us, RTT_MAX_US);
    let (least_us, delay_us) = agree(&g.delays);
    let t = Sample {
        now_ns: e.now_ns,
        span_us,
        rate: g.bytes.min(RATE_MAX) * 1_000_000 / span_us,
        rtt_us: e.rtt_us.min(RTT_MAX_US),
        least_us,
        delay_us,
        limit_us,
        quiet_us: (limit_us >> 2).max((burst_us >> 3) * 3),
        noise_us: g.floor_us.max(g.varies_us),
        hungry: e.hungry != 0,
        lossy: is_lossy(g),
        due: g.start_ns >= g.due_ns,
    };
    judge(g, p, &t);
    restart(g, e.now_ns);
}
