//! Segments of a connection as packets, and back.

use crate::Tuple;
use bentpipe_tcp::{Options, Segment};
use bentpipe_wire::{Ip, Ipv4, Ipv6, Packet, Payload, SackBlocks, Tcp, TcpOptions, Transport};
use core::net::{IpAddr, Ipv6Addr};

/// The packet that carries `segment` of `tuple` to its peer.
pub(crate) fn packet(tuple: &Tuple, segment: Segment, hop_limit: u8) -> Packet {
    let options = segment.options.as_deref();
    let tcp = Tcp {
        source: tuple.local.port(),
        destination: tuple.remote.port(),
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: 0,
        options: TcpOptions {
            mss: options.and_then(|options| options.mss),
            window_scale: options.and_then(|options| options.window_scale),
            sack_permitted: options.is_some_and(|options| options.sack_permitted),
            timestamps: segment.timestamps,
            sack: options
                .and_then(|options| SackBlocks::new(&options.sack))
                .map(Box::new),
            unknown: None,
        },
    };
    Packet {
        ip: header(tuple.local.ip(), tuple.remote.ip(), hop_limit),
        transport: Transport::Tcp(tcp),
        payload: segment.payload,
    }
}

/// Both addresses of a tuple are of one family.
fn header(source: IpAddr, destination: IpAddr, hop_limit: u8) -> Ip {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ip::V4(Ipv4 {
            ttl: hop_limit,
            ..Ipv4::new(source, destination)
        }),
        (source, destination) => Ip::V6(Box::new(Ipv6 {
            hop_limit,
            ..Ipv6::new(six(source), six(destination))
        })),
    }
}

fn six(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The segment of a header and its payload.
pub(crate) fn segment(tcp: Tcp, payload: Payload) -> Segment {
    let options = Options {
        mss: tcp.options.mss,
        window_scale: tcp.options.window_scale,
        sack_permitted: tcp.options.sack_permitted,
        sack: tcp
            .options
            .sack
            .map_or_else(Vec::new, |blocks| blocks.as_slice().to_vec()),
    };
    Segment {
        seq: tcp.seq,
        ack: tcp.ack,
        flags: tcp.flags,
        window: tcp.window,
        timestamps: tcp.options.timestamps,
        options: (options != Options::default()).then(|| Box::new(options)),
        payload,
    }
}
