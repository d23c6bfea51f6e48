//! One link and the flows on it: how many share it, what each may send, and the guard that yields
//! when the link carries less than was configured. Time goes in epochs of 2^29 ns (0.54 s); a flow
//! counts itself once an epoch, so that one which falls silent is forgotten without a goodbye. Receivers
//! share the link, and the flows of a receiver its part, so that no host gets more by more connections. The
//! functions are the twins of `crates/bpf/src/bpf/share.h`. No published algorithm.
//!
//! ```text
//! n, m  = receivers and flows of this one, the more of the last epoch and this one
//! share = max(rate / (n m), (rate - what others use) / (hungry receivers * hungry flows of this one))
//!         [bytes a second on the wire]
//! ```
//!
//! A flow is hungry while it has more to send than its share carries; the others' bytes of the last
//! epoch are what they need. Flows that wait for their first acknowledgement count for each other, and for
//! the rest no more than the rest itself: whoever never answers takes half of a receiver's part at most.

use crate::fixed_point::{HUNGRY, Params, RATE_MAX, RTT_MAX_US, RawAck, SEGMENTS_MAX};
use crate::guard::{Echo, Guard, TICK_SHIFT, allowed, draining, guard_ack};

/// An epoch is 2 to this power nanoseconds.
pub const EPOCH_SHIFT: u32 = 29;
/// A window is larger for what the way back takes longer, in microseconds; for no more than this, which a receiver can feign.
const BACK_MAX_US: u32 = 1 << 22;
/// Ticks after which the unit of a receiver's clock is known.
const CLOCK_TICKS: u32 = 512;
/// So many flows of a receiver that wait for an answer are a crowd.
const CROWD: u32 = 16;
/// Epochs after which a receiver is a new one.
const UNANSWERED_EPOCHS: u32 = 64;
/// More receivers of a link, or flows of a receiver, count as this many.
const COUNT_MAX: u64 = 65_535;
/// A clock that is wrong by more than one part in 2 to this power is not believed.
const DRIFT_SHIFT: u32 = 8;

/// What happened on a link in one epoch: `struct bp_slot`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Its number, from 1.
    pub epoch: u32,
    /// Flows that counted themselves.
    pub flows: u32,
    /// Those of them that were hungry.
    pub hungry: u32,
    /// Samples of the round-trip time.
    pub samples: u32,
    /// Their sum above each flow's smallest, in microseconds.
    pub excess_us: u64,
    /// Bytes acknowledged, on the wire.
    pub carried: u64,
    /// Those of them that belong to flows that are not hungry.
    pub others: u64,
    /// Receivers of these flows.
    pub receivers: u32,
    /// Those of them that have a hungry flow.
    pub hungry_receivers: u32,
}

/// A receiver's flows in one epoch: `struct bp_turnout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turnout {
    /// Flows of which something was acknowledged.
    pub flows: u32,
    /// Those of them that were hungry.
    pub hungry: u32,
    /// Flows of which nothing was acknowledged yet.
    pub joining: u32,
}

/// The receiver of some flows, as far as one link is concerned: `struct bp_receiver`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    /// The epoch of `now`.
    pub epoch: u32,
    /// In the current epoch.
    pub now: Turnout,
    /// In the one before.
    pub past: Turnout,
    /// Flows that have begun and had no acknowledgement; decays.
    pub unanswered: u32,
}

/// What the flows of a link have in common: `struct bp_share`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The current epoch.
    pub now: Slot,
    /// The one before.
    pub past: Slot,
    /// Follows what the link carries.
    pub guard: Guard,
}

/// A flow's part in it: `struct bp_member`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The epoch it last counted itself in.
    pub epoch: u32,
    /// 1 when it was hungry then.
    pub hungry: u32,
    /// Smallest round-trip time, in microseconds; 0: unknown.
    pub min_rtt_us: u32,
    /// The path it belongs to.
    pub path: u32,
    /// When the receiver's clock was first seen, in ticks; 0: never.
    pub origin: u32,
    /// And what it showed, in milliseconds.
    pub origin_ms: u32,
    /// The shortest way there, by both clocks, in microseconds; 0: unknown.
    pub transit_us: u32,
    /// What the way back takes longer than at its shortest, smoothed, in microseconds.
    pub back_us: u32,
    /// [`draining`] of the link.
    pub draining: u32,
    /// Who acknowledges; not 0. Flows to one host have one receiver.
    pub receiver: u32,
    /// 1 until something of it is acknowledged; 2 while that holds of many others of its receiver too.
    pub joining: u32,
}

/// Whether a receiver's clock, which advanced by so many units in the ticks that passed here, counts
/// milliseconds as a clock does. Its answers take up to `rtt_us`, and not always the same.
fn keeps_time(passed: u32, advance: u32, rtt_us: u32) -> bool {
    let passed_us = (u64::from(passed) << TICK_SHIFT) / 1000;
    let advance_us = u64::from(advance) * 1000;
    let slack_us = (passed_us >> DRIFT_SHIFT) + u64::from(rtt_us);
    let milliseconds = advance >= passed >> 1 && advance >> 1 <= passed;
    milliseconds && advance_us.abs_diff(passed_us) <= slack_us
}

/// How much of a delay lies on the forward path, because only a queue there is ours. It is found from the receiver's
/// timestamps (RFC 7323, section 5.4) where these count milliseconds: each tells when a segment arrived, and we know
/// when it was sent. Clocks drift, so the forward delay is bounded by that of the whole round trip. A slow clock would
/// hide a growing queue, so a clock is not believed if its error is larger than the delays of its answers allow, nor before that
/// can be known. What it shows until then is kept all the same: the way back may be free for no longer.
fn forward(m: &mut Member, a: &RawAck, rtt_us: u32, excess_us: u32) -> u32 {
    let tick = (a.now_ns >> TICK_SHIFT) as u32;
    let passed = tick.wrapping_sub(m.origin);
    let advance = a.stamp_ms.wrapping_sub(m.origin_ms);
    if a.stamp_ms == 0 {
        return excess_us;
    }
    if m.origin == 0 {
        m.origin = tick.max(1);
        m.origin_ms = a.stamp_ms;
        return excess_us;
    }
    let young = passed < CLOCK_TICKS;
    if !young && !keeps_time(passed, advance, rtt_us) {
        return excess_us;
    }
    let transit_us = a.stamp_ms.wrapping_mul(1000).wrapping_add(rtt_us);
    let transit_us = transit_us.wrapping_sub((a.now_ns / 1000) as u32);
    let mut beyond_us = transit_us.wrapping_sub(m.transit_us);
    if m.transit_us == 0 || beyond_us > excess_us {
        let shorter = m.transit_us != 0 && beyond_us >> 31 != 0;
        beyond_us = if shorter { 0 } else { excess_us };
        m.transit_us = transit_us.wrapping_sub(beyond_us).max(1);
    }
    if young { excess_us } else { beyond_us }
}

/// Empties a slot for an epoch.
pub fn slot_start(s: &mut Slot, epoch: u32) {
    *s = Slot {
        epoch,
        ..Slot::default()
    };
}

/// Turns to the epoch of `now_ns`; returns it.
pub fn turn(s: &mut Share, now_ns: u64) -> u32 {
    let epoch = ((now_ns >> EPOCH_SHIFT) as u32).wrapping_add(1);
    // Another flow has begun this epoch already.
    if s.now.epoch != 0 && epoch <= s.now.epoch {
        return s.now.epoch;
    }
    if s.now.epoch != 0 && epoch == s.now.epoch.wrapping_add(1) {
        s.past = s.now;
    } else {
        slot_start(&mut s.past, epoch.wrapping_sub(1));
    }
    slot_start(&mut s.now, epoch);
    epoch
}

/// Turns a receiver to the link's epoch.
fn receiver_turn(c: &mut Receiver, epoch: u32) {
    if c.epoch == epoch {
        return;
    }
    let passed = epoch.wrapping_sub(c.epoch);
    let follows = passed == 1;
    *c = Receiver {
        epoch,
        now: Turnout::default(),
        past: if follows { c.now } else { Turnout::default() },
        unanswered: match passed {
            0..UNANSWERED_EPOCHS => c.unanswered - c.unanswered.div_ceil(8),
            _ => 0,
        },
    };
}

/// Of `flows`, and of those that join, how many count: for a flow that is among them (`joins`) also all that
/// were never answered.
fn counted(flows: u32, joining: u32, joins: bool, unanswered: u32) -> u64 {
    let counts = if joins {
        joining.max(unanswered)
    } else {
        joining.min(flows.max(1))
    };
    u64::from(flows) + u64::from(counts)
}

/// What one flow may send, in bytes a second on the wire; `unseen` is 1 where it is not counted yet.
pub fn budget(s: &Share, c: &Receiver, m: &Member, p: &Params, unseen: u32) -> u64 {
    let rate = allowed(&s.guard, p);
    let joins = m.joining != 0;
    let flows_of = |t: &Turnout| counted(t.flows, t.joining, joins, c.unanswered);
    let hungry_of = |t: &Turnout| counted(t.hungry, t.joining, joins, c.unanswered);
    let flows = flows_of(&c.past).max(flows_of(&c.now)) + u64::from(unseen);
    let hungry = hungry_of(&c.past).max(hungry_of(&c.now)) + u64::from(unseen);
    let is_known = [&c.past, &c.now]
        .iter()
        .any(|t| t.flows != 0 || t.joining != 0);
    let new = u64::from(unseen != 0 && !is_known);
    let receivers = u64::from(s.past.receivers.max(s.now.receivers)) + new;
    let eager = u64::from(s.past.hungry_receivers.max(s.now.hungry_receivers)) + new;
    let others = (s.past.others.min(RATE_MAX / 2) * 1_000_000_000) >> EPOCH_SHIFT;
    let parts = receivers.clamp(1, COUNT_MAX) * flows.clamp(1, COUNT_MAX);
    let hungry_parts = eager.clamp(1, COUNT_MAX) * hungry.clamp(1, COUNT_MAX);
    let spare = rate.saturating_sub(others) / hungry_parts;
    (rate / parts).max(spare).max(1)
}

/// Counts a flow in an epoch of its link and of its receiver.
fn count(s: &mut Slot, t: &mut Turnout, m: &Member) {
    let new = t.flows == 0 && t.joining == 0;
    let new_hungry = m.hungry != 0 && t.hungry == 0 && t.joining == 0;
    s.flows = s.flows.wrapping_add(1);
    s.hungry = s.hungry.wrapping_add(m.hungry);
    s.receivers = s.receivers.wrapping_add(u32::from(new));
    s.hungry_receivers = s.hungry_receivers.wrapping_add(u32::from(new_hungry));
    if m.joining != 0 {
        t.joining = t.joining.wrapping_add(1);
    } else {
        t.flows = t.flows.wrapping_add(1);
        t.hungry = t.hungry.wrapping_add(m.hungry);
    }
}

/// A flow of which nothing was acknowledged yet: one of a crowd, or not.
fn join_crowd(c: &Receiver, m: &mut Member) {
    if m.joining != 0 {
        m.joining = 1 + u32::from(c.unanswered > CROWD);
    }
}

/// A flow begins. Returns its first budget, before it sends.
pub fn begin(s: &mut Share, c: &mut Receiver, m: &mut Member, p: &Params, now_ns: u64) -> u64 {
    receiver_turn(c, turn(s, now_ns));
    m.path = s.guard.path;
    join_crowd(c, m);
    budget(s, c, m, p, 1)
}

/// A flow that was silent sends: it counts at once, in the last epoch too, so that the others make
/// room before its data arrives. One of a crowd that nobody answers counts for itself alone. Returns its budget.
pub fn join(s: &mut Share, c: &mut Receiver, m: &mut Member, p: &Params, now_ns: u64) -> u64 {
    let epoch = turn(s, now_ns);
    let before = m.epoch;
    receiver_turn(c, epoch);
    if before == 0 && m.joining != 0 {
        c.unanswered = c.unanswered.wrapping_add(1);
    }
    join_crowd(c, m);
    if before != epoch && m.joining < 2 {
        m.epoch = epoch;
        m.hungry = 1;
        if before.wrapping_add(1) != epoch {
            count(&mut s.past, &mut c.past, m);
        }
        count(&mut s.now, &mut c.now, m);
    }
    m.draining = draining(&s.guard);
    budget(s, c, m, p, 0)
}

/// A flow that joined in this epoch has its first acknowledgement.
fn joined(c: &mut Receiver, m: &Member) {
    c.now.joining = c.now.joining.saturating_sub(1);
    c.now.flows = c.now.flows.wrapping_add(1);
    c.now.hungry = c.now.hungry.wrapping_add(m.hungry);
}

/// One acknowledgement of a flow whose full segments take `wire` bytes; returns its budget.
pub fn share_ack(
    s: &mut Share,
    c: &mut Receiver,
    m: &mut Member,
    p: &Params,
    a: &RawAck,
    wire: u32,
) -> u64 {
    let bytes = u64::from(a.acked.min(SEGMENTS_MAX)) * u64::from(wire.min(131_071));
    let epoch = turn(s, a.now_ns);
    let rtt_us = a.rtt_us.min(RTT_MAX_US);
    receiver_turn(c, epoch);
    if m.joining != 0 && a.acked != 0 {
        if m.epoch == epoch {
            joined(c, m);
        }
        c.unanswered = c.unanswered.saturating_sub(1);
        m.joining = 0;
    }
    if m.epoch != epoch && m.joining == 0 {
        m.epoch = epoch;
        m.hungry = u32::from(a.flags & HUNGRY != 0);
        count(&mut s.now, &mut c.now, m);
    }
    let mut excess_us = 0;
    if rtt_us != 0 {
        if m.min_rtt_us == 0 || m.path != s.guard.path {
            m.min_rtt_us = rtt_us;
            m.transit_us = 0;
            m.back_us = 0;
        }
        m.path = s.guard.path;
        m.min_rtt_us = m.min_rtt_us.min(rtt_us);
        let whole_us = rtt_us - m.min_rtt_us;
        excess_us = forward(m, a, rtt_us, whole_us);
        let back_us = (whole_us - excess_us).min(BACK_MAX_US);
        m.back_us = m.back_us - (m.back_us >> 3) + (back_us >> 3);
        s.now.excess_us = s.now.excess_us.wrapping_add(u64::from(excess_us));
        s.now.samples = s.now.samples.wrapping_add(1);
    }
    s.now.carried = s.now.carried.wrapping_add(bytes);
    if m.hungry == 0 {
        s.now.others = s.now.others.wrapping_add(bytes);
    }
    let echo = Echo {
        now_ns: a.now_ns,
        bytes,
        lost: u64::from(a.lost.min(SEGMENTS_MAX)) * u64::from(wire.min(131_071)),
        rtt_us,
        excess_us,
        hungry: s.now.hungry.min(s.past.hungry),
        // What single segments wait for is the receiver's delayed acknowledgement.
        receiver: if m.hungry == 0 { 0 } else { m.receiver },
    };
    guard_ack(&mut s.guard, p, &echo);
    m.draining = draining(&s.guard);
    budget(s, c, m, p, 0)
}
