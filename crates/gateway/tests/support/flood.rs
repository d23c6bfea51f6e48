//! Floods of forged SYNs: each of a client beside ours that is not there.

use super::Stage;
use bentpipe_base::Seq;
use bentpipe_os::netns::Netns;
use bentpipe_wire::{Flags, Ip, Ipv4, Ipv6, Packet, Payload, Tcp, TcpOptions, Transport};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
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
        let socket = raw(to);
        for number in numbers {
            let host = 3 + (number % 250) as u8;
            let client = match to.ip() {
                IpAddr::V4(_) => IpAddr::from([10, 77, 1, host]),
                IpAddr::V6(_) => Ipv6Addr::new(0xfd77, 1, 0, 0, 0, 0, 0, host.into()).into(),
            };
            let port = 1024 + (number / 250 % 60_000) as u16;
            let syn = segment((client, port).into(), to, (Seq(number), Flags::SYN));
            sent(send_raw(&socket, &syn, to));
        }
    };
    stage.client.run(send).unwrap();
}

/// Sends `count` different SYNs of one client beside ours to `to`, as fast as they go.
pub fn send_of_one_host(stage: &Stage, count: u32, to: SocketAddr) {
    let from = SocketAddr::from(([10, 77, 1, 3], 1024));
    let send = || {
        let socket = raw(to);
        for number in 0..count {
            let syn = segment(from, to, (Seq(number), Flags::SYN));
            send_raw(&socket, &syn, to).unwrap();
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
    let send = || send_raw(&raw(to), &segment(from, to, what), to).unwrap();
    netns.run(send).unwrap();
}

fn raw(to: SocketAddr) -> socket2::Socket {
    // IPPROTO_RAW: with the IP header.
    let raw = Some(socket2::Protocol::from(255));
    socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::RAW, raw).unwrap()
}

fn send_raw(socket: &socket2::Socket, packet: &[u8], to: SocketAddr) -> io::Result<usize> {
    // A raw socket of IPv6 has no ports.
    socket.send_to(packet, &SocketAddr::new(to.ip(), 0).into())
}

fn segment(from: SocketAddr, to: SocketAddr, (seq, flags): (Seq, Flags)) -> Vec<u8> {
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => Ip::V4(Ipv4::new(client, server)),
        (IpAddr::V6(client), IpAddr::V6(server)) => Ip::V6(Ipv6::new(client, server).into()),
        _ => unreachable!("both ends are of one version"),
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
        ip,
        transport: Transport::Tcp(tcp),
        payload: Payload::Absent,
    };
    packet.to_vec().unwrap()
}
