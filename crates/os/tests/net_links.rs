//! Interfaces, addresses, routes, rules and TUN on the real kernel.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

mod net_support;

use bentpipe_base::Bytes;
use bentpipe_os::need;
use bentpipe_os::neighbour::{Neighbour, Neighbours, Routes, Sent};
use bentpipe_os::netlink::{
    Family, Mark, Netlink, NetlinkError, Prefix, Route, Rule, RuleAction, Table, Veth, VethEnd,
};
use bentpipe_os::netns::Netns;
use bentpipe_os::owner::Owner;
use bentpipe_os::tun::{Tun, TunConfig, TunError};
use net_support::within;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn out(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// client - router - server; the far ends know one another by way of the router only.
struct Chain {
    client: Netns,
    router: Netns,
    server: Netns,
    _wires: [Veth; 2],
}

fn wire(a: &Netns, a_name: &str, b: &Netns, b_name: &str) -> Veth {
    let ends = (
        VethEnd {
            netns: a,
            name: a_name,
        },
        VethEnd {
            netns: b,
            name: b_name,
        },
    );
    let veth = Veth::create(ends.0, ends.1).unwrap();
    veth.disable_offloads().unwrap();
    veth.set_mtu(Bytes(1400)).unwrap();
    veth.set_up().unwrap();
    veth
}

fn chain() -> Chain {
    let [client, router, server] =
        ["client", "router", "server"].map(|l| Netns::create(l).unwrap());
    let wires = [
        wire(&client, "up", &router, "lan"),
        wire(&router, "sat", &server, "up"),
    ];
    let give = |netns: &Netns, device: &str, v4: &str, v6: &str| {
        let netlink = netns.netlink().unwrap();
        netlink.add_address(device, prefix(v4)).unwrap();
        netlink.add_address(device, prefix(v6)).unwrap();
    };
    give(&client, "up", "10.1.0.2/24", "fd00:1::2/64");
    give(&router, "lan", "10.1.0.1/24", "fd00:1::1/64");
    give(&router, "sat", "10.2.0.1/24", "fd00:2::1/64");
    give(&server, "up", "10.2.0.2/24", "fd00:2::2/64");
    for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
        router.set_sysctl(key, "1").unwrap();
    }
    for (netns, v4, v6) in [
        (&client, "10.1.0.1", "fd00:1::1"),
        (&server, "10.2.0.1", "fd00:2::1"),
    ] {
        let netlink = netns.netlink().unwrap();
        netlink
            .add_route(&Route::via(Prefix::ALL_V4, ip(v4)))
            .unwrap();
        netlink
            .add_route(&Route::via(Prefix::ALL_V6, ip(v6)))
            .unwrap();
    }
    Chain {
        client,
        router,
        server,
        _wires: wires,
    }
}

#[test]
fn tcp_and_udp_pass_a_routed_chain_at_once_in_both_families() {
    need!(Root);
    let chain = chain();
    // Nobody waits for duplicate address detection: the fifth column is of flags, and 0x40 is IFA_F_TENTATIVE.
    for netns in [&chain.client, &chain.router, &chain.server] {
        let addresses = || std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        let addresses = netns.run(addresses).unwrap();
        let mut flags = addresses
            .lines()
            .filter(|line| line.starts_with("fd00"))
            .map(|line| line.split_whitespace().nth(4).unwrap());
        assert!(
            flags.all(|flags| u8::from_str_radix(flags, 16).unwrap() & 0x40 == 0),
            "{addresses}"
        );
    }
    for server in ["10.2.0.2", "fd00:2::2"] {
        let address = SocketAddr::new(ip(server), 0);
        let listener = chain
            .server
            .run(|| TcpListener::bind(address).unwrap())
            .unwrap();
        let to = listener.local_addr().unwrap();
        let mut near = chain
            .client
            .run(|| TcpStream::connect_timeout(&to, 20 * SECOND).unwrap())
            .unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"over tcp").unwrap();
        let mut got = [0; 8];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"over tcp", "{server}");

        let far = chain
            .server
            .run(|| UdpSocket::bind(address).unwrap())
            .unwrap();
        far.set_read_timeout(Some(5 * SECOND)).unwrap();
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let near = chain.client.run(|| UdpSocket::bind(any).unwrap()).unwrap();
        near.send_to(b"over udp", far.local_addr().unwrap())
            .unwrap();
        let (length, from) = far.recv_from(&mut got).unwrap();
        assert_eq!(&got[..length], b"over udp", "{server}");
        assert!(
            matches!(from.ip().to_string().as_str(), "10.1.0.2" | "fd00:1::2"),
            "{from}"
        );
    }
}

#[test]
fn a_wire_has_its_mtu_no_offloads_and_our_alias() {
    need!(Root, Program("ip"), Program("ethtool"));
    let [near, far] = ["near", "far"].map(|l| Netns::create(l).unwrap());
    let veth = wire(&near, "a", &far, "b");
    let me = Owner::current().unwrap().to_string();
    for (netns, name) in [(&near, "a"), (&far, "b")] {
        let shown = out(netns.command("ip").args(["link", "show", name]));
        assert!(
            shown.contains("mtu 1400") && shown.contains("state UP"),
            "{shown}"
        );
        assert!(shown.contains(&format!("alias {me}_")), "{shown}");
        let features = out(netns.command("ethtool").args(["-k", name]));
        for feature in [
            "tcp-segmentation-offload",
            "generic-segmentation-offload",
            "generic-receive-offload",
            "tx-checksumming",
            "scatter-gather",
            "tx-udp-segmentation",
            "tx-sctp-segmentation",
        ] {
            assert!(
                features.contains(&format!("{feature}: off")),
                "{feature} in {name}:\n{features}"
            );
        }
    }
    drop(veth);
    assert!(!near.netlink().unwrap().has_link("a").unwrap());
    assert!(!far.netlink().unwrap().has_link("b").unwrap());
}

#[test]
fn a_wire_counts_what_it_carries() {
    need!(Root);
    let chain = chain();
    let before = chain.client.netlink().unwrap().link_stats("up").unwrap();
    let socket = chain
        .client
        .run(|| UdpSocket::bind("0.0.0.0:0").unwrap())
        .unwrap();
    for _ in 0..50 {
        socket.send_to(&[0; 972], "10.2.0.2:9").unwrap();
    }
    let after = chain.client.netlink().unwrap().link_stats("up").unwrap();
    let (packets, bytes) = (
        after.tx_packets - before.tx_packets,
        after.tx_bytes.0 - before.tx_bytes.0,
    );
    // 972 bytes, UDP, IP and Ethernet headers; the first may wait for the neighbour's address.
    assert!((50..60).contains(&packets), "{packets}");
    assert!((50 * 1014..50 * 1014 + 1000).contains(&bytes), "{bytes}");
    assert_eq!(after.tx_dropped, before.tx_dropped);
}

#[test]
fn what_cannot_be_done_is_told_and_leaves_nothing() {
    need!(Root);
    let [near, far] = ["near", "far"].map(|l| Netns::create(l).unwrap());
    let _veth = wire(&near, "a", &far, "b");
    let again = Veth::create(
        VethEnd {
            netns: &near,
            name: "a",
        },
        VethEnd {
            netns: &far,
            name: "c",
        },
    );
    let told = again.unwrap_err().to_string();
    assert!(
        told.contains("`a` - `c`") && told.contains("there already"),
        "{told}"
    );
    assert!(
        near.netlink().unwrap().has_link("a").unwrap(),
        "the failure removed the first pair"
    );
    assert!(!far.netlink().unwrap().has_link("c").unwrap());

    let netlink = near.netlink().unwrap();
    for name in ["", "sixteen-letters-", "a/b", "a b", "a\0b", ".."] {
        assert!(
            matches!(netlink.set_up(name), Err(NetlinkError::BadName(_))),
            "{name:?}"
        );
    }
    let no_such = [
        netlink.set_up("nothing"),
        netlink.set_mtu("nothing", Bytes(1500)),
        netlink.delete_link("nothing"),
        netlink.disable_offloads("nothing"),
        netlink.add_address("nothing", prefix("10.0.0.1/8")),
        netlink.add_route(&Route::device(prefix("10.0.0.0/8"), "nothing")),
        netlink.link_stats("nothing").map(drop),
    ];
    for result in no_such {
        assert!(
            matches!(&result, Err(NetlinkError::NoInterface(n)) if n == "nothing"),
            "{result:?}"
        );
    }
    let told = netlink
        .add_route(&Route::via(Prefix::ALL_V4, ip("192.0.2.1")))
        .unwrap_err()
        .to_string();
    assert!(told.contains("0.0.0.0/0 via 192.0.2.1"), "{told}");
    assert!(netlink.set_mtu("a", Bytes(1 << 40)).is_err());
    assert!(netlink.set_mtu("a", Bytes(10)).is_err());
}

#[test]
fn rules_and_routes_go_with_their_guards() {
    need!(Root, Program("ip"));
    let netns = Netns::create("rules").unwrap();
    let netlink = netns.netlink().unwrap();
    let show = |args: &[&str]| out(netns.command("ip").args(args));
    let mark = Mark {
        value: 0x10,
        mask: 0xf0,
    };
    let rule = Rule {
        family: Family::V4,
        mark: Some(mark),
        action: RuleAction::Lookup,
        table: Table::from_number(77),
        priority: 123,
    };
    let route = Route::device(prefix("10.9.0.0/16"), "lo")
        .in_table(rule.table)
        .with_metric(5);
    let guards = (
        netlink.hold_rule(&rule).unwrap(),
        netlink.hold_route(&route).unwrap(),
    );
    assert!(show(&["rule"]).contains("123:\tfrom all fwmark 0x10/0xf0 lookup 77 proto 98"));
    assert!(
        show(&["route", "show", "table", "77"])
            .contains("10.9.0.0/16 dev lo proto 98 scope link metric 5")
    );
    assert_eq!(netlink.rules().unwrap(), [rule]);
    assert!(netlink.hold_rule(&rule).is_err(), "the same rule twice");
    drop(guards);
    assert!(!show(&["rule"]).contains("lookup 77"));
    assert_eq!(show(&["route", "show", "table", "all", "10.9.0.0/16"]), "");
}

/// Those that come in, and those alone: with `src_valid_mark` the kernel looks by the mark of a packet for the way back
/// to its source, too, and would find every source to be this machine.
#[test]
fn marked_packets_that_come_in_are_diverted_to_this_machine() {
    need!(Root, Program("ip"));
    let [netns, beside] = ["divert", "beside"].map(|label| Netns::create(label).unwrap());
    let _veth = wire(&netns, "a", &beside, "b");
    let netlink = netns.netlink().unwrap();
    netlink.add_address("a", prefix("10.9.0.1/24")).unwrap();
    netlink.add_address("a", prefix("fd09::1/64")).unwrap();
    for (all, router) in [("0.0.0.0/0", "10.9.0.3"), ("::/0", "fd09::3")] {
        let route = Route::via(prefix(all), ip(router));
        netlink.add_route(&route).unwrap();
    }
    for key in [
        "ip_forward",
        "conf.all.src_valid_mark",
        "conf.all.rp_filter",
    ] {
        netns.set_sysctl(&format!("net.ipv4.{key}"), "1").unwrap();
    }
    netns
        .set_sysctl("net.ipv6.conf.all.forwarding", "1")
        .unwrap();
    let ask = |words: &str| out(netns.command("ip").args(words.split(' ')));
    let comes = |address: &str, mark: &str| {
        let from = if address.contains(':') {
            "fd09::2"
        } else {
            "10.9.0.2"
        };
        ask(&format!(
            "route get {address} from {from} iif a mark {mark}"
        ))
    };
    let mark = Mark {
        value: 1,
        mask: 0xff,
    };
    let diversion = netlink.divert(&Family::ALL, mark, 100, 0).unwrap();
    for address in ["192.0.2.1", "2001:db8::1"] {
        let marked = comes(address, "0xf01");
        assert!(
            marked.starts_with("local ") && marked.contains(&diversion.table().to_string()),
            "{marked}"
        );
        assert!(!comes(address, "2").starts_with("local "));
        let own = ask(&format!("route get {address} mark 0xf01"));
        assert!(!own.starts_with("local "), "{own}");
    }
    let second = netlink.divert(&Family::ALL, Mark::exact(0x2000), 101, 0);
    assert!(second.is_err(), "the slot is taken");
    assert_eq!(
        netlink.rules().unwrap().len(),
        6,
        "the failure left rules or took some"
    );
    drop(diversion);
    assert_eq!(netlink.rules().unwrap(), []);
    assert!(!comes("192.0.2.1", "1").starts_with("local "));
}

#[test]
fn an_ipv6_address_is_usable_at_once() {
    need!(Root);
    let [near, far] = ["near", "far"].map(|l| Netns::create(l).unwrap());
    let _veth = wire(&near, "a", &far, "b");
    near.netlink()
        .unwrap()
        .add_address("a", prefix("fd00::1/64"))
        .unwrap();
    // An address under duplicate address detection cannot be bound.
    near.run(|| TcpListener::bind("[fd00::1]:0").unwrap())
        .unwrap();
}

#[test]
fn a_netlink_speaks_to_the_namespace_it_was_opened_in() {
    need!(Root);
    let netns = Netns::create("speak").unwrap();
    let _tun = netns
        .run(|| Tun::open("onlyhere", TunConfig::default()).unwrap())
        .unwrap();
    let inside = netns.run(|| Netlink::open().unwrap()).unwrap();
    assert!(inside.has_link("onlyhere").unwrap());
    assert!(!Netlink::open().unwrap().has_link("onlyhere").unwrap());
}

/// A UDP packet from 10.5.0.2:7 to 10.5.0.1:PORT with one byte of payload; a UDP checksum of 0
/// means none.
fn udp(port: u16, payload: u8) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 5, 0, 2, 10, 5, 0, 1, 0, 7, 0, 0, 0, 9, 0, 0,
        payload,
    ];
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    let sum: u32 = packet[..20]
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    packet
}

#[test]
fn a_packet_goes_round_through_tun() {
    need!(Root, Tun);
    let netns = Netns::create("tun").unwrap();
    let config = TunConfig {
        mtu: Bytes(1300),
        queue_packets: 16,
        ..TunConfig::default()
    };
    let tun = netns.run(|| Tun::open("sat0", config).unwrap()).unwrap();
    let netlink = netns.netlink().unwrap();
    netlink.add_address("sat0", prefix("10.5.0.1/24")).unwrap();
    let socket = netns
        .run(|| UdpSocket::bind("10.5.0.1:0").unwrap())
        .unwrap();
    socket.set_read_timeout(Some(5 * SECOND)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut buffer = [0; 2000];
    assert_eq!(
        tun.receive(&mut buffer).unwrap(),
        None,
        "the kernel sends nothing on its own"
    );

    tun.send(&udp(port, 42)).unwrap();
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(
        (&buffer[..length], from),
        (&[42][..], "10.5.0.2:7".parse().unwrap())
    );

    socket.send_to(&[7; 500], "10.5.0.2:7").unwrap();
    let length = tun.receive(&mut buffer).unwrap().expect("a packet");
    assert_eq!(length, 528);
    assert_eq!(
        (buffer[0], &buffer[12..20]),
        (0x45, &[10, 5, 0, 1, 10, 5, 0, 2][..])
    );
    assert_eq!(buffer[28..length], [7; 500]);
    assert_eq!(tun.receive(&mut buffer).unwrap(), None);
    assert!(tun.send(&[0xff; 40]).is_err(), "taken for an IP packet");

    // More than the queue holds: the rest is dropped and counted.
    assert_eq!(tun.stats().unwrap().tx_dropped, 0);
    for _ in 0..20 {
        socket.send_to(&[0; 10], "10.5.0.2:7").unwrap();
    }
    let stats = tun.stats().unwrap();
    assert_eq!(
        (stats.tx_packets, stats.tx_dropped, stats.rx_packets),
        (1, 4, 1),
        "{stats:?}"
    );
    drop(tun);
    assert!(within(SECOND, || !netlink.has_link("sat0").unwrap()).is_some());
}

#[test]
fn tun_takes_no_name_twice_and_sends_no_packet_over_its_mtu() {
    need!(Root, Tun);
    let netns = Netns::create("tun").unwrap();
    let (tun, again) = netns
        .run(|| {
            let open = || {
                Tun::open(
                    "sat0",
                    TunConfig {
                        mtu: Bytes(1280),
                        ..TunConfig::default()
                    },
                )
            };
            (open().unwrap(), open())
        })
        .unwrap();
    assert!(matches!(again, Err(TunError::Taken(name)) if name == "sat0"));
    let too_long = netns.run(|| Tun::open("a-name-that-is-too-long", TunConfig::default()));
    assert!(too_long.unwrap().is_err());
    let netlink = netns.netlink().unwrap();
    netlink.add_address("sat0", prefix("10.5.0.1/24")).unwrap();
    // Every TCP segment and fragment fits, with no offload to lump them together.
    let sender = netns
        .run(|| UdpSocket::bind("10.5.0.1:0").unwrap())
        .unwrap();
    sender.send_to(&[0; 20_000], "10.5.0.2:7").unwrap();
    let mut buffer = [0; 70_000];
    let mut lengths = Vec::new();
    while let Some(length) = tun.receive(&mut buffer).unwrap() {
        lengths.push(length);
    }
    assert_eq!(lengths.len(), 20_008_usize.div_ceil(1256), "{lengths:?}");
    assert!(lengths.iter().all(|length| *length <= 1280), "{lengths:?}");
}

/// A dial from another machine's address goes where rules send what has that source, however sources are checked.
#[test]
fn routes_name_the_neighbour_of_a_dial_and_a_silent_one_is_told() {
    need!(Root);
    let chain = chain();
    let run = |words: &str| out(chain.router.command("ip").args(words.split(' ')));
    for (family, beyond, by, main, client) in [
        ("-4", "10.9.0.0/16", "10.2.0.7", "10.2.0.8", "10.1.0.2"),
        ("-6", "fd00:9::/64", "fd00:2::7", "fd00:2::8", "fd00:1::2"),
    ] {
        run(&format!("{family} route add {beyond} via {main}"));
        run(&format!("{family} route add {beyond} via {by} table 100"));
        run(&format!("{family} rule add from {client} lookup 100"));
    }
    run("route add 10.8.0.0/16 via inet6 fd00:2::9");
    let routes = chain.router.run(|| Routes::open().unwrap()).unwrap();
    let hop = |from: &str, to: &str| {
        let sent = Sent {
            from: SocketAddr::new(ip(from), 4000),
            to: SocketAddr::new(ip(to), 80),
            mark: 0,
            class: 0x2e << 2,
        };
        routes.next_hop(&sent).unwrap()
    };
    let sat = hop("10.2.0.1", "10.2.0.2").unwrap();
    assert_eq!(sat.address, ip("10.2.0.2"));
    let behind_sat = |address: &str| {
        Some(Neighbour {
            address: ip(address),
            ..sat
        })
    };
    for strict in ["0", "1"] {
        let key = "net.ipv4.conf.all.rp_filter";
        chain.router.set_sysctl(key, strict).unwrap();
        for (from, to, expected) in [
            ("10.1.0.2", "10.9.0.1", "10.2.0.7"),
            ("10.1.0.3", "10.9.0.1", "10.2.0.8"),
            ("10.1.0.3", "10.2.0.9", "10.2.0.9"),
            ("10.1.0.3", "10.8.0.1", "fd00:2::9"),
            ("fd00:1::2", "fd00:9::1", "fd00:2::7"),
            ("fd00:1::3", "fd00:9::1", "fd00:2::8"),
            ("fd00:1::3", "fd00:2::9", "fd00:2::9"),
        ] {
            assert_eq!(hop(from, to), behind_sat(expected), "{from}, {strict}");
        }
        assert_eq!(hop("10.1.0.2", "192.0.2.1"), None);
    }
    assert_ne!(
        hop("10.1.0.1", "10.1.0.2").unwrap().interface,
        sat.interface
    );

    let watch = || {
        let neighbours = Neighbours::watch().unwrap();
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"anybody?", "10.9.0.1:9").unwrap();
        neighbours
    };
    let mut neighbours = chain.router.run(watch).unwrap();
    let mut failed = Vec::new();
    let told = || {
        failed = neighbours.failed().unwrap();
        !failed.is_empty()
    };
    assert!(within(15 * SECOND, told).is_some());
    assert_eq!(failed.first().copied(), behind_sat("10.2.0.8"));
}
