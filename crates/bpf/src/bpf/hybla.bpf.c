// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* TCP Hybla as a congestion control of the kernel: hybla.h on a socket. */
#include "socket.h"
#include "hybla.h"

char _license[] SEC("license") = "Dual BSD/GPL";

#define BP_RTT0_US 25000u

static __always_inline void params_of(struct sock *sk, struct bp_params *p)
{
	struct bp_params *link = bp_params_of(sk);

	if (link)
		*p = *link;
	else
		bp_defaults(p, BP_RTT0_US);
}

SEC("struct_ops")
void BPF_PROG(hybla_init, struct sock *sk)
{
	struct bp_hybla *private = bp_private(sk), h;
	struct bp_params p;
	struct bp_window w;

	params_of(sk, &p);
	bp_window_of(sk, &p, &w);
	bp_hybla_init(&h, &w, &p, bp_srtt(sk));
	*private = h;
	bp_apply(sk, &w);
}

static __always_inline void control(struct sock *sk, const struct rate_sample *rs)
{
	struct bp_hybla *private = bp_private(sk), h = *private;
	struct bp_params p;
	struct bp_window w;
	struct bp_ack a;

	params_of(sk, &p);
	bp_window_of(sk, &p, &w);
	bp_ack_of(sk, rs, &a);
	bp_hybla_ack(&h, &w, &a, &p);
	*private = h;
	bp_apply(sk, &w);
}

/* Linux 6.10 and later. */
SEC("struct_ops")
void BPF_PROG(hybla_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	control(sk, rs);
}

/* Before 6.10. */
SEC("struct_ops")
void BPF_PROG(hybla_control2, struct sock *sk, const struct rate_sample *rs)
{
	control(sk, rs);
}

SEC("struct_ops")
u32 BPF_PROG(hybla_ssthresh, struct sock *sk)
{
	struct bp_hybla *h = bp_private(sk);
	struct bp_params p;
	struct bp_window w;

	params_of(sk, &p);
	bp_window_of(sk, &p, &w);
	return bp_hybla_ssthresh(h, &w);
}

SEC("struct_ops")
u32 BPF_PROG(hybla_undo, struct sock *sk)
{
	struct bp_hybla *h = bp_private(sk);
	struct tcp_sock *tp = bp_tcp(sk);

	h->flags &= ~BP_REDUCING;
	return bp_max(tp->snd_cwnd, tp->prior_cwnd);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops bentpipe_hybla = {
	.init = (void *)hybla_init,
	.ssthresh = (void *)hybla_ssthresh,
	.cong_control = (void *)hybla_control,
	.undo_cwnd = (void *)hybla_undo,
	.name = "bentpipe_hybla",
};

SEC(".struct_ops.link")
struct tcp_congestion_ops bentpipe_hybla2 = {
	.init = (void *)hybla_init,
	.ssthresh = (void *)hybla_ssthresh,
	.cong_control = (void *)hybla_control2,
	.undo_cwnd = (void *)hybla_undo,
	.name = "bentpipe_hybla",
};
