// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * SCONE (draft-ietf-scone-protocol-08) at an interface: lowers the rate in the SCONE packets that leave by it and arrive
 * by it, and touches nothing else. bentpipe_wire::scone is its twin.
 *
 * Datagrams that are gathered into one packet (UDP_SEGMENT, GRO) are looked at one by one where the checksum of
 * each is still to be made. Where the packet is a list of whole packets, as NETIF_F_GRO_FRAGLIST makes them, the later
 * ones have checksums that cannot be reached from here, and only the first is looked at.
 */
#include "control.h"

typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

/* uapi/linux/bpf.h */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_F_RECOMPUTE_CSUM 1ULL
#define BPF_F_MARK_MANGLED_0 32ULL
#define BPF_CSUM_LEVEL_QUERY 0
#define TCX_NEXT (-1)

/* Of the kernel's interface to programs, which does not change: each field at its place. */
struct __sk_buff {
	u32 len;
	u32 pkt_type[3];
	u32 protocol;
	u32 vlan_present[36];
	u32 gso_segs;
	u32 sk[2];
	u32 gso_size;
};

#include <bpf/bpf_helpers.h>

_Static_assert(__builtin_offsetof(struct __sk_buff, protocol) == 16, "protocol");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_segs) == 164, "gso_segs");
_Static_assert(__builtin_offsetof(struct __sk_buff, gso_size) == 176, "gso_size");

char _license[] SEC("license") = "Dual BSD/GPL";

#define LEAVING 0u
#define ARRIVING 1u
#define DIRECTIONS 2
/* Datagrams of one packet that are looked at. */
#define SEGMENTS 128

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd
#define UDP 17
#define VERSION 0x6f7dc0fdu

/* Octets before the IP header: 14 of Ethernet, or none. */
const volatile u32 link_header = 14;

/* The advice by direction: a signal, which only those above it are replaced by; 127 replaces none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DIRECTIONS);
	__type(key, u32);
	__type(value, u32);
} scone_advice SEC(".maps");

struct counts {
	u64 seen;
	u64 lowered;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DIRECTIONS);
	__type(key, u32);
	__type(value, struct counts);
} scone_counts SEC(".maps");

static __always_inline u32 from_be16(u16 value)
{
	return __builtin_bswap16(value);
}

/* Where the UDP header begins; 0: nowhere that is known. */
static __always_inline u32 udp_header(struct __sk_buff *skb)
{
	u8 ip[20];
	u32 length;

	if (bpf_skb_load_bytes(skb, link_header, ip, sizeof(ip)))
		return 0;
	if (skb->protocol == __builtin_bswap16(ETH_P_IP)) {
		length = (ip[0] & 15u) * 4;
		if (length < sizeof(ip) || ip[9] != UDP || ip[6] & 0x3f || ip[7])
			return 0;
		return link_header + length;
	}
	if (skb->protocol == __builtin_bswap16(ETH_P_IPV6) && ip[6] == UDP)
		return link_header + 40;
	return 0;
}

/* Lowers the advice in the datagram at `at`, whose checksum is at `checksum`. */
static __always_inline void lower(struct __sk_buff *skb, u32 at, u32 checksum, u32 advice, struct counts *counts)
{
	u8 scone[5];
	u16 before, after, sum;
	u32 version, signal;

	if (bpf_skb_load_bytes(skb, at, scone, sizeof(scone)))
		return;
	version = (u32)scone[1] << 24 | (u32)scone[2] << 16 | (u32)scone[3] << 8 | scone[4];
	if (!(scone[0] & 0x80) || (version & 0x7fffffffu) != VERSION)
		return;
	counts->seen++;
	signal = (scone[0] & 0x3fu) << 1 | version >> 31;
	if (signal <= advice)
		return;
	if (bpf_skb_load_bytes(skb, checksum, &sum, sizeof(sum)))
		return;
	__builtin_memcpy(&before, scone, sizeof(before));
	scone[0] = (scone[0] & 0xc0) | (u8)(advice >> 1);
	scone[1] = (scone[1] & 0x7f) | (u8)(advice << 7);
	__builtin_memcpy(&after, scone, sizeof(after));
	/* The sum that a network card has made of the packet changes only where no checksum of the packet's own does. */
	if (bpf_skb_store_bytes(skb, at, &after, sizeof(after), sum ? 0 : BPF_F_RECOMPUTE_CSUM))
		return;
	/* None is mended that is 0, nor one that is still to be made. */
	bpf_l4_csum_replace(skb, checksum, before, after, BPF_F_MARK_MANGLED_0 | sizeof(after));
	counts->lowered++;
}

static __always_inline int pass(struct __sk_buff *skb, u32 direction)
{
	u32 *advice = bpf_map_lookup_elem(&scone_advice, &direction);
	struct counts *counts = bpf_map_lookup_elem(&scone_counts, &direction);
	u32 udp, size, i;
	u16 length;

	if (!advice || !counts || *advice > 126)
		return TCX_NEXT;
	udp = udp_header(skb);
	if (!udp || bpf_skb_load_bytes(skb, udp + 4, &length, sizeof(length)))
		return TCX_NEXT;
	size = skb->gso_size;
	if (!size) {
		/* What lies behind the datagram is not the datagram's. */
		if (from_be16(length) >= 8 + 5)
			lower(skb, udp + 8, udp + 6, *advice, counts);
		return TCX_NEXT;
	}
	lower(skb, udp + 8, udp + 6, *advice, counts);
	if (bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) >= 0)
		return TCX_NEXT;
	for (i = 1; i < SEGMENTS; i++) {
		if (i >= skb->gso_segs)
			break;
		lower(skb, udp + 8 + i * size, udp + 6, *advice, counts);
	}
	return TCX_NEXT;
}

SEC("tc")
int scone_leaving(struct __sk_buff *skb)
{
	return pass(skb, LEAVING);
}

SEC("tc")
int scone_arriving(struct __sk_buff *skb)
{
	return pass(skb, ARRIVING);
}
