/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The guard of a link: follows what the link carries where that is less than was configured, or
 * where nothing was. No published algorithm; akin to BBR (N. Cardwell et al., ACM Queue 14(5),
 * 2016), but for a link instead of a flow.
 *
 * Acknowledgements are gathered in slots of at least 2^27 ns (0.13 s) and eight samples of the
 * round-trip time: what was delivered, the mean and the least delay above each flow's smallest.
 * What is decided shows a round-trip time later; until then only a queue is judged.
 *
 *   full    a delay that stands: known = delivered rate, cap = 31/32 known; drain
 *   drain   no more than one product in flight, until the delay is gone; one that stays is a
 *           longer path
 *   probe   cap + 3/32 known, twice; where it is not delivered, or waits, the link is full
 *   grow    half as much again, then by e in about a round-trip time, while more is delivered
 *
 * The caller holds the link's lock.
 */
#ifndef BENTPIPE_GUARD_H
#define BENTPIPE_GUARD_H

#include "control.h"

#define BP_SLOT_SHIFT 27
#define BP_SLOT_US 134217u
#define BP_SAMPLES 8u		/* in a slot, at least */
#define BP_GAP_SHIFT 30		/* without an acknowledgement, a slot says nothing of the link */
#define BP_BEGIN 125000ull	/* where a link of unknown rate begins: 1 Mbit/s */
#define BP_BURST 12000ull	/* a flow's first segments leave unpaced: 8 of them are no queue */
#define BP_PATIENCE 8u		/* rounds in which a small delay may drain */
#define BP_CALM 16u		/* rounds at the configured rate without delay that lift the cap */

/* bp_guard.step; between PROBE and GROW lies the second probe. */
#define BP_REST 0u
#define BP_PROBE 1u
#define BP_GROW 3u

struct bp_guard {
	u64 cap;		/* bytes a second on the wire; 0: none */
	u64 known;		/* what the link carries, as far as is known */
	u64 before;		/* delivered before the cap last rose; in a drain, known before */
	u64 past;		/* delivered in the last slot */
	u64 due_ns;		/* when what was decided shows */
	u64 start_ns;		/* of the slot; 0: none */
	u64 last_ns;		/* the last acknowledgement */
	u64 bytes;		/* acknowledged in the slot, on the wire */
	u64 excess_us;		/* sum of the delays in it */
	u32 least_us;		/* the least of them */
	u32 samples;
	u32 level_us;		/* the delay that drains; 0: none does */
	u32 age;		/* rounds since it does; at the configured rate, rounds without delay */
	u32 step;
	u32 path;		/* counts changes of the path: flows forget their smallest RTT */
};

/* One acknowledgement, as the guard sees it. */
struct bp_echo {
	u64 now_ns;
	u64 bytes;		/* acknowledged, on the wire */
	u32 rtt_us;		/* 0: none */
	u32 excess_us;		/* how much of it lies above the flow's smallest */
	u32 hungry;		/* flows have more to send than they may */
};

/* A finished slot. */
struct bp_tale {
	u64 now_ns;
	u64 span_us;
	u64 rate;		/* delivered, bytes a second on the wire */
	u32 rtt_us;
	u32 mean_us;
	u32 limit_us;		/* a mean delay above it is a queue */
	u32 quiet_us;		/* a least delay below it is none */
	u32 hungry;
	u32 due;		/* what was decided last has come to show */
};

/* The most that is ever sent, in bytes a second on the wire. */
static __always_inline u64 bp_ceiling(const struct bp_params *p)
{
	return p->rate ? bp_link_rate(p) : BP_RATE_MAX;
}

/* What the flows of the link may send together, in bytes a second on the wire. */
static __always_inline u64 bp_allowed(const struct bp_guard *g, const struct bp_params *p)
{
	u64 none = p->rate ? bp_ceiling(p) : BP_BEGIN;

	return g->cap ? bp_min(g->cap, bp_ceiling(p)) : none;
}

static __always_inline void bp_restart(struct bp_guard *g, u64 now_ns)
{
	g->start_ns = now_ns;
	g->bytes = 0;
	g->excess_us = 0;
	g->samples = 0;
	g->least_us = BP_RTT_MAX_US;
}

/* What is decided now shows in a round-trip time and more_us. */
static __always_inline void bp_wait(struct bp_guard *g, const struct bp_tale *t, u32 more_us)
{
	g->due_ns = t->now_ns + ((u64)t->rtt_us + more_us) * 1000;
}

/* The cap a little below `known`. */
static __always_inline void bp_settle(struct bp_guard *g, u64 known)
{
	g->known = bp_max(known, 1);
	g->cap = bp_max(g->known - (g->known >> 5), 1);
}

/* The link is full: it carries `known`. */
static __always_inline void bp_full(struct bp_guard *g, const struct bp_params *p,
				    const struct bp_tale *t, u64 known)
{
	u32 queue_us = g->least_us > t->quiet_us ? bp_max(t->mean_us, 1u) : 0;

	bp_settle(g, bp_min(known, bp_ceiling(p)));
	g->level_us = queue_us;
	g->before = 0;
	g->age = 0;
	g->step = BP_REST;
	bp_wait(g, t, queue_us);
}

/*
 * A queue drains. One that still grows shows that the link carries less. One that a time for
 * draining leaves as it was shows that too, where less was delivered; and then a longer path.
 */
static __always_inline void bp_drain(struct bp_guard *g, const struct bp_tale *t)
{
	u64 delivered = bp_max(t->rate, g->past);
	u32 stays;

	if (g->least_us > (u64)g->level_us + t->limit_us) {
		bp_settle(g, bp_min(g->known, delivered));
		g->level_us = bp_max(t->mean_us, 1u);
		bp_wait(g, t, t->mean_us);
		return;
	}
	if (!t->due)
		return;
	g->age = bp_min(g->age + 1, BP_PATIENCE);
	stays = g->least_us > g->level_us - (g->level_us >> 2);
	if (stays && !g->before && delivered < g->known - (g->known >> 3)) {
		g->before = g->known;
		bp_settle(g, delivered);
		bp_wait(g, t, t->mean_us);
	} else if (g->age == BP_PATIENCE || (stays && g->level_us > t->limit_us)) {
		bp_settle(g, bp_max(g->known, g->before));
		g->before = 0;
		g->path++;
		g->level_us = 0;
		g->age = 0;
		bp_wait(g, t, 0);
	} else {
		if (stays)
			bp_settle(g, g->known - (g->known >> 5));
		g->level_us = bp_max(t->mean_us, 1u);
		bp_wait(g, t, 0);
	}
}

/* How much more is tried; as much by all who share a carrier of known rate. */
static __always_inline u64 bp_probe(const struct bp_guard *g, const struct bp_params *p)
{
	return bp_max(bp_min((g->known >> 4) + (g->known >> 5), bp_ceiling(p) >> 5), 1);
}

/* No queue, and flows that could send more: does the link carry more? */
static __always_inline void bp_rise(struct bp_guard *g, const struct bp_params *p,
				    const struct bp_tale *t)
{
	u32 quiet = g->least_us <= t->quiet_us;

	if (g->step >= BP_GROW) {
		u64 time_us = (u64)t->rtt_us + BP_SLOT_US;

		if (!quiet || (t->due && t->rate < g->before + (g->before >> 3))) {
			bp_full(g, p, t, bp_max(t->rate, g->known));
			return;
		}
		g->cap += g->cap * bp_min(t->span_us, time_us) / time_us;
		g->cap = bp_min(g->cap, bp_max(t->rate, BP_BEGIN) * 4);
	} else if (!t->due) {
		return;
	} else if (g->step == BP_REST) {
		if (!quiet) {
			bp_full(g, p, t, g->known - (g->known >> 5));
			return;
		}
		if (g->cap >= bp_ceiling(p)) {
			g->age = bp_min(g->age + 1, BP_CALM);
			if (g->age == BP_CALM)
				g->cap = 0;
			bp_wait(g, t, 0);
			return;
		}
		g->cap = bp_max(g->cap, g->known) + bp_probe(g, p);
		g->step = BP_PROBE;
	} else {
		/* A full link delivers 1/31 more than at rest, one with room at least 2/31. */
		u64 least = (g->before >> 5) + (g->before >> 6);

		if (!quiet || t->rate < g->before + least) {
			bp_full(g, p, t, bp_max(g->known - (g->known >> 5), t->rate));
			return;
		}
		g->step++;
		g->known = g->cap;
		g->cap += g->step == BP_GROW ? g->cap >> 1 : bp_probe(g, p);
	}
	if (t->due) {
		g->before = t->rate;
		g->known = bp_max(g->known, t->rate);
		bp_wait(g, t, 0);
	}
	if (g->cap >= bp_ceiling(p)) {
		g->cap = bp_ceiling(p);
		g->known = g->cap;
		g->step = BP_REST;
		g->age = 0;
	}
}

static __always_inline void bp_judge(struct bp_guard *g, const struct bp_params *p,
				     const struct bp_tale *t)
{
	if (g->level_us && g->least_us <= t->quiet_us) {
		g->level_us = 0;
		g->age = 0;
	}
	/*
	 * Where nothing waits to be sent and the link is less than half full, a delay is no
	 * queue's: single segments wait for the receiver's delayed acknowledgement.
	 */
	if (!t->hungry && t->rate < bp_allowed(g, p) >> 1) {
		bp_wait(g, t, 0);
	} else if (g->level_us) {
		bp_drain(g, t);
	} else if (t->mean_us > t->limit_us && g->least_us > t->quiet_us) {
		bp_full(g, p, t, bp_max(t->rate, g->past));
	} else if (!t->hungry) {
		bp_wait(g, t, 0);
	} else if (g->cap) {
		bp_rise(g, p, t);
	} else if (!p->rate) {
		g->cap = BP_BEGIN;
		g->known = t->rate;
		g->before = 0;
		g->step = BP_GROW;
		bp_wait(g, t, 0);
	}
}

/* Takes an acknowledgement. */
static __always_inline void bp_guard_ack(struct bp_guard *g, const struct bp_params *p,
					 const struct bp_echo *e)
{
	u32 silent = (e->now_ns - g->last_ns) >> BP_GAP_SHIFT != 0;
	u32 due = g->start_ns < g->due_ns && g->due_ns <= e->now_ns;
	u64 span_ns, burst_us;
	struct bp_tale t;

	if (!p->guard_us && p->rate) {
		u32 path = g->path;

		*g = (struct bp_guard){ .path = path };
		return;
	}
	g->last_ns = e->now_ns;
	if (!g->start_ns || silent || due) {
		bp_restart(g, e->now_ns);	/* what is counted came after this one */
		return;
	}
	g->bytes += e->bytes;
	if (!e->rtt_us)
		return;
	g->excess_us += e->excess_us;
	g->least_us = bp_min(g->least_us, e->excess_us);
	g->samples++;
	span_ns = e->now_ns - g->start_ns;
	if (!(span_ns >> BP_SLOT_SHIFT) || g->samples < BP_SAMPLES)
		return;
	burst_us = bp_min(BP_BURST * 1000000 / bp_max(bp_allowed(g, p), 1), BP_RTT_MAX_US);
	t.now_ns = e->now_ns;
	t.span_us = span_ns / 1000;
	t.rate = bp_min(g->bytes, BP_RATE_MAX) * 1000000 / t.span_us;
	t.rtt_us = bp_min(e->rtt_us, BP_RTT_MAX_US);
	t.mean_us = bp_min(g->excess_us / g->samples, BP_RTT_MAX_US);
	t.limit_us = bp_min(bp_max(p->guard_us, burst_us), BP_RTT_MAX_US);
	t.quiet_us = bp_max((u64)t.limit_us >> 3, (burst_us >> 3) * 3);
	t.hungry = e->hungry;
	t.due = g->start_ns >= g->due_ns;
	bp_judge(g, p, &t);
	g->past = t.rate;
	bp_restart(g, e->now_ns);
}

#endif
