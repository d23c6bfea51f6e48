//! QUIC connections that pass are told the link's rate by SCONE.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::SconeStatus;
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_sockets::udp::Udp;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use support::office::Office;
use support::{Ip, PATIENCE, Stage, eventually};

/// Half of the rates below, as SCONE has them: 100 kbit/s times 10^(n/20).
const TO_SAT: u8 = 33;
const FROM_SAT: u8 = 20;

/// A datagram of QUIC behind a SCONE packet that says `signal`.
fn scone(signal: u8) -> Vec<u8> {
    let [first, second] = [0xc0 | signal >> 1, 0x6f | signal << 7];
    let rest = [0x7d, 0xc0, 0xfd, 2, 9, 9, 0, 0x40, 9, 9, 1, 2, 3];
    [&[first, second], &rest[..]].concat()
}

/// What is sent, and what is to arrive where no more than `advice` is to be said.
fn datagrams(advice: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let signals = [127, 126, advice + 1, advice, advice - 1, 0];
    let told = signals.map(|signal| (scone(signal), scone(signal.min(advice))));
    let mut nearly = scone(127);
    nearly[4] ^= 1;
    let mut short_header = scone(127);
    short_header[0] &= 0x7f;
    let others = [
        nearly,
        short_header,
        scone(127)[..4].to_vec(),
        vec![0xff; 1200],
        vec![7],
    ];
    let others = others.into_iter().map(|it| (it.clone(), it));
    told.into_iter().chain(others).collect()
}

/// A socket of a host, which waits for datagrams with patience.
fn socket(netns: &Netns, address: IpAddr) -> UdpSocket {
    let socket = netns
        .run(|| UdpSocket::bind((address, 0)).unwrap())
        .unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let len = socket.recv(&mut buffer).unwrap();
    buffer[..len].to_vec()
}

/// Sends each datagram, the next when the one before is there, and looks at what arrives. Who receives looks at checksums
/// where no offload says that they are right.
fn passes(from: (&Netns, IpAddr), to: (&Netns, IpAddr), advice: u8) {
    let (sender, receiver) = (socket(from.0, from.1), socket(to.0, to.1));
    let to = receiver.local_addr().unwrap();
    for (sent, expected) in datagrams(advice) {
        sender.send_to(&sent, to).unwrap();
        assert_eq!(received(&receiver), expected, "{} {to}", from.1);
    }
}

/// Three datagrams of one call, which the kernel carries as one packet as far as it may.
fn passes_together(from: (&Netns, IpAddr), to: (&Netns, IpAddr), advice: u8) {
    let receiver = socket(to.0, to.1);
    let to: SocketAddr = receiver.local_addr().unwrap();
    let sender = from
        .0
        .run(|| Udp::bind((from.1, 0).into()).unwrap())
        .unwrap();
    let together = [scone(127), scone(1), scone(126)].concat();
    sender.send(&together, together.len() / 3, to).unwrap();
    for signal in [127, 1, 126] {
        assert_eq!(received(&receiver), scone(u8::min(signal, advice)), "{to}");
    }
}

#[test]
fn quic_is_told_what_the_link_has() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let office = Office::open(&stage);
    let gateway = stage.split_with(
        "[lan]
         interface = \"lan0\"
         [sat]
         interface = [\"sat0\", \"sat1\"]
         congestion_control = \"cubic\"
         rate = \"10Mbit/s\"
         receive_rate = \"2Mbit/s\"
         scone = \"50%\"",
    );
    let status = || gateway.handle.status().unwrap();
    assert_eq!(status().lacks, Vec::<String>::new());
    for offloads in [true, false] {
        if !offloads {
            for (netns, interfaces) in [
                (&stage.client, &["eth0"][..]),
                (&stage.server, &["eth0"]),
                (&office.0, &["eth0"]),
                (&stage.gateway, &["lan0", "sat0", "sat1"]),
            ] {
                let netlink = netns.netlink().unwrap();
                interfaces
                    .iter()
                    .for_each(|name| netlink.disable_offloads(name).unwrap());
            }
        }
        for ip in Ip::BOTH {
            let server = (&stage.server, ip.server());
            let client = (&stage.client, ip.client());
            for behind in [client, (&office.0, Office::host(ip))] {
                passes(server, behind, TO_SAT);
                passes(behind, server, FROM_SAT);
            }
            passes_together(server, client, TO_SAT);
            passes_together(client, server, FROM_SAT);
        }
    }
    // In each round eight passes of six SCONE packets, of which three are lowered, and four of three, of which two are. A status is
    // given again for a moment.
    let expected = SconeStatus {
        to_sat: Some(4_466_836),
        from_sat: Some(1_000_000),
        seen: 2 * (8 * 6 + 4 * 3),
        lowered: 2 * (8 * 3 + 4 * 2),
    };
    eventually("all in the status", || status().scone == Some(expected));
    // The element has gone with the gateway.
    drop(gateway);
    let receiver = socket(&stage.client, Ip::V4.client());
    let sender = socket(&stage.server, Ip::V4.server());
    let to = receiver.local_addr().unwrap();
    sender.send_to(&scone(127), to).unwrap();
    assert_eq!(received(&receiver), scone(127));
}
