//! What we emit, etherparse reads alike; what etherparse builds, we read alike.

mod common;

use bentpipe_wire::{Checksums, Ip, Packet, Payload, TcpOptions, Transport};
use common::packet;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TcpOptionElement, TransportSlice};
use proptest::prelude::*;

fn assert_tcp(ours: &bentpipe_wire::Tcp, theirs: &etherparse::TcpSlice<'_>) {
    assert_eq!(theirs.source_port(), ours.source);
    assert_eq!(theirs.destination_port(), ours.destination);
    assert_eq!(theirs.sequence_number(), ours.seq.0);
    assert_eq!(theirs.acknowledgment_number(), ours.ack.0);
    assert_eq!(theirs.window_size(), ours.window);
    assert_eq!(theirs.urgent_pointer(), ours.urgent);
    let bits = [
        theirs.fin(),
        theirs.syn(),
        theirs.rst(),
        theirs.psh(),
        theirs.ack(),
        theirs.urg(),
        theirs.ece(),
        theirs.cwr(),
        theirs.ns(),
    ];
    for (bit, set) in bits.into_iter().enumerate() {
        assert_eq!(set, ours.flags.bits() >> bit & 1 == 1, "flag {bit}");
    }
    let none = TcpOptions::default();
    let options = ours.options.as_deref().unwrap_or(&none);
    // It stops at the first option that it does not know; ours come last.
    let known: Vec<TcpOptionElement> = theirs.options_iterator().map_while(Result::ok).collect();
    let has = |option: TcpOptionElement| known.contains(&option);
    if let Some(mss) = options.mss {
        assert!(has(TcpOptionElement::MaximumSegmentSize(mss)), "{known:?}");
    }
    if let Some(shift) = options.window_scale {
        assert!(has(TcpOptionElement::WindowScale(shift)), "{known:?}");
    }
    if let Some(stamps) = ours.timestamps {
        let element = TcpOptionElement::Timestamp(stamps.value, stamps.echo);
        assert!(has(element), "{known:?}");
    }
    assert_eq!(
        has(TcpOptionElement::SelectiveAcknowledgementPermitted),
        options.sack_permitted
    );
    if !options.sack.is_empty() {
        let blocks = options.sack.iter().map(|b| (b.left.0, b.right.0));
        let blocks: Vec<(u32, u32)> = blocks.collect();
        let mut rest = [None; 3];
        for (slot, block) in rest.iter_mut().zip(&blocks[1..]) {
            *slot = Some(*block);
        }
        let element = TcpOptionElement::SelectiveAcknowledgement(blocks[0], rest);
        assert!(has(element), "{known:?}");
    }
}

fn assert_ip(ours: &Ip, theirs: &NetSlice<'_>) {
    match (ours, theirs) {
        (Ip::V4(ours), NetSlice::Ipv4(theirs)) => {
            let header = theirs.header();
            assert_eq!(header.source_addr(), ours.source);
            assert_eq!(header.destination_addr(), ours.destination);
            assert_eq!(header.ttl(), ours.ttl);
            assert_eq!(header.identification(), ours.identification);
            assert_eq!(header.options(), &*ours.options);
            let class = header.dcp().value() << 2 | header.ecn().value();
            assert_eq!(class, ours.traffic_class);
            assert_eq!(header.is_fragmenting_payload(), ours.is_fragment());
            // The oracle's header has no place for the reserved flag.
            if ours.flags_and_offset & 0x8000 == 0 {
                let sum = header.to_header().calc_header_checksum();
                assert_eq!(header.header_checksum(), sum);
            }
        }
        (Ip::V6(ours), NetSlice::Ipv6(theirs)) => {
            let header = theirs.header();
            assert_eq!(header.source_addr(), ours.source);
            assert_eq!(header.destination_addr(), ours.destination);
            assert_eq!(header.hop_limit(), ours.hop_limit);
            assert_eq!(header.flow_label().value(), ours.flow_label);
            assert_eq!(header.traffic_class(), ours.traffic_class);
        }
        other => panic!("{other:?}"),
    }
}

fn assert_alike(packet: &Packet, read: &SlicedPacket<'_>) {
    let (ip, payload) = (&packet.ip, &packet.payload);
    assert_ip(ip, read.net.as_ref().expect("a network header"));
    match (&packet.transport, &read.transport) {
        (Transport::Tcp(ours), Some(TransportSlice::Tcp(theirs))) => {
            assert_tcp(ours, theirs);
            assert_eq!(Payload::from(theirs.payload()), *payload);
            let sum = match ip {
                Ip::V4(ip) => {
                    theirs.calc_checksum_ipv4(ip.source.octets(), ip.destination.octets())
                }
                Ip::V6(ip) => {
                    theirs.calc_checksum_ipv6(ip.source.octets(), ip.destination.octets())
                }
            };
            assert_eq!(Ok(theirs.checksum()), sum);
        }
        (Transport::Udp(ours), Some(TransportSlice::Udp(theirs))) => {
            assert_eq!(theirs.source_port(), ours.source);
            assert_eq!(theirs.destination_port(), ours.destination);
            assert_eq!(Payload::from(theirs.payload()), *payload);
            let (header, bytes) = (theirs.to_header(), theirs.payload());
            let sum = match ip {
                Ip::V4(ip) => {
                    let (from, to) = (ip.source.octets(), ip.destination.octets());
                    header.calc_checksum_ipv4_raw(from, to, bytes)
                }
                Ip::V6(ip) => {
                    let (from, to) = (ip.source.octets(), ip.destination.octets());
                    header.calc_checksum_ipv6_raw(from, to, bytes)
                }
            };
            assert_eq!(Ok(theirs.checksum()), sum);
        }
        (Transport::Other { .. }, None) => {}
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn etherparse_reads_what_we_emit(packet in packet()) {
        let bytes = packet.to_vec().unwrap();
        assert_alike(&packet, &SlicedPacket::from_ip(&bytes).unwrap());
    }

    #[test]
    fn we_read_what_etherparse_builds(
        (source, destination, seq, window) in any::<(u16, u16, u32, u16)>(),
        six: bool,
        payload: Vec<u8>,
    ) {
        let builder = if six {
            PacketBuilder::ipv6([1; 16], [2; 16], 63)
        } else {
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 63)
        };
        let options = [
            TcpOptionElement::MaximumSegmentSize(1460),
            TcpOptionElement::WindowScale(3),
        ];
        let built = builder.tcp(source, destination, seq, window).syn().options(&options).unwrap();
        let mut bytes = Vec::new();
        built.write(&mut bytes, &payload).unwrap();
        let packet = Packet::parse(&bytes, Checksums::Verify).unwrap();
        prop_assert_eq!(packet.payload, Payload::from(&payload[..]));
        let Transport::Tcp(tcp) = packet.transport else { panic!("not TCP") };
        prop_assert_eq!((tcp.source, tcp.destination), (source, destination));
        prop_assert_eq!((tcp.seq.0, tcp.window), (seq, window));
        let options = tcp.options.as_deref().map(|all| (all.mss, all.window_scale));
        prop_assert_eq!(options, Some((Some(1460), Some(3))));
    }
}
