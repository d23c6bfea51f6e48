// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The rules of both controls as programs that BPF_PROG_TEST_RUN accepts (it refuses struct_ops):
 * one step a call, state in and out through a map. Loaded by tests alone.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "rate.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define REPLAY_INIT 0u
#define REPLAY_ACK 1u
#define REPLAY_JOIN 2u
#define REPLAY_FORGET 3u
#define REPLAY_SSTHRESH 4u

struct step {
	struct bp_params params;
	struct bp_window window;
	struct bp_ack ack;
	u32 what;
	u32 receiver;
	u32 tcp_header;		/* 0: the window says what a segment takes on the wire */
	u32 ipv6;
};

struct hybla_step {
	struct step step;
	struct bp_hybla hybla;
};

struct rate_step {
	struct step step;
	struct bp_rate rate;
	u32 yields;
	struct bp_share share;
	struct bp_receiver receivers[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hybla_step);
} hybla_steps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct rate_step);
} rate_steps SEC(".maps");

/* The window as a socket with such headers has it. */
static __always_inline struct bp_window window_of(const struct step *step)
{
	struct bp_window w = step->window;

	if (step->tcp_header)
		w.wire = bp_wire(&step->params, w.mss, step->tcp_header, step->ipv6);
	return w;
}

SEC("syscall")
int replay_hybla(void *ctx)
{
	u32 zero = 0;
	struct hybla_step *at = bpf_map_lookup_elem(&hybla_steps, &zero);
	struct bp_params p;
	struct bp_window w;
	struct bp_ack a;
	struct bp_hybla h;

	if (!at)
		return 1;
	p = at->step.params;
	w = window_of(&at->step);
	a = at->step.ack;
	h = at->hybla;
	if (at->step.what == REPLAY_INIT)
		bp_hybla_init(&h, &w, &p, a.rtt_us);
	else if (at->step.what == REPLAY_ACK)
		bp_hybla_ack(&h, &w, &a, &p);
	else
		w.ssthresh = bp_hybla_ssthresh(&h, &w);
	at->step.window = w;
	at->hybla = h;
	return 0;
}

SEC("syscall")
int replay_rate(void *ctx)
{
	u32 zero = 0;
	struct rate_step *at = bpf_map_lookup_elem(&rate_steps, &zero);
	const struct bp_params *p;
	struct bp_window w;
	struct bp_ack a;
	struct bp_rate r;
	struct bp_share *s;
	struct bp_receiver *c;
	u32 what;

	if (!at)
		return 1;
	p = &at->step.params;
	w = window_of(&at->step);
	a = at->step.ack;
	r = at->rate;
	s = &at->share;
	c = &at->receivers[at->step.receiver > 1];
	what = at->step.what;
	if (what == REPLAY_INIT) {
		bp_rate_init(&r, &a, at->step.receiver);
		bp_rate_apply(&r, &w, p, bp_begin(s, c, &r.member, p, a.now_ns), 0);
	} else if (what == REPLAY_JOIN) {
		bp_rate_apply(&r, &w, p, bp_join(s, c, &r.member, p, a.now_ns), 0);
	} else if (what == REPLAY_ACK) {
		u64 budget = bp_share_ack(s, c, &r.member, p, &a, w.wire);

		bp_rate_apply(&r, &w, p, budget, a.acked);
	} else {
		bp_rate_forget(&r, &w, a.acked);
	}
	at->step.window = w;
	at->rate = r;
	at->yields = bp_rate_yields(&r, p);
	return 0;
}
