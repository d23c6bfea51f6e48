//! Bounds the MSS option of our answer to a SYN by that of the SYN.
//!
//! An operator may have a rule that lowers the MSS option of forwarded SYNs (`tcp option maxseg size set`, iptables'
//! TCPMSS), because the path drops larger segments without an ICMP error. Such a rule sees the client's SYN, but not
//! our answer, which is not forwarded. So the answer's option is bounded by the one that the rule has left in the SYN.
//! Without such a rule nothing changes for the client, which announces in its SYN what it can receive, and sends
//! nothing larger itself. The dialled connection is bounded by `SocketPolicy::segment_for` of `bentpipe-relay`, whose
//! `SynQueue` also lowers the option of a held SYN to what the far side has said.

/// How many SYNs are remembered. The time is that for which a listener repeats its answers, see `listen` of
/// `bentpipe-relay`.
const REMEMBERED: u32 = 1 << 18;
const SECONDS: u32 = 16;

/// nft's words for the headers of IPv4 and IPv6.
pub(super) const HEADERS: [&str; 2] = ["ip", "ip6"];

/// The map from connections to the MSS options of their SYNs. Its key is a hash of addresses and ports, because nft
/// 1.0.6 lacks the registers for a key of IPv6 addresses and ports. Where two connections have the same hash, one of
/// them gets segments that are smaller than needed. The key's type is borrowed from another 32-bit number, because nft
/// has none of its own for hashes.
pub(super) fn map() -> String {
    format!(
        "\
map segments {{
  typeof meta length : tcp option maxseg size
  flags dynamic, timeout
  size {REMEMBERED}
  timeout {SECONDS}s
}}
"
    )
}

/// Rules that remember the MSS option of a SYN whose header is `ip`. An entry of an earlier connection is deleted
/// first, because the kernel's `update` keeps the value of a key that exists.
pub(super) fn remember(ip: &str, seed: u32) -> String {
    let connection = connection(ip, seed);
    format!(
        "  delete @segments {{ {connection} : 0 }}\n  update @segments {{ {connection} : tcp option maxseg size }}\n"
    )
}

/// Rules that lower the MSS option of answers to that of the SYN. The kernel never raises the option.
pub(super) fn bound(seed: u32) -> String {
    let rule = |ip| {
        let connection = reverse(ip, seed);
        format!("  tcp option maxseg size set {connection} map @segments\n")
    };
    HEADERS.map(rule).concat()
}

/// The hash of a SYN, of which its sequence number is a part too.
pub(super) fn syn(ip: &str, seed: u32) -> String {
    hash(
        &format!("{ip} saddr . {ip} daddr . tcp sport . tcp dport . tcp sequence"),
        seed,
    )
}

/// The hash of addresses and ports in the order of a packet.
pub(super) fn connection(ip: &str, seed: u32) -> String {
    hash(
        &format!("{ip} saddr . {ip} daddr . tcp sport . tcp dport"),
        seed,
    )
}

/// The same for a packet of the other direction.
pub(super) fn reverse(ip: &str, seed: u32) -> String {
    hash(
        &format!("{ip} daddr . {ip} saddr . tcp dport . tcp sport"),
        seed,
    )
}

/// The hash of addresses and ports, and of the first three octets of the sequence number. nft cannot add 1, but those
/// are the same in the acknowledgement of a SYN, unless the fourth was the last of all (1 of 256).
pub(super) fn numbered(ip: &str, seed: u32) -> String {
    hash(
        &format!("{ip} saddr . {ip} daddr . tcp sport . tcp dport . @th,32,24"),
        seed,
    )
}

/// The same for a packet of the other direction, of its acknowledgement number.
pub(super) fn acknowledged(ip: &str, seed: u32) -> String {
    hash(
        &format!("{ip} daddr . {ip} saddr . tcp dport . tcp sport . @th,64,24"),
        seed,
    )
}

fn hash(of: &str, seed: u32) -> String {
    format!("jhash {of} mod {} seed {seed:#x}", u32::MAX)
}
