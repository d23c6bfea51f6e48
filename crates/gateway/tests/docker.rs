//! Containers beside the gateway, on a bridge of its namespace, with what Docker makes for them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "soak/containers.rs"]
mod containers;
mod support;

use bentpipe_gateway::Config;
use bentpipe_os::need;
use bentpipe_os::netlink::{Prefix, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use containers::{BRIDGE, Container};
use std::io::{Read as _, Write as _};
use support::{HANDSHAKES, Ip, Stage, connect_in, exchange, listen, pattern};

/// Where a container listens.
const PORT: u16 = 7;

/// What a container asks for is masqueraded and split, as of any host of a leg; what is asked of it at a port of the gateway's is
/// translated and passes, counted.
#[test]
fn containers_on_a_bridge_are_split_and_may_publish_ports() {
    need!(Root, Nft, Tproxy);
    const AMOUNT: usize = 1_000_000;
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let container = Container::beside(&stage);
        stage.apply(&format!("table inet docker {{\n{}}}\n", Container::rules()));
        let text = format!(
            "threads = 2\n[lan]\ninterface = [\"lan0\", \"{BRIDGE}\"]\n[sat]\ninterface = \"sat0\"\n\
             congestion_control = \"cubic\"\n"
        );
        let mut config = Config::parse("test", &text).unwrap();
        config.handshake = handshake;
        let gateway = stage.split_by(config);
        for (ip, published) in Ip::BOTH.into_iter().zip(Container::published()) {
            let listener = stage.listen_in(&stage.client, ip.client());
            let before = gateway.meter.read().accepted;
            let mut inner = connect_in(&container.netns, listener.address()).unwrap();
            let mut outer = listener.accept();
            assert_eq!(outer.peer_addr().unwrap().ip(), ip.gateway_sat());
            std::thread::scope(|scope| {
                scope.spawn(|| outer.write_all(&pattern(AMOUNT)).unwrap());
                let mut got = vec![0; AMOUNT];
                inner.read_exact(&mut got).unwrap();
                assert!(got == pattern(AMOUNT), "other bytes");
            });
            exchange(&mut (inner, outer));
            let counters = gateway.meter.read();
            assert_eq!(counters.accepted, before + 1, "{handshake:?}: {counters:?}");

            let host = Container::address(ip);
            let listener = listen::listen_at(&container.netns, host, PORT);
            let client = stage.connect(published);
            exchange(&mut (client, listener.accept()));
            assert_eq!(gateway.meter.read().accepted, before + 1, "{handshake:?}");
        }
        let passed = gateway.meter.passed().unwrap();
        let translated = passed.iter().find(|count| count.name == "translated");
        assert_eq!(translated.unwrap().packets, 2, "{passed:?}");
    }
}

/// A container's packets go over the bridge to a router beside it, and by its way through the host once more. Where br_netfilter
/// shows nft what a bridge carries, as Docker and Kubernetes have it, they meet the gateway twice: as frames they pass.
#[test]
fn frames_that_cross_a_bridge_of_the_host_reach_their_router() {
    need!(Root, Nft, Tproxy);
    let stage = Stage::new();
    let container = Container::beside(&stage);
    // Without br_netfilter there is nothing to set, and nothing to be seen.
    for key in ["iptables", "ip6tables"] {
        let key = format!("net.bridge.bridge-nf-call-{key}");
        let _ = stage.gateway.set_sysctl(&key, "1");
    }
    let router = Netns::create("router").unwrap();
    let end = |netns, name| VethEnd { netns, name };
    let wire = Veth::create(end(&stage.gateway, "router"), end(&router, "eth0")).unwrap();
    let ip = |netns: &Netns, words: &str| {
        let status = netns.command("ip").args(words.split(' ')).status().unwrap();
        assert!(status.success(), "ip {words}");
    };
    ip(&stage.gateway, &format!("link set router master {BRIDGE}"));
    for (address, bits) in [("172.18.0.3", 24), ("fd77:18::3", 64)] {
        let prefix = Prefix::new(address.parse().unwrap(), bits).unwrap();
        let netlink = router.netlink().unwrap();
        netlink.add_address("eth0", prefix).unwrap();
    }
    wire.set_up().unwrap();
    for key in ["ipv4.ip_forward", "ipv6.conf.all.forwarding"] {
        router.set_sysctl(&format!("net.{key}"), "1").unwrap();
    }
    // The host is nearer than the router, which must not say so.
    for key in ["all", "eth0"] {
        let key = format!("net.ipv4.conf.{key}.send_redirects");
        router.set_sysctl(&key, "0").unwrap();
    }
    let key = "net.ipv6.conf.eth0.accept_redirects";
    container.netns.set_sysctl(key, "0").unwrap();
    for (option, host, beside) in [
        ("-4", "172.18.0.1", "172.18.0.3"),
        ("-6", "fd77:18::1", "fd77:18::3"),
    ] {
        ip(&router, &format!("{option} route add default via {host}"));
        let route = format!("{option} route replace default via {beside}");
        ip(&container.netns, &route);
    }
    let text = format!(
        "threads = 2\n[lan]\ninterface = [\"lan0\", \"{BRIDGE}\"]\n[sat]\ninterface = \"sat0\"\n\
         congestion_control = \"cubic\"\n"
    );
    let gateway = stage.split_by(Config::parse("test", &text).unwrap());
    for address in Ip::BOTH {
        // The way back to the container is by the gateway.
        let back = match address {
            Ip::V4 => "172.18.0.0/24",
            Ip::V6 => "fd77:18::/64",
        };
        let via = address.gateway_sat();
        ip(&stage.client, &format!("route replace {back} via {via}"));
        let listener = stage.listen_in(&stage.client, address.client());
        let inner = connect_in(&container.netns, listener.address()).unwrap();
        exchange(&mut (inner, listener.accept()));
    }
    assert_eq!(gateway.meter.read().accepted, 2);
}
