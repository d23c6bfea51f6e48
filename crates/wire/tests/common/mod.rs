//! Arbitrary packets of every legal shape.
#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_base::Seq;
use bentpipe_wire::{
    Extensions, Flags, Ip, Ipv4, Ipv6, Packet, Payload, RawOptions, SackBlock, SackBlocks, Tcp,
    TcpOptions, Timestamps, Transport, Udp,
};
use proptest::prelude::*;

fn v4() -> impl Strategy<Value = Ip> {
    let options =
        (0usize..=10).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4));
    let fields = any::<([u8; 4], [u8; 4], u8, u8, u16, u16)>();
    (fields, options).prop_map(|((source, destination, class, ttl, id, flags), options)| {
        Ip::V4(Ipv4 {
            source: source.into(),
            destination: destination.into(),
            traffic_class: class,
            ttl,
            identification: id,
            flags_and_offset: flags,
            options: options.into(),
        })
    })
}

/// Chains of hop-by-hop, routing, destination, authentication and fragment headers.
fn extensions(protocol: u8) -> impl Strategy<Value = Option<Box<Extensions>>> {
    let header = (
        prop::sample::select(vec![0u8, 43, 44, 51, 60]),
        0usize..3,
        prop::collection::vec(any::<u8>(), 32),
    );
    prop::collection::vec(header, 0..4).prop_map(move |mut headers| {
        // Hop-by-hop options come first or not at all.
        let mut index = 0;
        headers.retain(|(kind, ..)| {
            index += 1;
            *kind != 0 || index == 1
        });
        let first = headers.first().map_or(protocol, |(kind, ..)| *kind);
        let mut bytes = Vec::new();
        for (index, (kind, size, noise)) in headers.iter().enumerate() {
            // A fragment header ends the chain, so what it names is the protocol.
            let following = headers.get(index + 1).filter(|_| *kind != 44);
            let next = following.map_or(protocol, |(kind, ..)| *kind);
            let (field, len) = match kind {
                44 => (0, 8),
                51 => (*size as u8 + 1, (size + 3) * 4),
                _ => (*size as u8, (size + 1) * 8),
            };
            bytes.extend_from_slice(&[next, field]);
            bytes.extend_from_slice(&noise[..len - 2]);
            if *kind == 44 {
                break;
            }
        }
        let parsed = Extensions::parse(first, &bytes);
        parsed.expect("a whole chain").0.map(Box::new)
    })
}

fn v6(protocol: u8) -> impl Strategy<Value = Ip> {
    let fields = any::<([u8; 16], [u8; 16], u8, u8)>();
    (fields, 0u32..1 << 20, extensions(protocol)).prop_map(
        |((source, destination, class, hops), label, extensions)| {
            Ip::V6(Box::new(Ipv6 {
                source: source.into(),
                destination: destination.into(),
                traffic_class: class,
                hop_limit: hops,
                flow_label: label,
                extensions,
            }))
        },
    )
}

prop_compose! {
    fn block()((left, right) in any::<(u32, u32)>()) -> SackBlock {
        SackBlock { left: Seq(left), right: Seq(right) }
    }
}

/// One option of a kind that is not typed.
fn unknown(most: usize) -> impl Strategy<Value = Option<Box<RawOptions>>> {
    let one = (
        prop::sample::select(vec![6u8, 14, 19, 20, 28, 30, 34, 253]),
        0..most,
    );
    prop::option::of(one.prop_map(|(kind, len)| {
        let mut bytes = vec![kind, len as u8 + 2];
        bytes.resize(len + 2, kind);
        Box::new(RawOptions::new(&bytes).expect("one option"))
    }))
}

/// Timestamps and the other options of a segment.
fn options() -> impl Strategy<Value = (Option<Timestamps>, Option<Box<TcpOptions>>)> {
    let stamps = prop::option::of(any::<(u32, u32)>());
    let sack = prop::option::of(prop::collection::vec(block(), 1..=4));
    let small = any::<(Option<u16>, Option<u8>, bool)>();
    (small, stamps, sack, unknown(39)).prop_map(
        |((mss, shift, permitted), stamps, sack, unknown)| {
            let mut tcp = Tcp {
                timestamps: stamps.map(|(value, echo)| Timestamps { value, echo }),
                ..Tcp::default()
            };
            let mut options = TcpOptions {
                mss,
                window_scale: shift,
                sack_permitted: permitted,
                sack: sack.into_iter().flatten().collect(),
                unknown,
            };
            tcp.options = options.clone().boxed();
            // Keep what fits into 40 bytes.
            while tcp.header_len() > 60 {
                if options.unknown.take().is_none() {
                    options.sack = SackBlocks::default();
                }
                tcp.options = options.clone().boxed();
            }
            (tcp.timestamps, tcp.options)
        },
    )
}

fn transport() -> impl Strategy<Value = Transport> {
    let fields = any::<(u16, u16, u32, u32, u16, u16, u16)>();
    let tcp = (fields, options()).prop_map(
        |((source, destination, seq, ack, flags, window, urgent), (timestamps, options))| {
            Transport::Tcp(Tcp {
                source,
                destination,
                seq: Seq(seq),
                ack: Seq(ack),
                flags: Flags::from_bits(flags),
                window,
                urgent,
                timestamps,
                options,
            })
        },
    );
    let udp = any::<(u16, u16)>().prop_map(|(source, destination)| {
        Transport::Udp(Udp {
            source,
            destination,
        })
    });
    let other = prop::sample::select(vec![4u8, 41, 47, 50, 59, 132])
        .prop_map(|protocol| Transport::Other { protocol });
    prop_oneof![3 => tcp, 1 => udp, 1 => other]
}

/// Any packet that `emit` accepts, with real payload.
pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    let with_ip = transport().prop_flat_map(|transport| {
        let ip = prop_oneof![v4(), v6(transport.protocol())];
        (ip, Just(transport))
    });
    (with_ip, prop::collection::vec(any::<u8>(), 0..1500)).prop_map(|((ip, transport), bytes)| {
        // A fragment has no transport header.
        let transport = if ip.is_fragment() {
            Transport::Other {
                protocol: transport.protocol(),
            }
        } else {
            transport
        };
        Packet {
            ip,
            transport,
            payload: Payload::from(&bytes[..]),
        }
    })
}

/// An ordinary TCP packet.
pub(crate) fn segment(payload: Payload) -> Packet {
    Packet {
        ip: Ip::V4(Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
        transport: Transport::Tcp(Tcp {
            source: 40_000,
            destination: 80,
            seq: Seq(1000),
            ack: Seq(2000),
            flags: Flags::ACK | Flags::PSH,
            window: 512,
            ..Tcp::default()
        }),
        payload,
    }
}
