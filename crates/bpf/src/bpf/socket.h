/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Between a kernel socket and the plain structures of the controls. */
#ifndef BENTPIPE_SOCKET_H
#define BENTPIPE_SOCKET_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#define BP_LINKS_MAX 1024
#define BP_RECEIVERS_MAX 16384

/* The links by socket mark: one map for both controls of a process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, BP_LINKS_MAX);
	__type(key, u32);
	__type(value, struct bp_params);
} bentpipe_links SEC(".maps");

#define bp_tcp(sk) ((struct tcp_sock *)(sk))
#define bp_private(sk) ((void *)((struct inet_connection_sock *)(sk))->icsk_ca_priv)

/* The mark that names a socket's link. A gateway's sockets that conntrack is to see have one bit more
 * (crates/gateway/src/mark.rs). */
static __always_inline u32 bp_mark(struct sock *sk)
{
	u32 mark = sk->sk_mark;

	return mark >> 24 == 0x62 ? mark & ~0x40u : mark;
}

static __always_inline struct bp_params *bp_params_of(struct sock *sk)
{
	u32 mark = bp_mark(sk);

	return bpf_map_lookup_elem(&bentpipe_links, &mark);
}

static __always_inline void bp_window_of(struct sock *sk, const struct bp_params *p,
					 struct bp_window *w)
{
	struct tcp_sock *tp = bp_tcp(sk);
	u32 ipv6 = sk->__sk_common.skc_family == AF_INET6;

	w->cwnd = tp->snd_cwnd;
	w->ssthresh = tp->snd_ssthresh;
	w->in_flight = tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
	w->mss = tp->mss_cache;
	w->wire = bp_wire(p, w->mss, tp->tcp_header_len, ipv6);
	w->pad = 0;
	w->pacing = 0;
}

static __always_inline u32 bp_srtt(struct sock *sk)
{
	return bp_tcp(sk)->srtt_us >> 3;
}

static __always_inline void bp_ack_of(struct sock *sk, const struct rate_sample *rs,
				      struct bp_ack *a)
{
	struct tcp_sock *tp = bp_tcp(sk);
	u32 mss = tp->mss_cache;
	u32 unsent = tp->write_seq - tp->snd_nxt;
	u32 room = tp->snd_una + tp->snd_wnd - tp->snd_nxt;
	long rtt = rs->rtt_us;
	int losses = rs->losses;

	a->now_ns = bpf_ktime_get_ns();
	a->rtt_us = rtt > 0 ? (u32)bp_min(rtt, (long)BP_RTT_MAX_US) : 0;
	a->srtt_us = bp_srtt(sk);
	a->acked = rs->acked_sacked;
	a->lost = losses > 0 ? losses : 0;
	a->sent = tp->prr_out;
	a->phase = BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
	a->flags = 0;
	a->stamp_ms = tp->rx_opt.rcv_tsval;
	if (unsent >= mss && room >= mss && room < 1u << 31)
		a->flags |= BP_HUNGRY;
	/* Kept back by pacing alone counts too (RFC 9002, 7.8), within twice what is in flight. */
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) ||
	    ((tp->snd_cwnd < tp->snd_ssthresh || (a->flags & BP_HUNGRY)) &&
	     tp->snd_cwnd < 2 * tp->max_packets_out))
		a->flags |= BP_CWND_LIMITED;
}

static __always_inline void bp_apply(struct sock *sk, const struct bp_window *w)
{
	struct tcp_sock *tp = bp_tcp(sk);
	u64 limit = sk->sk_max_pacing_rate;

	tp->snd_cwnd = w->cwnd;
	tp->snd_ssthresh = w->ssthresh;
	sk->sk_pacing_rate = bp_min(w->pacing, limit);
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

/* Another control takes over, which paces or does not as the operator has it. */
static __always_inline void bp_unpace(struct sock *sk)
{
	if (sk->sk_pacing_status == SK_PACING_NEEDED && sk->sk_max_pacing_rate == BP_UNPACED)
		sk->sk_pacing_status = SK_PACING_NONE;
	sk->sk_pacing_rate = sk->sk_max_pacing_rate;
}

/* Who receives: the address, or of IPv6 its network, for a host has many addresses there. */
static __always_inline u32 bp_receiver(struct sock *sk)
{
	u32 *v6 = sk->__sk_common.skc_v6_daddr.in6_u.u6_addr32;
	u32 high = v6[0], low = v6[1];

	if (sk->__sk_common.skc_family == AF_INET6 && (high || low))
		return high ^ (low * 2654435761u);
	return sk->__sk_common.skc_daddr;
}

/* What holds for a socket whose mark names no configured link: the defaults. */
static __always_inline void bp_defaults(struct bp_params *p, u32 rtt0_us)
{
	p->rate = 0;
	p->rtt0_us = rtt0_us;
	p->pace_q16 = 0;
	p->guard_us = 0;
	p->overhead = 0;
	p->flags = 0;
	p->windows = 0;
}

#endif
