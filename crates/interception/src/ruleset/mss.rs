//! Bounds the MSS option of our answer to a SYN by that of the SYN.
//!
//! An operator's rule that makes the MSS option of forwarded SYNs smaller (`tcp option maxseg size set`, iptables'
//! TCPMSS), for a path that swallows larger segments without a word, has seen the client's SYN, but does not see
//! our answer, which is not forwarded. What the rule has left in the SYN bounds the answer too. Without such a rule
//! nothing changes for the client: it says in its SYN what it can receive itself, and sends nothing larger. (A dial
//! is bounded by `segment_for` of the leg.)

/// How many SYNs are remembered, and for how long: while a listener answers them again, see `listen` of the gateway.
const REMEMBERED: u32 = 1 << 18;
const SECONDS: u32 = 16;

/// The headers of IPv4 and IPv6.
pub(super) const HEADERS: [&str; 2] = ["ip", "ip6"];

/// The map from connections to what their SYNs say. A connection is a hash of its four numbers, for nft 1.0.6 has
/// not the registers for a map from IPv6 addresses and ports; whoever finds two of one hash gets segments that are
/// too small for one of them. Only by the type of another number nft takes 32 bits for a key.
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

/// Rules that remember what the SYNs that match `which` say, and no more what the connection before it said: the kernel's `update`
/// leaves the value of a key that is there as it is.
pub(super) fn remember(which: &str, seed: u32) -> String {
    let rule = |ip| {
        let connection = connection(ip, seed);
        format!(
            "  {which} delete @segments {{ {connection} : 0 }}\n  {which} update @segments {{ {connection} : tcp option maxseg size }}\n"
        )
    };
    HEADERS.map(rule).concat()
}

/// Rules that lower the MSS option of answers to what the SYN said. (The kernel only ever makes the option smaller.)
pub(super) fn bound(seed: u32) -> String {
    let rule = |ip| {
        let connection = hash(
            &format!("{ip} daddr . {ip} saddr . tcp dport . tcp sport"),
            seed,
        );
        format!("  tcp option maxseg size set {connection} map @segments\n")
    };
    HEADERS.map(rule).concat()
}

/// That of a SYN, by its number too.
pub(super) fn syn(ip: &str, seed: u32) -> String {
    hash(
        &format!("{ip} saddr . {ip} daddr . tcp sport . tcp dport . tcp sequence"),
        seed,
    )
}

/// That of a packet of the client's.
fn connection(ip: &str, seed: u32) -> String {
    hash(
        &format!("{ip} saddr . {ip} daddr . tcp sport . tcp dport"),
        seed,
    )
}

fn hash(of: &str, seed: u32) -> String {
    format!("jhash {of} mod {} seed {seed:#x}", u32::MAX)
}
