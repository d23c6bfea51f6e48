//! `carrier = "quic"`: the satellite leg of split connections by tunnels to a proxy at the far end.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tunnels/certificates.rs"]
mod certificates;
#[path = "tunnels/client_addresses.rs"]
mod client_addresses;
mod support;

use bentpipe_gateway::Ending;
use bentpipe_os::need;
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_sockets::raw_ip::{RawIp, Way};
use bentpipe_sockets::socket;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use support::ends::{AMOUNT, carry_both_ways, meets_a_reset, resets_reach_the_other_end};
use support::pair::{Pair, split_one};
use support::proxy::{self, Keys, OPEN, ProxyProcess, Tunnelled, failures, is_up};
use support::{Ip, child, connect_in, eventually, exchange};

/// Both answers to when a SYN is answered, as a leg has them.
const HANDSHAKES: [&str; 2] = ["handshake = \"early\"\n", "handshake = \"end-to-end\"\n"];

/// With an environment variable of its own, a gateway to be killed.
#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// And a proxy.
#[test]
fn proxy_process() {
    proxy::be_a_proxy();
}

/// A connection that was answered is reset, perhaps before the client has looked.
fn is_reset(client: std::io::Result<TcpStream>) {
    match client {
        Ok(mut client) => meets_a_reset("the client", &mut client, Duration::from_secs(5)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// A port of the server's where nobody listens.
fn closed_port(pair: &Pair, ip: Ip) -> SocketAddr {
    pair.listen(ip).address()
}

/// On a link that loses packets every byte arrives, by either handshake; the server sees the far end's address.
#[test]
fn a_pair_carries_every_byte_both_ways() {
    need!(Root, Nft, Tproxy);
    for (ip, handshake) in Ip::BOTH.into_iter().zip(HANDSHAKES) {
        let on = Tunnelled::new(ip, OPEN, handshake);
        on.pair.lose(50);
        let ends = on.pair.pair(ip);
        assert_eq!(ends.1.peer_addr().unwrap().ip(), ip.gateway_lan());
        carry_both_ways(ends);
        let counters = on.gateway.meter.read();
        assert_eq!(counters.tunnelled, 1, "{ip:?}: {counters:?}");
        // It is counted until it has ended at both sides.
        let ended = || {
            let status = on.gateway.handle.status().unwrap();
            let counters = &status.tunnels.as_ref().unwrap().counters;
            let carried = [counters.bytes_in, counters.bytes_out] == [AMOUNT as u64; 2];
            carried && [counters.opened, counters.ended, counters.reset] == [1, 1, 0]
        };
        eventually("the end of the flow", ended);
        assert_eq!(on.gateway.handle.counters().open, 0);
    }
}

/// A server that speaks first is heard, and a client that closes its half still listens.
#[test]
fn who_speaks_first_and_half_closes_are_as_without() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    let (mut client, mut server) = on.pair.pair(Ip::V4);
    server.write_all(b"220 ready\r\n").unwrap();
    let mut greeting = [0; 11];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
    client.write_all(b"QUIT").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    server.read_to_string(&mut said).unwrap();
    assert_eq!(said, "QUIT");
    server.write_all(b"bye").unwrap();
    drop(server);
    let mut last = String::new();
    client.read_to_string(&mut last).unwrap();
    assert_eq!(last, "bye");
}

#[test]
fn a_reset_of_either_end_reaches_the_other() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    resets_reach_the_other_end(|| on.pair.pair(Ip::V4));
}

/// Flows on tunnels are among the busiest, with what they carried each way.
#[test]
fn the_busiest_flows_are_shown() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    let quiet = on.pair.pair(Ip::V4);
    let (mut client, mut server) = on.pair.pair(Ip::V4);
    client.write_all(&[1; 20_000]).unwrap();
    server.read_exact(&mut [0; 20_000]).unwrap();
    server.write_all(&[2; 300_000]).unwrap();
    client.read_exact(&mut vec![0; 300_000]).unwrap();
    let ends = |client: &TcpStream| (client.local_addr().unwrap(), client.peer_addr().unwrap());
    eventually("both flows, the busy one first", || {
        let status = on.gateway.handle.status().unwrap();
        let [first, second] = &status.busiest[..] else {
            return false;
        };
        let carried = (first.to_sat, first.to_lan) == (20_000, 300_000);
        let busy = (first.lan_host, first.sat_host) == ends(&client);
        let idle = (second.lan_host, second.sat_host) == ends(&quiet.0);
        let least = status.tunnels.as_ref().unwrap().connections[0].min_rtt;
        carried && busy && idle && first.sat.rtt >= least && second.to_lan == 0
    });
}

/// Who is refused hears of it: end to end by the server itself, early by a reset; and so does who has no way.
#[test]
fn a_refused_dial_is_told() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, HANDSHAKES[1]);
    let closed = closed_port(&on.pair, Ip::V4);
    let error = connect_in(&on.pair.client, closed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    eventually("the reason", || {
        failures(&on.gateway, "connection_refused") == 1
    });
    assert_eq!(on.gateway.meter.read().refused, 1);

    let on = Tunnelled::new(Ip::V4, OPEN, HANDSHAKES[0]);
    let closed = closed_port(&on.pair, Ip::V4);
    is_reset(connect_in(&on.pair.client, closed));
    eventually("the reason", || {
        failures(&on.gateway, "connection_refused") == 1
    });
}

/// Without a policy the far end dials nobody on networks that are not public: end to end such connections pass unsplit, early they are
/// reset.
#[test]
fn private_networks_are_closed_without_a_policy() {
    need!(Root, Nft, Tproxy);
    for (handshake, passes) in HANDSHAKES.into_iter().zip([false, true]) {
        let on = Tunnelled::new(Ip::V4, "", handshake);
        let listener = on.pair.listen(Ip::V4);
        let client = connect_in(&on.pair.client, listener.address());
        if passes {
            let client = client.unwrap();
            let server = listener.accept();
            // The client itself has reached it.
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
            exchange(&mut (client, server));
        } else {
            is_reset(client);
        }
        eventually("the reason", || {
            failures(&on.gateway, "destination_ip_prohibited") == 1
        });
    }
}

/// Keys that are not those expected are told at both ends, and connections pass end to end, or are refused where that is wanted.
#[test]
fn wrong_keys_are_told_in_words_and_connections_do_without() {
    need!(Root, Nft, Tproxy);
    for (refuses, when_down) in [(false, ""), (true, "when_down = \"refuse\"\n")] {
        let (pair, keys) = (Pair::new(), Keys::new());
        let others = Keys::new();
        let file = keys.proxy(Ip::V4, &others.near, OPEN);
        let proxy = proxy::start(&pair, &file);
        let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &keys.far, when_down));
        let near_says = || {
            let status = gateway.handle.status().unwrap();
            status.tunnels.as_ref().unwrap().last_loss.clone()
        };
        eventually("words at the near end", || {
            near_says().contains("does not trust this side's key")
        });
        let far_says = proxy.status().unwrap().tunnels.last_loss;
        assert!(
            far_says.contains(&keys.near) && far_says.contains("not trusted"),
            "{far_says}"
        );
        assert!(!is_up(&gateway));
        let listener = pair.listen(Ip::V4);
        let connected = connect_in(&pair.client, listener.address());
        if refuses {
            let error = connected.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        } else {
            exchange(&mut (connected.unwrap(), listener.accept()));
        }
        assert_eq!(gateway.meter.read().tunnel_down, 1);
    }
}

/// A far end that is killed: what it carried is reset within five seconds, new connections pass end to end, and go by tunnels again when
/// it is back.
#[test]
fn a_killed_far_end_is_found_out() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (Pair::new(), Keys::new());
    let file = keys.proxy(Ip::V4, &keys.near, OPEN);
    let mut far = ProxyProcess::start(&pair, &file);
    let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &keys.far, ""));
    eventually("tunnels", || is_up(&gateway));
    let (mut client, mut server) = pair.pair(Ip::V4);
    exchange(&mut (client.try_clone().unwrap(), server.try_clone().unwrap()));
    far.kill();
    meets_a_reset("the server", &mut server, Duration::from_secs(1));
    meets_a_reset("the client", &mut client, Duration::from_secs(5));
    assert!(!is_up(&gateway));
    let listener = pair.listen(Ip::V4);
    let client = pair.connect(listener.address());
    let server = listener.accept();
    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    exchange(&mut (client, server));
    let _far = ProxyProcess::start(&pair, &file);
    eventually("tunnels again", || is_up(&gateway));
    let ends = pair.pair(Ip::V4);
    assert_eq!(ends.1.peer_addr().unwrap().ip(), Ip::V4.gateway_lan());
}

/// The link was out until nothing stood any more, and is back just after a client came: whose SYN was answered, or is held. The same far end
/// takes its first flight, and one that has started anew has it after the handshake.
fn after_an_outage(handshake: &str, restarts: bool) {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (Pair::new(), Keys::new());
    let file = keys.proxy(Ip::V4, &keys.near, OPEN);
    let mut far = ProxyProcess::start(&pair, &file);
    let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &keys.far, handshake));
    eventually("tunnels", || is_up(&gateway));
    carry_both_ways(pair.pair(Ip::V4));
    pair.set_link(false);
    let begun = Instant::now();
    while is_up(&gateway) {
        assert!(begun.elapsed() < Duration::from_secs(50));
        thread::sleep(Duration::from_millis(50));
    }
    if restarts {
        far.kill();
        far = ProxyProcess::start(&pair, &file);
    }
    let listener = pair.listen(Ip::V4);
    let client = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            pair.set_link(true);
        });
        pair.connect(listener.address())
    });
    let server = listener.accept();
    assert_eq!(server.peer_addr().unwrap().ip(), Ip::V4.gateway_lan());
    carry_both_ways((client, server));
    let status = gateway.handle.status().unwrap();
    assert_eq!(status.tunnels.as_ref().unwrap().counters.early, 1);
    drop(far);
}

#[test]
#[ignore = "long: an outage of half a minute; `cargo test -p bentpipe-gateway --test tunnels -- --ignored`"]
fn after_an_outage_a_client_goes_in_the_first_flight() {
    after_an_outage(HANDSHAKES[0], false);
}

#[test]
#[ignore = "long: an outage of half a minute; `cargo test -p bentpipe-gateway --test tunnels -- --ignored`"]
fn a_held_syn_goes_in_the_first_flight() {
    after_an_outage(HANDSHAKES[1], false);
}

#[test]
#[ignore = "long: an outage of half a minute; `cargo test -p bentpipe-gateway --test tunnels -- --ignored`"]
fn a_far_end_that_has_started_anew_is_told_again() {
    after_an_outage(HANDSHAKES[0], true);
}

/// ICMP that says that nobody listens at the far end, while somebody does: tunnels are opened all the same.
#[test]
fn icmp_that_is_not_true_closes_no_tunnels() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    let local_port = || {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/udp").unwrap();
        let mut words = sockets.split_whitespace();
        // Those of the gateway's other sockets are on loopback.
        let port = words.find_map(|word| {
            let port = word.strip_prefix("00000000:")?;
            (port.len() == 4 && port != "0000").then_some(port)
        });
        u16::from_str_radix(port.unwrap(), 16).unwrap()
    };
    let port = on.pair.near.run(local_port).unwrap();
    let (near, far) = (Ipv4Addr::new(10, 77, 5, 1), Ipv4Addr::new(10, 77, 5, 2));
    let mut icmp = vec![3, 3, 0, 0, 0, 0, 0, 0];
    icmp.extend([0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    icmp.extend([near.octets(), far.octets()].concat());
    icmp.extend([port, 4433, 8, 0].map(u16::to_be_bytes).concat());
    let sum = bentpipe_wire::checksum::checksum(&icmp).to_be_bytes();
    icmp[2..4].copy_from_slice(&sum);
    let mut packet = vec![0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0];
    packet.extend([far.octets(), near.octets()].concat());
    packet.extend(icmp);
    let raw = on.pair.far.run(|| RawIp::open().unwrap()).unwrap();
    let way = Way {
        interface: 0,
        router: None,
        mark: 0,
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        raw.send(&packet, &way).unwrap();
        assert!(on.is_up(), "after {:?}", begun.elapsed());
        thread::sleep(Duration::from_millis(100));
    }
    carry_both_ways(on.pair.pair(Ip::V4));
}

/// A near end that is killed: its client is reset at once, and the server within five seconds.
#[test]
fn a_killed_near_end_is_found_out() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (Pair::new(), Keys::new());
    let file = keys.proxy(Ip::V4, &keys.near, OPEN);
    let _proxy = proxy::start(&pair, &file);
    let mut near = proxy::gateway_process(&pair, &keys.gateway(Ip::V4, &keys.far, ""));
    // Until the tunnels stand connections pass end to end.
    let (mut client, mut server) = loop {
        let ends = pair.pair(Ip::V4);
        if ends.1.peer_addr().unwrap().ip() == Ip::V4.gateway_lan() {
            break ends;
        }
        thread::sleep(Duration::from_millis(20));
    };
    exchange(&mut (client.try_clone().unwrap(), server.try_clone().unwrap()));
    near.kill();
    meets_a_reset("the client", &mut client, Duration::from_secs(1));
    meets_a_reset("the server", &mut server, Duration::from_secs(5));
}

/// A client that does not read holds its own window and nobody else's.
#[test]
fn a_slow_reader_holds_only_itself() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    let (slow, server) = on.pair.pair(Ip::V4);
    let flood = thread::spawn(move || {
        let mut server = server;
        server.write_all(&vec![7; 64 << 20])
    });
    thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        carry_both_ways(on.pair.pair(Ip::V4));
    }
    assert!(!flood.is_finished());
    drop(slow);
    assert!(flood.join().unwrap().is_err(), "the rest of it was reset");
}

/// A client that dials those who do not answer fills no far end with dials: nobody is reset who was answered early.
#[test]
fn who_dials_silent_hosts_has_nobody_reset() {
    need!(Root, Nft, Tproxy);
    let silent = "[[policy]]\nto = [\"10.77.2.2\", \"10.77.9.9\"]\naction = \"allow\"\n";
    let on = Tunnelled::new(Ip::V4, silent, HANDSHAKES[0]);
    let beyond = Prefix::new(Ip::V4.beyond(), 32).unwrap();
    let route = Route::via(beyond, Ip::V4.server());
    on.pair.far.netlink().unwrap().add_route(&route).unwrap();
    let dial = |port: u16| {
        let to = SocketAddr::new(Ip::V4.beyond(), port);
        let socket = socket::stream(to).unwrap();
        socket::connect(&socket, to).unwrap();
        // That one client does not ask faster than it is answered early.
        thread::sleep(Duration::from_millis(5));
        socket
    };
    let dials = || (1000..1400).map(dial).collect::<Vec<_>>();
    let silent = on.pair.client.run(dials).unwrap();
    for _ in 0..5 {
        exchange(&mut on.pair.pair(Ip::V4));
    }
    let status = on.gateway.handle.status().unwrap();
    let failed = &status.tunnels.as_ref().unwrap().counters.failures;
    assert_eq!(failed.values().sum::<u64>(), 0, "{failed:?}");
    drop(silent);
}

/// What the far end has for its own stays closed, though a rule opens its network: an address that it gets after the start, and one
/// by a route.
#[test]
fn addresses_that_come_later_are_the_far_ends_own() {
    need!(Root, Nft, Tproxy);
    let open = "[[policy]]\nto = [\"10.77.2.0/24\", \"10.77.9.0/24\"]\naction = \"allow\"\n";
    let on = Tunnelled::new(Ip::V4, open, HANDSHAKES[0]);
    exchange(&mut on.pair.pair(Ip::V4));
    let netlink = on.pair.far.netlink().unwrap();
    let later = Prefix::new(Ip::V4.nobody(), 24).unwrap();
    netlink.add_address("lan0", later).unwrap();
    let mut ip = on.pair.far.command("ip");
    let routed = ip.args(["route", "add", "local", "10.77.9.0/24", "dev", "lo"]);
    assert!(routed.status().unwrap().success());
    for own in [Ip::V4.nobody(), Ip::V4.beyond()] {
        let listener = on.pair.far.run(|| TcpListener::bind((own, 0)).unwrap());
        let address = listener.as_ref().unwrap().local_addr().unwrap();
        is_reset(connect_in(&on.pair.client, address));
    }
    exchange(&mut on.pair.pair(Ip::V4));
}

/// A gateway that drains waits for what tunnels carry.
#[test]
fn a_gateway_drains_its_tunnels() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    let mut ends = on.pair.pair(Ip::V4);
    exchange(&mut ends);
    on.gateway.shutdown.request();
    thread::sleep(Duration::from_millis(300));
    exchange(&mut ends);
    carry_both_ways(ends);
    let Tunnelled { gateway, .. } = on;
    assert_eq!(gateway.join(), Ending::Drained);
}

/// A far end that drains takes no more tunnels, and ends with the last of them.
#[test]
fn a_proxy_drains() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, OPEN, "");
    let mut ends = on.pair.pair(Ip::V4);
    exchange(&mut ends);
    let shutdown = bentpipe_gateway::Shutdown::new().unwrap();
    shutdown.request();
    let Tunnelled {
        pair,
        proxy,
        gateway,
        keys: _keys,
    } = on;
    let ended = thread::spawn(move || proxy.run_until(&shutdown).unwrap());
    eventually("new connections that do without", || !is_up(&gateway));
    let listener = pair.listen(Ip::V4);
    let client = pair.connect(listener.address());
    let server = listener.accept();
    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    exchange(&mut ends);
    carry_both_ways(ends);
    assert_eq!(ended.join().unwrap(), bentpipe_proxy::Ending::Drained);
}
