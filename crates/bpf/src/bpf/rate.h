/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The rate control: for an operator who owns the link. Sends at the flow's share (share.h) of its
 * rate, the configured one or what the guard finds (guard.h), and takes every loss for corruption.
 *
 *   pacing = share * mss / wire                [payload bytes a second]
 *   cwnd   = windows * share * RTTmin / wire   [segments]; one such product until data is
 *            acknowledged and while a queue drains, half of one if that does not drain it, never
 *            less than 10, of a crowd that nobody answers 1
 *          + share * back / wire, unless half of one drains; back: what the way back takes longer
 *
 * No published algorithm: SCPS-TP's pure rate control (CCSDS 714.0-B-2) with a share and a guard.
 * Sockets of a link that nobody has configured are Reno (Hybla's rule with rho = 1).
 *
 * A path too short to lead over a satellite, on a link of unknown rate, is none of its business: there a
 * round trip is shorter than what timers and schedulers cost, and a window suffices. Such a socket is
 * given to CUBIC.
 */
#ifndef BENTPIPE_RATE_H
#define BENTPIPE_RATE_H

#include "control.h"
#include "hybla.h"
#include "share.h"

#define BP_RATE_WINDOW_MIN 10u
#define BP_RATE_WINDOW_CROWD 1u	/* the least of each of a crowd that nobody answers */
#define BP_RATE_WINDOW_MAX (1u << 20)
#define BP_SHORT_US 4000u	/* up to 340 km and down, twice: light takes 4.5 ms */
#define BP_NEAR_US 16000u	/* so long may a handshake take on such a path, where hosts are busy */

struct bp_rate {
	struct bp_member member;
	u16 started;		/* data was acknowledged under the rate control */
	u16 near;		/* the handshake says that the path may be short */
};

/* Gives the window what the budget allows; `acked` segments were acknowledged. */
BP_STEP bp_rate_apply(struct bp_rate *r, struct bp_window *w, const struct bp_params *p, u64 budget,
		      u32 acked)
{
	u32 windows, rtt_us, least;

	if (!r || !w || !p)
		return 0;
	if (acked)
		r->started = 1;
	windows = r->started && !r->member.draining ? bp_min(bp_max(p->windows, 1u), 16u) : 1;
	rtt_us = r->member.min_rtt_us;
	least = r->member.joining > 1 ? BP_RATE_WINDOW_CROWD : BP_RATE_WINDOW_MIN;
	w->pacing = bp_payload_rate(w, budget);
	if (rtt_us) {
		u64 cwnd = windows * bp_segments(budget, rtt_us, w->wire);

		if (r->member.draining > 1)
			cwnd >>= 1;
		else
			cwnd += bp_segments(budget, r->member.back_us, w->wire);
		w->cwnd = bp_min(bp_max(cwnd, least), BP_RATE_WINDOW_MAX);
	} else {
		w->cwnd = bp_min(bp_max(w->cwnd, BP_RATE_WINDOW_MIN), BP_RATE_WINDOW_MAX);
	}
	return 0;
}

/*
 * Whether the path is short. Acknowledgements can be sent before their data has come and so feign it,
 * but the answer to a SYN cannot: the handshake must have been quick, too.
 */
static __always_inline u32 bp_rate_yields(const struct bp_rate *r, const struct bp_params *p)
{
	return !p->rate && r->near && r->member.min_rtt_us && r->member.min_rtt_us < BP_SHORT_US;
}

/*
 * The connection to `receiver` starts, its handshake took a->rtt_us (0: unknown). It begins on its link by
 * bp_begin.
 */
static __always_inline void bp_rate_init(struct bp_rate *r, const struct bp_ack *a, u32 receiver)
{
	u32 tick = (u32)(a->now_ns >> BP_TICK_SHIFT);

	r->member.epoch = 0;
	r->member.hungry = 0;
	r->member.min_rtt_us = bp_min(a->rtt_us, BP_RTT_MAX_US);
	r->member.path = 0;
	r->member.origin = a->stamp_ms ? bp_max(tick, 1u) : 0;
	r->member.origin_ms = a->stamp_ms;
	r->member.transit_us = 0;
	r->member.back_us = 0;
	r->member.draining = 0;
	r->member.receiver = bp_max(receiver, 1u);
	r->member.joining = 1;
	r->started = 0;
	r->near = a->rtt_us && a->rtt_us < BP_NEAR_US;
}

/*
 * The link's configuration has gone: what follows as Reno must not start from several windows,
 * nor end a recovery at a threshold that no loss has set.
 */
static __always_inline void bp_rate_forget(struct bp_rate *r, struct bp_window *w, u32 acked)
{
	u64 cwnd = (u64)w->in_flight + acked;

	if (r->started) {
		w->cwnd = bp_max(bp_min((u64)w->cwnd, cwnd), BP_RATE_WINDOW_MIN);
		if (w->ssthresh > BP_SEGMENTS_MAX)
			w->ssthresh = w->cwnd;
	}
	r->started = 0;
}

#endif
