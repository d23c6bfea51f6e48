/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP Hybla: C. Caini, R. Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks",
 * Int. J. Satell. Commun. Network. 22(5), 2004, 547-566; fixed point as Linux net/ipv4/tcp_hybla.c.
 *
 *   rho = max(RTT / RTT0, 1), from the smallest RTT seen
 *   slow start,           each segment acknowledged: cwnd += 2^rho - 1    [segments]
 *   congestion avoidance, each segment acknowledged: cwnd += rho^2 / cwnd [segments]
 *
 * Deviations:
 * - segments are counted, not acknowledgements (delayed or thinned ACKs do not slow the growth);
 * - the exponent stops at 16 and, unless BP_UNCAPPED, a segment acknowledged adds at most rho;
 * - the first window is min(rho, 32) but not less than the kernel's own, paced over one RTT;
 * - where the link's rate is configured, slow start ends at rate * RTT, at the start and after a
 *   recovery too; elsewhere at Hoe's estimate (J. Hoe, "Improving the start-up behavior of a
 *   congestion control scheme for TCP", SIGCOMM 1996) as in the paper: the spacing of the first
 *   acknowledgements, while the kernel leaves the first ten segments unpaced (Linux has neither);
 * - a recovery that runs into the next is one recovery, halved once, unless more than 1/32 of its
 *   segments were lost;
 * - paced at the link rate, else at 2 (slow start) or 1.2 windows an RTT as the kernel does;
 * - the remainder of rho^2 / cwnd is kept exactly;
 * - BP_AGGRESSIVE (off by default): the rule also runs in recovery.
 */
#ifndef BENTPIPE_HYBLA_H
#define BENTPIPE_HYBLA_H

#include "control.h"

#define BP_RHO_ONE 8u			/* rho has three fractional bits ("3ls") */
#define BP_RHO_MAX 65535u
#define BP_EXPONENT_MAX (16u << 3)
#define BP_FIRST_WINDOW 32u

/* 2^(f/8) in units of 1/128 for f = 0..7, a byte each: 128 139 152 165 181 197 215 234. */
#define BP_EIGHTHS 0xead7c5b5a5988b80ull

/* bp_hybla.flags */
#define BP_REDUCING 1u		/* in CWR or recovery: the window shrinks towards ssthresh */
#define BP_FLYING 2u		/* nothing of the first window is acknowledged yet */
#define BP_LOSING 4u		/* after a timeout */
#define BP_ESTIMATED 8u		/* Hoe's estimate is made, or will not be */

#define BP_TRAIN 8u		/* segments whose spacing gives it, after the first one's */

struct bp_hybla {
	u32 min_rtt_us;		/* 0: unknown */
	u32 rho;		/* in eighths */
	u32 cents;		/* fraction of a segment grown in slow start, in 1/128 */
	u32 flags;
	u64 count;		/* remainder of rho^2 / cwnd, in 1/64 segments squared */
	/* Of this recovery, in segments: */
	u32 grown;		/* BP_AGGRESSIVE: what the window grew */
	u32 delivered;		/* since it began or ran into the next */
	u32 acked;		/* since the window was halved */
	u32 lost;		/* since the window was halved */
	/* Hoe's estimate: */
	u32 train;		/* segments acknowledged */
	u64 train_ns;		/* since then */
};

/* rho in eighths. */
static __always_inline u32 bp_rho(u32 rtt_us, u32 rtt0_us)
{
	u64 rho = ((u64)rtt_us << 3) / bp_max(rtt0_us, 1u);

	return bp_min(bp_max(rho, BP_RHO_ONE), BP_RHO_MAX);
}

/* Growth in slow start for `acked` segments, in 1/128 segment. */
static __always_inline u64 bp_slow_start(u32 rho, u32 acked, u32 capped)
{
	u32 exponent = bp_min(rho, BP_EXPONENT_MAX);
	u64 eighths = (BP_EIGHTHS >> (8 * (exponent & 7))) & 255;
	u64 each = (eighths << (exponent >> 3)) - 128;
	u64 cap = (u64)rho << 4;

	if (capped && each > cap)
		each = cap;
	return each * acked;
}

/* Growth in congestion avoidance for `acked` segments: whole segments; the rest stays in h. */
static __always_inline u64 bp_avoidance(struct bp_hybla *h, u32 rho, u32 cwnd, u32 acked,
					u32 capped)
{
	u64 window = (u64)bp_max(cwnd, 1u) << 3;
	u64 gain = capped ? bp_min((u64)rho, window) : rho;
	u64 sum = h->count + gain * rho * acked;
	u64 grown = sum / (window << 3);

	h->count = sum % (window << 3);
	return grown;
}

/* One acknowledgement outside recovery, by rho in eighths. */
static __always_inline void bp_grow(struct bp_hybla *h, struct bp_window *w, u32 rho, u32 acked,
				    u32 capped)
{
	u64 cwnd = w->cwnd;

	if (w->cwnd < w->ssthresh) {
		u64 sum = h->cents + bp_slow_start(rho, acked, capped);

		cwnd += sum >> 7;
		h->cents = sum & 127;
		cwnd = bp_min(cwnd, (u64)w->ssthresh);
	} else {
		cwnd += bp_avoidance(h, rho, w->cwnd, acked, capped);
	}
	w->cwnd = bp_min(cwnd, BP_SEGMENTS_MAX);
}

/*
 * One acknowledgement in recovery. The kernel leaves the reduction to a full control: halving at
 * once would stall the retransmissions until half a window is acknowledged. So, as RFC 6937: one
 * segment goes out for two delivered until `goal` is reached; below it, one for each delivered
 * and one more an acknowledgement, unless losses go on.
 */
static __always_inline void bp_reduce(struct bp_hybla *h, struct bp_window *w, u32 goal, u32 acked,
				      u32 lost, u32 sent)
{
	u32 entering = !(h->flags & BP_REDUCING);
	u64 due, room;

	if (w->in_flight > goal) {
		due = h->delivered >> 1;
		room = due > sent ? due - sent : 0;
	} else {
		due = h->delivered > sent ? h->delivered - sent : 0;
		room = bp_max(due, (u64)acked) + !lost;
		room = bp_min(room, goal - w->in_flight);
	}
	/* The first retransmission goes at once. */
	room = bp_max(room, entering);
	h->flags |= BP_REDUCING;
	w->cwnd = bp_min((u64)w->in_flight + room, BP_SEGMENTS_MAX);
}

/* Recovery, or a timeout, begins: where the window is to shrink to. */
static __always_inline u32 bp_hybla_ssthresh(struct bp_hybla *h, const struct bp_window *w)
{
	h->delivered = 0;
	if ((h->flags & BP_REDUCING) && (u64)h->lost << 5 <= h->acked)
		return w->ssthresh;
	h->flags &= ~BP_REDUCING;
	return bp_max(w->cwnd >> 1, 2u);
}

/* Segments that fill the link; 0 where its rate is not configured or no RTT is known. */
static __always_inline u32 bp_product(const struct bp_hybla *h, const struct bp_window *w,
				      const struct bp_params *p)
{
	u64 product = bp_segments(bp_min(p->rate, BP_RATE_MAX), h->min_rtt_us, w->wire);

	return bp_min(product, BP_SEGMENTS_MAX);
}

/* A smaller RTT: rho follows; the first one known also gives ssthresh. */
static __always_inline void bp_hybla_rtt(struct bp_hybla *h, struct bp_window *w,
					 const struct bp_params *p, u32 rtt_us)
{
	u32 first = !h->min_rtt_us;

	if (!rtt_us || (!first && rtt_us >= h->min_rtt_us))
		return;
	h->min_rtt_us = rtt_us;
	h->rho = bp_rho(rtt_us, p->rtt0_us);
	if (first && p->rate)
		w->ssthresh = bp_max(bp_product(h, w, p), 2u);
}

static __always_inline void bp_hybla_pace(const struct bp_hybla *h, struct bp_window *w,
					  const struct bp_params *p, u32 srtt_us)
{
	u32 flying = h->flags & BP_FLYING;
	u64 pacing = BP_UNPACED;

	if (p->rate)
		pacing = bp_payload_rate(w, bp_link_rate(p));
	else if (srtt_us && !flying)
		pacing = bp_window_rate(w, srtt_us) * (w->cwnd < w->ssthresh >> 1 ? 20 : 12) / 10;
	if (flying && h->min_rtt_us)
		pacing = bp_min(pacing, bp_window_rate(w, h->min_rtt_us));
	w->pacing = bp_max(pacing, 1);
}

/* The connection starts, its handshake took rtt_us (0: unknown). */
BP_STEP bp_hybla_init(struct bp_hybla *h, struct bp_window *w, const struct bp_params *p,
		      u32 rtt_us)
{
	if (!h || !w || !p)
		return 0;
	h->min_rtt_us = 0;
	h->rho = BP_RHO_ONE;
	h->cents = 0;
	h->flags = BP_FLYING;
	h->count = 0;
	h->grown = 0;
	h->delivered = 0;
	h->acked = 0;
	h->lost = 0;
	h->train = 0;
	h->train_ns = 0;
	bp_hybla_rtt(h, w, p, rtt_us);
	w->cwnd = bp_max(w->cwnd, bp_min(h->rho >> 3, BP_FIRST_WINDOW));
	bp_hybla_pace(h, w, p, rtt_us);
	return 0;
}

/* The first segments left back to back: how far apart their acknowledgements come is the rate. */
static __always_inline void bp_hoe(struct bp_hybla *h, struct bp_window *w, const struct bp_ack *a,
				   u32 acked)
{
	u64 elapsed_us, rate, product;

	if (!h->train_ns || a->now_ns < h->train_ns || !h->min_rtt_us) {
		h->train = 0;
		h->train_ns = a->now_ns;
		return;
	}
	elapsed_us = (a->now_ns - h->train_ns) / 1000;
	h->train = bp_min(h->train + acked, BP_SEGMENTS_MAX);
	if (elapsed_us > h->min_rtt_us) {	/* not of one flight */
		h->train = 0;
		h->train_ns = a->now_ns;
		return;
	}
	if (h->train < BP_TRAIN)
		return;
	rate = (u64)h->train * bp_min(w->wire, 131071u) * 1000000 / bp_max(elapsed_us, 1);
	product = bp_segments(bp_min(rate, BP_RATE_MAX), h->min_rtt_us, w->wire);
	product = bp_min(bp_max(product, (u64)w->cwnd), BP_SEGMENTS_MAX);
	w->ssthresh = bp_min((u64)w->ssthresh, product);
	h->flags |= BP_ESTIMATED;
}

static __always_inline void bp_hybla_recover(struct bp_hybla *h, struct bp_window *w,
					     const struct bp_ack *a, u32 acked, u32 aggressive,
					     u32 capped)
{
	u32 lost = bp_min(a->lost, BP_SEGMENTS_MAX);
	u64 goal;

	if (!(h->flags & BP_REDUCING)) {
		h->grown = 0;
		h->delivered = 0;
		h->acked = 0;
		h->lost = 0;
	}
	h->delivered = bp_min(h->delivered + acked, 1u << 24);
	h->acked = bp_min(h->acked + acked, 1u << 24);
	h->lost = bp_min(h->lost + lost, 1u << 24);
	goal = bp_min((u64)w->ssthresh + h->grown, BP_SEGMENTS_MAX);
	if (aggressive) {
		u64 grown = h->grown + bp_avoidance(h, h->rho, goal, acked, capped);

		h->grown = bp_min(grown, BP_SEGMENTS_MAX);
		goal = bp_min((u64)w->ssthresh + h->grown, BP_SEGMENTS_MAX);
	}
	bp_reduce(h, w, goal, acked, lost, a->sent);
}

BP_STEP bp_hybla_ack(struct bp_hybla *h, struct bp_window *w, const struct bp_ack *a,
		     const struct bp_params *p)
{
	u32 acked, aggressive, capped;

	if (!h || !w || !a || !p)
		return 0;
	acked = bp_min(a->acked, BP_SEGMENTS_MAX);
	aggressive = p->flags & BP_AGGRESSIVE;
	capped = !(p->flags & BP_UNCAPPED);
	bp_hybla_rtt(h, w, p, a->rtt_us);
	if (acked)
		h->flags &= ~BP_FLYING;
	if (p->rate || a->phase != BP_OPEN)
		h->flags |= BP_ESTIMATED;
	if (acked && !(h->flags & BP_ESTIMATED))
		bp_hoe(h, w, a, acked);
	if (a->phase == BP_CWR || a->phase == BP_RECOVERY) {
		bp_hybla_recover(h, w, a, acked, aggressive, capped);
	} else {
		if (a->phase == BP_LOSS) {
			h->flags = (h->flags & ~BP_REDUCING) | BP_LOSING;
		} else if (h->flags & (BP_REDUCING | BP_LOSING)) {
			if (h->flags & BP_REDUCING)
				w->cwnd = bp_min((u64)w->ssthresh + h->grown, BP_SEGMENTS_MAX);
			w->ssthresh = bp_max(w->ssthresh, bp_product(h, w, p));
			h->flags &= ~(BP_REDUCING | BP_LOSING);
		}
		if (a->flags & BP_CWND_LIMITED)
			bp_grow(h, w, a->phase == BP_OPEN || aggressive ? h->rho : BP_RHO_ONE,
				acked, capped);
	}
	w->cwnd = bp_max(w->cwnd, 1u);
	bp_hybla_pace(h, w, p, a->srtt_us);
	return 0;
}

#endif
