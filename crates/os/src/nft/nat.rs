//! Whether addresses are translated in a namespace.

use super::hold::NFTABLES;
use crate::owner::Owner;
use bentpipe_sockets::netfilter::{self, GENERAL, REQUEST};
use bentpipe_sockets::netlink_message::{attributes, dump};
use std::fs;
use std::io;

/// NFT_MSG_GETCHAIN, NLM_F_DUMP.
const GET_CHAIN: u16 = NFTABLES << 8 | 4;
const DUMP: u16 = 0x300;
/// NFTA_CHAIN_TABLE and NFTA_CHAIN_TYPE.
const TABLE: u16 = 1;
const TYPE: u16 = 7;

/// Whether the calling thread's namespace has a chain that translates addresses: one of type `nat` of nft, which
/// is what iptables-nft makes too, or the table `nat` of the older iptables. Tables of this program do not count.
///
/// # Errors
/// When the kernel does not list the chains.
pub fn translates() -> io::Result<bool> {
    Ok(of_nft()? || iptables_has("nat"))
}

/// Whether the older iptables has this table in the calling thread's namespace.
pub(super) fn iptables_has(table: &str) -> bool {
    // Without that iptables, or without the right to know, there are no such files.
    let names = ["ip_tables_names", "ip6_tables_names"];
    names.iter().any(|name| {
        fs::read_to_string(format!("/proc/thread-self/net/{name}"))
            .is_ok_and(|tables| tables.lines().any(|one| one == table))
    })
}

fn of_nft() -> io::Result<bool> {
    let socket = netfilter::open()?;
    let mut request = Vec::new();
    netfilter::put(&mut request, (GET_CHAIN, REQUEST | DUMP), (0, 0), |_| {});
    let mut found = false;
    dump(&socket, &request, &mut vec![0; 32 * 1024], |_, body| {
        found |= is_nat(body);
    })?;
    Ok(found)
}

fn is_nat(body: &[u8]) -> bool {
    let (mut nat, mut own) = (false, false);
    for (kind, value) in attributes(body.get(GENERAL..).unwrap_or_default()) {
        let name = || str::from_utf8(value.strip_suffix(b"\0").unwrap_or(value)).ok();
        match kind {
            TYPE => nat = value == b"nat\0",
            TABLE => own = name().and_then(Owner::parse).is_some(),
            _ => {}
        }
    }
    nat && !own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::nft;

    #[test]
    fn a_chain_that_translates_is_found() {
        crate::need!(Root, Nft);
        let netns = Netns::create("nat").unwrap();
        netns
            .run(|| {
                assert!(!translates().unwrap());
                nft::apply("table inet f { chain c { type filter hook forward priority 0; }; }")
                    .unwrap();
                assert!(!translates().unwrap());
                nft::apply("table ip6 n { chain p { type nat hook postrouting priority 100; }; }")
                    .unwrap();
                assert!(translates().unwrap());
                nft::apply("delete table ip6 n").unwrap();
                assert!(!translates().unwrap());
                let body = "chain p {\ntype nat hook postrouting priority 100;\n}";
                let _own = nft::OwnerTable::load(nft::TableFamily::Inet, "own", body).unwrap();
                assert!(!translates().unwrap(), "a table of ours");
            })
            .unwrap();
    }
}
