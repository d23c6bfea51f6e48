//! SCPS-TP between the two hosts themselves: our own TCP in their namespaces, `bentpipe tcp --scps`, at the rate of the way.
//!
//! Its packets come from a TUN interface with a network of its own, between which and the host's address of the scenario the
//! kernel translates.

use super::{App, Pair, Site, Ways};
use bentpipe_os::need::Need;
use bentpipe_os::netns::Netns;
use bentpipe_os::nft;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const APP: App = App {
    name: "scps",
    summary: "SCPS-TP between the two hosts at the rate of the path, `bentpipe tcp --scps`",
    ways: Ways::Both,
    needs: &[Need::Tun, Need::Nft],
    prepare,
    report: None,
    interface: Some(interface),
};

/// The TUN interface of the flow with that port.
fn interface(port: u16) -> String {
    format!("scps{port}")
}

/// The address of our TCP in the network of the flow with that port, and how long that network's prefix is.
fn address(port: u16, family: IpAddr) -> (IpAddr, u8) {
    let offset = u32::from(port) * 4 + 2;
    match family {
        // Of what providers share among their customers (RFC 6598).
        IpAddr::V4(_) => (Ipv4Addr::from_bits(0x6440_0000 + offset).into(), 30),
        IpAddr::V6(_) => {
            let address = Ipv6Addr::new(0xfd5c, 0x7073, 0, port, 0, 0, 0, 2);
            (address.into(), 126)
        }
    }
}

fn prepare(site: &Site<'_>) -> io::Result<Pair> {
    let rate = site.rate.ok_or_else(|| {
        io::Error::other(
            "SCPS-TP must be told a rate, and no link on its way has one: say `path_rate`",
        )
    })?;
    let host = site.address.ip();
    let port = site.address.port();
    let (ours, bits) = address(port, host);
    let family = if ours.is_ipv4() { "ip" } else { "ip6" };
    let inwards = format!(
        "chain scps {{ type nat hook prerouting priority dstnat; policy accept; {family} daddr {host} tcp dport {port} dnat to {ours}; }}"
    );
    let outwards = format!(
        "chain scps {{ type nat hook postrouting priority srcnat; policy accept; {family} saddr {ours} masquerade; }}"
    );
    translate(site.server, port, family, &inwards)?;
    translate(site.client, port, family, &outwards)?;
    let common = [
        "--scps".to_owned(),
        format!("--rate={rate}"),
        format!("--mtu={}B", site.mtu.0),
        format!("--tun={}", interface(port)),
        format!("--address={ours}/{bits}"),
    ];
    let mut server = site.serves(site.program)?;
    server.args(["tcp", "serve", "--once", &port.to_string()]);
    let mut client = site.asks(site.program)?;
    client.arg("tcp");
    let to = site.address.to_string();
    if site.sends {
        server.arg("--to").arg(site.target());
        client.arg("send").arg(site.source()).arg(to);
    } else {
        server.arg("--send").arg(site.source());
        client.args(["get", &to, "--to"]).arg(site.target());
    }
    server.args(&common);
    client.args(&common);
    Ok(Pair { server, client })
}

/// The kernel of `host` forwards and translates, as `chain` says.
fn translate(host: &Netns, port: u16, family: &str, chain: &str) -> io::Result<()> {
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        host.set_sysctl(key, "1").map_err(io::Error::other)?;
    }
    let table = format!("table {family} scps_{port} {{\n{chain}\n}}\n");
    let applied = host.run(|| nft::apply(&table)).map_err(io::Error::other)?;
    applied.map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_has_a_network_of_its_own() {
        let v4 = address(40_000, Ipv4Addr::LOCALHOST.into());
        assert_eq!(v4, (Ipv4Addr::new(100, 66, 113, 2).into(), 30));
        let last = address(u16::MAX, Ipv4Addr::LOCALHOST.into());
        assert_eq!(last.0, IpAddr::from([100, 67, 255, 254]));
        assert_ne!(
            address(1, Ipv6Addr::LOCALHOST.into()),
            address(2, Ipv6Addr::LOCALHOST.into())
        );
        assert!(interface(u16::MAX).len() < 16);
    }
}
