//! Floods of forged SYNs: each of a client beside ours that is not there.

use super::Stage;
use bentpipe_base::Seq;
use bentpipe_os::netns::Netns;
use bentpipe_wire::{Flags, Ipv4, Packet, Payload, Tcp, TcpOptions, Transport};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

/// Sends SYNs of many clients to `to`, as fast as they go. A number is a client and a port of its own.
pub fn send(stage: &Stage, numbers: Range<u32>, to: SocketAddr) {
    send_each(stage, numbers, to, |sent| {
        sent.unwrap();
    });
}

/// The same, and tells `sent` what the kernel says to each.
pub fn send_each(
    stage: &Stage,
    numbers: Range<u32>,
    to: SocketAddr,
    mut sent: impl FnMut(io::Result<usize>) + Send,
) {
    let send = || {
        let socket = raw();
        for number in numbers {
            let client = Ipv4Addr::new(10, 77, 1, 3 + (number % 250) as u8);
            let port = 1024 + (number / 250 % 60_000) as u16;
            let syn = segment((client, port).into(), to, (Seq(number), Flags::SYN));
            sent(socket.send_to(&syn, &to.into()));
        }
    };
    stage.client.run(send).unwrap();
}

/// Sends `count` different SYNs of one client beside ours to `to`, as fast as they go.
pub fn send_of_one_host(stage: &Stage, count: u32, to: SocketAddr) {
    let from = SocketAddr::from(([10, 77, 1, 3], 1024));
    let send = || {
        let socket = raw();
        for number in 0..count {
            let syn = segment(from, to, (Seq(number), Flags::SYN));
            socket.send_to(&syn, &to.into()).unwrap();
        }
    };
    stage.client.run(send).unwrap();
}

/// Sends one SYN from `netns` in the name of `from`.
pub fn forge(netns: &Netns, from: SocketAddr, to: SocketAddr, seq: Seq) {
    forge_segment(netns, from, to, (seq, Flags::SYN));
}

/// Sends one answer with these flags from `netns` in the name of `from`, to something that was never sent.
pub fn forge_answer(netns: &Netns, from: SocketAddr, to: SocketAddr, flags: Flags) {
    forge_segment(netns, from, to, (Seq(4711), flags));
}

fn forge_segment(netns: &Netns, from: SocketAddr, to: SocketAddr, what: (Seq, Flags)) {
    let send = || raw().send_to(&segment(from, to, what), &to.into()).unwrap();
    netns.run(send).unwrap();
}

fn raw() -> socket2::Socket {
    // IPPROTO_RAW: with the IP header.
    let raw = Some(socket2::Protocol::from(255));
    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, raw).unwrap()
}

fn segment(from: SocketAddr, to: SocketAddr, (seq, flags): (Seq, Flags)) -> Vec<u8> {
    let (IpAddr::V4(client), IpAddr::V4(server)) = (from.ip(), to.ip()) else {
        unreachable!("floods are of IPv4")
    };
    let tcp = Tcp {
        source: from.port(),
        destination: to.port(),
        seq,
        flags,
        window: 65_535,
        options: TcpOptions {
            mss: Some(1460),
            ..TcpOptions::default()
        }
        .boxed(),
        ..Tcp::default()
    };
    let packet = Packet {
        ip: bentpipe_wire::Ip::V4(Ipv4::new(client, server)),
        transport: Transport::Tcp(tcp),
        payload: Payload::Absent,
    };
    packet.to_vec().unwrap()
}
