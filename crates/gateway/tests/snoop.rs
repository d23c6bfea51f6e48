//! `action = "snoop"`: connections pass end to end, and what their link loses is sent again by the gateway.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::print_stdout,
    reason = "the figures that docs/pep/snoop.md has"
)]

mod support;

use bentpipe_os::netlink::{Veth, VethEnd};
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, nft};
use bentpipe_sockets::tcp;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::{Ip, Stage, child, eventually, exchange, pattern};

/// Every policy of a gateway that snoops all connections.
const SNOOP: &str = "[[policy]]\nname = \"helped\"\naction = \"snoop\"";
/// Bytes that are carried.
const AMOUNT: usize = 4 << 20;
/// One of so many segments of data is lost.
const EVERY: u32 = 50;

/// Segments of data that come in are lost in `netns`, one of [`EVERY`], and counted.
fn lose(netns: &Netns) {
    let table = format!(
        "table inet link {{
           counter lost {{
           }}
           chain input {{
             type filter hook prerouting priority raw; policy accept;
             meta l4proto tcp meta length > 1000 numgen inc mod {EVERY} == 7 counter name lost drop
           }}
         }}"
    );
    netns.run(|| nft::apply(&table).unwrap()).unwrap();
}

/// Stages whose ends send each segment by itself, as it will be lost.
fn stage() -> Stage {
    let stage = Stage::new();
    for netns in [&stage.client, &stage.server] {
        // As much is under way at most that windows with two losses are few: an acknowledgement that ends the repair of the
        // first tells the sender of the second (docs/pep/snoop.md, Limits).
        let room = ("net.ipv4.tcp_rmem", "4096 60000 60000");
        netns.set_sysctl(room.0, room.1).unwrap();
        let mut ip = netns.command("ip");
        let words = "link set dev eth0 gso_max_segs 1".split(' ');
        assert!(ip.args(words).status().unwrap().success());
    }
    stage
}

fn lost(netns: &Netns) -> u64 {
    let read = || {
        let mut tally = nft::Tally::open().unwrap();
        tally.read(nft::TableFamily::Inet, "link").unwrap()
    };
    let counters = netns.run(read).unwrap();
    counters
        .iter()
        .find(|count| count.name == "lost")
        .unwrap()
        .packets
}

/// Carries [`AMOUNT`] bytes from one end to the other, whole; returns what the sender sent again.
fn carry(mut from: TcpStream, mut to: TcpStream) -> u32 {
    let bytes = pattern(AMOUNT);
    let expected = bytes.clone();
    let sender = thread::spawn(move || {
        from.write_all(&bytes).unwrap();
        from.shutdown(Shutdown::Write).unwrap();
        let mut end = Vec::new();
        from.read_to_end(&mut end).unwrap();
        tcp::info(&from).unwrap().total_retrans
    });
    let mut got = Vec::new();
    to.read_to_end(&mut got).unwrap();
    assert!(got == expected, "other bytes");
    drop(to);
    sender.join().unwrap()
}

/// The sender hears nothing of most losses, while without the agent it sends again each that was lost; the connection is the
/// two ends' own all the while.
#[test]
fn what_the_link_loses_is_sent_again_by_the_gateway() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let mut again = Vec::new();
        for action in ["bypass", "snoop"] {
            let stage = stage();
            lose(&stage.client);
            let gateway = stage.split_with(&SNOOP.replace("snoop", action));
            let listener = stage.listen(ip);
            let client = stage.connect(listener.address());
            let server = listener.accept();
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
            let sent_again = u64::from(carry(server, client));
            let lost = lost(&stage.client);
            let counters = gateway.meter.read();
            println!("{ip:?} {action}: lost {lost}, sent again by the sender {sent_again}");
            assert!(lost >= 50, "{lost}");
            assert_eq!(counters.connected, 0);
            match action {
                "bypass" => assert!(sent_again >= lost, "{sent_again} of {lost}"),
                _ => {
                    assert!(counters.snoop_cached as usize >= AMOUNT / 1500);
                    let again = counters.snoop_retransmitted + counters.snoop_timeouts + sent_again;
                    // An agent that took a reordering of its own for loss sent several times as much.
                    assert!((lost..2 * lost).contains(&again), "{again} of {lost}");
                    assert!(counters.snoop_suppressed > 0, "{counters:?}");
                    assert_eq!(counters.snoop_unsent, 0);
                }
            }
            again.push(sent_again);
        }
        assert!(again[1] * 2 < again[0], "{again:?}");
    }
}

/// Data of the other direction, whose link loses nothing, is not cached; `toward` turns that round.
#[test]
fn the_leg_that_loses_packets_is_said() {
    need!(Root, Nft, Tproxy);
    for (toward, cached) in [("sat", false), ("lan", true), ("both", true)] {
        for ip in Ip::BOTH {
            let stage = stage();
            let gateway = stage.split_with(&format!("{SNOOP}\n[snoop]\ntoward = \"{toward}\""));
            let listener = stage.listen(ip);
            let client = stage.connect(listener.address());
            let server = listener.accept();
            carry(client, server);
            // A FIN is cached too.
            let counted = || gateway.meter.read().snoop_cached > 100;
            if cached {
                eventually("what was cached", counted)
            } else {
                assert!(!counted())
            }
        }
    }
}

/// When the gateway goes, connections that it snooped go on; what was on its way through the queue is sent again by the
/// ends.
#[test]
fn snooped_connections_outlive_the_gateway() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let stage = stage();
        lose(&stage.client);
        let gateway = stage.split_with(SNOOP);
        let listener = stage.listen(ip);
        let client = stage.connect(listener.address());
        let server = listener.accept();
        let carrier = thread::spawn(move || carry(server, client));
        eventually("some of it", || gateway.meter.read().snoop_cached > 100);
        drop(gateway);
        carrier.join().unwrap();
    }
}

/// Stopped by SIGSTOP, as it might hang or be frozen, the gateway is left out within a second: what waits in its queue is
/// lost, as on the link, and sent again by the ends. When it goes on, it helps again.
#[test]
fn snooped_connections_pass_a_stopped_gateway() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let stage = stage();
        let gateway = child::start(&stage, SNOOP);
        let listener = stage.listen(ip);
        let pair = || (stage.connect(listener.address()), listener.accept());
        let mut quiet = pair();
        exchange(&mut quiet);
        let (mut client, mut server) = pair();
        let (bytes, received) = (pattern(8 * AMOUNT), AtomicU64::new(0));
        let count = || received.load(Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                for piece in bytes.chunks(1 << 14) {
                    server.write_all(piece).unwrap();
                    // Not so fast that all is over before the gateway stops.
                    thread::sleep(Duration::from_millis(2));
                }
                server.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(|| {
                let mut got = vec![0; bytes.len()];
                for piece in got.chunks_mut(1 << 14) {
                    client.read_exact(piece).unwrap();
                    received.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
                assert!(got == bytes, "other bytes");
            });
            eventually("some of it", || count() > 1 << 20);
            gateway.stop();
            thread::sleep(nft::LIFE + Duration::from_millis(100));
            let begun = Instant::now();
            exchange(&mut quiet);
            let took = begun.elapsed();
            assert!(took < Duration::from_millis(500), "{took:?}");
            let before = count();
            eventually("more of it", || count() > before + (1 << 20));
            assert!(count() < bytes.len() as u64, "there was nothing left");
            gateway.signal("-CONT");
        });
        exchange(&mut quiet);
    }
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// How many connections have passed because as many as may be are remembered.
fn over_the_limit(stage: &Stage) -> u64 {
    let list = || nft::list(&["ruleset"]).unwrap();
    let rules = stage.gateway.run(list).unwrap();
    let (_, counter) = rules.split_once("counter snoop_full").unwrap();
    let (_, count) = counter.split_once("packets ").unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}

/// Beyond the connections that the agent may have, others pass without it.
#[test]
fn beyond_the_limit_connections_pass_unsnooped() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let stage = stage();
        let gateway = stage.split_with(&format!("{SNOOP}\n[limits]\nsnoop_flows = 2"));
        let listener = stage.listen(ip);
        let pairs: Vec<_> = (0..4)
            .map(|_| (stage.connect(listener.address()), listener.accept()))
            .collect();
        for (client, server) in pairs {
            carry(server, client);
        }
        assert_eq!(over_the_limit(&stage), 2);
        // While the agent has no processor, which happens on a busy host, packets of the two pass by it.
        eventually("that packets are cached", || {
            gateway.meter.read().snoop_cached > 0
        });
        let cached = gateway.meter.read().snoop_cached as usize;
        let two = 2 * (AMOUNT / 1448);
        assert!(cached < two + two / 4, "{:?}", gateway.meter.read());
        assert_eq!(gateway.meter.read().connected, 0);
    }
}

/// A segment that is damaged stops at the agent as others of its connection do, and goes on unread; what is encrypted below TCP, in
/// fragments here, is none of its business.
#[test]
fn what_the_agent_cannot_read_passes() {
    need!(Root, Nft, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_with(SNOOP);
    let listener = stage.listen(Ip::V4);
    let mut pair = (stage.connect(listener.address()), listener.accept());
    exchange(&mut pair);
    let (IpAddr::V4(client), IpAddr::V4(server)) = (Ip::V4.client(), Ip::V4.server()) else {
        unreachable!("of IPv4");
    };
    let damaged = || {
        let tcp = bentpipe_wire::Tcp {
            source: pair.1.local_addr().unwrap().port(),
            destination: pair.0.local_addr().unwrap().port(),
            flags: bentpipe_wire::Flags::ACK,
            ..Default::default()
        };
        let packet = bentpipe_wire::Packet {
            ip: bentpipe_wire::Ip::V4(bentpipe_wire::Ipv4::new(server, client)),
            transport: bentpipe_wire::Transport::Tcp(tcp),
            payload: bentpipe_wire::Payload::from(&b"damaged"[..]),
        };
        let mut bytes = packet.to_vec().unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    let raw = |netns: &Netns, protocol: i32| {
        let open = || {
            let protocol = Some(socket2::Protocol::from(protocol));
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, protocol).unwrap()
        };
        netns.run(open).unwrap()
    };
    // 255: with the IP header, 6: TCP, 50: ESP.
    let passes = |sender: i32, receiver: i32, bytes: &[u8]| {
        let receiver = raw(&stage.client, receiver);
        receiver
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let to = SocketAddr::new(Ip::V4.client(), 0);
        raw(&stage.server, sender)
            .send_to(bytes, &to.into())
            .unwrap();
        let mut got = [0; 4_096];
        let content = &bytes[bytes.len().saturating_sub(7)..];
        while let len = (&receiver).read(&mut got).unwrap()
            && !got[..len].ends_with(content)
        {}
    };
    // Where the gateway has had no processor for a while, packets pass without its agent.
    eventually("it is counted", || {
        passes(255, 6, &damaged());
        let until = Instant::now() + Duration::from_millis(500);
        while gateway.meter.read().snoop_unread == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        gateway.meter.read().snoop_unread > 0
    });
    let counted = gateway.meter.read().snoop_unread;
    passes(50, 50, &pattern(3_000));
    thread::sleep(Duration::from_millis(500));
    assert_eq!(gateway.meter.read().snoop_unread, counted);
    // The connection goes on.
    exchange(&mut pair);
}

/// Rules of routing that look at where a packet comes from do not see it for a copy, which is this machine's own.
#[test]
fn copies_leave_as_the_connection_does() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let stage = stage();
        lose(&stage.server);
        let near = VethEnd {
            netns: &stage.gateway,
            name: "other0",
        };
        let far = VethEnd {
            netns: &stage.server,
            name: "other0",
        };
        let other = Veth::create(near, far).unwrap();
        other.set_up().unwrap();
        // The machine's own packets to the server leave by another uplink; what comes from `sat0`, by `lan0`.
        let (family, bits) = match ip {
            Ip::V4 => ("-4", 32),
            Ip::V6 => ("-6", 128),
        };
        let server = ip.server();
        for command in [
            format!("{family} rule add iif sat0 lookup 100"),
            format!("{family} route add {server}/{bits} dev lan0 table 100"),
            format!("{family} route add {server}/{bits} dev other0"),
        ] {
            let words = command.split(' ');
            let ip = stage.gateway.command("ip").args(words).status().unwrap();
            assert!(ip.success(), "{command}");
        }
        let counting = "table inet other { counter left {}\n chain out { type filter hook postrouting priority 300; \
                        oifname \"other0\" meta l4proto tcp counter name left\n}\n}";
        stage.gateway.run(|| nft::apply(counting).unwrap()).unwrap();
        let gateway = stage.split_with(&format!("{SNOOP}\n[snoop]\ntoward = \"lan\""));
        let listener = stage.listen(ip);
        let client = stage.connect(listener.address());
        let server = listener.accept();
        let sent_again = u64::from(carry(client, server));
        let lost = lost(&stage.server);
        assert!(sent_again * 2 < lost, "{sent_again} of {lost}");
        assert!(gateway.meter.read().snoop_retransmitted > 0);
        let left = stage.gateway.run(|| {
            let mut tally = nft::Tally::open().unwrap();
            tally.read(nft::TableFamily::Inet, "other").unwrap()[0].packets
        });
        assert_eq!(left.unwrap(), 0, "{ip:?}");
    }
}

/// Carries bytes both ways, past losses on both legs, with `toward = "both"`; returns what was lost and what the senders sent
/// again, towards the client and towards the server.
fn help_both_ways(stage: &Stage, ip: Ip, server: IpAddr) -> [(u64, u64); 2] {
    lose(&stage.client);
    lose(&stage.server);
    let listener = stage.listen_in(&stage.server, server);
    let pair = || (stage.connect(listener.address()), listener.accept());
    let (client, accepted) = pair();
    let down = u64::from(carry(accepted, client));
    let (client, accepted) = pair();
    let up = u64::from(carry(client, accepted));
    let result = [(lost(&stage.client), down), (lost(&stage.server), up)];
    println!("{ip:?}: lost, sent again by the sender: {result:?}");
    result
}

const BOTH_WAYS: &str = "[snoop]\ntoward = \"both\"";

/// Conntrack translates the source of one direction behind the queue, and of the other nothing. A copy that it met as a packet
/// of this machine would leave from another port, or from the client's own address.
#[test]
fn copies_are_translated_as_the_connection_is() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let stage = stage();
        stage.apply(
            "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept; \
             oifname lan0 masquerade\n} }",
        );
        let private = format!(
            "table inet see {{ counter private {{}}\n chain input {{ type filter hook prerouting priority -400; policy accept; \
             {} saddr {} meta l4proto tcp counter name private\n}}\n}}",
            if ip == Ip::V4 { "ip" } else { "ip6" },
            ip.client()
        );
        stage.server.run(|| nft::apply(&private).unwrap()).unwrap();
        let gateway = stage.split_with(&format!("{SNOOP}\n{BOTH_WAYS}"));
        for (lost, again) in help_both_ways(&stage, ip, ip.server()) {
            assert!(again * 2 < lost, "{again} of {lost}");
        }
        assert_eq!(gateway.meter.read().snoop_given_up, 0);
        let seen = stage.server.run(|| {
            let mut tally = nft::Tally::open().unwrap();
            tally.read(nft::TableFamily::Inet, "see").unwrap()[0].packets
        });
        assert_eq!(seen.unwrap(), 0, "{ip:?}");
    }
}

/// Rules of routing by interface and by mark choose a router that the machine's own packets have no route to.
#[test]
fn copies_go_to_the_router_of_the_connection() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        for rule in ["iif sat0", "fwmark 7"] {
            let stage = stage();
            let (family, bits) = match ip {
                Ip::V4 => ("-4", 32),
                Ip::V6 => ("-6", 128),
            };
            let run = |netns: &Netns, words: String| {
                let mut command = netns.command("ip");
                let done = command.arg(family).args(words.split(' ')).status();
                assert!(done.unwrap().success(), "{words}");
            };
            // It answers no question for the address on the link, as no host beyond a router does.
            run(
                &stage.server,
                format!("addr add {}/{bits} dev lo", ip.beyond()),
            );
            for scope in ["all", "eth0"] {
                let ignore = format!("net.ipv4.conf.{scope}.arp_ignore");
                stage.server.set_sysctl(&ignore, "1").unwrap();
            }
            run(&stage.gateway, format!("rule add {rule} lookup 100"));
            let route = format!("route add default via {} table 100", ip.server());
            run(&stage.gateway, route);
            stage.apply(
                "table inet lead { chain pre { type filter hook prerouting priority mangle; policy accept; \
                 iifname sat0 meta mark set 7\n} }",
            );
            let gateway = stage.split_with(&format!("{SNOOP}\n{BOTH_WAYS}"));
            for (lost, again) in help_both_ways(&stage, ip, ip.beyond()) {
                assert!(again * 2 < lost, "{rule}: {again} of {lost}");
            }
            assert_eq!(gateway.meter.read().snoop_unsent, 0);
        }
    }
}

/// Output chains are for what the gateway itself says.
#[test]
fn copies_go_past_closed_output_chains() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let stage = stage();
        stage.apply(
            "table inet own { chain output { type filter hook output priority filter; policy drop; \
             oifname lo accept\n meta l4proto ipv6-icmp accept\n} }",
        );
        let gateway = stage.split_with(&format!("{SNOOP}\n{BOTH_WAYS}"));
        for (lost, again) in help_both_ways(&stage, ip, ip.server()) {
            assert!(again * 2 < lost, "{again} of {lost}");
        }
        let counters = gateway.meter.read();
        assert_eq!((counters.snoop_unsent, counters.snoop_given_up), (0, 0));
    }
}

/// Where copies cannot leave, the sender hears of losses as without the gateway.
#[test]
fn a_connection_whose_copies_cannot_leave_is_left_to_its_sender() {
    need!(Root, Nft, Tproxy);
    let stage = stage();
    let policy =
        "xfrm policy add dir out src 192.0.2.0/24 dst 198.51.100.0/24 tmpl proto esp mode tunnel";
    let made = stage.gateway.command("ip").args(policy.split(' ')).output();
    if !made.unwrap().status.success() {
        println!("SKIPPED: this kernel has no IPsec");
        return;
    }
    let gateway = stage.split_with(&format!("{SNOOP}\n{BOTH_WAYS}"));
    for (lost, again) in help_both_ways(&stage, Ip::V4, Ip::V4.server()) {
        assert!(again >= lost, "{again} of {lost}");
    }
    let counters = gateway.meter.read();
    assert_eq!((counters.snoop_given_up, counters.snoop_unsent), (2, 2));
    // Of the duplicates of the first loss those before the copy.
    assert!(counters.snoop_suppressed < 10, "{counters:?}");
}

/// Snooped connections that are remembered for minutes.
fn remembered(stage: &Stage) -> usize {
    let rules = stage.gateway.run(|| nft::list(&["ruleset"]).unwrap());
    rules.unwrap().matches(" expires 9m").count()
}

/// Whoever closes first; and a SYN that nobody answers was never one. Those that find no room are counted.
#[test]
fn connections_that_have_ended_are_soon_forgotten() {
    need!(Root, Nft, Tproxy);
    let stage = Stage::new();
    let _gateway = stage.split_with(&format!("{SNOOP}\n[limits]\nsnoop_flows = 4"));
    for ip in Ip::BOTH {
        for client_first in [true, false] {
            let mut pair = stage.pair(ip);
            exchange(&mut pair);
            // On a busy host one may begin while the gateway has not been heard of for too long.
            eventually("one is remembered", || {
                let is_remembered = remembered(&stage) == 1;
                if !is_remembered {
                    pair = stage.pair(ip);
                    exchange(&mut pair);
                }
                is_remembered
            });
            let (first, second) = support::in_order(pair, client_first);
            first.shutdown(Shutdown::Write).unwrap();
            let mut second = second;
            second.read_to_end(&mut Vec::new()).unwrap();
            drop((second, first));
            eventually("it is forgotten", || remembered(&stage) == 0);
        }
    }
    let silent = SocketAddr::new(Ip::V4.nobody(), 80);
    let dial = || TcpStream::connect_timeout(&silent, Duration::from_millis(50)).unwrap_err();
    for _ in 0..4 {
        stage.client.run(dial).unwrap();
    }
    assert_eq!(remembered(&stage), 0);
    assert_ne!(over_the_limit(&stage), 0);
}
