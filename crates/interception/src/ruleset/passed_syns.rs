//! Remembers SYNs that have passed unsplit: a SYN that comes again, with the same sequence number, passes again,
//! whatever has changed meanwhile.
//!
//! The server may have answered the first one already. A dial from the same address and port would have another sequence
//! number, and the server would reset the connection that it was about to begin.

/// The key by which a repeated SYN is recognised: its source and sequence number, which no other SYN has within [`AGAIN`].
const WHOSE: [(u8, &str); 2] = [
    (4, "ip saddr . tcp sport . tcp sequence"),
    (6, "ip6 saddr . tcp sport . tcp sequence"),
];
/// A client sends its SYN again after 64 s at the latest.
const AGAIN: &str = "65s";
/// How many SYNs are remembered of each family. Beyond that number a SYN that comes again may be split.
const REMEMBERED: u32 = 16_384;

/// The sets of such SYNs, and chain `note_passed`, which adds to them.
pub(super) fn sets() -> String {
    let sets = WHOSE.map(|(family, whose)| {
        format!(
            "set passed{family} {{\n  typeof {whose}; size {REMEMBERED}; flags dynamic, timeout; timeout {AGAIN};\n}}\n"
        )
    });
    let rules = WHOSE.map(|(family, whose)| format!("  update @passed{family} {{ {whose} }}\n"));
    format!(
        "{}chain note_passed {{\n{}}}\n",
        sets.concat(),
        rules.concat()
    )
}

/// Matches for SYNs that are in the sets.
pub(super) fn matches() -> [String; 2] {
    WHOSE.map(|(family, whose)| format!("{whose} @passed{family}"))
}
