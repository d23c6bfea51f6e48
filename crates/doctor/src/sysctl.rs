//! The kernel's settings that a gateway wants, each with the least that is good.

use crate::{Finding, Verdict, good, lack};
use std::fs;
use std::path::Path;

/// A sysctl with a number in it, and the least that is good.
pub(crate) struct Sysctl {
    what: &'static str,
    /// Which of its numbers.
    field: usize,
    least: u64,
    verdict: Verdict,
    cost: &'static str,
}

pub(crate) const SYSCTLS: &[Sysctl] = &[
    Sysctl {
        what: "net.ipv4.ip_forward",
        field: 0,
        least: 1,
        verdict: Verdict::Less,
        cost: "nothing passes, and nothing is split; set it to 1",
    },
    Sysctl {
        what: "net.ipv6.conf.all.forwarding",
        field: 0,
        least: 1,
        verdict: Verdict::Less,
        cost: "the same for IPv6, where there is any; set it to 1",
    },
    Sysctl {
        what: "net.ipv4.tcp_timestamps",
        field: 0,
        least: 1,
        verdict: Verdict::Less,
        cost: "a client's port used again at once is dialled from another port; set it to 1",
    },
    Sysctl {
        what: "net.ipv4.tcp_sack",
        field: 0,
        least: 1,
        verdict: Verdict::Less,
        cost: "loss on the satellite link costs a round trip for each segment; set it to 1",
    },
    Sysctl {
        what: "net.ipv4.tcp_window_scaling",
        field: 0,
        least: 1,
        verdict: Verdict::Less,
        cost: "64 KiB a round trip are the most on any leg; set it to 1",
    },
    Sysctl {
        what: "net.core.somaxconn",
        field: 0,
        least: 1024,
        verdict: Verdict::Less,
        cost: "bursts of connections beyond it are dropped and come again; set it to 4096",
    },
    Sysctl {
        what: "fs.pipe-max-size",
        field: 0,
        least: 1 << 20,
        verdict: Verdict::Less,
        cost: "pipes are smaller: about a tenth more processor time a GB; set it to 1048576",
    },
    Sysctl {
        what: "net.ipv4.tcp_max_orphans",
        field: 0,
        least: 4096,
        verdict: Verdict::Less,
        cost: "of more connections that end at once than that the last bytes, up to 16 KiB each, may be lost by a reset; raise it",
    },
    Sysctl {
        what: "net.ipv4.tcp_mem",
        field: 2,
        least: 65_536,
        verdict: Verdict::Less,
        cost: "all TCP together has less than 256 MiB: many stalled flows slow all down; raise it",
    },
];

pub(crate) fn sysctl(asked: &Sysctl) -> Finding {
    let path = Path::new("/proc/sys").join(asked.what.replace('.', "/"));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            let found = format!("cannot be read ({error})");
            // Some are shown in the first network namespace alone.
            let cost = format!("where it is too low: {}", asked.cost);
            return lack(asked.what, asked.verdict, found, &cost);
        }
    };
    let value = text.split_whitespace().nth(asked.field);
    let found = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match value.and_then(|value| value.parse::<u64>().ok()) {
        Some(value) if value >= asked.least => good(asked.what, found),
        _ => lack(asked.what, asked.verdict, found, asked.cost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_or_missing_sysctl_costs_what_it_says() {
        let asked = |what, least| Sysctl {
            what,
            field: 0,
            least,
            verdict: Verdict::Less,
            cost: "something",
        };
        assert_eq!(sysctl(&asked("fs.pipe-max-size", 1)).verdict, Verdict::Good);
        let low = sysctl(&asked("fs.pipe-max-size", u64::MAX));
        assert_eq!(
            (low.verdict, low.cost.as_str()),
            (Verdict::Less, "something")
        );
        let absent = sysctl(&asked("no.such.thing", 1));
        assert!(
            absent.found.contains("cannot be read") && absent.cost.starts_with("where it"),
            "{absent:?}"
        );
    }
}
