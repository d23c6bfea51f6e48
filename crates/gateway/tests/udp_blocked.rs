//! Rules in the path drop the UDP of a leg over QUIC: tunnels go by HTTP/2 over TCP meanwhile.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "figures")]

mod support;

use bentpipe_os::{need, nft};
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use support::ends::{carry_both_ways, meets_a_reset, resets_reach_the_other_end};
use support::pair::{Pair, split_one};
use support::proxy::{self, Keys, OPEN, Tunnelled, is_up};
use support::{Ip, Running, eventually, exchange};

/// UDP is dropped on the link both ways, or no more.
fn block_udp(pair: &Pair, blocks: bool) {
    let rules = if blocks {
        "table inet no_udp {
           chain input {
             type filter hook prerouting priority -400; policy accept;
             iifname sat0 meta l4proto udp drop
           }
         }"
    } else {
        "delete table inet no_udp"
    };
    for netns in [&pair.near, &pair.far] {
        netns.run(|| nft::apply(rules).unwrap()).unwrap();
    }
}

/// Which carrier new tunnels take, and whether UDP is known to be blocked.
fn carrier(gateway: &Running) -> (Option<&'static str>, bool) {
    let status = gateway.handle.status().unwrap();
    let tunnels = status.tunnels.as_ref().unwrap();
    (tunnels.carrier, tunnels.udp_blocked)
}

/// Whom the server sees of a new connection.
fn seen(pair: &Pair, ip: Ip) -> IpAddr {
    let ends = pair.pair(ip);
    let seen = ends.1.peer_addr().unwrap().ip();
    carry_both_ways(ends);
    seen
}

/// From the start: connections do without until TCP carries them, which takes less than two seconds.
#[test]
fn from_the_start_tunnels_go_by_tcp() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let (pair, keys) = (Pair::new(), Keys::new());
        let file = keys.proxy(ip, &keys.near, OPEN);
        let _proxy = proxy::start(&pair, &file);
        block_udp(&pair, true);
        let began = Instant::now();
        let gateway = split_one(&pair.near, &keys.gateway(ip, &keys.far, ""));
        // The first goes end to end, or by a tunnel: it waits for neither.
        carry_both_ways(pair.pair(ip));
        eventually("tunnels", || is_up(&gateway));
        let waited = began.elapsed();
        println!("{ip:?}: tunnels {waited:?} after the start");
        assert!(waited < Duration::from_secs(2), "{waited:?}");
        assert_eq!(seen(&pair, ip), ip.gateway_lan());
        eventually("it is told", || carrier(&gateway) == (Some("http2"), true));
        resets_reach_the_other_end(|| pair.pair(ip));
    }
}

/// In mid-life: what QUIC carries is reset within four seconds, new connections go by TCP, and by QUIC again when it answers.
#[test]
fn in_mid_life_it_is_recognised_and_undone() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    eventually("the second carrier", || {
        let status = on.gateway.handle.status().unwrap();
        let tunnels = status.tunnels.as_ref().unwrap();
        tunnels.connections.len() == 2 && tunnels.carrier == Some("quic")
    });
    let (mut client, mut server) = on.pair.pair(Ip::V4);
    exchange(&mut (client.try_clone().unwrap(), server.try_clone().unwrap()));
    block_udp(&on.pair, true);
    let began = Instant::now();
    client.write_all(b"lost").unwrap();
    meets_a_reset("the client", &mut client, Duration::from_secs(4));
    println!("recognised after {:?}", began.elapsed());
    assert_eq!(carrier(&on.gateway), (Some("http2"), true));
    assert_eq!(seen(&on.pair, Ip::V4), Ip::V4.gateway_lan());
    // The far end finds it out by itself.
    meets_a_reset("the server", &mut server, Duration::from_secs(6));
    block_udp(&on.pair, false);
    eventually("QUIC", || carrier(&on.gateway) == (Some("quic"), false));
    assert_eq!(seen(&on.pair, Ip::V4), Ip::V4.gateway_lan());
}

/// An outage of the whole link moves nothing, and what was on its way arrives after it.
#[test]
fn an_outage_is_none() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    let (mut client, mut server) = on.pair.pair(Ip::V4);
    exchange(&mut (client.try_clone().unwrap(), server.try_clone().unwrap()));
    on.pair.set_link(false);
    client.write_all(b"late").unwrap();
    std::thread::sleep(Duration::from_secs(8));
    on.pair.set_link(true);
    let mut got = [0; 4];
    server.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"late");
    assert_eq!(carrier(&on.gateway), (Some("quic"), false));
    exchange(&mut (client, server));
}
