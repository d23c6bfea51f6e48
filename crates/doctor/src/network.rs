//! What the machine's own netfilter and routing rules, and `lo`, do to the connections of a gateway.

use crate::{Finding, Verdict, good, has_queues, lack};
use bentpipe_os::netlink::{Family, Netlink};
use bentpipe_os::nft::{self, NftError, Survey};
use std::net::{Ipv4Addr, UdpSocket};

const UNKNOWN_DIALS: &str = "connections that these are for pass unsplit, the first of each client 3.5 s late (answered early, it waits)";

/// Finds rules that translate forwarded connections and would not match those that the gateway dials.
pub(crate) fn translation(survey: &Result<Survey, NftError>) -> Finding {
    let what = "translation of addresses";
    let survey = match survey {
        Ok(survey) => survey,
        Err(error) => {
            let cost = "whether rules ask for what the gateway's own connections lack is not known";
            return lack(what, Verdict::Less, error.to_string(), cost);
        }
    };
    let found = &survey.translating;
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
pub(crate) fn filter_chains(survey: &Result<Survey, NftError>) -> Finding {
    let what = "firewall of input and output";
    let survey = match survey {
        Ok(survey) => survey,
        Err(error) => {
            let cost = "packets of split connections go past its chains by a queue, at some cost of processor time";
            return lack(what, Verdict::Less, error.to_string(), cost);
        }
    };
    if !survey.tracking.is_empty() {
        return lack(
            "firewall of prerouting",
            Verdict::Less,
            survey.tracking.join("; "),
            "packets of split connections are not tracked: connections of clients whose packets are dropped for that break after seconds; accept `ct state untracked` there too",
        );
    }
    if !survey.zoning.is_empty() && nft::translates().unwrap_or(true) {
        return lack(
            "zones of conntrack",
            Verdict::Bad,
            survey.zoning.join("; "),
            "packets of split connections get one, and are translated on both legs: such connections are reset or hang; let them pass by a policy, or translate addresses without such rules",
        );
    }
    if !survey.shuts_local() {
        return good(what, "no rule may drop packets of split connections");
    }
    let all = survey.closing.iter().chain(&survey.refusing);
    let more = match all.clone().count().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named: Vec<_> = all.take(NAMED).map(String::as_str).collect();
    let found = format!("{}{more}", named.join("; "));
    let cost = if has_queues() {
        "packets of split connections go past these by a queue, which costs processor time"
    } else {
        "split connections that these meet hang, for the kernel has no queue that leads past them"
    };
    let cost = format!(
        "{cost}; first in these chains, `meta mark and 0xff000000 == 0x62000000 accept` mends that"
    );
    lack(what, Verdict::Less, found, &cost)
}

/// Finds routing rules that would not match the connections that the gateway dials.
pub(crate) fn routes() -> Finding {
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
pub(crate) fn loopback(survey: &Result<Survey, NftError>) -> Finding {
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
        Ok(_) if has_queues() && survey.as_ref().is_ok_and(Survey::shuts_local) => lack(
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
