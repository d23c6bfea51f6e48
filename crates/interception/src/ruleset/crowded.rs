//! Sources of whose SYNs so many pass that the workers, which have bytes to move, are not asked about more of them.
//!
//! A worker lets a SYN pass where its source prefix, or its destination, has more half-open connections than its share.
//! In a flood that is the verdict on nearly all, and to hear it costs more than to forward the SYN. So a host or a prefix of
//! which more have passed that way in a second than it may is left alone for a second: its SYNs pass at once, counted. What one
//! host has beyond its own number does not count for its prefix, so that one host alone takes nobody else's. A SYN that
//! waits for its verdict is asked about all the same when it comes again, because its dial is under way.

use super::mss::{HEADERS, syn};
use super::sources::{HOST, PREFIX, Source, set};

/// SYNs of one host, and of one prefix, that may pass in a second, and at once, before it counts as crowded.
const PASS: [(Source, u32); 2] = [(HOST, 200), (PREFIX, 400)];
/// Sources of one kind that are remembered, each as long as nothing else is known of it.
const REMEMBERED: u32 = 1 << 14;

/// The sets of sources, by family: of those of which SYNs have passed, and of those that are crowded. Chain `note_crowd`
/// sees each SYN that passes after a worker has looked at it.
pub(super) fn sets() -> String {
    let mut sets = String::new();
    let mut notes = String::new();
    for (source, pass) in PASS {
        for ip in HEADERS {
            let (name, of) = (source.name, source.of(ip));
            let (passing, crowded) = (format!("passing_{name}_{ip}"), crowded(&source, ip));
            sets += &set(&passing, ip, REMEMBERED, 2);
            sets += &set(&crowded, ip, REMEMBERED, 1);
            notes += &format!(
                "  update @{passing} {{ {of} limit rate over {pass}/second burst {pass} packets }} add @{crowded} {{ {of} }} return\n"
            );
        }
    }
    format!("{sets}chain note_crowd {{\n{notes}}}\n")
}

/// The set of the crowded sources of a kind.
fn crowded(source: &Source, ip: &str) -> String {
    format!("crowded_{}_{ip}", source.name)
}

/// The rules by which a SYN of such a source, whose header is `ip`, passes.
pub(super) fn pass(ip: &str, seed: u32) -> [String; 2] {
    PASS.map(|(source, _)| {
        format!(
            "{} @{} {} != @entering counter name crowded goto note_passed",
            source.of(ip),
            crowded(&source, ip),
            syn(ip, seed)
        )
    })
}
