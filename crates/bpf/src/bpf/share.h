/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * One link and the flows on it: how many share it and what each may send. Time goes in epochs of 2^29 ns (0.54 s); a flow
 * counts itself once an epoch, so that one which falls silent is forgotten without a goodbye. Receivers
 * share the link, and the flows of a receiver its part, so that no host gets more by more connections.
 *
 *   n, m     = receivers and flows of this one, the more of the last epoch and this one
 *   share    = max(rate / (n m), (rate - what others use) / (hungry receivers * hungry flows of this one))
 *
 * A flow is hungry while it has more to send than its share carries; the others' bytes of the last
 * epoch are what they need. Flows that wait for their first acknowledgement count for each other, and for
 * the rest no more than the rest itself: whoever never answers takes half of a receiver's part at most.
 * The caller holds the link's lock.
 */
#ifndef BENTPIPE_SHARE_H
#define BENTPIPE_SHARE_H

#include "control.h"
#include "guard.h"

#define BP_EPOCH_SHIFT 29
#define BP_CLOCK_TICKS 512u	/* after which the unit of a clock is known */
#define BP_BACK_MAX_US (1u << 22)	/* a receiver can feign it */
#define BP_CROWD 16u		/* so many flows of a receiver that wait for an answer are a crowd */
#define BP_UNANSWERED_EPOCHS 64u	/* after which a receiver is a new one */
#define BP_DRIFT_SHIFT 8	/* a clock that is wrong by more than 1/256 is none */

struct bp_slot {
	u32 epoch;		/* from 1 */
	u32 flows;
	u32 hungry;
	u32 samples;		/* of the round-trip time */
	u64 excess_us;		/* their sum above each flow's smallest */
	u64 carried;		/* bytes acknowledged, on the wire */
	u64 others;		/* of these, of flows that are not hungry */
	u32 receivers;		/* of these flows */
	u32 hungry_receivers;	/* those that have a hungry one */
};

/* A receiver's flows in one epoch. */
struct bp_turnout {
	u32 flows;
	u32 hungry;
	u32 joining;		/* not among the flows: nothing of them was acknowledged yet */
};

/* The receiver of some flows, as far as one link is concerned. */
struct bp_receiver {
	u32 epoch;
	struct bp_turnout now;
	struct bp_turnout past;
	u32 unanswered;		/* flows that have begun and had no acknowledgement; decays */
};

struct bp_share {
	struct bp_slot now;
	struct bp_slot past;
	struct bp_guard guard;	/* follows what the link carries */
};

/* A flow's part in it. */
struct bp_member {
	u32 epoch;		/* last counted in */
	u32 hungry;
	u32 min_rtt_us;		/* 0: unknown */
	u32 path;
	u32 origin;		/* when the receiver's clock was first seen, in ticks; 0: never */
	u32 origin_ms;		/* and what it showed */
	u32 transit_us;		/* the shortest way there, by both clocks; 0: unknown */
	u32 back_us;		/* what the way back takes longer, smoothed */
	u32 draining;		/* bp_draining of the link */
	u32 receiver;		/* who acknowledges; not 0. Flows to one host have one receiver */
	u32 joining;		/* nothing was acknowledged yet; 2: nor of many others of its receiver */
};

/*
 * Whether a receiver's clock, which advanced by so many units in the ticks that passed here, counts
 * milliseconds as a clock does. Its answers take up to rtt_us, and not always the same.
 */
static __always_inline u32 bp_keeps_time(u32 passed, u32 advance, u32 rtt_us)
{
	u64 passed_us = ((u64)passed << BP_TICK_SHIFT) / 1000;
	u64 advance_us = (u64)advance * 1000;
	u64 slack_us = (passed_us >> BP_DRIFT_SHIFT) + rtt_us;

	return advance >= passed >> 1 && advance >> 1 <= passed &&
	       advance_us + slack_us >= passed_us && advance_us <= passed_us + slack_us;
}

/*
 * How much of a delay lies on the way there: no queue of ours stands on the way back, where another's
 * may. By the receiver's timestamps (RFC 7323, section 5.4), where these count milliseconds; each says
 * when a segment arrived, of which we know when it was sent. Clocks drift: the way there never takes
 * longer than the way there and back. One that is slow would hide the queue that it drifts away from,
 * so none is believed that is further off than the delays of its answers allow, nor before that can be
 * known. What it shows until then is kept all the same: the way back may be free for no longer.
 */
static __always_inline u32 bp_forward(struct bp_member *m, const struct bp_ack *a, u32 rtt_us,
				      u32 excess_us)
{
	u32 tick = (u32)(a->now_ns >> BP_TICK_SHIFT);
	u32 passed = tick - m->origin;
	u32 advance = a->stamp_ms - m->origin_ms;
	u32 young = bp_hide(passed < BP_CLOCK_TICKS, a->now_ns);
	u32 transit_us, beyond_us;

	if (!a->stamp_ms)
		return excess_us;
	if (!m->origin) {
		m->origin = bp_max(tick, 1u);
		m->origin_ms = a->stamp_ms;
		return excess_us;
	}
	if (!young && !bp_keeps_time(passed, advance, rtt_us))
		return excess_us;
	transit_us = a->stamp_ms * 1000 + rtt_us - (u32)(a->now_ns / 1000);
	beyond_us = transit_us - m->transit_us;
	if (!m->transit_us || beyond_us > excess_us) {
		beyond_us = m->transit_us && beyond_us >> 31 ? 0 : excess_us;
		m->transit_us = bp_max(transit_us - beyond_us, 1u);
	}
	return bp_hide(young ? excess_us : beyond_us, a->now_ns);
}

static __always_inline void bp_slot_start(struct bp_slot *s, u32 epoch)
{
	s->epoch = epoch;
	s->flows = 0;
	s->hungry = 0;
	s->samples = 0;
	s->excess_us = 0;
	s->carried = 0;
	s->others = 0;
	s->receivers = 0;
	s->hungry_receivers = 0;
}

/* Turns to the epoch of now_ns; returns it. */
static __always_inline u32 bp_turn(struct bp_share *s, u64 now_ns)
{
	u32 epoch = (u32)(now_ns >> BP_EPOCH_SHIFT) + 1;

	if (s->now.epoch && epoch <= s->now.epoch)	/* another processor was there first */
		return s->now.epoch;
	if (s->now.epoch && epoch == s->now.epoch + 1) {
		s->past = s->now;
	} else {
		bp_slot_start(&s->past, epoch - 1);
	}
	bp_slot_start(&s->now, epoch);
	return epoch;
}

static __always_inline void bp_turnout_start(struct bp_turnout *t)
{
	t->flows = 0;
	t->hungry = 0;
	t->joining = 0;
}

/* Turns a receiver to the link's epoch. */
static __always_inline void bp_receiver_turn(struct bp_receiver *c, u32 epoch)
{
	if (c->epoch == epoch)
		return;
	if (epoch - c->epoch < BP_UNANSWERED_EPOCHS)
		c->unanswered -= (c->unanswered >> 3) + !!(c->unanswered & 7);
	else
		c->unanswered = 0;
	if (c->epoch + 1 == epoch)
		c->past = c->now;
	else
		bp_turnout_start(&c->past);
	bp_turnout_start(&c->now);
	c->epoch = epoch;
}

/*
 * Of `flows`, and of those that join, how many count: for a flow that is among them also all that
 * were never answered.
 */
static __always_inline u64 bp_counted(u32 flows, u32 joining, u32 joins, u32 unanswered)
{
	return (u64)flows + (joins ? bp_max(joining, unanswered) : bp_min(joining, bp_max(flows, 1u)));
}

/* What one flow may send, in bytes a second on the wire; `unseen` is 1 where it is not counted yet. */
static __always_inline u64 bp_budget(const struct bp_share *s, const struct bp_receiver *c,
				     const struct bp_member *m, const struct bp_params *p, u32 unseen)
{
	u64 rate = bp_allowed(&s->guard, p);
	u64 receivers = bp_max(s->past.receivers, s->now.receivers);
	u64 eager = bp_max(s->past.hungry_receivers, s->now.hungry_receivers);
	u32 joins = m->joining, silent = c->unanswered;
	u64 flows = bp_max(bp_counted(c->past.flows, c->past.joining, joins, silent),
			   bp_counted(c->now.flows, c->now.joining, joins, silent)) + unseen;
	u64 hungry = bp_max(bp_counted(c->past.hungry, c->past.joining, joins, silent),
			    bp_counted(c->now.hungry, c->now.joining, joins, silent)) + unseen;
	u32 known = c->past.flows | c->past.joining | c->now.flows | c->now.joining;
	u64 others = (bp_min(s->past.others, BP_RATE_MAX / 2) * 1000000000) >> BP_EPOCH_SHIFT;
	u64 spare;

	if (unseen && !known) {
		receivers++;
		eager++;
	}
	/* As many as 2^16 of each are too many for any link. */
	receivers = bp_max(bp_min(receivers, 65535ull), 1) * bp_max(bp_min(flows, 65535ull), 1);
	eager = bp_max(bp_min(eager, 65535ull), 1) * bp_max(bp_min(hungry, 65535ull), 1);
	spare = rate > others ? (rate - others) / eager : 0;
	return bp_max(bp_max(rate / receivers, spare), 1);
}

/* Counts a flow in an epoch of its link and of its receiver. */
static __always_inline void bp_count(struct bp_slot *s, struct bp_turnout *t,
				     const struct bp_member *m)
{
	s->flows++;
	s->hungry += m->hungry;
	if (!t->flows && !t->joining)
		s->receivers++;
	if (m->hungry && !t->hungry && !t->joining)
		s->hungry_receivers++;
	if (m->joining) {
		t->joining++;
	} else {
		t->flows++;
		t->hungry += m->hungry;
	}
}

/* A flow of which nothing was acknowledged yet: one of a crowd, or not. */
static __always_inline void bp_join_crowd(const struct bp_receiver *c, struct bp_member *m)
{
	if (m->joining)
		m->joining = c->unanswered > BP_CROWD ? 2 : 1;
}

/* A flow begins: its first budget, before it sends. */
static __always_inline u64 bp_begin(struct bp_share *s, struct bp_receiver *c, struct bp_member *m,
				    const struct bp_params *p, u64 now_ns)
{
	bp_receiver_turn(c, bp_turn(s, now_ns));
	m->path = s->guard.path;
	bp_join_crowd(c, m);
	return bp_budget(s, c, m, p, 1);
}

/*
 * A flow that was silent sends: it counts at once, in the last epoch too, so that the others make
 * room before its data arrives. One of a crowd that nobody answers counts for itself alone.
 */
static __always_inline u64 bp_join(struct bp_share *s, struct bp_receiver *c, struct bp_member *m,
				   const struct bp_params *p, u64 now_ns)
{
	u32 epoch = bp_turn(s, now_ns);
	u32 before = m->epoch;

	bp_receiver_turn(c, epoch);
	if (!before && m->joining)
		c->unanswered++;
	bp_join_crowd(c, m);
	if (before != epoch && m->joining < 2) {
		m->epoch = epoch;
		m->hungry = 1;
		if (before + 1 != epoch)
			bp_count(&s->past, &c->past, m);
		bp_count(&s->now, &c->now, m);
	}
	m->draining = bp_draining(&s->guard);
	return bp_budget(s, c, m, p, 0);
}

/* A flow that joined in this epoch has its first acknowledgement. */
static __always_inline void bp_joined(struct bp_receiver *c, const struct bp_member *m)
{
	c->now.joining -= !!c->now.joining;
	c->now.flows++;
	c->now.hungry += m->hungry;
}

/* One acknowledgement of a flow whose full segments take `wire` bytes; returns its budget. */
static __always_inline u64 bp_share_ack(struct bp_share *s, struct bp_receiver *c,
					struct bp_member *m, const struct bp_params *p,
					const struct bp_ack *a, u32 wire)
{
	u64 bytes = (u64)bp_min(a->acked, BP_SEGMENTS_MAX) * bp_min(wire, 131071u);
	u32 epoch = bp_turn(s, a->now_ns);
	u32 rtt_us = bp_min(a->rtt_us, BP_RTT_MAX_US);
	u32 back_us;
	u64 lost = (u64)bp_min(a->lost, BP_SEGMENTS_MAX) * bp_min(wire, 131071u);
	struct bp_echo echo = { .now_ns = a->now_ns, .bytes = bytes, .lost = lost, .rtt_us = rtt_us };

	bp_receiver_turn(c, epoch);
	if (m->joining && a->acked) {
		if (m->epoch == epoch)
			bp_joined(c, m);
		c->unanswered -= !!c->unanswered;
		m->joining = 0;
	}
	if (m->epoch != epoch && !m->joining) {
		m->epoch = epoch;
		m->hungry = bp_hide(!!(a->flags & BP_HUNGRY), a->now_ns);
		bp_count(&s->now, &c->now, m);
	}
	m->joining = bp_hide(m->joining, a->now_ns);
	if (rtt_us) {
		if (!m->min_rtt_us || m->path != s->guard.path) {
			m->min_rtt_us = rtt_us;
			m->transit_us = 0;
			m->back_us = 0;
		}
		m->path = s->guard.path;
		m->min_rtt_us = bp_min(m->min_rtt_us, rtt_us);
		back_us = rtt_us - m->min_rtt_us;
		echo.excess_us = bp_forward(m, a, rtt_us, back_us);
		back_us = bp_hide(bp_min(back_us - echo.excess_us, BP_BACK_MAX_US), a->now_ns);
		m->back_us = m->back_us - (m->back_us >> 3) + (back_us >> 3);
		s->now.excess_us += echo.excess_us;
		s->now.samples++;
	}
	s->now.carried += bytes;
	if (!m->hungry)
		s->now.others += bytes;
	echo.hungry = bp_min(s->now.hungry, s->past.hungry);
	/* What single segments wait for is the receiver's delayed acknowledgement. */
	echo.receiver = bp_hide(m->hungry ? m->receiver : 0, a->now_ns);
	bp_guard_ack(&s->guard, p, &echo);
	m->draining = bp_hide(bp_draining(&s->guard), a->now_ns);
	return bp_budget(s, c, m, p, 0);
}

#endif
