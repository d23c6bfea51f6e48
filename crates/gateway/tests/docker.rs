//! Containers beside the gateway, on a bridge of its namespace, with what Docker makes for them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "soak/containers.rs"]
mod containers;
mod support;

use bentpipe_gateway::Config;
use bentpipe_os::need;
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
