//! Remembers SYNs that have passed unsplit: a SYN that comes again, with the same sequence number, passes again,
//! whatever has changed meanwhile.
//!
//! The server may have answered the first one already. A dial from the same address and port would have another sequence
//! number, and the server would reset the connection that it was about to begin. One that is to be snooped is remembered
//! apart: it goes that way again. Another SYN, which policies may refuse, is another, whatever its sender does.

use super::mss::syn;

/// nft's words for the protocols, and for their headers.
const FAMILIES: [(&str, &str); 2] = [("ipv4", "ip"), ("ipv6", "ip6")];
/// A client sends its SYN again after 64 s at the latest.
const AGAIN: &str = "65s";
/// Where SYNs are remembered: the name of a pair of sets, how many there may be, beyond which one that comes again may be
/// split, and where one goes that is found there.
const SETS: [(&str, u32, &str); 2] = [
    ("passed", 32_768, "accept"),
    ("syns_snooped", 8192, "goto remember_snooped"),
];

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
    format!(
        "{}chain note_passed {{\n{}}}\n",
        sets.concat(),
        note(passed, seed)
    )
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
