//! One link and the flows on it: how many share it, what each may send, and the guard that yields
//! when the link carries less than was configured. Time goes in epochs of 2^29 ns (0.54 s); a flow
//! counts itself once an epoch, so that one which falls silent is forgotten without a goodbye. The
//! functions are the twins of `crates/bpf/src/bpf/share.h`. No published algorithm.
//!
//! ```text
//! n     = max(flows of the last epoch, flows of this one)
//! share = max(rate / n, (rate - what others use) / hungry flows)  [bytes a second on the wire]
//! ```
//!
//! A flow is hungry while it has more to send than its share carries; the others' bytes of the last
//! epoch are what they need.

use crate::fixed_point::{HUNGRY, Params, RATE_MAX, RTT_MAX_US, RawAck, SEGMENTS_MAX};
use crate::guard::{Echo, Guard, TICK_SHIFT, allowed, draining, guard_ack};

/// An epoch is 2 to this power nanoseconds.
pub const EPOCH_SHIFT: u32 = 29;
/// Ticks after which the unit of a receiver's clock is known.
const CLOCK_TICKS: u32 = 512;
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
    /// [`draining`] of the link.
    pub draining: u32,
    /// Who acknowledges; not 0. Flows to one host have one receiver.
    pub receiver: u32,
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
/// hide a growing queue, so a clock is not believed if its error is larger than the delays of its answers allow.
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
    if passed < CLOCK_TICKS || !keeps_time(passed, advance, rtt_us) {
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
    beyond_us
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

/// What one flow may send, in bytes a second on the wire; `joining` flows are not counted yet.
pub fn budget(s: &Share, p: &Params, joining: u32) -> u64 {
    let rate = allowed(&s.guard, p);
    let flows = u64::from(s.past.flows.max(s.now.flows)) + u64::from(joining);
    let hungry = u64::from(s.past.hungry.max(s.now.hungry)) + u64::from(joining);
    let others = (s.past.others.min(RATE_MAX / 2) * 1_000_000_000) >> EPOCH_SHIFT;
    let spare = rate.saturating_sub(others) / hungry.max(1);
    (rate / flows.max(1)).max(spare).max(1)
}

/// A flow that was silent sends: it counts at once, in the last epoch too, so that the others make
/// room before its data arrives. Returns its budget.
pub fn join(s: &mut Share, m: &mut Member, p: &Params, now_ns: u64) -> u64 {
    let epoch = turn(s, now_ns);
    if m.epoch != epoch {
        if m.epoch.wrapping_add(1) != epoch {
            s.past.flows = s.past.flows.wrapping_add(1);
            s.past.hungry = s.past.hungry.wrapping_add(1);
        }
        s.now.flows = s.now.flows.wrapping_add(1);
        s.now.hungry = s.now.hungry.wrapping_add(1);
        m.epoch = epoch;
        m.hungry = 1;
    }
    m.draining = draining(&s.guard);
    budget(s, p, 0)
}

/// One acknowledgement of a flow whose full segments take `wire` bytes; returns its budget.
pub fn share_ack(s: &mut Share, m: &mut Member, p: &Params, a: &RawAck, wire: u32) -> u64 {
    let bytes = u64::from(a.acked.min(SEGMENTS_MAX)) * u64::from(wire.min(131_071));
    let epoch = turn(s, a.now_ns);
    let rtt_us = a.rtt_us.min(RTT_MAX_US);
    if m.epoch != epoch {
        m.epoch = epoch;
        m.hungry = u32::from(a.flags & HUNGRY != 0);
        s.now.flows = s.now.flows.wrapping_add(1);
        s.now.hungry = s.now.hungry.wrapping_add(m.hungry);
    }
    let mut excess_us = 0;
    if rtt_us != 0 {
        if m.min_rtt_us == 0 || m.path != s.guard.path {
            m.min_rtt_us = rtt_us;
            m.transit_us = 0;
        }
        m.path = s.guard.path;
        m.min_rtt_us = m.min_rtt_us.min(rtt_us);
        excess_us = forward(m, a, rtt_us, rtt_us - m.min_rtt_us);
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
        rtt_us,
        excess_us,
        hungry: s.now.hungry.min(s.past.hungry),
        // What single segments wait for is the receiver's delayed acknowledgement.
        receiver: if m.hungry == 0 { 0 } else { m.receiver },
    };
    guard_ack(&mut s.guard, p, &echo);
    m.draining = draining(&s.guard);
    budget(s, p, 0)
}
