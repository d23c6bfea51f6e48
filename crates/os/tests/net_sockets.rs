//! What sockets do that takes rights or a namespace of one's own: transparent ones, forged datagrams, paths with a
//! small MTU, a UDP port that several share, and what conntrack has of connections.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_base::Bytes;
use bentpipe_os::conntrack::Conntrack;
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, nft};
use bentpipe_sockets::socket::{self, bind, set_reuse_address, set_reuse_port};
use bentpipe_sockets::udp::{RECEIVE, Udp, path_mtu};
use rustix::net::{AddressFamily, SocketType, ipproto};
use rustix::process::Uid;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

#[test]
fn transparent_and_mark_need_a_capability_and_work_with_it() {
    need!(NetAdmin);
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let address: SocketAddr = address.parse().unwrap();
        let socket = socket::stream(address).unwrap();
        socket::set_transparent(&socket, address).unwrap();
        socket::set_mark(&socket, 0x1234).unwrap();
        let foreign: SocketAddr = match address {
            SocketAddr::V4(_) => "192.0.2.7:7777".parse().unwrap(),
            SocketAddr::V6(_) => "[2001:db8::7]:7777".parse().unwrap(),
        };
        bind(&socket, foreign).unwrap();
        assert_eq!(socket::local_address(&socket).unwrap(), foreign);
    }
}

#[test]
fn what_a_path_carries_is_known_and_what_is_longer_goes_in_fragments_or_not_at_all() {
    need!(Root);
    let netns = Netns::create("path_mtu").unwrap();
    netns.netlink().unwrap().set_mtu("lo", Bytes(1100)).unwrap();
    let arrived = netns.run(|| {
        let near = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let far = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = far.local_address().unwrap();
        assert_eq!(path_mtu(to).unwrap(), 1100);
        let refused = near.send(&[7; 1300], 1300, to).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
        assert!(near.was_too_long());
        near.send(&[7; 12_000], 1200, to).unwrap();
        let mut buffer = vec![0; RECEIVE];
        let mut arrived = 0;
        while let Some(received) = far.receive(&mut buffer).unwrap() {
            assert_eq!(received.segment, 1200);
            arrived += received.len;
        }
        arrived
    });
    assert_eq!(arrived.unwrap(), 12_000);
}

/// A datagram whose source port is 0 can be forged, and no answer to it can be sent: it is passed over.
#[test]
fn a_datagram_from_port_0_is_not_received() {
    need!(Root);
    let near = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let raw = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP));
    let raw = raw.unwrap();
    let to = near.local_address().unwrap();
    // Source port 0, destination, length, no checksum; and one from port 9 after it.
    for (source, content) in [(0u16, *b"none"), (9, *b"some")] {
        let mut datagram = Vec::new();
        for field in [source, to.port(), 12, 0] {
            datagram.extend_from_slice(&field.to_be_bytes());
        }
        datagram.extend_from_slice(&content);
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendto(&raw, &datagram, flags, &to).unwrap();
    }
    let mut buffer = vec![0; RECEIVE];
    let received = near.receive(&mut buffer).unwrap().unwrap();
    assert_eq!(
        (received.from.port(), &buffer[..received.len]),
        (9, &b"some"[..])
    );
}

const NOBODY: u32 = 65_534;

fn own(udp: &Udp, user: u32) {
    rustix::fs::fchown(udp, Some(Uid::from_raw(user)), None).unwrap();
}

#[test]
fn a_server_and_listeners_to_groups_of_any_user_share_a_port_and_servers_do_not() {
    need!(Root);
    let netns = Netns::create("udp_port").unwrap();
    let done = netns.run(|| {
        // A port each: a program that another test starts has a copy of the sockets for a moment, until it runs.
        for (port, server, group) in [
            (7542, "0.0.0.0", "224.0.0.108"),
            (7543, "[::]", "224.0.0.108"),
            (7544, "[::]", "[ff02::6c%1]"),
        ] {
            let address = |host: &str| format!("{host}:{port}").parse::<SocketAddr>().unwrap();
            let [server, group] = [server, group].map(address);
            // Before the server is there, of another user; and after.
            let before = Udp::bind_group(group).unwrap();
            own(&before, NOBODY);
            let first = Udp::bind_server(server).unwrap();
            own(&first, 1234);
            let after = Udp::bind_group(group).unwrap();
            for second in [server, address("127.0.0.1")] {
                let error = Udp::bind_server(second).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::AddrInUse);
            }
            // Nor by somebody who would share any port.
            let family = match server {
                SocketAddr::V4(_) => AddressFamily::INET,
                SocketAddr::V6(_) => AddressFamily::INET6,
            };
            let thief = rustix::net::socket(family, SocketType::DGRAM, None).unwrap();
            set_reuse_address(&thief, true).unwrap();
            set_reuse_port(&thief, true).unwrap();
            assert!(bind(&thief, server).is_err());
            drop((before, after, first));
        }
    });
    done.unwrap();
}

/// Whose user is another's and who is not root is told what to do.
#[test]
fn a_server_of_another_user_is_named() {
    need!(Root);
    let netns = Netns::create("udp_port_user").unwrap();
    let done = netns.run(|| {
        let server = Udp::bind_server("0.0.0.0:7542".parse().unwrap()).unwrap();
        own(&server, 1234);
        // SAFETY: changes a number of this thread alone, which ends with the test.
        unsafe { libc::setfsuid(NOBODY) };
        let refused = Udp::bind_group("224.0.0.108:7542".parse().unwrap());
        // SAFETY: as above.
        unsafe { libc::setfsuid(0) };
        let said = refused.unwrap_err().to_string();
        assert!(said.contains("user 1234 has port 7542"), "{said}");
    });
    done.unwrap();
}

#[test]
fn a_connection_is_forgotten_once() {
    need!(Root, Nft);
    let netns = Netns::create("forget").unwrap();
    let work = || {
        nft::apply(
            "table inet t { chain c { type filter hook output priority 0; ct state new counter; }; }",
        )
        .unwrap();
        let conntrack = Conntrack::open().unwrap();
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let to = listener.local_addr().unwrap();
            let client = TcpStream::connect(to).unwrap();
            let from = client.local_addr().unwrap();
            let other = SocketAddr::new(from.ip(), from.port() ^ 1);
            let missing = conntrack.forget(other, to).unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
            conntrack.forget(from, to).unwrap();
            let again = conntrack.forget(from, to).unwrap_err();
            assert_eq!(again.kind(), ErrorKind::NotFound, "{host}");
        }
    };
    netns.run(work).unwrap();
}

#[test]
fn packets_leave_as_what_the_other_direction_answers() {
    need!(Root, Nft);
    let netns = Netns::create("translate").unwrap();
    let work = || {
        nft::apply(
            "table inet t { chain p { type nat hook postrouting priority 100; ip daddr 127.0.0.1 snat to 127.7.7.7; }; }",
        )
        .unwrap();
        let conntrack = Conntrack::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let client = TcpStream::connect(to).unwrap();
        let from = client.local_addr().unwrap();
        let outside = listener.accept().unwrap().1;
        assert_ne!(from.ip(), outside.ip());
        let leaves = |from, to| {
            let found = conntrack.translation(from, to).unwrap();
            found.map(|found| (found.leaves_as, found.shifted))
        };
        // The source of what it says is translated, and nothing of what it is told.
        assert_eq!(leaves(from, to), Some(((outside, to), false)));
        assert_eq!(leaves(to, from), Some(((to, from), false)));
        let other = SocketAddr::new(from.ip(), from.port() ^ 1);
        assert_eq!(leaves(other, to), None);
        assert_eq!(
            leaves("[::1]:7".parse().unwrap(), "[::1]:8".parse().unwrap()),
            None
        );
    };
    netns.run(work).unwrap();
}
