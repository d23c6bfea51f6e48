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

use crate::control::{HUNGRY, Params, RATE_MAX, RTT_MAX_US, RawAck, SEGMENTS_MAX, link_rate};

/// An epoch is 2 to this power nanoseconds.
pub const EPOCH_SHIFT: u32 = 29;
const EPOCH_US: u64 = 536_871;
/// Epochs that a queue gets to drain.
const PATIENCE: u32 = 8;

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
    /// Of these, of flows that are not hungry.
    pub others: u64,
    /// First acknowledgement, in nanoseconds; 0: none.
    pub first_ns: u64,
    /// Last acknowledgement, in nanoseconds.
    pub last_ns: u64,
}

/// What the flows of a link have in common: `struct bp_share`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// The current epoch.
    pub now: Slot,
    /// The one before.
    pub past: Slot,
    /// Guard: bytes a second on the wire; 0: off.
    pub cap: u64,
    /// Guard: what the link delivered when it was full, in bytes a second on the wire.
    pub known: u64,
    /// Guard: the delay that set it off, in microseconds; 0: not draining.
    pub level_us: u32,
    /// Guard: epochs since.
    pub age: u32,
    /// Guard: epochs without delay.
    pub calm: u32,
    /// Guard: of the rise beyond what is known.
    pub step: u32,
    /// Counts changes of the path: flows forget their smallest round-trip time.
    pub path: u32,
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
}

/// Empties a slot for an epoch.
pub fn slot_start(s: &mut Slot, epoch: u32) {
    *s = Slot {
        epoch,
        ..Slot::default()
    };
}

/// The guard sees the delay of a finished epoch. Above the limit it falls to the rate at which the
/// link delivered, less what empties the queue in four epochs; the window of judgement is longer
/// than a round-trip time, so it waits before it judges again, unless the delay still grows. A delay
/// that a queue's worth of draining leaves as it was is not a queue but another path. Without delay
/// the cap rises every second epoch: by 1/8 to just below the rate known, and from there ever faster,
/// 1/256, 1/128 ... 1/4, for the link may carry more again. Where no flow was hungry and the link less
/// than half full it does not judge: single segments wait for the receiver's delayed acknowledgement.
pub fn guard(s: &mut Share, p: &Params) {
    if p.guard_us == 0 {
        s.cap = 0;
        s.level_us = 0;
        return;
    }
    if s.now.samples == 0 {
        return;
    }
    let excess = (s.now.excess_us / u64::from(s.now.samples)).min(u64::from(RTT_MAX_US)) as u32;
    if excess <= p.guard_us {
        guard_calm(s, p, excess);
    } else if loaded(s, p) {
        guard_delay(s, p, excess);
    }
}

/// Whether what was acknowledged in the finished epoch may have filled a queue: it was sent in the one
/// before, more or less.
fn loaded(s: &Share, p: &Params) -> bool {
    let carried = (s.now.carried.min(RATE_MAX / 2) * 1_000_000_000) >> EPOCH_SHIFT;
    s.now.hungry.min(s.past.hungry) != 0 || carried >= link_rate(p) >> 1
}

/// An epoch whose delay, in microseconds, lay within the limit.
fn guard_calm(s: &mut Share, p: &Params, excess: u32) {
    s.level_us = 0;
    if s.cap == 0 || excess > p.guard_us >> 1 {
        return;
    }
    s.calm = s.calm.wrapping_add(1);
    if s.calm & 1 != 0 {
        return;
    }
    let near = s.known - (s.known >> 6);
    if s.cap < near {
        s.cap = s.cap.wrapping_add(s.cap >> 3).wrapping_add(1).min(near);
    } else {
        s.step = s.step.wrapping_add(1).min(7);
        s.cap = s.cap.wrapping_add(s.cap >> (9 - s.step)).wrapping_add(1);
    }
    if s.cap >= link_rate(p) {
        s.cap = 0;
    }
}

/// An epoch whose delay, in microseconds, lay above it.
fn guard_delay(s: &mut Share, p: &Params, excess: u32) {
    s.calm = 0;
    let span_us = s.now.last_ns.wrapping_sub(s.now.first_ns) / 1000;
    if !(EPOCH_US / 2..=2 * EPOCH_US).contains(&span_us) {
        return;
    }
    s.age = s.age.wrapping_add(1).min(64);
    if s.level_us != 0 && u64::from(excess) <= u64::from(s.level_us) + u64::from(p.guard_us) {
        if s.age < PATIENCE {
            return;
        }
        if excess > s.level_us - (s.level_us >> 2) {
            s.path = s.path.wrapping_add(1);
            s.level_us = 0;
            return;
        }
    }
    let measured = s.now.carried.min(RATE_MAX) * 1_000_000 / span_us;
    let drain = ((u64::from(excess) << 10) / (4 * EPOCH_US)).clamp(32, 256);
    s.cap = (measured - ((measured * drain) >> 10)).max(1);
    s.known = measured;
    s.level_us = excess;
    s.age = 0;
    s.step = 0;
}

/// Turns to the epoch of `now_ns`; returns it.
pub fn turn(s: &mut Share, p: &Params, now_ns: u64) -> u32 {
    let epoch = ((now_ns >> EPOCH_SHIFT) as u32).wrapping_add(1);
    // Another flow was there first.
    if s.now.epoch != 0 && epoch <= s.now.epoch {
        return s.now.epoch;
    }
    if s.now.epoch != 0 && epoch == s.now.epoch.wrapping_add(1) {
        guard(s, p);
        s.past = s.now;
    } else {
        slot_start(&mut s.past, epoch.wrapping_sub(1));
    }
    slot_start(&mut s.now, epoch);
    epoch
}

/// What one flow may send, in bytes a second on the wire; `joining` flows are not counted yet.
pub fn budget(s: &Share, p: &Params, joining: u32) -> u64 {
    let mut rate = link_rate(p);
    let flows = u64::from(s.past.flows.max(s.now.flows)) + u64::from(joining);
    let hungry = u64::from(s.past.hungry.max(s.now.hungry)) + u64::from(joining);
    let others = (s.past.others.min(RATE_MAX / 2) * 1_000_000_000) >> EPOCH_SHIFT;
    if s.cap != 0 {
        rate = rate.min(s.cap);
    }
    let spare = rate.saturating_sub(others) / hungry.max(1);
    (rate / flows.max(1)).max(spare).max(1)
}

/// A flow that was silent sends: it counts at once, in the last epoch too, so that the others make
/// room before its data arrives. Returns its budget.
pub fn join(s: &mut Share, m: &mut Member, p: &Params, now_ns: u64) -> u64 {
    let epoch = turn(s, p, now_ns);
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
    budget(s, p, 0)
}

/// One acknowledgement of a flow whose full segments take `wire` bytes; returns its budget.
pub fn share_ack(s: &mut Share, m: &mut Member, p: &Params, a: &RawAck, wire: u32) -> u64 {
    let bytes = u64::from(a.acked.min(SEGMENTS_MAX)) * u64::from(wire.min(131_071));
    let epoch = turn(s, p, a.now_ns);
    let rtt_us = a.rtt_us.min(RTT_MAX_US);
    if m.epoch != epoch {
        m.epoch = epoch;
        m.hungry = u32::from(a.flags & HUNGRY != 0);
        s.now.flows = s.now.flows.wrapping_add(1);
        s.now.hungry = s.now.hungry.wrapping_add(m.hungry);
    }
    if rtt_us != 0 {
        if m.min_rtt_us == 0 || m.path != s.path {
            m.min_rtt_us = rtt_us;
        }
        m.path = s.path;
        m.min_rtt_us = m.min_rtt_us.min(rtt_us);
        let excess = u64::from(rtt_us - m.min_rtt_us);
        s.now.excess_us = s.now.excess_us.wrapping_add(excess);
        s.now.samples = s.now.samples.wrapping_add(1);
    }
    s.now.carried = s.now.carried.wrapping_add(bytes);
    if m.hungry == 0 {
        s.now.others = s.now.others.wrapping_add(bytes);
    }
    if s.now.first_ns == 0 {
        s.now.first_ns = a.now_ns;
    }
    s.now.last_ns = s.now.last_ns.max(a.now_ns);
    budget(s, p, 0)
}
