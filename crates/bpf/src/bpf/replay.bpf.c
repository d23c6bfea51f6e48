// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The rules of both controls as programs that BPF_PROG_TEST_RUN accepts (it refuses struct_ops):
 * one step a call, state in and out through the context. Loaded by tests alone.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "rate.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define REPLAY_INIT 0u
#define REPLAY_ACK 1u
#define REPLAY_JOIN 2u
#define REPLAY_FORGET 3u

struct step {
	struct bp_params params;
	struct bp_window window;
	struct bp_ack ack;
	u32 what;
	u32 pad;
};

struct hybla_step {
	struct step step;
	struct bp_hybla hybla;
};

struct rate_step {
	struct step step;
	struct bp_rate rate;
	struct bp_share share;
};

SEC("syscall")
int replay_hybla(struct hybla_step *ctx)
{
	struct bp_params p = ctx->step.params;
	struct bp_window w = ctx->step.window;
	struct bp_ack a = ctx->step.ack;
	struct bp_hybla h = ctx->hybla;

	if (ctx->step.what == REPLAY_INIT)
		bp_hybla_init(&h, &w, &p, a.rtt_us);
	else
		bp_hybla_ack(&h, &w, &a, &p);
	ctx->step.window = w;
	ctx->hybla = h;
	return 0;
}

SEC("syscall")
int replay_rate(struct rate_step *ctx)
{
	struct bp_params p = ctx->step.params;
	struct bp_window w = ctx->step.window;
	struct bp_ack a = ctx->step.ack;
	struct bp_rate r = ctx->rate;
	struct bp_share s = ctx->share;
	u32 what = ctx->step.what;

	if (what == REPLAY_INIT) {
		bp_turn(&s, &p, a.now_ns);
		bp_rate_init(&r, a.rtt_us, s.path);
		bp_rate_apply(&r, &w, &p, bp_budget(&s, &p, 1));
	} else if (what == REPLAY_JOIN) {
		bp_rate_apply(&r, &w, &p, bp_join(&s, &r.member, &p, a.now_ns));
	} else if (what == REPLAY_ACK) {
		bp_rate_ack(&r, &w, &a, &p, bp_share_ack(&s, &r.member, &p, &a, w.wire));
	} else {
		bp_rate_forget(&r, &w, a.acked);
	}
	ctx->step.window = w;
	ctx->rate = r;
	ctx->share = s;
	return 0;
}
