//! Prefixes of whose SYNs so many pass that the workers, which have bytes to move, are not asked about more of them.
//!
//! A worker lets a SYN pass where its source prefix, or its destination, has more half-open connections than its share.
//! In a flood that is the verdict on nearly all, and to hear it costs more than to forward the SYN. So a prefix of which
//! more than [`PASS`] a second have passed that way is left alone for a second: its SYNs pass at once, counted. One that
//! waits for its verdict is asked about all the same when it comes again, because its dial is under way.

use super::mss::{HEADERS, syn};

/// SYNs of one prefix that may pass in a second, and at once, before it counts as crowded.
const PASS: u32 = 200;
/// Prefixes that are remembered, each as long as nothing else is known of it.
const REMEMBERED: u32 = 1 << 14;

/// The part of a source address that one customer commonly has, as for the quotas of `bentpipe-relay`: /24 and /56.
fn prefix(ip: &str) -> String {
    let mask = match ip {
        "ip" => "255.255.255.0",
        _ => "ffff:ffff:ffff:ff00::",
    };
    format!("{ip} saddr & {mask}")
}

/// The sets of prefixes, by family: of those of which SYNs have passed, and of those that are crowded. Chain `note_crowd`
/// sees each SYN that passes after a worker has looked at it.
pub(super) fn sets() -> String {
    let sets = HEADERS.map(|ip| {
        format!(
            "\
set passing_{ip} {{
  typeof {ip} saddr
  flags dynamic, timeout
  size {REMEMBERED}
  timeout 2s
}}
set crowded_{ip} {{
  typeof {ip} saddr
  flags dynamic, timeout
  size {REMEMBERED}
  timeout 1s
}}
"
        )
    });
    let notes = HEADERS.map(|ip| {
        let prefix = prefix(ip);
        format!(
            "  update @passing_{ip} {{ {prefix} limit rate over {PASS}/second burst {PASS} packets }} add @crowded_{ip} {{ {prefix} }}\n"
        )
    });
    format!(
        "{}chain note_crowd {{\n{}}}\n",
        sets.concat(),
        notes.concat()
    )
}

/// The rule by which a SYN of such a prefix, whose header is `ip`, passes.
pub(super) fn pass(ip: &str, seed: u32) -> String {
    format!(
        "{} @crowded_{ip} {} != @entering counter name crowded goto note_passed",
        prefix(ip),
        syn(ip, seed)
    )
}
