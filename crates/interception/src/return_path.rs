//! Leads what servers answer to dials from clients' own addresses to the sockets of these dials, at the far end of tunnels.
//!
//! Such an answer has a client's address, and would go on to the client, who knows nothing of the connection. It is recognised by its
//! socket at the end of the prerouting hook, where translations of addresses are undone, and delivered here by a mark and a routing rule; so
//! are ICMP errors about what the socket has sent. What has no such socket goes on as ever.
//!
//! A socket in TIME_WAIT shows no mark. It is ours where it is transparent and shows none; a segment that opens a connection is not given to
//! it, for that is the client's own, which passes beside the tunnels.

use crate::intercept::{InterceptError, divert};
use crate::mark::Marks;
use crate::ruleset::HOOK_PRIORITY;
use bentpipe_base::Prefix;
use bentpipe_os::netlink::{Diversion, Family, Mark, Netlink, Watch};
use bentpipe_os::nft::{OwnerTable, TableFamily};
use std::fmt::Write as _;

/// The rules and routes of one far end, in the namespace of the thread that made them.
#[derive(Debug)]
pub struct ReturnPath {
    // In this order: without the table, the rule has nothing to divert.
    table: OwnerTable,
    diversion: Diversion,
    watch: Watch,
    /// Some of it may be missing.
    is_doubted: bool,
    marks: Marks,
    networks: Vec<Prefix>,
}

/// The body of the table, for clients with addresses of `networks`.
fn body(marks: Marks, networks: &[Prefix]) -> String {
    let (socket, ours) = (marks.from_client(), marks.intercepted());
    let mut body = format!(
        "\
chain to_socket {{
  meta mark set {ours:#x} accept
}}
chain answers {{
  meta l4proto {{ tcp, udp, icmp, ipv6-icmp }} socket mark {socket:#x} goto to_socket
  meta l4proto tcp tcp flags & syn == 0 jump unshown
}}
chain unshown {{
  socket mark != {socket:#x} return
  socket transparent 1 goto to_socket
}}
chain prerouting {{
  type filter hook prerouting priority {}; policy accept;
",
        HOOK_PRIORITY - 1
    );
    for network in networks {
        let ip = if network.address().is_ipv4() {
            "ip"
        } else {
            "ip6"
        };
        // Writing to a String cannot fail.
        let _ = writeln!(body, "  {ip} daddr {network} goto answers");
    }
    body + "}\n"
}

/// The families of `networks`.
fn families(networks: &[Prefix]) -> Vec<Family> {
    let has = |v4| { networks.iter() }.any(|network| network.address().is_ipv4() == v4);
    { [(true, Family::V4), (false, Family::V6)].into_iter() }
        .filter_map(|(v4, family)| has(v4).then_some(family))
        .collect()
}

fn load(marks: Marks, networks: &[Prefix]) -> Result<OwnerTable, InterceptError> {
    let body = body(marks, networks);
    Ok(OwnerTable::load(TableFamily::Inet, "proxy", &body)?)
}

impl ReturnPath {
    /// Makes them in the calling thread's namespace, for clients with addresses of `networks`. Sockets are to have the mark
    /// [`Marks::from_client`].
    ///
    /// # Errors
    /// See [`InterceptError`]; nothing is left behind.
    pub fn new(marks: Marks, networks: Vec<Prefix>) -> Result<Self, InterceptError> {
        let watch = Watch::open().map_err(InterceptError::Thread)?;
        let mark = Mark::exact(marks.intercepted());
        let diversion = divert(&Netlink::open()?, &families(&networks), mark)?;
        Ok(Self {
            table: load(marks, &networks)?,
            diversion,
            watch,
            is_doubted: false,
            marks,
            networks,
        })
    }

    /// Makes again what others have removed; says whether there was anything.
    ///
    /// # Errors
    /// See [`InterceptError`]; a part may be missing then.
    pub fn restore(&mut self) -> Result<bool, InterceptError> {
        let mut restored = false;
        if !self.table.is_held() {
            self.table = load(self.marks, &self.networks)?;
            restored = true;
        }
        self.is_doubted |= self.watch.may_have_lost(self.diversion.table());
        if self.is_doubted {
            restored |= self.diversion.restore(&families(&self.networks))?;
            self.is_doubted = false;
        }
        Ok(restored)
    }

    /// The networks that it is for.
    pub fn networks(&self) -> &[Prefix] {
        &self.networks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForeignMarks;
    use bentpipe_os::owner::Owner;

    #[test]
    fn only_the_families_of_clients_are_led() {
        let networks = |texts: &[&str]| -> Vec<Prefix> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        assert_eq!(families(&networks(&["10.0.0.0/8"])), [Family::V4]);
        assert_eq!(families(&networks(&["fd00::/8"])), [Family::V6]);
        let both = networks(&["fd00::/8", "10.0.0.0/8", "10.1.0.0/16"]);
        assert_eq!(families(&both), [Family::V4, Family::V6]);
        let marks = Marks::new(Owner { pid: 1, start: 1 }, &ForeignMarks::default());
        let body = body(marks, &both);
        for rule in ["ip6 daddr fd00::/8 goto", "ip daddr 10.1.0.0/16 goto"] {
            assert!(body.contains(rule), "{body}");
        }
    }
}
