//! Servers are dialled from clients' own addresses, where the far end is on their way back.

use super::support::ends::{carry_both_ways, resets_reach_the_other_end};
use super::support::pair::{Pair, split_one};
use super::support::proxy::{Keys, OPEN, ProxyProcess, is_up, start};
use super::support::{Ip, Running, eventually, exchange};
use super::{HANDSHAKES, meets_a_reset};
use bentpipe_os::need;
use std::net::{IpAddr, TcpStream};
use std::thread;
use std::time::Duration;

const TELL: &str = "fall_back = \"off\"\nclient_address = \"tell\"\n";
const HIDE: &str = "fall_back = \"off\"\n";

/// Networks in which the clients are.
const NETWORKS: &str = "[\"10.77.1.0/24\", \"fd77:1::/64\"]";

/// The far end's configuration of a near end's clients.
fn clients(key: &str, networks: &str) -> String {
    format!("{HIDE}{OPEN}[[client]]\nkey = \"{key}\"\naddresses = {networks}\n")
}

/// Whom the server sees of a connection, and its ends.
fn seen(pair: &Pair, ip: Ip) -> (IpAddr, (TcpStream, TcpStream)) {
    let mut ends = pair.pair(ip);
    exchange(&mut ends);
    (ends.1.peer_addr().unwrap().ip(), ends)
}

/// Address and port are the client's, by either handshake and family, on a link that loses packets; and so a connection ends as it should.
#[test]
fn the_server_sees_the_client() {
    need!(Root, Nft, Tproxy);
    for (ip, handshake) in Ip::BOTH.into_iter().zip(HANDSHAKES) {
        let (pair, keys) = (Pair::new(), Keys::new());
        let far = clients(&keys.near, NETWORKS);
        let proxy = start(&pair, &keys.proxy(ip, &keys.near, &far));
        let near = keys.gateway(ip, &keys.far, &format!("{handshake}{TELL}"));
        let gateway = split_one(&pair.near, &near);
        eventually("tunnels", || is_up(&gateway));
        pair.lose(50);
        let ends = pair.pair(ip);
        assert_eq!(ends.1.peer_addr().unwrap(), ends.0.local_addr().unwrap());
        carry_both_ways(ends);
        resets_reach_the_other_end(|| pair.pair(ip));
        let counters = proxy.status().unwrap().tunnels.counters;
        assert_eq!((counters.from_clients, counters.opened), (3, 3));
        assert_eq!(gateway.meter.read().tunnelled, 3);
    }
}

/// A far end that ends leaves nothing.
#[test]
fn nothing_is_left_of_the_way_back() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (Pair::new(), Keys::new());
    let before = rules(&pair);
    let file = keys.proxy(Ip::V4, &keys.near, &clients(&keys.near, NETWORKS));
    let mut proxy = ProxyProcess::start(&pair, &file);
    assert_ne!(rules(&pair), before);
    proxy.terminate();
    assert_eq!(rules(&pair), before);
}

/// It is the far end's own where nothing is told, or of nobody whose clients have that address.
#[test]
fn nobody_borrows_an_address_of_anothers_clients() {
    need!(Root, Nft, Tproxy);
    for (case, networks, near) in [
        ("hidden", NETWORKS, HIDE),
        ("elsewhere", "[\"10.77.3.0/24\"]", TELL),
    ] {
        let (pair, keys, others) = (Pair::new(), Keys::new(), Keys::new());
        let another = clients(&others.near, NETWORKS);
        let (_, another) = another.split_once(OPEN).unwrap();
        let far = clients(&keys.near, networks) + another;
        let proxy = start(&pair, &keys.proxy(Ip::V4, &keys.near, &far));
        let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &keys.far, near));
        eventually("tunnels", || is_up(&gateway));
        assert_eq!(seen(&pair, Ip::V4).0, Ip::V4.gateway_lan(), "{case}");
        let counters = proxy.status().unwrap().tunnels.counters;
        assert_eq!((counters.from_clients, counters.opened), (0, 1), "{case}");
    }
}

fn rules(pair: &Pair) -> String {
    let shown = pair.far.command("ip").args(["rule", "show"]).output();
    String::from_utf8(shown.unwrap().stdout).unwrap()
}

/// What leads the servers' answers is made again within two seconds where somebody removes it, and what a killed far end has left goes with
/// the next start.
#[test]
fn the_way_back_is_looked_after() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (Pair::new(), Keys::new());
    let file = keys.proxy(Ip::V4, &keys.near, &clients(&keys.near, NETWORKS));
    let before = rules(&pair).lines().count();
    let mut proxy = ProxyProcess::start(&pair, &file);
    let led = rules(&pair).lines().count();
    assert!(led > before, "{led}");
    let near = keys.gateway(Ip::V4, &keys.far, TELL);
    let gateway: Running = split_one(&pair.near, &near);
    eventually("tunnels", || is_up(&gateway));
    let (address, mut standing) = seen(&pair, Ip::V4);
    assert_eq!(address, Ip::V4.client());
    for command in ["rule flush", "rule add lookup main pref 32766"] {
        let done = pair.far.command("ip").args(command.split(' ')).status();
        assert!(done.unwrap().success(), "{command}");
    }
    thread::sleep(Duration::from_secs(2));
    exchange(&mut standing);
    assert_eq!(seen(&pair, Ip::V4).0, Ip::V4.client());
    proxy.kill();
    // The near end knows of it by then, and opens nothing in tunnels of the killed one.
    meets_a_reset("the client", &mut standing.0, Duration::from_secs(5));
    let _next = ProxyProcess::start(&pair, &file);
    // The table for addresses that nobody is looked up in went with the flush.
    assert_eq!(rules(&pair).lines().count(), led - 1, "{}", rules(&pair));
    eventually("tunnels again", || is_up(&gateway));
    assert_eq!(seen(&pair, Ip::V4).0, Ip::V4.client());
}
