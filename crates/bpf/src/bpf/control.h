/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What both controls share: parameters of a link, the sender's window, one acknowledgement, and
 * the arithmetic of pacing and of proportional reduction. Plain integers and no kernel type, so
 * that the same functions run under struct_ops and under BPF_PROG_TEST_RUN, and have a twin in
 * Rust (crates/cc) that a property test holds against them. No signed division, no floating
 * point, no loop: BPF has none of them.
 */
#ifndef BENTPIPE_CONTROL_H
#define BENTPIPE_CONTROL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
/*
 * A step of a control is a global function: the verifier takes each by itself, else the paths of
 * all of them multiply. Its pointers are checked once, inside.
 */
#define BP_STEP __attribute__((noinline)) int

#define bp_min(a, b) ((a) < (b) ? (a) : (b))
#define bp_max(a, b) ((a) > (b) ? (a) : (b))

/*
 * `x`, of which the verifier then knows nothing: what it knows to be one of two it would follow one by one
 * through all that comes after, and it gives up after a million steps. It knows nothing of `any`.
 */
#define bp_hide(x, any) ({ \
	u64 hidden = (x); \
	asm volatile("%0 ^= %1\n%0 ^= %1" : "+r"(hidden) : "r"((u64)(any))); \
	hidden; })

#define BP_SEGMENTS_MAX 65535u		/* acknowledged at once; Linux's clamp of Hybla's cwnd */
#define BP_RTT_MAX_US (1u << 24)	/* 16.8 s */
#define BP_RATE_MAX (1ull << 34)	/* 137 Gbit/s */
#define BP_UNPACED (~0ull)

/* bp_params.flags */
#define BP_AGGRESSIVE 1u	/* Hybla keeps growing in recovery */
#define BP_UNCAPPED 2u		/* Hybla grows by 2^rho - 1 without the bound of rho a segment */

/* How a link is to be used; the value of the map of links, keyed by socket mark. */
struct bp_params {
	u64 rate;		/* bytes a second on the wire; 0: unknown */
	u32 rtt0_us;		/* Hybla's reference round-trip time */
	u32 pace_q16;		/* share of the rate to pace at, 65536 = all of it */
	u32 guard_us;		/* queueing delay at which the rate control yields; 0: never */
	u32 overhead;		/* bytes the link adds to an IP packet */
	u32 flags;
	u32 windows;		/* window of the rate control, in bandwidth-delay products */
};

/* The sender's window. The control edits cwnd, ssthresh and pacing. */
struct bp_window {
	u32 cwnd;		/* segments */
	u32 ssthresh;		/* segments */
	u32 in_flight;		/* segments */
	u32 mss;		/* payload bytes of a full segment */
	u32 wire;		/* bytes of a full segment on the wire */
	u32 pad;
	u64 pacing;		/* payload bytes a second, BP_UNPACED: as fast as possible */
};

/* States of loss recovery, the numbers of enum tcp_ca_state. */
#define BP_OPEN 0u
#define BP_DISORDER 1u
#define BP_CWR 2u
#define BP_RECOVERY 3u
#define BP_LOSS 4u

/* bp_ack.flags */
#define BP_CWND_LIMITED 1u	/* the window was what kept the sender from sending more */
#define BP_HUNGRY 2u		/* more data waits than the share of the link could carry */

/* One acknowledgement. */
struct bp_ack {
	u64 now_ns;
	u32 rtt_us;		/* sample of this acknowledgement; 0: none */
	u32 srtt_us;		/* smoothed; 0: unknown */
	u32 acked;		/* segments newly acknowledged or SACKed */
	u32 lost;		/* segments newly found lost */
	u32 sent;		/* segments sent since this recovery began */
	u32 phase;		/* BP_OPEN ... BP_LOSS */
	u32 flags;
	u32 stamp_ms;		/* the receiver's timestamp clock when it sent this; 0: none */
};

static __always_inline u64 bp_link_rate(const struct bp_params *p)
{
	u64 rate = bp_min(p->rate, BP_RATE_MAX);

	return (rate * bp_min(p->pace_q16, 65536u)) >> 16;
}

/*
 * A full segment on the wire: payload, the TCP header with the options of every segment, the IP header, and
 * what the link adds.
 */
static __always_inline u32 bp_wire(const struct bp_params *p, u32 mss, u32 tcp_header, u32 ipv6)
{
	return mss + tcp_header + (ipv6 ? 40 : 20) + p->overhead;
}

/* Payload rate whose segments take `wire` bytes a second on the wire. */
static __always_inline u64 bp_payload_rate(const struct bp_window *w, u64 wire)
{
	u64 rate = wire * bp_min(w->mss, 65535u) / bp_max(bp_min(w->wire, 131071u), 1u);

	return bp_max(rate, 1);
}

/* Segments of `wire` bytes that `rate` bytes a second carry in a round-trip time. */
static __always_inline u64 bp_segments(u64 rate, u32 rtt_us, u32 wire)
{
	return rate * bp_min(rtt_us, BP_RTT_MAX_US) / 1000000 / bp_max(wire, 1u);
}

/* Payload rate that sends `cwnd` segments in one round-trip time. */
static __always_inline u64 bp_window_rate(const struct bp_window *w, u32 rtt_us)
{
	u64 bytes = (u64)bp_min(w->cwnd, BP_SEGMENTS_MAX) * bp_min(w->mss, 65535u);

	return bp_max(bytes * 1000000 / bp_max(rtt_us, 1u), 1);
}

#endif
