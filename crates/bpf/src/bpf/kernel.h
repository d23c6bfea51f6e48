/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel types that the controls touch, and of these the fields alone. Order and offsets mean
 * nothing: libbpf looks each field up by name in the running kernel's BTF (CO-RE), hence one
 * object for every kernel.
 */
#ifndef BENTPIPE_KERNEL_H
#define BENTPIPE_KERNEL_H

#include "control.h"

typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s8 __s8;
typedef s16 __s16;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;

/* uapi/linux/bpf.h */
#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_ANY 0
#define BPF_NOEXIST 1
struct bpf_spin_lock {
	u32 val;
};

#define AF_INET6 10
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define CA_EVENT_TX_START 0
#define SOL_TCP 6
#define TCP_CONGESTION 13

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct in6_addr {
	union {
		u32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	u16 skc_family;
	u32 skc_daddr;
	struct in6_addr skc_v6_daddr;
};

struct sock {
	struct sock_common __sk_common;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_mark;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[13];
};

struct tcp_options_received {
	u32 rcv_tsval;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	struct tcp_options_received rx_opt;
	u16 tcp_header_len;
	u8 is_cwnd_limited : 1;
	u32 snd_cwnd;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 prr_out;
	u32 mss_cache;
	u32 srtt_us;
	u32 packets_out;
	u32 max_packets_out;
	u32 lost_out;
	u32 sacked_out;
	u32 retrans_out;
	u32 write_seq;
	u32 snd_nxt;
	u32 snd_una;
	u32 snd_wnd;
};

struct rate_sample {
	long rtt_us;
	int losses;
	u32 acked_sacked;
};

#pragma clang attribute pop

/* Members are looked up by name too; those left zero need not exist. */
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cwnd_event)(struct sock *sk, u32 event);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	void (*init)(struct sock *sk);
};

#endif
