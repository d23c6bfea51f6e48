/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The guard of a link: follows what the link carries where that is less than was configured, or
 * where nothing was. No published algorithm; akin to BBR (N. Cardwell et al., ACM Queue 14(5),
 * 2016), but for a link instead of a flow.
 *
 * Acknowledgements are gathered in slots of at least 2^27 ns (0.13 s) and eight milliseconds with a
 * sample of the round-trip time: what was delivered, and the least delay above each flow's smallest,
 * which noise can only raise. What is decided shows a round-trip time later; until then only a queue
 * is judged.
 *
 *   full    a delay that is seen twice while less than 3/4 is delivered or it grows, or once while
 *           less than 1/4 is, or a small one for eight rounds: cap = 31/32 of what is delivered while
 *           it stands; drain
 *   test    a delay that is there a round later though most is delivered: drain, at once with half a
 *           product, which lowers nothing
 *   drain   no more than one product in flight, then half of one, until the delay is gone; one that
 *           stays all the same is a longer path, or a small one noise
 *   starve  an eighth and more is lost in four rounds without a delay: cap = what is delivered; where
 *           as much is lost in four more, that is chance, and the cap is what it was
 *   probe   cap + 3/32 known, twice or more; where it is not delivered, or waits, the link is full
 *   grow    half as much again, then by e in about a round-trip time, while more is delivered
 *
 * Who shares a carrier of known rate with others is told by the part f of it that is delivered here:
 * each probe adds as much for all, each that fails takes f^2 min(5/4 f, 3/2 (1 - f)) of the own part,
 * so that parts become equal (D. Chiu, R. Jain, Computer Networks and ISDN Systems 17(1), 1989).
 *
 * A delay that falls faster than a queue can drain, though all that may be sent is delivered, is the
 * link's own: by so much it varies by itself, and what is less counts as no queue for some ten seconds.
 *
 * A receiver can lie: of a delay by its timestamps, and by acknowledging what it does not have yet. So
 * each receiver's least delay is kept apart, and one that stands alone counts for little: of three or
 * more the second least is the link's. Of two that differ nobody knows who is right: what both see is a
 * queue, but what only one sees suffices to try no more.
 *
 * The caller holds the link's lock.
 */
#ifndef BENTPIPE_GUARD_H
#define BENTPIPE_GUARD_H

#include "control.h"

#define BP_SLOT_SHIFT 27
#define BP_SLOT_US 134217u
#define BP_SAMPLES 8u		/* milliseconds with one in a slot, at least */
#define BP_TICK_SHIFT 20		/* 1.05 ms: what comes at a stroke is one sample */
#define BP_GAP_SHIFT 30		/* without an acknowledgement, a slot says nothing of the link */
#define BP_BEGIN 125000ull	/* where a link of unknown rate begins: 1 Mbit/s */
#define BP_BURST 12000ull	/* a flow's first segments leave unpaced: 8 of them are no queue */
#define BP_PATIENCE 8u		/* rounds in which a small delay may go by itself */
#define BP_LOSSY 4u		/* rounds in which an eighth is lost until the cap falls, or it is known why not */
#define BP_TRIES 3u		/* slots in which a probe may be delivered */
#define BP_VARIES 4u		/* times what would be a queue a delay may vary by itself */
#define BP_CALM 16u		/* rounds at the configured rate without delay that lift the cap */

/* bp_guard.step; between PROBE and GROW lie further probes. */
#define BP_REST 0u
#define BP_PROBE 1u
#define BP_GROW 8u

/* The least delays of a slot, in microseconds; BP_RTT_MAX_US: none was seen. */
struct bp_delays {
	u32 modest_us;		/* of all flows that have no more to send than they may */
	u32 least_us;		/* of the others: of the receiver that has the least */
	u32 second_us;		/* and of the one that comes next */
	u32 least_by;		/* who that is; 0: nobody */
	u32 second_by;
	u32 more;		/* whether there was a third */
};

struct bp_guard {
	u64 cap;		/* bytes a second on the wire; 0: none */
	u64 known;		/* what the link carries, as far as is known */
	u64 before;		/* delivered before the cap last rose; in a drain, known before */
	u64 due_ns;		/* when what was decided shows */
	u64 test_ns;		/* from when on a delay that is still there is tested */
	u64 start_ns;		/* of the slot; 0: none */
	u64 last_ns;		/* the last acknowledgement */
	u64 bytes;		/* acknowledged in the slot, on the wire */
	u64 lost;		/* found lost in the slot: of the first receiver of which some was */
	u64 lost_else;		/* and of all others */
	u64 busy;		/* acknowledged while a queue stood, on the wire */
	u64 busy_us;		/* how long it has */
	struct bp_delays delays; /* of the slot */
	u32 samples;		/* milliseconds with a sample of them */
	u32 tick;		/* the last of them */
	u32 level_us;		/* the delay that drains; 0: none does */
	u32 floor_us;		/* the delay that did not: noise */
	u32 last_us;		/* the delay of the slot before, if all that may be sent was delivered */
	u32 varies_us;		/* by how much the delay varies by itself */
	u32 seen_us;		/* the delay that is looked at again; 0: none is */
	u32 lossy;		/* rounds in which much was lost */
	u32 lost_by;		/* the receiver that lost is of; 0: none */
	u32 age;		/* rounds of rest; slots of a probe; 1 half a product drains, 2 as a test */
	u32 step;
	u32 path;		/* counts changes of the path: flows forget their smallest RTT */
};

/* One acknowledgement, as the guard sees it. */
struct bp_echo {
	u64 now_ns;
	u64 bytes;		/* acknowledged, on the wire */
	u64 lost;		/* found lost, on the wire */
	u32 rtt_us;		/* 0: none */
	u32 excess_us;		/* how much of it lies above the flow's smallest */
	u32 hungry;		/* flows have more to send than they may */
	u32 receiver;		/* who sent it, if this flow has; else 0 */
};

/* A finished slot. */
struct bp_sample {
	u64 now_ns;
	u64 span_us;
	u64 rate;		/* delivered, bytes a second on the wire */
	u32 rtt_us;
	u32 least_us;		/* the delay that all receivers see, but for one of three */
	u32 delay_us;		/* the delay that any sees, but for the greatest of three or more */
	u32 limit_us;		/* a delay above it is a queue */
	u32 quiet_us;		/* a delay below it is none */
	u32 noise_us;		/* as far as it lies above this, which is no queue's */
	u32 hungry;
	u32 lossy;		/* much of what was sent was lost */
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

/* How much of a product may be in flight: 0 all that windows allow, 1 one, 2 half of one. */
static __always_inline u32 bp_draining(const struct bp_guard *g)
{
	return g->level_us ? 1 + bp_min(g->age, 1u) : 0;
}

static __always_inline void bp_restart(struct bp_guard *g, u64 now_ns)
{
	g->start_ns = now_ns;
	g->bytes = 0;
	g->lost = 0;
	g->lost_else = 0;
	g->lost_by = 0;
	g->samples = 0;
	g->delays = (struct bp_delays){
		.modest_us = BP_RTT_MAX_US,
		.least_us = BP_RTT_MAX_US,
		.second_us = BP_RTT_MAX_US,
	};
}

/* A receiver reports a delay. The two least of different receivers are kept. */
static __always_inline void bp_report(struct bp_delays *d, u32 by, u32 delay_us)
{
	if (!by) {
		d->modest_us = bp_min(d->modest_us, delay_us);
	} else if (!d->least_by || by == d->least_by) {
		d->least_by = by;
		d->least_us = bp_min(d->least_us, delay_us);
	} else if (delay_us < d->least_us) {
		d->more |= d->second_by && by != d->second_by;
		d->second_us = d->least_us;
		d->second_by = d->least_by;
		d->least_us = delay_us;
		d->least_by = by;
	} else if (!d->second_by || by == d->second_by) {
		d->second_by = by;
		d->second_us = bp_min(d->second_us, delay_us);
	} else {
		d->more = 1;
		if (delay_us < d->second_us) {
			d->second_us = delay_us;
			d->second_by = by;
		}
	}
}

/* What a receiver of which more is waiting to be sent has not got. */
static __always_inline void bp_lose(struct bp_guard *g, const struct bp_echo *e)
{
	if (!e->receiver || !e->lost)
		return;
	if (!g->lost_by)
		g->lost_by = e->receiver;
	if (g->lost_by == e->receiver)
		g->lost += e->lost;
	else
		g->lost_else += e->lost;
}

/* Whether an eighth of what was sent was lost, or more; of several receivers no single one is believed. */
static __always_inline u32 bp_is_lossy(const struct bp_guard *g)
{
	u64 lost = g->lost + g->lost_else;

	return lost > (g->bytes + lost) >> 3 &&
	       (!g->delays.second_by || g->lost_else >= lost >> 2);
}

/* What is decided now shows in a round-trip time. */
static __always_inline void bp_wait(struct bp_guard *g, const struct bp_sample *t)
{
	g->due_ns = t->now_ns + (u64)t->rtt_us * 1000;
}

static __always_inline u32 bp_quiet(const struct bp_sample *t)
{
	return t->delay_us <= (u64)t->noise_us + t->quiet_us;
}

/* Whether one of two receivers sees a queue and the other sees none. */
static __always_inline u32 bp_doubtful(const struct bp_sample *t)
{
	return !bp_quiet(t) && t->least_us <= (u64)t->noise_us + t->quiet_us;
}

/* The cap a little below `known`. */
static __always_inline void bp_settle(struct bp_guard *g, const struct bp_params *p, u64 known)
{
	g->known = bp_max(bp_min(known, bp_ceiling(p)), 1);
	g->cap = bp_max(g->known - (g->known >> 5), 1);
}

/* Makes room for others on a carrier of known rate. */
static __always_inline void bp_yield(struct bp_guard *g, const struct bp_params *p)
{
	u64 part = bp_min((g->known << 8) / bp_max(bp_ceiling(p), 1), 256);

	if (p->rate) {
		part *= part * bp_min(5 * part / 4, 3 * (256 - part) / 2);
		bp_settle(g, p, g->known - (g->known * (part >> 8) >> 16));
	}
}

/* No queue drains any more, nothing is tried. */
static __always_inline void bp_rest(struct bp_guard *g, const struct bp_sample *t)
{
	g->level_us = 0;
	g->last_us = 0;
	g->seen_us = 0;
	g->age = 0;
	g->step = BP_REST;
	bp_wait(g, t);
}

/* While a queue stands, the link delivers what it carries. */
static __always_inline void bp_stands(struct bp_guard *g, const struct bp_params *p,
				      const struct bp_sample *t)
{
	g->busy += g->bytes;
	g->busy_us += t->span_us;
	bp_settle(g, p, bp_min(g->busy, BP_RATE_MAX) * 1000000 / bp_max(g->busy_us, 1));
}

/* The link is full: its queue has to drain. */
static __always_inline void bp_full(struct bp_guard *g, const struct bp_params *p,
				    const struct bp_sample *t)
{
	bp_rest(g, t);
	g->before = g->cap ? g->known : bp_allowed(g, p);
	g->busy = 0;
	g->busy_us = 0;
	g->level_us = bp_max(t->delay_us, 1u);
	bp_stands(g, p, t);
}

/* What is sent arrives: whether a delay is a queue's, a drain tells that lowers nothing. */
static __always_inline void bp_test(struct bp_guard *g, const struct bp_sample *t)
{
	bp_rest(g, t);
	g->before = g->known;
	g->level_us = bp_max(t->delay_us, 1u);
	g->age = 2;
}

/* A queue drains. One that stays with half a product in flight is a longer path, or noise. */
static __always_inline void bp_drain(struct bp_guard *g, const struct bp_params *p,
				     const struct bp_sample *t)
{
	u32 stays;

	if (bp_quiet(t)) {
		if (g->age != 2)
			bp_yield(g, p);
		bp_rest(g, t);
		return;
	}
	if (!g->age)
		bp_stands(g, p, t);
	if (t->delay_us > (u64)g->level_us + t->limit_us) {
		g->level_us = t->delay_us;
		bp_wait(g, t);
		return;
	}
	if (!t->due)
		return;
	stays = t->delay_us > g->level_us - (g->level_us >> 2);
	g->level_us = bp_max(t->delay_us, 1u);
	bp_wait(g, t);
	if (stays && g->age) {
		g->path += t->delay_us > t->limit_us;
		g->floor_us = t->delay_us > t->limit_us ? 0 : t->delay_us;
		bp_rest(g, t);
		if (g->cap)
			bp_settle(g, p, bp_max(g->known, g->before));
	} else if (stays) {
		g->age = 1;
	}
}

/* How much more is tried; as much by all who share a carrier of known rate. */
static __always_inline u64 bp_probe(const struct bp_guard *g, const struct bp_params *p)
{
	return bp_max(bp_min((g->known >> 4) + (g->known >> 5), bp_ceiling(p) >> 5), 1);
}

/* As many probes find the room that others on the carrier have not just left. */
static __always_inline u32 bp_probes(const struct bp_guard *g, const struct bp_params *p)
{
	return (g->known >> 4) + (g->known >> 5) < bp_ceiling(p) >> 5 ? 2 : BP_GROW - 1;
}

/* The cap has risen: what is delivered now is what it has to show more than. */
static __always_inline void bp_rose(struct bp_guard *g, const struct bp_params *p,
				    const struct bp_sample *t)
{
	if (t->due) {
		g->before = t->rate;
		g->known = bp_max(g->known, t->rate);
		bp_wait(g, t);
	}
	if (g->cap >= bp_ceiling(p)) {
		g->cap = bp_ceiling(p);
		g->known = g->cap;
		g->step = BP_REST;
		g->age = 0;
	}
}

/* Whether a delay ends what is tried: where the delay varies by itself it does not while `more` is delivered. */
static __always_inline u32 bp_waits(const struct bp_guard *g, const struct bp_sample *t, u32 more)
{
	return !bp_quiet(t) && (!more || !g->varies_us);
}

static __always_inline void bp_growing(struct bp_guard *g, const struct bp_params *p,
				    const struct bp_sample *t)
{
	u64 time_us = (u64)t->rtt_us + BP_SLOT_US;
	u32 more = bp_hide(t->rate >= g->before + (g->before >> 3), t->now_ns);

	if (bp_waits(g, t, more)) {
		bp_full(g, p, t);
	} else if (t->due && !more) {
		bp_settle(g, p, bp_max(g->known, t->rate));
		bp_rest(g, t);
	} else {
		g->cap += g->cap * bp_min(t->span_us, time_us) / time_us;
		g->cap = bp_min(g->cap, bp_max(t->rate, BP_BEGIN) * 4);
		bp_rose(g, p, t);
	}
}

/* Nothing has been tried for a round-trip time. */
static __always_inline void bp_try(struct bp_guard *g, const struct bp_params *p,
				   const struct bp_sample *t)
{
	if (!bp_quiet(t)) {
		g->age++;
		bp_wait(g, t);
		if (g->age < BP_PATIENCE)
			return;
		if (bp_doubtful(t) && t->rate >= g->cap - (g->cap >> 3))
			bp_test(g, t);
		else
			bp_full(g, p, t);
		return;
	}
	g->floor_us = bp_min(g->floor_us, t->delay_us);
	if (g->cap >= bp_ceiling(p)) {
		g->age = bp_min(g->age + 1, BP_CALM);
		if (g->age == BP_CALM)
			g->cap = 0;
		bp_wait(g, t);
		return;
	}
	g->age = 0;
	g->cap = bp_max(g->cap, g->known) + bp_probe(g, p);
	g->step = BP_PROBE;
	bp_rose(g, p, t);
}

/* A probe has had its round-trip time. */
static __always_inline void bp_probed(struct bp_guard *g, const struct bp_params *p,
				      const struct bp_sample *t)
{
	/* A full link delivers 1/31 more than at rest, one with room at least 2/31; then no more. */
	u64 least = g->step == BP_PROBE ? (g->before >> 5) + (g->before >> 6)
					: (g->cap - g->known) >> 1;
	u32 more = bp_hide(t->rate >= g->before + least, t->now_ns);

	if (bp_doubtful(t)) {
		bp_settle(g, p, g->known);
		bp_rest(g, t);
	} else if (bp_waits(g, t, more)) {
		bp_full(g, p, t);
	} else if (more) {
		g->age = 0;
		g->known = g->cap;
		g->step = g->step >= bp_probes(g, p) ? BP_GROW : g->step + 1;
		g->cap += g->step == BP_GROW ? g->cap >> 1 : bp_probe(g, p);
		bp_rose(g, p, t);
	} else if (++g->age >= BP_TRIES) {
		bp_settle(g, p, g->known);
		bp_yield(g, p);
		bp_rest(g, t);
	}
}

/*
 * Learns by how much the delay varies by itself, of which 1/128 is forgotten each slot. What falls by
 * less than 1/16 of the time may be a queue that drains, since as much of what may be sent need not
 * have been. While more is tried on a link of unknown rate no queue drains.
 */
static __always_inline void bp_learn(struct bp_guard *g, const struct bp_params *p,
				     const struct bp_sample *t)
{
	u64 all = bp_allowed(g, p);
	u32 last_us = g->last_us, slow_us = t->delay_us + (u32)(t->span_us >> 4);

	g->varies_us -= g->varies_us >> 7;
	g->last_us = 0;
	if (g->level_us || !t->hungry)
		return;
	if ((p->rate || g->step == BP_REST) && (t->rate < all - (all >> 4) || !t->due))
		return;
	g->last_us = t->delay_us;
	if (last_us <= slow_us)
		return;
	last_us = bp_min(last_us - slow_us, t->limit_us * BP_VARIES);
	g->varies_us = bp_max(g->varies_us, last_us);
}

/* A delay above the limit. One look is not enough, but where little is delivered: delays vary by themselves too. */
static __always_inline void bp_suspect(struct bp_guard *g, const struct bp_params *p,
				       const struct bp_sample *t)
{
	u64 all = bp_allowed(g, p);

	if (!g->seen_us && t->rate >= all >> 2) {
		g->seen_us = t->least_us;
		g->test_ns = t->now_ns + (u64)t->rtt_us * 1000;
	} else if (t->least_us > (u64)g->seen_us + (t->limit_us >> 2) || t->rate < all - (all >> 2)) {
		bp_full(g, p, t);
	} else if (t->now_ns >= g->test_ns) {
		bp_test(g, t);
	}
}

/*
 * Whether so much is lost, round after round, that the link may have less than is sent behind a queue
 * too short to see, such as a policer's. What is delivered is tried as the cap: a full link loses little
 * then, and where as much is lost all the same, the cap is what it was.
 */
static __always_inline u32 bp_starves(struct bp_guard *g, const struct bp_params *p,
				      const struct bp_sample *t)
{
	if (!t->lossy || g->lossy >= 2 * BP_LOSSY) {
		if (!t->lossy)
			g->lossy = 0;
		return 0;
	}
	g->lossy++;
	if (g->lossy == BP_LOSSY) {
		g->before = g->cap ? g->known : bp_allowed(g, p);
		bp_settle(g, p, t->rate);
	} else if (g->lossy == 2 * BP_LOSSY) {
		bp_settle(g, p, g->before);
	}
	bp_wait(g, t);
	return 1;
}

/* No queue is seen. */
static __always_inline void bp_go_on(struct bp_guard *g, const struct bp_params *p,
				     const struct bp_sample *t)
{
	if (!t->hungry) {
		bp_wait(g, t);
	} else if (t->due && g->step == BP_REST && bp_starves(g, p, t)) {
		return;
	} else if (g->cap && g->step >= BP_GROW) {
		bp_growing(g, p, t);
	} else if (g->cap && t->due) {
		if (g->step == BP_REST)
			bp_try(g, p, t);
		else
			bp_probed(g, p, t);
	} else if (!g->cap && !p->rate) {
		g->cap = BP_BEGIN;
		g->known = t->rate;
		g->before = 0;
		g->step = BP_GROW;
		bp_wait(g, t);
	}
}

static __always_inline void bp_judge(struct bp_guard *g, const struct bp_params *p,
				     const struct bp_sample *t)
{
	bp_learn(g, p, t);
	/*
	 * Where nothing waits to be sent and the link is less than half full, a delay is no
	 * queue's: single segments wait for the receiver's delayed acknowledgement.
	 */
	if (!t->hungry && t->rate < bp_allowed(g, p) >> 1) {
		if (g->level_us && bp_quiet(t))
			bp_rest(g, t);
		bp_wait(g, t);
	} else if (g->level_us) {
		bp_drain(g, p, t);
	} else if (t->least_us > (u64)t->noise_us + t->limit_us) {
		bp_suspect(g, p, t);
	} else {
		g->seen_us = 0;
		bp_go_on(g, p, t);
	}
}

/* What the receivers of a slot agree upon. */
static __always_inline void bp_agree(struct bp_sample *t, const struct bp_delays *d)
{
	t->least_us = d->least_by ? d->least_us : d->modest_us;
	t->delay_us = d->second_by ? d->second_us : t->least_us;
	if (d->more)
		t->least_us = t->delay_us;
}

/* Takes an acknowledgement. */
static __always_inline void bp_guard_ack(struct bp_guard *g, const struct bp_params *p,
					 const struct bp_echo *e)
{
	u32 silent = (e->now_ns - g->last_ns) >> BP_GAP_SHIFT != 0;
	u32 due = g->start_ns < g->due_ns && g->due_ns <= e->now_ns;
	u32 tick = (u32)(e->now_ns >> BP_TICK_SHIFT);
	u64 span_ns, burst_us;
	struct bp_sample t;

	if (!p->guard_us && p->rate) {
		u32 path = g->path;

		*g = (struct bp_guard){ .path = path };
		return;
	}
	g->last_ns = e->now_ns;
	if (!g->start_ns || silent || due) {
		bp_restart(g, e->now_ns);	/* what is counted came after this one */
		if (silent)
			g->last_us = 0;
		return;
	}
	g->bytes += e->bytes;
	bp_lose(g, e);
	if (!e->rtt_us)
		return;
	bp_report(&g->delays, e->receiver, e->excess_us);
	g->samples += tick != g->tick;
	g->tick = tick;
	span_ns = e->now_ns - g->start_ns;
	if (!(span_ns >> BP_SLOT_SHIFT) || g->samples < BP_SAMPLES)
		return;
	burst_us = bp_min(BP_BURST * 1000000 / bp_max(bp_allowed(g, p), 1), BP_RTT_MAX_US);
	t.now_ns = e->now_ns;
	t.span_us = span_ns / 1000;
	t.rate = bp_min(g->bytes, BP_RATE_MAX) * 1000000 / t.span_us;
	t.rtt_us = bp_min(e->rtt_us, BP_RTT_MAX_US);
	bp_agree(&t, &g->delays);
	t.limit_us = bp_min(bp_max(p->guard_us, burst_us), BP_RTT_MAX_US);
	t.quiet_us = bp_max((u64)t.limit_us >> 2, (burst_us >> 3) * 3);
	t.noise_us = bp_max(g->floor_us, g->varies_us);
	t.lossy = bp_hide(bp_is_lossy(g), e->now_ns);
	t.hungry = e->hungry;
	t.due = bp_hide(g->start_ns >= g->due_ns, e->now_ns);
	bp_judge(g, p, &t);
	bp_restart(g, e->now_ns);
}

#endif
