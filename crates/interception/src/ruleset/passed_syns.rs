//! Remembers SYNs that have passed unsplit: a SYN that comes again, with the same sequence number, passes again,
//! whatever has changed meanwhile.
//!
//! The server may have answered the first one already. A dial from the same address and port would have another sequence
//! number, and the server would reset the connection that it was about to begin. One that is to be snooped is remembered
//! apart: it goes that way again. Another SYN, which policies may refuse, is another, whatever its sender does.
//!
//! Of no host and no prefix more is remembered than a part, so that one alone does not fill the memory of all: what it sends
//! faster than [`SHARES`] is forgotten, and only its own SYNs may then be split when they come again.

use super::mss::{HEADERS, syn};
use super::sources::{HOST, PREFIX, Source, set};

/// nft's words for the protocols, and for their headers.
const FAMILIES: [(&str, &str); 2] = [("ipv4", "ip"), ("ipv6", "ip6")];
/// A client sends its SYN again after 64 s at the latest.
const AGAIN: &str = "65s";
/// Where SYNs are remembered: the name of a pair of sets, how many there may be, beyond which one that comes again may be
/// split, and where one goes that is found there.
const SETS: [(&str, u32, &str); 2] = [
    ("passed", 65_536, "accept"),
    ("syns_snooped", 8192, "goto remember_snooped"),
];

/// SYNs of one host, and of one prefix, that are remembered in a second, and at once. In [`AGAIN`] that makes an eighth and a quarter
/// of the memory. What a host has beyond its own does not count for its prefix.
const SHARES: [(Source, u32); 2] = [(HOST, 120), (PREFIX, 240)];
/// Sources whose shares are counted at a time. The others have no bounds then.
const SOURCES: u32 = 1 << 14;

/// The two sets of a pair, with the key of a SYN in each: hashes of its ends and its number as in [`syn`], by different seeds. nft
/// 1.0.6 fails to list a key made of these themselves.
fn keys(set: &str, ip: &str, seed: u32) -> [(String, String); 2] {
    [("1", seed), ("2", !seed)].map(|(name, seed)| (format!("{set}_{name}"), syn(ip, seed)))
}

/// The sets of such SYNs, and chain `note_passed`, which adds to them.
pub(super) fn sets(seed: u32) -> String {
    let sets = SETS.map(|(set, size, _)| {
        ["1", "2"].map(|name| {
            format!(
                "set {set}_{name} {{\n  typeof meta length; size {size}; flags dynamic, timeout; timeout {AGAIN};\n}}\n"
            )
        })
        .concat()
    });
    let [(passed, ..), _] = SETS;
    let (counted, bounds) = shares();
    format!(
        "{}{counted}chain note_passed {{\n{bounds}{}}}\n",
        sets.concat(),
        note(passed, seed)
    )
}

/// Sets in which SYNs of sources are counted, and rules that leave a chain where one has more than its share.
fn shares() -> (String, String) {
    let mut sets = String::new();
    let mut bounds = String::new();
    for (source, share) in SHARES {
        for ip in HEADERS {
            let (counted, of) = (format!("noted_{}_{ip}", source.name), source.of(ip));
            sets += &set(&counted, ip, SOURCES, 2);
            bounds += &format!(
                "  update @{counted} {{ {of} limit rate over {share}/second burst {share} packets }} return\n"
            );
        }
    }
    (sets, bounds)
}

/// Rules that add a SYN that is to be snooped to its sets.
pub(super) fn note_snooped(seed: u32) -> String {
    let [_, (snooped, ..)] = SETS;
    note(snooped, seed)
}

fn note(set: &str, seed: u32) -> String {
    let rules = FAMILIES.map(|(family, ip)| {
        let [one, two] = keys(set, ip, seed);
        let update = |(set, key): (String, String)| format!("update @{set} {{ {key} }}");
        format!("  meta nfproto {family} {} {}\n", update(one), update(two))
    });
    rules.concat()
}

/// Rules for SYNs that are in the sets.
pub(super) fn rules(seed: u32) -> impl Iterator<Item = String> {
    SETS.into_iter().flat_map(move |(set, _, does)| {
        FAMILIES.map(|(family, ip)| {
            let [one, two] = keys(set, ip, seed);
            let found = |(set, key): (String, String)| format!("{key} @{set}");
            format!("meta nfproto {family} {} {} {does}", found(one), found(two))
        })
    })
}
