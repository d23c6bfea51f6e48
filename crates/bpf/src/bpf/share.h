/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One link and the flows on it: how many share it, what each may send, and the guard that yields
 * when the link carries less than was configured. Time goes in epochs of 2^29 ns (0.54 s); a flow
 * counts itself once an epoch, so that one which falls silent is forgotten without a goodbye.
 *
 *   n        = max(flows of the last epoch, flows of this one)
 *   share    = max(rate / n, (rate - what others use) / hungry flows)
 *
 * A flow is hungry while it has more to send than its share carries; the others' bytes of the last
 * epoch are what they need. The caller holds the link's lock.
 */
#ifndef BENTPIPE_SHARE_H
#define BENTPIPE_SHARE_H

#include "control.h"

#define BP_EPOCH_SHIFT 29
#define BP_EPOCH_US 536871u
#define BP_PATIENCE 8u		/* epochs that a queue gets to drain */

struct bp_slot {
	u32 epoch;		/* from 1 */
	u32 flows;
	u32 hungry;
	u32 samples;		/* of the round-trip time */
	u64 excess_us;		/* their sum above each flow's smallest */
	u64 carried;		/* bytes acknowledged, on the wire */
	u64 others;		/* of these, of flows that are not hungry */
	u64 first_ns;
	u64 last_ns;
};

struct bp_share {
	struct bp_slot now;
	struct bp_slot past;
	u64 cap;		/* guard: bytes a second on the wire; 0: off */
	u64 known;		/* guard: what the link delivered when it was full */
	u32 level_us;		/* guard: the delay that set it off; 0: not draining */
	u32 age;		/* guard: epochs since */
	u32 calm;		/* guard: epochs without delay */
	u32 step;		/* guard: of the rise beyond what is known */
	u32 path;		/* counts changes of the path: flows forget their smallest RTT */
	u32 pad;
};

/* A flow's part in it. */
struct bp_member {
	u32 epoch;		/* last counted in */
	u32 hungry;
	u32 min_rtt_us;		/* 0: unknown */
	u32 path;
};

static __always_inline void bp_slot_start(struct bp_slot *s, u32 epoch)
{
	s->epoch = epoch;
	s->flows = 0;
	s->hungry = 0;
	s->samples = 0;
	s->excess_us = 0;
	s->carried = 0;
	s->others = 0;
	s->first_ns = 0;
	s->last_ns = 0;
}

/*
 * The guard sees the delay of a finished epoch. Above the limit it falls to the rate at which the
 * link delivered, less what empties the queue in four epochs; the window of judgement is longer
 * than a round-trip time, so it waits before it judges again, unless the delay still grows. A
 * delay that a queue's worth of draining leaves as it was is not a queue but another path.
 * Without delay the cap rises every second epoch: by 1/8 to just below the rate known, and from
 * there ever faster, 1/256, 1/128 ... 1/4, for the link may carry more again. Where no flow was
 * hungry and the link less than half full it does not judge: single segments wait for the receiver's
 * delayed acknowledgement.
 */
static __always_inline void bp_guard_rise(struct bp_share *s, const struct bp_params *p)
{
	u64 near = s->known - (s->known >> 6);

	s->calm++;
	if (s->calm & 1)
		return;
	if (s->cap < near) {
		s->cap = bp_min(s->cap + (s->cap >> 3) + 1, near);
	} else {
		s->step = bp_min(s->step + 1, 7u);
		s->cap += (s->cap >> (9 - s->step)) + 1;
	}
	if (s->cap >= bp_link_rate(p))
		s->cap = 0;
}

/*
 * Whether what was acknowledged in the finished epoch may have filled a queue: it was sent in the one
 * before, more or less.
 */
static __always_inline int bp_loaded(const struct bp_share *s, const struct bp_params *p)
{
	u64 carried = (bp_min(s->now.carried, BP_RATE_MAX / 2) * 1000000000) >> BP_EPOCH_SHIFT;

	return bp_min(s->now.hungry, s->past.hungry) || carried >= bp_link_rate(p) >> 1;
}

static __always_inline void bp_guard(struct bp_share *s, const struct bp_params *p)
{
	struct bp_slot *slot = &s->now;
	u64 excess, span_us, measured, drain;

	if (!p->guard_us) {
		s->cap = 0;
		s->level_us = 0;
		return;
	}
	if (!slot->samples)
		return;
	excess = bp_min(slot->excess_us / slot->samples, BP_RTT_MAX_US);
	if (excess <= p->guard_us) {
		s->level_us = 0;
		if (s->cap && excess <= p->guard_us >> 1)
			bp_guard_rise(s, p);
		return;
	}
	if (!bp_loaded(s, p))
		return;
	s->calm = 0;
	span_us = (slot->last_ns - slot->first_ns) / 1000;
	if (span_us < BP_EPOCH_US / 2 || span_us > 2 * BP_EPOCH_US)
		return;
	s->age = bp_min(s->age + 1, 64u);
	if (s->level_us && excess <= (u64)s->level_us + p->guard_us) {
		if (s->age < BP_PATIENCE)
			return;
		if (excess > s->level_us - (s->level_us >> 2)) {
			s->path++;
			s->level_us = 0;
			return;
		}
	}
	measured = bp_min(slot->carried, BP_RATE_MAX) * 1000000 / span_us;
	drain = bp_min((excess << 10) / (4 * BP_EPOCH_US), 256);
	s->cap = bp_max(measured - ((measured * bp_max(drain, 32)) >> 10), 1);
	s->known = measured;
	s->level_us = excess;
	s->age = 0;
	s->step = 0;
}

/* Turns to the epoch of now_ns; returns it. */
static __always_inline u32 bp_turn(struct bp_share *s, const struct bp_params *p, u64 now_ns)
{
	u32 epoch = (u32)(now_ns >> BP_EPOCH_SHIFT) + 1;

	if (s->now.epoch && epoch <= s->now.epoch)	/* another processor was there first */
		return s->now.epoch;
	if (s->now.epoch && epoch == s->now.epoch + 1) {
		bp_guard(s, p);
		s->past = s->now;
	} else {
		bp_slot_start(&s->past, epoch - 1);
	}
	bp_slot_start(&s->now, epoch);
	return epoch;
}

/* What one flow may send, in bytes a second on the wire; `joining` is not counted yet. */
static __always_inline u64 bp_budget(const struct bp_share *s, const struct bp_params *p,
				     u32 joining)
{
	u64 rate = bp_link_rate(p);
	u64 flows = (u64)bp_max(s->past.flows, s->now.flows) + joining;
	u64 hungry = (u64)bp_max(s->past.hungry, s->now.hungry) + joining;
	u64 others = (bp_min(s->past.others, BP_RATE_MAX / 2) * 1000000000) >> BP_EPOCH_SHIFT;
	u64 spare;

	if (s->cap)
		rate = bp_min(rate, s->cap);
	spare = rate > others ? (rate - others) / bp_max(hungry, 1) : 0;
	return bp_max(bp_max(rate / bp_max(flows, 1), spare), 1);
}

/*
 * A flow that was silent sends: it counts at once, in the last epoch too, so that the others make
 * room before its data arrives.
 */
static __always_inline u64 bp_join(struct bp_share *s, struct bp_member *m,
				   const struct bp_params *p, u64 now_ns)
{
	u32 epoch = bp_turn(s, p, now_ns);

	if (m->epoch != epoch) {
		if (m->epoch + 1 != epoch) {
			s->past.flows++;
			s->past.hungry++;
		}
		s->now.flows++;
		s->now.hungry++;
		m->epoch = epoch;
		m->hungry = 1;
	}
	return bp_budget(s, p, 0);
}

/* One acknowledgement of a flow whose full segments take `wire` bytes; returns its budget. */
static __always_inline u64 bp_share_ack(struct bp_share *s, struct bp_member *m,
					const struct bp_params *p, const struct bp_ack *a, u32 wire)
{
	u64 bytes = (u64)bp_min(a->acked, BP_SEGMENTS_MAX) * bp_min(wire, 131071u);
	u32 epoch = bp_turn(s, p, a->now_ns);
	u32 rtt_us = bp_min(a->rtt_us, BP_RTT_MAX_US);

	if (m->epoch != epoch) {
		m->epoch = epoch;
		m->hungry = !!(a->flags & BP_HUNGRY);
		s->now.flows++;
		s->now.hungry += m->hungry;
	}
	if (rtt_us) {
		if (!m->min_rtt_us || m->path != s->path)
			m->min_rtt_us = rtt_us;
		m->path = s->path;
		m->min_rtt_us = bp_min(m->min_rtt_us, rtt_us);
		s->now.excess_us += rtt_us - m->min_rtt_us;
		s->now.samples++;
	}
	s->now.carried += bytes;
	if (!m->hungry)
		s->now.others += bytes;
	if (!s->now.first_ns)
		s->now.first_ns = a->now_ns;
	s->now.last_ns = bp_max(s->now.last_ns, a->now_ns);
	return bp_budget(s, p, 0);
}

#endif
