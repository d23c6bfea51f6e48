//! A container beside the gateway: a bridge of the gateway's own that counts as its ground leg, and what Docker
//! makes for it: the container's address is translated on its way out, and a port of the gateway's is the
//! container's.

use super::PORT;
use crate::support::{Ip, Stage};
use bentpipe_os::netlink::{Prefix, Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use std::net::{IpAddr, SocketAddr};

/// The bridge in the gateway's namespace.
pub(crate) const BRIDGE: &str = "docker0";
/// The port of the gateway that is the container's.
const PUBLISHED: u16 = 8080;

/// A namespace with an interface on the bridge.
pub(crate) struct Container {
    pub(crate) netns: Netns,
    _wire: Veth,
}

impl Container {
    /// Makes the bridge, and the container on it.
    pub(crate) fn beside(stage: &Stage) -> Self {
        let netns = Netns::create("container").unwrap();
        let key = "net.ipv6.conf.default.dad_transmits";
        netns.set_sysctl(key, "0").unwrap();
        let ip = |words: &[&str]| {
            let status = stage.gateway.command("ip").args(words).status().unwrap();
            assert!(status.success(), "ip {words:?}");
        };
        ip(&["link", "add", BRIDGE, "type", "bridge"]);
        let (outside, inside) = ("container", "eth0");
        let near = VethEnd {
            netns: &stage.gateway,
            name: outside,
        };
        let far = VethEnd {
            netns: &netns,
            name: inside,
        };
        let wire = Veth::create(near, far).unwrap();
        ip(&["link", "set", outside, "master", BRIDGE]);
        let gateway = stage.gateway.netlink().unwrap();
        let own = netns.netlink().unwrap();
        for ip in Ip::BOTH {
            let (bits, host, container) = addresses(ip);
            let prefix = |address| Prefix::new(address, bits).unwrap();
            gateway.add_address(BRIDGE, prefix(host)).unwrap();
            own.add_address(inside, prefix(container)).unwrap();
        }
        gateway.set_up(BRIDGE).unwrap();
        wire.set_up().unwrap();
        for ip in Ip::BOTH {
            let (_, host, _) = addresses(ip);
            let everything = Prefix::new(ip.any(), 0).unwrap();
            own.add_route(&Route::via(everything, host)).unwrap();
        }
        Self { netns, _wire: wire }
    }

    /// Its own address.
    #[allow(dead_code, reason = "the soak has no use for it")]
    pub(crate) fn address(ip: Ip) -> IpAddr {
        addresses(ip).2
    }

    /// Where clients outside find the container.
    pub(crate) fn published() -> [SocketAddr; 2] {
        Ip::BOTH.map(|ip| SocketAddr::new(ip.gateway_sat(), PUBLISHED))
    }

    /// The body of the table that Docker has, in one table for both families.
    pub(crate) fn rules() -> String {
        let published = Ip::BOTH.map(|ip| {
            let ((_, _, container), family) = (addresses(ip), family(ip));
            let to = SocketAddr::new(container, PORT);
            format!("fib daddr type local meta nfproto {} tcp dport {PUBLISHED} dnat {family} to {to}\n", if ip == Ip::V4 { "ipv4" } else { "ipv6" })
        });
        let hidden = Ip::BOTH.map(|ip| {
            let ((bits, host, _), family) = (addresses(ip), family(ip));
            format!("{family} saddr {host}/{bits} oifname != {BRIDGE} masquerade\n")
        });
        let ([to_v4, to_v6], [of_v4, of_v6]) = (published, hidden);
        format!(
            "chain pre {{
  type nat hook prerouting priority dstnat; policy accept;
  {to_v4}  {to_v6}}}
chain post {{
  type nat hook postrouting priority srcnat; policy accept;
  {of_v4}  {of_v6}}}
chain user {{
  type filter hook forward priority filter; policy accept;
  oifname {BRIDGE} ct state established,related accept
  iifname {BRIDGE} oifname != {BRIDGE} accept
  oifname {BRIDGE} ct status dnat accept
  oifname {BRIDGE} drop
}}
"
        )
    }
}

fn family(ip: Ip) -> &'static str {
    match ip {
        Ip::V4 => "ip",
        Ip::V6 => "ip6",
    }
}

/// The length of the bridge's network, the gateway's address there, and the container's.
fn addresses(ip: Ip) -> (u8, IpAddr, IpAddr) {
    let (bits, host, container) = match ip {
        Ip::V4 => (24, "172.18.0.1", "172.18.0.2"),
        Ip::V6 => (64, "fd77:18::1", "fd77:18::2"),
    };
    (bits, host.parse().unwrap(), container.parse().unwrap())
}
