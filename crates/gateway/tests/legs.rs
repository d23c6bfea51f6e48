//! What a policy's leg, and the keys of a leg, do to real connections; and several interfaces of one
//! leg.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::netns::Netns;
use bentpipe_os::{need, nft};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use support::listen::listen_at;
use support::office::Office;
use support::{Ip, PATIENCE, Stage, connect_in, converse, eventually, pattern};

const HANDSHAKES: [&str; 2] = ["end-to-end", "early"];

/// What `ss` tells of the gateway's connections that match.
fn sockets(stage: &Stage, matching: &str) -> String {
    let mut ss = stage.gateway.command("ss");
    let output = ss
        .args(["-timnH", "state", "established", matching])
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// A policy's leg is that of its flows, accepted or dialled, and of no others.
#[test]
fn a_policy_chooses_the_leg_of_its_flows() {
    need!(Root, Tproxy, Program("ss"));
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let gateway = stage.split_with(&format!(
            "handshake = \"{handshake}\"
             [sat]
             congestion_control = \"cubic\"
             [leg.bulk]
             congestion_control = \"bbr\"
             [leg.office]
             like = \"lan\"
             congestion_control = \"cubic\"
             [[policy]]
             port = 7000
             action = \"split\"
             leg = \"bulk\"
             [[policy]]
             port = 7001
             action = \"split\"
             leg = \"office\""
        ));
        // By port the controls of the satellite's and the ground's leg; the kernel's own is reno.
        let expected = [
            (7000, "bbr", "reno"),
            (7001, "cubic", "cubic"),
            (7002, "cubic", "reno"),
        ];
        for ip in Ip::BOTH {
            for (port, sat, lan) in expected {
                for upwards in [true, false] {
                    let (from, to, host) = if upwards {
                        (&stage.client, &stage.server, ip.server())
                    } else {
                        (&stage.server, &stage.client, ip.client())
                    };
                    let listener = listen_at(to, host, port);
                    let mut client = connect_in(from, listener.address()).unwrap();
                    let mut server = listener.accept();
                    converse(&mut client, &mut server);
                    // Ours towards the client has the server's port, the other one is its client.
                    let (near, far) = if upwards { (sat, lan) } else { (lan, sat) };
                    for (side, control) in [("sport", near), ("dport", far)] {
                        let told = sockets(&stage, &format!("{side} = :{port}"));
                        let words: Vec<&str> = told.split_whitespace().collect();
                        assert!(
                            words.contains(&control),
                            "{handshake} {port} {side}: {told}"
                        );
                    }
                    drop((client, server));
                    eventually("its end", || gateway.meter.read().open == 0);
                }
            }
        }
        assert_eq!(gateway.meter.read().connected, 12);
    }
}

/// What rules the sending of many bytes costs a connection nothing that has only few to send.
#[test]
fn a_dialled_socket_gets_its_send_buffer_when_it_sends_on() {
    need!(Root, Tproxy, Program("ss"));
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let _gateway = stage.split_with(&format!(
            "handshake = \"{handshake}\"
             [lan]
             send_buffer = \"512KiB\""
        ));
        let listener = stage.listen(Ip::V4);
        let mut client = stage.connect(listener.address());
        let mut server = listener.accept();
        for booked in [false, true] {
            converse(&mut client, &mut server);
            let far = sockets(&stage, &format!("dport = :{}", listener.address().port()));
            assert_eq!(far.contains(",tb524288,"), booked, "{handshake}: {far}");
        }
    }
}

/// Counters of a namespace's input, by their rules.
fn count(netns: &Netns, rules: &[(&str, &str)]) {
    let counters: String = rules
        .iter()
        .map(|(name, _)| format!("counter {name} {{\n}}\n"))
        .collect();
    let chain: String = rules
        .iter()
        .map(|(name, rule)| format!("{rule} counter name {name}\n"))
        .collect();
    let table = format!(
        "table inet seen
         delete table inet seen
         table inet seen {{
           {counters}
           chain input {{
             type filter hook input priority 0
             {chain}
           }}
         }}"
    );
    netns.run(|| nft::apply(&table).unwrap()).unwrap();
}

fn counted(netns: &Netns, name: &str) -> u64 {
    let read = || {
        let mut tally = nft::Tally::open().unwrap();
        tally.read(nft::TableFamily::Inet, "seen").unwrap()
    };
    let counts = netns.run(read).unwrap();
    counts
        .iter()
        .find(|count| count.name == name)
        .unwrap()
        .packets
}

fn connect_with_mss(stage: &Stage, to: SocketAddr, mss: u32) -> TcpStream {
    let dial = || {
        let domain = socket2::Domain::for_address(to);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
        socket.set_tcp_mss(mss).unwrap();
        socket.connect_timeout(&to.into(), PATIENCE).unwrap();
        TcpStream::from(socket)
    };
    stage.client.run(dial).unwrap()
}

/// The leg's segments are no larger than its `mss`, both ways, whether a connection is split or passes;
/// one that asks for less gets less.
#[test]
fn segments_are_clamped_where_asked() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = stage.split_with(
        "policy = [{ port = 7000, action = 'bypass' }]
         [sat]
         congestion_control = \"cubic\"
         mss = \"1200B\"",
    );
    for ip in Ip::BOTH {
        let usual = if ip == Ip::V4 { 1460 } else { 1440 };
        for (port, wanted, at_server, at_client) in [
            // Split: the ground's leg is as it was.
            (7001, usual, usual, 1200),
            (7000, usual, 1200, 1200),
            (7000, 1000, 1000, 1200),
        ] {
            for netns in [&stage.client, &stage.server] {
                let size = if std::ptr::eq(netns, &stage.client) {
                    at_client
                } else {
                    at_server
                };
                let rule = format!("tcp flags & syn == syn tcp option maxseg size {size}");
                count(
                    netns,
                    &[("right", &rule), ("syns", "tcp flags & syn == syn")],
                );
            }
            let listener = listen_at(&stage.server, ip.server(), port);
            let mut client = connect_with_mss(&stage, listener.address(), wanted);
            let mut server = listener.accept();
            for (netns, who) in [(&stage.client, "client"), (&stage.server, "server")] {
                let (right, syns) = (counted(netns, "right"), counted(netns, "syns"));
                assert!(
                    right > 0 && right == syns,
                    "{ip:?} {port}: {right} of {syns} at the {who}"
                );
            }
            converse(&mut client, &mut server);
        }
    }
}

/// A client that asks for ECN has it on its leg; the far leg asks for it where sockets of the gateway's
/// namespace do and the client did.
#[test]
fn ecn_is_asked_for_where_the_client_asks() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for (gateway_asks, client_asks) in [(true, true), (true, false), (false, true)] {
            let stage = Stage::new();
            for (netns, asks) in [
                (&stage.client, client_asks),
                (&stage.gateway, gateway_asks),
                (&stage.server, false),
            ] {
                let value = if asks { "1" } else { "2" };
                netns.set_sysctl("net.ipv4.tcp_ecn", value).unwrap();
            }
            let _gateway = stage.split_with(&format!(
                "handshake = \"{handshake}\"\n[sat]\ncongestion_control = \"cubic\""
            ));
            let asked = "tcp flags & (syn | ack | ecn | cwr) == (syn | ecn | cwr)";
            let plain = "tcp flags & (syn | ack | ecn | cwr) == syn";
            let capable = "meta l4proto tcp ip ecn != not-ect";
            let capable6 = "meta l4proto tcp ip6 ecn != not-ect";
            for netns in [&stage.client, &stage.server] {
                count(
                    netns,
                    &[
                        ("asked", asked),
                        ("plain", plain),
                        ("capable", capable),
                        ("capable6", capable6),
                    ],
                );
            }
            for ip in Ip::BOTH {
                let (mut client, mut server) = stage.pair(ip);
                converse(&mut client, &mut server);
            }
            let case =
                format!("{handshake}, the gateway: {gateway_asks}, the client: {client_asks}");
            let far = gateway_asks && client_asks;
            for (name, expected) in [
                ("asked", far),
                ("plain", !far),
                ("capable", far),
                ("capable6", far),
            ] {
                let seen = counted(&stage.server, name);
                assert_eq!(seen > 0, expected, "{case}: {seen} {name} at the server");
            }
            for name in ["capable", "capable6"] {
                let seen = counted(&stage.client, name);
                assert_eq!(seen > 0, client_asks, "{case}: {seen} {name} at the client");
            }
        }
    }
}

/// A leg of two interfaces: both are split, also from the ground; a policy on one is for that one.
#[test]
fn a_leg_has_several_interfaces_and_a_policy_picks_one() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let office = Office::open(&stage);
        let gateway = stage.split_with(&format!(
            "handshake = \"{handshake}\"
             policy = [{{ interface = 'sat1', port = 7000, action = 'bypass' }}]
             [lan]
             interface = \"lan0\"
             [sat]
             interface = [\"sat0\", \"sat1\"]
             congestion_control = \"cubic\""
        ));
        for ip in Ip::BOTH {
            let connect = |from: &Netns, to: &Netns, host: IpAddr, port: u16| {
                let before = gateway.meter.read().accepted;
                let listener = listen_at(to, host, port);
                let mut client = connect_in(from, listener.address()).unwrap();
                converse(&mut client, &mut listener.accept());
                gateway.meter.read().accepted - before
            };
            let server = ip.server();
            assert_eq!(
                connect(&office.0, &stage.server, server, 7000),
                0,
                "{handshake} {ip:?}"
            );
            assert_eq!(
                connect(&office.0, &stage.server, server, 7001),
                1,
                "{handshake} {ip:?}"
            );
            assert_eq!(connect(&stage.client, &stage.server, server, 7000), 1);
            assert_eq!(connect(&stage.server, &office.0, Office::host(ip), 7000), 1);
            // What does not cross is left alone.
            assert_eq!(connect(&stage.client, &office.0, Office::host(ip), 7001), 0);
        }
    }
}

/// A policy on a VLAN is for what arrives by that VLAN's interface.
#[test]
fn a_policy_picks_a_vlan() {
    need!(Root, Tproxy, Vlan);
    let stage = Stage::new();
    for (netns, below, address) in [
        (&stage.client, "eth0", "10.77.6.2/24"),
        (&stage.gateway, "sat0", "10.77.6.1/24"),
    ] {
        let name = format!("{below}.20");
        let add = [
            "link", "add", "link", below, "name", &name, "type", "vlan", "id", "20",
        ];
        assert!(netns.command("ip").args(add).status().unwrap().success());
        let netlink = netns.netlink().unwrap();
        netlink
            .add_address(&name, address.parse().unwrap())
            .unwrap();
        netlink.set_up(&name).unwrap();
    }
    let gateway = stage.split_with(
        "policy = [{ vlan = 20, action = 'bypass' }]
         [lan]
         interface = \"lan0\"
         [sat]
         interface = [\"sat0\", \"sat0.20\"]
         congestion_control = \"cubic\"",
    );
    let listener = stage.listen(Ip::V4);
    let vlan: SocketAddr = "10.77.6.2:0".parse().unwrap();
    for (from, split) in [(vlan, 0), (SocketAddr::new(Ip::V4.client(), 0), 1)] {
        let route = ["route", "replace", "10.77.2.0/24", "via"];
        let by = if split == 0 { "10.77.6.1" } else { "10.77.1.1" };
        let mut ip = stage.client.command("ip");
        assert!(ip.args(route).arg(by).status().unwrap().success());
        let before = gateway.meter.read().accepted;
        let mut client = stage.connect_from(from, listener.address());
        converse(&mut client, &mut listener.accept());
        assert_eq!(gateway.meter.read().accepted - before, split);
    }
}

/// A download's acknowledgements take no more of the way back than they may; none that matters waits
/// for another, and no rule outlives the gateway.
#[test]
fn acknowledgements_are_thinned_out() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_with("[sat]\nack_rate = \"64kbit/s\"");
    for ip in Ip::BOTH {
        let (client, server) = stage.pair(ip);
        let sent = &pattern(20_000_000);
        std::thread::scope(|scope| {
            for mut end in [&client, &server] {
                scope.spawn(move || {
                    end.write_all(sent).unwrap();
                    end.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let mut got = Vec::new();
                    end.read_to_end(&mut got).unwrap();
                    assert!(got == *sent, "{ip:?}");
                });
            }
        });
        let mut pair = stage.pair(ip);
        for _ in 0..20 {
            converse(&mut pair.0, &mut pair.1);
        }
    }
    let thinned = gateway.meter.read().acks_thinned;
    assert!(thinned > 20, "{thinned}");
    drop(gateway);
    let mut nft = stage.gateway.command("nft");
    let listed = nft.args(["list", "ruleset"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&listed), "");
}
