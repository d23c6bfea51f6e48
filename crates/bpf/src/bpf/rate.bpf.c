// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The rate control as a congestion control of the kernel: rate.h on a socket. */
#include "socket.h"
#include "rate.h"

char _license[] SEC("license") = "Dual BSD/GPL";

struct bp_link {
	struct bpf_spin_lock lock;
	u32 pad;
	struct bp_share share;
	/* All of whom there is no record, where no memory is left for one. */
	struct bp_receiver rest;
};

/* What the flows of a link have in common, by socket mark. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BP_LINKS_MAX);
	__type(key, u32);
	__type(value, struct bp_link);
} bentpipe_shares SEC(".maps");

struct receiver_key {
	u32 mark;
	u32 receiver;
};

/* Who receives over which link; touched under the link's lock. The kernel forgets the oldest. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, BP_RECEIVERS_MAX);
	__type(key, struct receiver_key);
	__type(value, struct bp_receiver);
} bentpipe_receivers SEC(".maps");

/* A socket's private area: one rule is in force at a time, but a link may be (un)configured. */
struct flow {
	struct bp_hybla reno;
	struct bp_rate rate;
};

/* The link of a socket, or 0 when its mark names none. */
static __always_inline struct bp_link *link_of(struct sock *sk, struct bp_params *p)
{
	struct bp_params *params = bp_params_of(sk);
	u32 mark = bp_mark(sk);

	/* An RTT0 without end makes rho 1 at any RTT: Reno. */
	bp_defaults(p, ~0u);
	if (!params)
		return 0;
	*p = *params;
	return bpf_map_lookup_elem(&bentpipe_shares, &mark);
}

static __always_inline struct bp_receiver *receiver_of(struct sock *sk, struct bp_link *link,
						       u32 receiver)
{
	struct receiver_key key = { .mark = bp_mark(sk), .receiver = receiver };
	struct bp_receiver *found = bpf_map_lookup_elem(&bentpipe_receivers, &key);
	struct bp_receiver fresh = {};

	if (found)
		return found;
	bpf_map_update_elem(&bentpipe_receivers, &key, &fresh, BPF_NOEXIST);
	found = bpf_map_lookup_elem(&bentpipe_receivers, &key);
	return found ? found : &link->rest;
}

/* Gives a socket on a short path to CUBIC, or to Reno where there is none; whether one took it. */
static __always_inline u32 yield_socket(struct sock *sk)
{
	char cubic[] = "cubic", reno[] = "reno";

	if (bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, cubic, sizeof(cubic)) &&
	    bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno)))
		return 0;
	bp_unpace(sk);
	return 1;
}

SEC("struct_ops")
void BPF_PROG(rate_init, struct sock *sk)
{
	struct flow *private = bp_private(sk);
	struct bp_link *link;
	struct bp_hybla reno;
	struct bp_rate rate;
	struct bp_params p;
	struct bp_window w;
	struct bp_ack a = { .rtt_us = bp_srtt(sk), .stamp_ms = bp_tcp(sk)->rx_opt.rcv_tsval };
	u64 budget;

	link = link_of(sk, &p);
	bp_window_of(sk, &p, &w);
	bp_hybla_init(&reno, &w, &p, a.rtt_us);
	a.now_ns = bpf_ktime_get_ns();
	bp_rate_init(&rate, &a, bp_receiver(sk));
	if (link) {
		struct bp_receiver *receiver = receiver_of(sk, link, rate.member.receiver);

		w.ssthresh = bp_tcp(sk)->snd_ssthresh;
		bpf_spin_lock(&link->lock);
		budget = bp_begin(&link->share, receiver, &rate.member, &p, a.now_ns);
		bpf_spin_unlock(&link->lock);
	}
	if (link && bp_rate_yields(&rate, &p) && yield_socket(sk))
		return;
	if (link)
		bp_rate_apply(&rate, &w, &p, budget, 0);
	private->reno = reno;
	private->rate = rate;
	bp_apply(sk, &w);
}

static __always_inline void control(struct sock *sk, const struct rate_sample *rs)
{
	struct flow *private = bp_private(sk);
	struct bp_rate rate = private->rate;
	struct bp_link *link;
	struct bp_params p;
	struct bp_window w;
	struct bp_ack a;
	u64 budget;

	link = link_of(sk, &p);
	bp_window_of(sk, &p, &w);
	bp_ack_of(sk, rs, &a);
	if (link) {
		struct bp_receiver *receiver = receiver_of(sk, link, rate.member.receiver);

		bpf_spin_lock(&link->lock);
		budget = bp_share_ack(&link->share, receiver, &rate.member, &p, &a, w.wire);
		bpf_spin_unlock(&link->lock);
		if (bp_rate_yields(&rate, &p)) {
			if (yield_socket(sk))
				return;
			rate.near = 0;
		}
		bp_rate_apply(&rate, &w, &p, budget, a.acked);
	} else {
		struct bp_hybla reno = private->reno;

		bp_rate_forget(&rate, &w, a.acked);
		bp_hybla_ack(&reno, &w, &a, &p);
		private->reno = reno;
	}
	private->rate = rate;
	bp_apply(sk, &w);
}

/* Linux 6.10 and later. */
SEC("struct_ops")
void BPF_PROG(rate_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	control(sk, rs);
}

/* Before 6.10. */
SEC("struct_ops")
void BPF_PROG(rate_control2, struct sock *sk, const struct rate_sample *rs)
{
	control(sk, rs);
}

static __always_inline void join(struct sock *sk)
{
	struct flow *private = bp_private(sk);
	struct bp_rate rate = private->rate;
	struct bp_link *link;
	struct bp_params p;
	struct bp_receiver *receiver;
	struct bp_window w;
	u64 now, budget;

	link = link_of(sk, &p);
	if (!link)
		return;
	bp_window_of(sk, &p, &w);
	receiver = receiver_of(sk, link, rate.member.receiver);
	now = bpf_ktime_get_ns();
	bpf_spin_lock(&link->lock);
	budget = bp_join(&link->share, receiver, &rate.member, &p, now);
	bpf_spin_unlock(&link->lock);
	bp_rate_apply(&rate, &w, &p, budget, 0);
	private->rate = rate;
	bp_apply(sk, &w);
}

/*
 * Data after silence. The kernel shrinks no idle window of a full control. What is sent again after a
 * timeout starts in an empty network, too, but whoever does not answer gets no window for it.
 */
SEC("struct_ops")
void BPF_PROG(rate_event, struct sock *sk, u32 event)
{
	if (event == CA_EVENT_TX_START && !bp_tcp(sk)->packets_out)
		join(sk);
}

/*
 * Asked whenever something may be sent, for the segments of a burst; the only word that a control
 * gets before the first acknowledgement. Flows that start at once learn here of each other.
 */
SEC("struct_ops")
u32 BPF_PROG(rate_burst, struct sock *sk)
{
	struct flow *private = bp_private(sk);

	if (private->rate.member.epoch && !private->rate.started && !bp_tcp(sk)->lost_out &&
	    !bp_tcp(sk)->retrans_out)
		join(sk);
	return sk->sk_pacing_rate < 150000 ? 1 : 2;
}

SEC("struct_ops")
u32 BPF_PROG(rate_ssthresh, struct sock *sk)
{
	struct flow *private = bp_private(sk);
	struct bp_hybla reno = private->reno;
	struct bp_params p;
	struct bp_window w;
	u32 ssthresh;

	/* Loss is corruption on a link whose rate is known. */
	if (link_of(sk, &p))
		return bp_tcp(sk)->snd_ssthresh;
	bp_window_of(sk, &p, &w);
	ssthresh = bp_hybla_ssthresh(&reno, &w);
	private->reno = reno;
	return ssthresh;
}

SEC("struct_ops")
u32 BPF_PROG(rate_undo, struct sock *sk)
{
	struct flow *private = bp_private(sk);
	struct tcp_sock *tp = bp_tcp(sk);

	private->reno.flags &= ~BP_REDUCING;
	return bp_max(tp->snd_cwnd, tp->prior_cwnd);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops bentpipe_rate = {
	.init = (void *)rate_init,
	.ssthresh = (void *)rate_ssthresh,
	.cong_control = (void *)rate_control,
	.cwnd_event = (void *)rate_event,
	.min_tso_segs = (void *)rate_burst,
	.undo_cwnd = (void *)rate_undo,
	.name = "bentpipe_rate",
};

SEC(".struct_ops.link")
struct tcp_congestion_ops bentpipe_rate2 = {
	.init = (void *)rate_init,
	.ssthresh = (void *)rate_ssthresh,
	.cong_control = (void *)rate_control2,
	.cwnd_event = (void *)rate_event,
	.min_tso_segs = (void *)rate_burst,
	.undo_cwnd = (void *)rate_undo,
	.name = "bentpipe_rate",
};

/* Without rate_burst, where the kernel does not run each program that it asks (kernel.rs). */
SEC(".struct_ops.link")
struct tcp_congestion_ops bentpipe_rate3 = {
	.init = (void *)rate_init,
	.ssthresh = (void *)rate_ssthresh,
	.cong_control = (void *)rate_control,
	.cwnd_event = (void *)rate_event,
	.undo_cwnd = (void *)rate_undo,
	.name = "bentpipe_rate",
};
