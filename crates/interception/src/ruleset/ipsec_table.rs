//! The table for what policies of IPsec judge otherwise where it is for this machine than where it is forwarded.

use super::{HOOK_PRIORITY, Ruleset, SYN};
use bentpipe_os::ipsec::Prefix;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Beyond so many pairs of networks all connections pass.
const MOST: usize = 256;

impl Ruleset {
    /// The body of another table: SYNs between the two ends of any of `apart`, either way, pass unsplit.
    pub(crate) fn ipsec_table(&self, apart: &BTreeSet<(Prefix, Prefix)>) -> String {
        let pass = format!("meta priority set {:#x}", self.marks.translated());
        let rules: Vec<String> = if apart.len() > MOST {
            vec![format!("  {SYN} {pass}\n")]
        } else {
            let ways = apart
                .iter()
                .flat_map(|&(one, other)| [(one, other), (other, one)]);
            ways.map(|(source, destination)| {
                let (source, destination) = (end("saddr", source), end("daddr", destination));
                format!("  {SYN} {source} {destination} {pass}\n")
            })
            .collect()
        };
        format!(
            "\
chain judged_apart {{
  type filter hook forward priority {}; policy accept;
{}}}
",
            HOOK_PRIORITY - 1,
            rules.concat(),
        )
    }
}

/// Matches what has an address of `prefix` as its `key`.
fn end(key: &str, (address, bits): Prefix) -> String {
    let (family, ip) = match address {
        IpAddr::V4(_) => ("ipv4", "ip"),
        IpAddr::V6(_) => ("ipv6", "ip6"),
    };
    match bits {
        0 => format!("meta nfproto {family}"),
        bits => format!("{ip} {key} {address}/{bits}"),
    }
}
