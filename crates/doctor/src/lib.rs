//! What a machine offers the gateway, and what each lack costs.
//!
//! The one binary shows it (`bentpipe doctor`). Begin with [`look`]; `network` has what netfilter, routing rules and `lo`
//! do to split connections, `sysctl` the kernel's settings. Nothing here changes the machine: what has to be tried is tried
//! in a namespace of its own, and mending is the operator's.
#![forbid(unsafe_code)]

mod network;
mod sysctl;

use bentpipe_os::need::{Missing, Need};
use bentpipe_os::nft;
use bentpipe_process::limits;
use serde::Serialize;
use std::fs;
use std::path::Path;
use sysctl::{SYSCTLS, sysctl};

/// How bad a lack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is lacking.
    Good,
    /// The gateway works, with less.
    Less,
    /// The gateway does not start.
    Bad,
}

/// One thing looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// What is there.
    pub found: String,
    /// What the lack costs and how to mend it; empty when all is good.
    pub cost: String,
}

/// Looks at everything.
pub fn look() -> Vec<Finding> {
    let survey = nft::survey();
    let mut findings = vec![
        need("capability", Need::NetAdmin, Verdict::Bad, ""),
        need(
            "CAP_NET_RAW",
            Need::NetRaw,
            Verdict::Less,
            "connections with `action = \"snoop\"` pass end to end without help",
        ),
        interception(),
        need(
            "kernel types (BTF)",
            Need::Btf,
            Verdict::Less,
            "the satellite leg uses the kernel's hybla, bbr or cubic instead of our controls",
        ),
        need(
            "BPF struct_ops",
            Need::StructOps,
            Verdict::Less,
            "the satellite leg uses the kernel's hybla, bbr or cubic instead of our controls",
        ),
        bpf(),
        tcx(),
        nfqueue(),
        descriptors(),
        network::translation(&survey),
        network::filter_chains(&survey),
        network::routes(),
        network::loopback(&survey),
    ];
    findings.extend(SYSCTLS.iter().map(sysctl));
    findings
}

fn good(what: &'static str, found: impl Into<String>) -> Finding {
    Finding {
        what,
        verdict: Verdict::Good,
        found: found.into(),
        cost: String::new(),
    }
}

fn lack(what: &'static str, verdict: Verdict, found: impl Into<String>, cost: &str) -> Finding {
    Finding {
        what,
        verdict,
        found: found.into(),
        cost: cost.to_owned(),
    }
}

fn need(what: &'static str, need: Need, verdict: Verdict, cost: &str) -> Finding {
    match need.check() {
        Ok(()) => good(what, "there"),
        Err(missing) => lack(what, verdict, missing.to_string(), cost),
    }
}

/// nft and tproxy are tried out in a namespace, which takes more than the gateway itself needs.
fn interception() -> Finding {
    let what = "interception (nft, tproxy)";
    let cost = "no connection can be split";
    if let Err(missing) = Need::Program("nft").check() {
        return lack(what, Verdict::Bad, missing.to_string(), cost);
    }
    let tried = |missing: Missing| match Need::Root.check() {
        Ok(()) => lack(what, Verdict::Bad, missing.to_string(), cost),
        Err(_) => lack(
            what,
            Verdict::Less,
            "not tried out: that takes a namespace (CAP_SYS_ADMIN)",
            "whether it works shows when the gateway starts",
        ),
    };
    match Need::Tproxy.check() {
        Ok(()) => good(what, "tried out in a namespace"),
        Err(missing) => tried(missing),
    }
}

/// CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN for all.
fn bpf() -> Finding {
    let what = "right to load BPF";
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let has = |bit: u32| effective >> bit & 1 == 1;
    // linux/capability.h: SYS_ADMIN 21, PERFMON 38, BPF 39.
    let first = fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
    let may_load = has(21) || (has(38) && has(39));
    if !may_load {
        lack(
            what,
            Verdict::Less,
            "CAP_BPF or CAP_PERFMON is missing",
            "our congestion controls cannot be loaded; give both, in the first user namespace",
        )
    } else if !first {
        lack(
            what,
            Verdict::Less,
            "this is a user namespace of its own",
            "our congestion controls cannot be loaded; run it in the first one",
        )
    } else {
        good(what, "there")
    }
}

/// Programs at interfaces came with Linux 6.6.
fn tcx() -> Finding {
    let what = "programs at interfaces (TCX)";
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) >= (Some(6), Some(6)) {
        return good(what, format!("kernel {release}"));
    }
    lack(
        what,
        Verdict::Less,
        format!("kernel {release} has none"),
        "QUIC connections are not told the link's rate (`scone`); boot Linux 6.6 or later",
    )
}

fn has_queues() -> bool {
    Path::new("/proc/net/netfilter/nfnetlink_queue").exists()
}

fn nfqueue() -> Finding {
    let what = "queue for held SYNs";
    if has_queues() {
        good(what, "nfnetlink_queue")
    } else {
        lack(
            what,
            Verdict::Less,
            "the kernel has no nfnetlink_queue",
            "clients are answered before the server is (handshake = \"early\"); `modprobe nfnetlink_queue`",
        )
    }
}

fn descriptors() -> Finding {
    let what = "descriptors";
    let available = match limits::raise_descriptors() {
        Ok(available) => available,
        Err(error) => {
            return lack(what, Verdict::Less, error.to_string(), "flows may be few");
        }
    };
    let flows = available.saturating_sub(1200) / 2;
    let found = format!("{available}: about {flows} flows at a time");
    match flows {
        flows if flows >= 9_000 => good(what, found),
        0..10 => lack(
            what,
            Verdict::Bad,
            found,
            "raise LimitNOFILE or `ulimit -n`",
        ),
        _ => lack(
            what,
            Verdict::Less,
            found,
            "more flows than that pass unsplit; raise LimitNOFILE or `ulimit -n`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lack_has_its_cost() {
        // As root it tries things out.
        let findings = match Need::Root.check() {
            Ok(()) => bentpipe_os::netns::Netns::create("doctor")
                .unwrap()
                .run(look)
                .unwrap(),
            Err(_) => look(),
        };
        for finding in &findings {
            assert!(
                finding.verdict == Verdict::Good
                    || !(finding.cost.is_empty() && finding.found.len() < 40),
                "{finding:?}"
            );
        }
    }
}
