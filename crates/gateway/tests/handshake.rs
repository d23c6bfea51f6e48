//! When a client's SYN is answered: the far side first, unless it is to be early.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Handshake;
use bentpipe_os::neighbour::Neighbours;
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_os::netns::Netns;
use bentpipe_os::nft::{HoldTable, Holding, Hook, TableFamily};
use bentpipe_os::{need, nft};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use bentpipe_sockets::tcp;
use socket2::SockRef;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use support::{
    HANDSHAKES, Ip, Stage, child, converse, descriptors_of, eventually, flood, splitting,
};

/// Rules of the namespace's own firewall, in its input chain.
fn firewall(netns: &Netns, rule: &str) {
    let table = format!(
        "table inet firewall
         delete table inet firewall
         table inet firewall {{
           counter seen {{ }}
           chain input {{
             type filter hook input priority 0
             {rule}
           }}
         }}"
    );
    netns.run(|| nft::apply(&table).unwrap()).unwrap();
}

/// Whether the counter of [`firewall`] has seen nothing.
fn has_seen_nothing(netns: &Netns) -> bool {
    let list = || nft::list(&["counters"]).unwrap();
    netns.run(list).unwrap().contains("packets 0 bytes 0")
}

const SYN: &str = "tcp flags & (syn | ack) == syn";
const SYN_ACK: &str = "tcp flags & (syn | ack) == (syn | ack)";

#[test]
fn a_refused_destination_is_refused() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let closed = stage.listen(ip).address();
        let start = Instant::now();
        let error = stage.try_connect(closed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(start.elapsed() < Duration::from_secs(2));
    }
    let counters = gateway.meter.read();
    assert_eq!(
        (counters.refused, counters.accepted, counters.open),
        (2, 0, 0)
    );
}

/// A client that knows several addresses goes on to the next at once.
#[test]
fn a_client_with_two_addresses_goes_to_the_second() {
    need!(Root, Tproxy, Program("curl"));
    let (stage, _gateway) = splitting();
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        let port = listener.address().port();
        // Nobody listens there.
        let first = stage.server_has_another_address(ip);
        let bracket = |ip: std::net::IpAddr| match ip {
            std::net::IpAddr::V4(ip) => ip.to_string(),
            std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let both = format!(
            "two.test:{port}:{},{}",
            bracket(first),
            bracket(ip.server())
        );
        let start = Instant::now();
        let mut curl = stage.client.command("curl");
        let url = format!("http://two.test:{port}/");
        curl.args([
            "-sS",
            "--noproxy",
            "*",
            "--http0.9",
            "--resolve",
            &both,
            &url,
        ]);
        let mut curl = curl.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut server = listener.accept();
        // Closed with a request unread, it would be reset.
        assert!(server.read(&mut [0; 4096]).unwrap() > 0);
        server.write_all(b"the second\n").unwrap();
        drop(server);
        let mut said = String::new();
        curl.stdout
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let status = curl.wait().unwrap();
        assert_eq!(said, "the second\n", "{status}");
        // To silence it would be a minute.
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

/// The network's own ICMP error reaches the client.
#[test]
fn an_unreachable_destination_is_told_by_the_network() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let beyond = ip.beyond();
        let there = Route::via(Prefix::host(beyond), ip.server());
        stage.gateway.netlink().unwrap().add_route(&there).unwrap();
        stage.server_refuses_to_route(ip);
        let start = Instant::now();
        let error = stage.try_connect(SocketAddr::new(beyond, 80)).unwrap_err();
        // As the kernel translates "host unreachable" of ICMP and "no route" of ICMPv6.
        let expected = match ip {
            Ip::V4 => ErrorKind::HostUnreachable,
            Ip::V6 => ErrorKind::NetworkUnreachable,
        };
        assert_eq!(error.kind(), expected, "{error}");
        // To silence it would be a minute.
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    let counters = gateway.meter.read();
    assert_eq!((counters.unreachable, counters.accepted), (2, 0));
}

/// A neighbour that does not answer: the client is told as without us, when the kernel has asked for the
/// neighbour in vain, and not a second time (3 s each).
#[test]
fn a_silent_neighbour_is_unreachable() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    std::thread::scope(|scope| {
        for ip in Ip::BOTH {
            let stage = &stage;
            scope.spawn(move || {
                let start = Instant::now();
                let error = stage
                    .try_connect(SocketAddr::new(ip.nobody(), 80))
                    .unwrap_err();
                assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{ip:?}: {error}");
                let took = start.elapsed();
                assert!(took < Duration::from_millis(5_500), "{ip:?}: {took:?}");
            });
        }
    });
    assert!(gateway.meter.read().unreachable >= 2);
}

/// A router that does not answer, and another behind another interface with the same address as theirs, which does not answer
/// either, are no business of connections that go by a router that does.
#[test]
fn a_dead_router_is_told_to_its_own_connections_only() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for handshake in HANDSHAKES {
            scope.spawn(move || expect_a_dead_router_told_to_its_own(handshake));
        }
    });
}

fn expect_a_dead_router_told_to_its_own(handshake: Handshake) {
    let stage = Stage::new();
    for ip in Ip::BOTH {
        let family = if ip == Ip::V4 { "-4" } else { "-6" };
        let run = |netns: &Netns, words: String| {
            let mut command = netns.command("ip");
            let done = command.arg(family).args(words.split(' ')).status();
            assert!(done.unwrap().success(), "{words}");
        };
        let [beyond, client, server] = [ip.beyond(), ip.client(), ip.server()];
        let bits = if ip == Ip::V4 { 32 } else { 128 };
        run(&stage.server, format!("addr add {beyond}/{bits} dev lo"));
        run(&stage.gateway, format!("rule add from {client} lookup 100"));
        run(
            &stage.gateway,
            format!("route add {beyond} via {server} table 100"),
        );
        // Two that do not answer: of what has another source, and one with the same address elsewhere.
        run(
            &stage.gateway,
            format!("route add {beyond} via {}", ip.nobody()),
        );
        run(&stage.gateway, "rule add fwmark 7 lookup 101".to_owned());
        run(
            &stage.gateway,
            format!("route add {server} dev sat0 table 101"),
        );
    }
    let gateway = stage.split_after(handshake);
    firewall(&stage.server, &format!("{SYN} drop"));
    std::thread::scope(|scope| {
        let connections = Ip::BOTH.map(|ip| {
            let listener = stage.listen_in(&stage.server, ip.beyond());
            let (stage, to) = (&stage, listener.address());
            (listener, scope.spawn(move || stage.connect(to)))
        });
        eventually("two dials", || gateway.meter.read().open == 2);
        let mut neighbours = stage.gateway.run(|| Neighbours::watch().unwrap()).unwrap();
        let others = Ip::BOTH.map(|ip| {
            let send = || {
                let socket = UdpSocket::bind((ip.any(), 0)).unwrap();
                SockRef::from(&socket).set_mark(7).unwrap();
                socket.send_to(b"anybody?", (ip.server(), 9)).unwrap();
            };
            stage.gateway.run(send).unwrap();
            let (stage, nobody) = (&stage, SocketAddr::new(ip.nobody(), 80));
            let refused = |mut client: TcpStream| client.read(&mut [0]).map(drop);
            scope.spawn(move || stage.try_connect(nobody).and_then(refused))
        });
        let mut failed = 0;
        eventually("four dead neighbours", || {
            failed += neighbours.failed().unwrap().len();
            failed >= 4 && others.iter().all(ScopedJoinHandle::is_finished)
        });
        assert!(
            others
                .into_iter()
                .all(|other| other.join().unwrap().is_err())
        );
        firewall(&stage.server, "accept");
        for (listener, client) in connections {
            let mut client = client.join().unwrap();
            converse(&mut client, &mut listener.accept());
        }
    });
}

/// An operator who empties the neighbour table while servers are waited for: the kernel names each neighbour as failed, though
/// it was not asked, and without us nobody hears of that.
#[test]
fn neighbours_that_an_operator_forgets_are_not_silent() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for handshake in HANDSHAKES {
            scope.spawn(move || expect_forgotten_neighbours_untold(handshake));
        }
    });
}

fn expect_forgotten_neighbours_untold(handshake: Handshake) {
    let stage = Stage::new();
    let gateway = stage.split_after(handshake);
    let servers = Ip::BOTH.map(|ip| stage.listen(ip));
    for server in &servers {
        converse(&mut stage.connect(server.address()), &mut server.accept());
    }
    eventually("no flow", || gateway.meter.read().open == 0);
    firewall(&stage.server, &format!("{SYN} drop"));
    std::thread::scope(|scope| {
        let clients = servers.each_ref().map(|server| {
            let (stage, to) = (&stage, server.address());
            scope.spawn(move || stage.connect(to))
        });
        eventually("two dials", || gateway.meter.read().open == 2);
        for family in ["-4", "-6"] {
            let mut flush = stage.gateway.command("ip");
            flush.args([family, "neigh", "flush", "dev", "lan0"]);
            assert!(flush.status().unwrap().success());
        }
        // Both dials are repeated after a second.
        std::thread::sleep(Duration::from_millis(300));
        firewall(&stage.server, "accept");
        for (server, client) in servers.iter().zip(clients) {
            converse(&mut client.join().unwrap(), &mut server.accept());
        }
    });
    assert_eq!(gateway.meter.read().unreachable, 0, "{handshake:?}");
}

#[test]
fn silence_is_met_with_silence() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    firewall(&stage.server, &format!("{SYN} drop"));
    firewall(&stage.client, &format!("{SYN_ACK} counter name seen"));
    for ip in Ip::BOTH {
        let silent = stage.listen(ip).address();
        let dial = || TcpStream::connect_timeout(&silent, Duration::from_millis(2500));
        let error = stage.client.run(dial).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    assert!(has_seen_nothing(&stage.client), "a SYN was answered");
    let counters = gateway.meter.read();
    assert_eq!((counters.held, counters.accepted), (2, 0));
    assert!(counters.repeated >= 2, "{counters:?}");
}

/// The server hears only the second SYN that is sent to it: until then the client's is not answered,
/// unless that is to be early.
#[test]
fn the_far_side_answers_first() {
    need!(Root, Tproxy);
    for (handshake, patient) in [(Handshake::EndToEnd, true), (Handshake::Early, false)] {
        let stage = Stage::new();
        let gateway = stage.split_after(handshake);
        for ip in Ip::BOTH {
            firewall(&stage.server, &format!("{SYN} quota until 100 bytes drop"));
            let listener = stage.listen(ip);
            let start = Instant::now();
            let mut client = stage.connect(listener.address());
            let waited = start.elapsed() >= Duration::from_millis(900);
            assert_eq!(waited, patient, "{handshake:?} after {:?}", start.elapsed());
            let mut server = listener.accept();
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
            converse(&mut client, &mut server);
        }
        assert_eq!(gateway.meter.read().connected, 2);
    }
}

/// The gateway's answer to the client is lost: the client's next SYN gets it again, and the server
/// is not dialled twice.
#[test]
fn a_lost_answer_is_given_again() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        firewall(
            &stage.client,
            &format!("{SYN_ACK} quota until 100 bytes drop"),
        );
        let (mut client, mut server) = stage.pair(ip);
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        converse(&mut client, &mut server);
    }
    let counters = gateway.meter.read();
    assert_eq!((counters.held, counters.connected), (2, 2), "{counters:?}");
}

/// A hundred connections of a host that is new begin at one moment: those for which there is no room yet wait until the first are
/// confirmed, and all are split. The server's answers take a while, so that none is confirmed before the last has begun.
#[test]
fn a_hundred_connections_of_a_new_host_are_split() {
    need!(Root, Tproxy);
    const CROWD: u64 = 100;
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let gateway = stage.split_after(handshake);
        let listener = stage.listen(Ip::V4);
        firewall(&stage.server, &format!("{SYN} meta priority set 4711"));
        let hold = || {
            let queue = Queues::open(1, 256).unwrap();
            let holding = Holding {
                hook: Hook::Input,
                place: 10,
                queues: &[(4711, queue.first())],
                marked: None,
                looped: None,
            };
            (
                HoldTable::load(&[TableFamily::Ip], &holding).unwrap(),
                queue,
            )
        };
        let (_hold, mut queue) = stage.server.run(hold).unwrap();
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (stage, to) = (&stage, listener.address());
            let clients: Vec<_> = (0..CROWD)
                .map(|_| scope.spawn(move || stage.connect(to)))
                .collect();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(300));
                while !over.load(Ordering::Relaxed) {
                    queue.receive().unwrap();
                    while let Some(packet) = queue.next_packet() {
                        let (number, id) = (packet.queue, packet.id);
                        queue.give(number, id, Verdict::Pass).unwrap();
                    }
                    queue.tell().unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let clients: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            let all = std::panic::catch_unwind(|| {
                eventually("all are split", || gateway.meter.read().connected == CROWD);
            });
            over.store(true, Ordering::Relaxed);
            all.unwrap();
            assert!(clients.iter().all(Result::is_ok));
        });
        let counters = gateway.meter.read();
        assert_eq!(counters.over_half_open, 0, "{handshake:?}: {counters:?}");
    }
}

/// Fifty thousand SYNs of clients that are not there, to a server that is silent: no more than the share
/// of one prefix is held, the others pass, most without a look at them, and a client that is there, of the same prefix,
/// is served.
#[test]
fn a_flood_of_syns_costs_bounded_state() {
    need!(Root, Tproxy);
    const BOUND: u64 = 256;
    const SHARE: u64 = BOUND / 4;
    const FLOOD: u32 = 50_000;
    let stage = Stage::new();
    let gateway = stage.split_by({
        let mut config = Stage::config();
        config.limits.half_open = BOUND as usize;
        config
    });
    let listener = stage.listen(Ip::V4);
    let silent = SocketAddr::new(Ip::V4.server(), 9);
    firewall(&stage.server, "tcp dport 9 drop");
    let before = descriptors_of(std::process::id());
    flood::send_each(&stage, 0..FLOOD, silent, |sent| {
        sent.unwrap();
        let open = gateway.meter.read().open;
        assert!(open <= BOUND, "{open} flows");
    });
    let counters = gateway.meter.read();
    assert_eq!(counters.held, SHARE, "{counters:?}");
    // Most are not even looked at.
    let passed = gateway.meter.passed().unwrap();
    let crowded = passed.iter().find(|count| count.name == "crowded");
    let crowded = crowded.map_or(0, |count| count.packets);
    assert!(
        counters.over_half_open > SHARE && crowded > u64::from(FLOOD) / 10,
        "{counters:?}"
    );
    let after = descriptors_of(std::process::id());
    // Other tests of this process have theirs, some a hundred connections.
    assert!(after < before + FLOOD as usize / 20, "{before}, {after}");
    // In the thick of it, unsplit.
    let mut client = stage.connect(listener.address());
    converse(&mut client, &mut listener.accept());
    assert_eq!(gateway.meter.read().connected, 0);
    eventually("the end of patience", || gateway.meter.read().open == 0);
    assert_eq!(gateway.meter.read().abandoned, SHARE);
    let mut client = stage.connect(listener.address());
    converse(&mut client, &mut listener.accept());
    assert_eq!(gateway.meter.read().connected, 1);
}

/// `kill -9` while a SYN is held: the client's next one gets through.
#[test]
fn a_syn_that_is_held_at_a_kill_comes_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    for ip in Ip::BOTH {
        let mut gateway = child::start(&stage, "");
        firewall(&stage.server, &format!("{SYN} drop"));
        let listener = stage.listen(ip);
        let to = listener.address();
        std::thread::scope(|scope| {
            let stage = &stage;
            let dial = scope.spawn(move || {
                let start = Instant::now();
                (stage.connect(to), start.elapsed())
            });
            eventually("a held SYN", || queued(&stage.gateway) == 1);
            gateway.kill();
            firewall(&stage.server, "accept");
            let mut server = listener.accept();
            let (mut client, took) = dial.join().unwrap();
            assert!(took < Duration::from_secs(4), "{took:?}");
            converse(&mut client, &mut server);
        });
    }
}

/// Packets that wait in the namespace's queues.
fn queued(netns: &Netns) -> u32 {
    let read =
        || std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue").unwrap();
    let table = netns.run(read).unwrap();
    let waiting = |line: &str| -> u32 { line.split_whitespace().nth(2).unwrap().parse().unwrap() };
    table.lines().map(waiting).sum()
}

/// Where SYNs cannot be held, here because all queues are taken, they are answered early.
#[test]
fn where_syns_cannot_be_held_they_are_answered_early() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _taken = stage
        .gateway
        .run(|| Queues::open(1024, 1).unwrap())
        .unwrap();
    let gateway = stage.split();
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        converse(&mut client, &mut server);
    }
    let counters = gateway.meter.read();
    assert_eq!((counters.held, counters.connected), (0, 2));
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// What ends the handshake with a server goes with the first bytes of a client that was answered early, and neither waits for them for long nor
/// keeps back what acknowledges the server's own.
#[test]
fn the_first_bytes_acknowledge_the_servers_answer() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for ip in Ip::BOTH {
            let stage = Stage::new();
            let _gateway = stage.split_after(handshake);
            let listener = stage.listen(ip);
            // What has come before the server has read a byte: a SYN, and one more, or two.
            let segments = |mut client: TcpStream| {
                client.write_all(b"x").unwrap();
                let mut server = listener.accept();
                server.read_exact(&mut [0]).unwrap();
                tcp::info(&server).unwrap().segs_in
            };
            let through_us = (0..20).map(|_| segments(stage.connect(listener.address())));
            let with_bytes = match handshake {
                Handshake::Early => 2,
                Handshake::EndToEnd => 3,
            };
            assert_eq!(through_us.min(), Some(with_bytes), "{handshake:?}");
            // The kernel would wait for 200 ms.
            let soonest = (0..5).map(|_| {
                let _client = stage.connect(listener.address());
                let connected = Instant::now();
                listener.accept();
                connected.elapsed()
            });
            assert!(soonest.min() < Some(Duration::from_millis(100)));
            // And for 40 ms here, until which the second byte waits for what acknowledges the first.
            let soonest = (0..5).map(|_| {
                let mut client = stage.connect(listener.address());
                client.write_all(b"x").unwrap();
                let mut server = listener.accept();
                server.read_exact(&mut [0]).unwrap();
                let asked = Instant::now();
                server.write_all(b"a").unwrap();
                server.write_all(b"b").unwrap();
                client.read_exact(&mut [0; 2]).unwrap();
                asked.elapsed()
            });
            assert!(soonest.min() < Some(Duration::from_millis(30)));
        }
    }
}
