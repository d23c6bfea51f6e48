//! `bentpipe doctor`: what this machine offers the gateway, and what each lack costs.

use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::anyhow;
use bentpipe_os::need::{Missing, Need};
use bentpipe_os::netlink::{Family, Netlink};
use bentpipe_os::nft;
use bentpipe_process::limits;
use serde::Serialize;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo bentpipe doctor
  sudo bentpipe doctor --json

Ends with 1 when the gateway could not start here.")]
pub(crate) struct Args {
    /// The findings as JSON, one object in an array each
    #[arg(long)]
    json: bool,
}

/// How bad a lack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Good,
    /// The gateway works, with less.
    Less,
    /// It does not start.
    Bad,
}

/// One thing looked at.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    /// What the lack costs and how to mend it; empty when all is good.
    cost: String,
}

/// Looks at everything and shows it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let findings = look();
    let text = match args.json {
        true => serde_json::to_string_pretty(&findings).or_run()?,
        false => page(&findings),
    };
    terminal::print(&text).or_run()?;
    match findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Bad)
    {
        true => Err(Failure::Run(anyhow!(
            "the gateway cannot start here: see `bad` above"
        ))),
        false => Ok(()),
    }
}

fn look() -> Vec<Finding> {
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
        nfqueue(),
        descriptors(),
        translation(),
        filter_chains(),
        routes(),
        loopback(),
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
    match has(21) || (has(38) && has(39)) {
        true if first => good(what, "there"),
        true => lack(
            what,
            Verdict::Less,
            "this is a user namespace of its own",
            "our congestion controls cannot be loaded; run it in the first one",
        ),
        false => lack(
            what,
            Verdict::Less,
            "CAP_BPF or CAP_PERFMON is missing",
            "our congestion controls cannot be loaded; give both, in the first user namespace",
        ),
    }
}

fn has_queues() -> bool {
    Path::new("/proc/net/netfilter/nfnetlink_queue").exists()
}

fn nfqueue() -> Finding {
    let what = "queue for held SYNs";
    match has_queues() {
        true => good(what, "nfnetlink_queue"),
        false => lack(
            what,
            Verdict::Less,
            "the kernel has no nfnetlink_queue",
            "clients are answered before the server is (handshake = \"early\"); `modprobe nfnetlink_queue`",
        ),
    }
}

const UNKNOWN_DIALS: &str = "connections that these are for pass unsplit, the first of each client 3.5 s late (answered early, it waits)";

/// Finds rules that translate forwarded connections and would not match those that the gateway dials.
fn translation() -> Finding {
    let what = "translation of addresses";
    let survey = match nft::survey() {
        Ok(survey) => survey,
        Err(error) => {
            let cost = "whether rules ask for what the gateway's own connections lack is not known";
            return lack(what, Verdict::Less, error.to_string(), cost);
        }
    };
    let found = survey.translating;
    match (found.is_empty(), nft::translates()) {
        (false, _) => {
            let cost = format!(
                "{UNKNOWN_DIALS}; where addresses are translated, ask for addresses or oifname, not for marks or iifname"
            );
            lack(what, Verdict::Less, found.join("; "), &cost)
        }
        (true, Ok(true)) => good(
            what,
            "split connections are translated as forwarded ones; those to a translated destination pass unsplit",
        ),
        (true, _) => good(what, "nothing is translated"),
    }
}

/// At most so many rules are named in a finding.
const NAMED: usize = 5;

/// Finds rules for the gateway's own services that could drop packets of split connections.
fn filter_chains() -> Finding {
    let what = "firewall of input and output";
    let survey = match nft::survey() {
        Ok(survey) => survey,
        Err(error) => {
            let cost = "packets of split connections go past its chains by a queue, at some cost of processor time";
            return lack(what, Verdict::Less, error.to_string(), cost);
        }
    };
    if !survey.shuts_local() {
        return good(what, "no rule may drop packets of split connections");
    }
    let all = [survey.closing, survey.refusing].concat();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named: Vec<_> = all.into_iter().take(NAMED).collect();
    let found = format!("{}{more}", named.join("; "));
    let cost = match has_queues() {
        true => "packets of split connections go past these by a queue, which costs processor time",
        false => {
            "split connections that these meet hang, for the kernel has no queue that leads past them"
        }
    };
    let cost = format!(
        "{cost}; first in these chains, `meta mark and 0xff000000 == 0x62000000 accept` mends that"
    );
    lack(what, Verdict::Less, found, &cost)
}

/// Finds routing rules that would not match the connections that the gateway dials.
fn routes() -> Finding {
    let what = "policy routing";
    match Netlink::open().and_then(|netlink| netlink.rules_by_arrival()) {
        Ok(rules) if rules.is_empty() => good(
            what,
            "no route depends on marks or on where a packet came in",
        ),
        Ok(rules) => lack(what, Verdict::Less, rules.join("; "), UNKNOWN_DIALS),
        Err(error) => lack(what, Verdict::Less, error.to_string(), "it is not known"),
    }
}

/// Finds out whether some rule drops or diverts the copy of a client's SYN that comes by `lo`.
fn loopback() -> Finding {
    let what = "SYNs over lo";
    // Only an address of this machine, of an interface that is up, may be had.
    if let Err(error) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        return lack(
            what,
            Verdict::Bad,
            format!("`lo` is down, or has not the address 127.0.0.1 ({error})"),
            "the gateway does not start; `ip link set lo up`, `ip address add 127.0.0.1/8 dev lo`",
        );
    }
    match bentpipe_gateway::lost_over_loopback() {
        Ok(lost) if lost.is_empty() => good(what, "one arrives"),
        Ok(_) if has_queues() && nft::survey().is_ok_and(|survey| survey.shuts_local()) => lack(
            what,
            Verdict::Less,
            "not known: rules of input or output chains, past which a gateway leads its packets, may drop them",
            "whether other rules drop or lead away what comes by lo shows when the gateway works",
        ),
        Ok(lost) => {
            let names: Vec<_> = lost
                .iter()
                .map(|family| match family {
                    Family::V4 => "IPv4",
                    Family::V6 => "IPv6",
                })
                .collect();
            lack(
                what,
                Verdict::Less,
                format!("none arrives of {}", names.join(" and ")),
                "connections pass unsplit, the first of each client seconds late; rules drop or lead away what comes by lo (`iif lo ip saddr != 127.0.0.0/8 drop`, an output chain of `type route` that sets marks): put `meta mark and 0xff000000 == 0x62000000 accept` before them",
            )
        }
        Err(error) => {
            let cost = "whether rules lead away what comes by lo shows when the gateway works";
            lack(what, Verdict::Less, format!("not tried: {error}"), cost)
        }
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

/// A sysctl with a number in it, and the least that is good.
struct Sysctl {
    what: &'static str,
    /// Which of its numbers.
    field: usize,
    least: u64,
    verdict: Verdict,
    cost: &'static str,
}

const SYSCTLS: &[Sysctl] = &[
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

fn sysctl(asked: &Sysctl) -> Finding {
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

fn page(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let verdict = match finding.verdict {
            Verdict::Good => "good",
            Verdict::Less => "less",
            Verdict::Bad => "bad ",
        };
        let cost = match finding.cost.as_str() {
            "" => String::new(),
            cost => format!("\n        {cost}"),
        };
        format!("{verdict}  {}: {}{cost}", finding.what, finding.found)
    });
    lines.collect::<Vec<_>>().join("\n")
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

    #[test]
    fn every_finding_has_a_line_and_every_lack_its_cost() {
        // As root it tries things out.
        let findings = match Need::Root.check() {
            Ok(()) => bentpipe_os::netns::Netns::create("doctor")
                .unwrap()
                .run(look)
                .unwrap(),
            Err(_) => look(),
        };
        let text = page(&findings);
        for finding in &findings {
            assert!(text.contains(finding.what));
            assert!(
                finding.verdict == Verdict::Good
                    || !(finding.cost.is_empty() && finding.found.len() < 40),
                "{finding:?}"
            );
        }
    }
}
