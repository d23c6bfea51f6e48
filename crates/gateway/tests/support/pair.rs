//! Two gateways at the two ends of a satellite link.
//!
//! ```text
//! client eth0 ---- lan0 near sat0 ---- sat0 far lan0 ---- eth0 server
//! ```

use super::{Ip, Listener, Running, connect_in, split_in};
use bentpipe_gateway::Config;
use bentpipe_os::netlink::{Prefix, Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use bentpipe_os::nft;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

/// Each gateway of a pair, unless a test wants something else.
pub const SCPS: &str = "threads = 1\n[sat]\ncarrier = \"scps\"\nrate = \"200Mbit/s\"\n";

pub struct Pair {
    pub client: Netns,
    pub near: Netns,
    pub far: Netns,
    pub server: Netns,
    _veths: [Veth; 3],
}

impl Pair {
    pub fn new() -> Self {
        let labels = ["client", "near", "far", "server"];
        let [client, near, far, server] = labels.map(|label| Netns::create(label).unwrap());
        for netns in [&client, &near, &far, &server] {
            let key = "net.ipv6.conf.default.dad_transmits";
            netns.set_sysctl(key, "0").unwrap();
        }
        let wire = |[one, other]: [(&Netns, &str); 2]| {
            let end = |(netns, name)| VethEnd { netns, name };
            Veth::create(end(one), end(other)).unwrap()
        };
        let veths = [
            wire([(&client, "eth0"), (&near, "lan0")]),
            wire([(&near, "sat0"), (&far, "sat0")]),
            wire([(&server, "eth0"), (&far, "lan0")]),
        ];
        let pair = Self {
            client,
            near,
            far,
            server,
            _veths: veths,
        };
        Ip::BOTH.into_iter().for_each(|ip| pair.configure(ip));
        pair
    }

    fn configure(&self, ip: Ip) {
        let bits = if ip == Ip::V4 { 24 } else { 64 };
        let [near_sat, far_sat] = Self::link(ip);
        for (netns, interface, address) in [
            (&self.client, "eth0", ip.client()),
            (&self.near, "lan0", ip.gateway_sat()),
            (&self.near, "sat0", near_sat),
            (&self.far, "sat0", far_sat),
            (&self.far, "lan0", ip.gateway_lan()),
            (&self.server, "eth0", ip.server()),
        ] {
            let netlink = netns.netlink().unwrap();
            let prefix = Prefix::new(address, bits).unwrap();
            netlink.add_address(interface, prefix).unwrap();
            netlink.set_up(interface).unwrap();
        }
        let default = Prefix::new(ip.any(), 0).unwrap();
        for (netns, via) in [
            (&self.client, ip.gateway_sat()),
            (&self.near, far_sat),
            (&self.far, near_sat),
            (&self.server, ip.gateway_lan()),
        ] {
            let route = Route::via(default, via);
            netns.netlink().unwrap().add_route(&route).unwrap();
        }
        for netns in [&self.near, &self.far] {
            for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
                netns.set_sysctl(key, "1").unwrap();
            }
        }
    }

    /// The addresses of the two gateways on the link.
    fn link(ip: Ip) -> [IpAddr; 2] {
        let [near, far] = match ip {
            Ip::V4 => ["10.77.5.1", "10.77.5.2"],
            Ip::V6 => ["fd77:5::1", "fd77:5::2"],
        };
        [near, far].map(|address| address.parse().unwrap())
    }

    /// Of the packets of the link one in so many is lost, each way.
    pub fn lose(&self, every: u32) {
        let table = format!(
            "table inet link {{
               chain input {{
                 type filter hook prerouting priority -400; policy accept;
                 iifname sat0 numgen inc mod {every} == 1 drop
               }}
             }}"
        );
        for netns in [&self.near, &self.far] {
            netns.run(|| nft::apply(&table).unwrap()).unwrap();
        }
    }

    /// Nothing gets through the link, or everything again.
    pub fn set_link(&self, is_up: bool) {
        let state = if is_up { "up" } else { "down" };
        let rules = if is_up {
            "delete table inet outage".to_owned()
        } else {
            "table inet outage {
               chain input {
                 type filter hook prerouting priority -400; policy accept;
                 iifname sat0 drop
               }
             }"
            .to_owned()
        };
        for netns in [&self.near, &self.far] {
            netns.run(|| nft::apply(&rules).expect(state)).unwrap();
        }
    }

    /// Both gateways, as `text` has them.
    pub fn split(&self, text: &str) -> [Running; 2] {
        [&self.near, &self.far].map(|netns| split_one(netns, text))
    }

    pub fn listen(&self, ip: Ip) -> Listener {
        let bound = self
            .server
            .run(|| TcpListener::bind((ip.server(), 0)).unwrap());
        Listener(bound.unwrap())
    }

    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        connect_in(&self.client, to).unwrap()
    }

    /// A connection through both, by its two ends.
    pub fn pair(&self, ip: Ip) -> (TcpStream, TcpStream) {
        let listener = self.listen(ip);
        let client = self.connect(listener.address());
        let server = listener.accept();
        (client, server)
    }
}

/// A gateway as `text` has it.
pub fn split_one(netns: &Netns, text: &str) -> Running {
    let config = Config::parse("test", text).unwrap();
    split_in(netns, config.between("lan0", "sat0"))
}
