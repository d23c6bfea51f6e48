//! Floods of forged SYNs: each of a client beside ours that is not there.

use super::Stage;
use bentpipe_base::Seq;
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
        // IPPROTO_RAW: with the IP header.
        let raw = Some(socket2::Protocol::from(255));
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, raw).unwrap();
        for number in numbers {
            sent(socket.send_to(&syn(number, to), &to.into()));
        }
    };
    stage.client.run(send).unwrap();
}

fn syn(number: u32, to: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(server) = to.ip() else {
        unreachable!("floods are of IPv4")
    };
    let client = Ipv4Addr::new(10, 77, 1, 3 + (number % 250) as u8);
    let tcp = Tcp {
        source: 1024 + (number / 250 % 60_000) as u16,
        destination: to.port(),
        seq: Seq(number),
        flags: Flags::SYN,
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
