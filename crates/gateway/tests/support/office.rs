//! A second network towards the satellite.

use super::{Ip, Stage};
use bentpipe_os::netlink::{Prefix, Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use std::net::IpAddr;

/// A second network towards the satellite; gone when dropped.
pub struct Office(pub Netns, #[allow(dead_code, reason = "its end")] Veth);

impl Office {
    pub fn host(ip: Ip) -> IpAddr {
        match ip {
            Ip::V4 => "10.77.5.2".parse().unwrap(),
            Ip::V6 => "fd77:5::2".parse().unwrap(),
        }
    }

    /// By interface `sat1` of the gateway.
    pub fn open(stage: &Stage) -> Self {
        let office = Netns::create("office").unwrap();
        office
            .set_sysctl("net.ipv6.conf.default.dad_transmits", "0")
            .unwrap();
        let near = VethEnd {
            netns: &office,
            name: "eth0",
        };
        let far = VethEnd {
            netns: &stage.gateway,
            name: "sat1",
        };
        let veth = Veth::create(near, far).unwrap();
        for (ip, bits, router) in [(Ip::V4, 24, "10.77.5.1"), (Ip::V6, 64, "fd77:5::1")] {
            let router: IpAddr = router.parse().unwrap();
            let prefix = |address| Prefix::new(address, bits).unwrap();
            let netlink = office.netlink().unwrap();
            netlink.add_address("eth0", prefix(Self::host(ip))).unwrap();
            let gateway = stage.gateway.netlink().unwrap();
            gateway.add_address("sat1", prefix(router)).unwrap();
        }
        veth.set_up().unwrap();
        for (everywhere, router) in [(Prefix::ALL_V4, "10.77.5.1"), (Prefix::ALL_V6, "fd77:5::1")] {
            let route = Route::via(everywhere, router.parse().unwrap());
            office.netlink().unwrap().add_route(&route).unwrap();
        }
        Self(office, veth)
    }
}
