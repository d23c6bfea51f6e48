//! SCPS-TP as the reference implementation speaks it: what stands in `scps/reference.txt`, and each packet of its
//! captures where these are at hand.

#![allow(clippy::unwrap_used, reason = "part of tests")]

use bentpipe_wire::scps::{CapabilityVector, CompressedTcp, ScpsOptions, Snack};
use bentpipe_wire::{
    Checksums, Error, Flags, Ip, Ipv4, Packet, Payload, Tcp, Timestamps, Transport, protocol,
};
use std::collections::BTreeSet;

const REFERENCE: &str = include_str!("scps/reference.txt");

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// The lines of the reference of one sort.
fn lines(sort: &str) -> impl Iterator<Item = Vec<u8>> {
    REFERENCE
        .lines()
        .filter_map(move |line| line.strip_prefix(sort)?.strip_prefix(' '))
        .map(bytes)
}

/// The header whose options these are.
fn header(options: &[u8]) -> Tcp {
    let packet = Packet {
        ip: Ip::V4(Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
        transport: Transport::Tcp(Tcp::default()),
        payload: Payload::Absent,
    };
    let mut raw = packet.to_vec().unwrap();
    raw.extend_from_slice(options);
    raw[2..4].copy_from_slice(&((40 + options.len()) as u16).to_be_bytes());
    raw[32] = (5 + options.len() as u8 / 4) << 4;
    read(&raw)
}

fn read(raw: &[u8]) -> Tcp {
    match Packet::parse(raw, Checksums::Ignore).unwrap().transport {
        Transport::Tcp(tcp) => tcp,
        other => panic!("{other:?}"),
    }
}

fn scps(tcp: &Tcp) -> ScpsOptions {
    let unknown = tcp.options.as_deref().and_then(|all| all.unknown.as_ref());
    unknown.map_or_else(ScpsOptions::default, |raw| ScpsOptions::parse(raw))
}

/// The options in a list, each by itself, without padding.
fn each(mut list: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut all = BTreeSet::new();
    while let [kind, rest @ ..] = list {
        let len = match kind {
            0 => break,
            1 => {
                list = rest;
                continue;
            }
            _ => usize::from(rest[0]),
        };
        all.insert(list[..len].to_vec());
        list = &list[len..];
    }
    all
}

/// Reads a list of options and writes it again, through the types of SCPS-TP, option for option.
fn is_emitted_again(list: &[u8]) {
    let mut tcp = header(list);
    if let Some(options) = tcp.options.as_deref_mut() {
        options.unknown = options
            .unknown
            .as_deref()
            .and_then(|raw| ScpsOptions::parse(raw).to_raw().unwrap())
            .map(Box::new);
    }
    let packet = Packet {
        ip: Ip::V4(Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
        transport: Transport::Tcp(tcp),
        payload: Payload::Absent,
    };
    let emitted = packet.to_vec().unwrap();
    assert_eq!(each(&emitted[40..]), each(list), "{list:02x?}");
}

#[test]
fn the_options_of_the_reference_implementation_are_read_and_emitted_again() {
    let mut snacks = Vec::new();
    let mut connections = BTreeSet::new();
    for list in lines("options") {
        is_emitted_again(&list);
        let options = scps(&header(&list));
        snacks.extend(options.snack);
        if let Some(capabilities) = options.capabilities {
            let compression = capabilities.vector.contains(CapabilityVector::COMPRESSION);
            assert!(capabilities.vector.contains(CapabilityVector::SNACK_SHORT));
            assert_eq!(compression, capabilities.connection != 0);
            connections.insert(capabilities.connection);
        }
    }
    let short = [
        (0, 1),
        (2, 1),
        (5, 3),
        (40, 1),
        (80, 2),
        (130, 6),
        (0, 3),
        (0, 2),
        (0, 6),
        (0, 4),
    ];
    assert_eq!(
        snacks,
        short.map(|(offset, size)| Snack::short(offset, size))
    );
    assert_eq!(connections, [0, 0xb2, 0xdc].into());
}

fn compressed(raw: &[u8]) -> Result<CompressedTcp, Error> {
    let packet = Packet::parse(raw, Checksums::Verify)?;
    assert_eq!(packet.transport.protocol(), protocol::SCPS_TP);
    let Payload::Bytes(body) = packet.payload else {
        panic!("a compressed header");
    };
    CompressedTcp::parse(&packet.ip, &body, Checksums::Verify)
}

#[test]
fn compressed_headers_of_the_reference_implementation_are_read() {
    let all: Vec<_> = lines("compressed")
        .map(|raw| compressed(&raw).unwrap())
        .collect();
    let ack = all
        .iter()
        .find(|header| header.connection == 0xb2 && !header.has_seq);
    let ack = ack.unwrap();
    // The first acknowledgement of data, field by field as the notes of the captures have it.
    assert_eq!(
        (ack.segment.ack.0, ack.segment.window),
        (0xa4d7_6ce6, 0xf424)
    );
    let stamps = Timestamps {
        value: 0xa4e5_33bf,
        echo: 0xa4e0_93b5,
    };
    assert_eq!(ack.segment.timestamps, Some(stamps));
    assert_eq!(ack.segment.flags, Flags::ACK);
    assert!(ack.segment.payload.is_empty());
    let snack = all.iter().find_map(|header| {
        let options = header.segment.options.as_deref()?;
        ScpsOptions::parse(options.unknown.as_deref()?).snack
    });
    assert_eq!(snack, Some(Snack::short(0, 1)));
    let fins = all
        .iter()
        .filter(|header| header.segment.flags.contains(Flags::FIN));
    assert_eq!(fins.clone().count(), 2, "one of each side");
    assert!(
        fins.clone()
            .all(|fin| fin.has_seq && fin.has_ack && fin.segment.payload.is_empty())
    );
}

#[test]
fn a_damaged_compressed_header_is_refused_wherever_it_is_cut_or_inverted() {
    for raw in lines("compressed") {
        for at in 20..raw.len() {
            let mut damaged = raw.clone();
            damaged[at] ^= 1;
            let refused = compressed(&damaged);
            assert!(
                matches!(refused, Err(Error::Checksum { .. })),
                "byte {at}: {refused:?}"
            );
        }
        let ip = match Packet::parse(&raw, Checksums::Verify).unwrap().ip {
            Ip::V4(ip) => Ip::V4(ip),
            other => panic!("{other:?}"),
        };
        for end in 20..raw.len() {
            // No panic, whatever is cut: what is left may be a whole header with less behind it.
            let _ = CompressedTcp::parse(&ip, &raw[20..end], Checksums::Ignore);
        }
    }
}

/// The packets of a capture in the format of libpcap, from their IP headers on.
#[allow(clippy::disallowed_methods, reason = "captures are files")]
fn packets(file: &std::path::Path) -> Vec<Vec<u8>> {
    let all = std::fs::read(file).unwrap();
    let mut rest = &all[24..];
    let mut packets = Vec::new();
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let captured = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
        let (frame, behind) = behind.split_at(captured);
        rest = behind;
        if frame[12..14] == [8, 0] {
            packets.push(frame[14..].to_vec());
        }
    }
    packets
}

/// `BENTPIPE_SCPS_CAPTURES=DIRECTORY cargo test -p bentpipe-wire --test scps -- --ignored`
#[test]
#[ignore = "needs the captures of the reference implementation"]
#[allow(clippy::disallowed_methods, reason = "captures are files")]
fn every_packet_of_the_captures_is_read() {
    let folder = std::env::var_os("BENTPIPE_SCPS_CAPTURES");
    let folder = folder.expect("BENTPIPE_SCPS_CAPTURES names the folder of the captures");
    let (mut options, mut headers) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "pcap") {
            continue;
        }
        for packet in packets(&path) {
            match packet[9] {
                protocol::TCP => {
                    let list = usize::from(packet[32] >> 4) * 4;
                    is_emitted_again(&packet[40..20 + list]);
                    options += 1;
                }
                protocol::SCPS_TP => {
                    compressed(&packet).unwrap();
                    headers += 1;
                }
                other => panic!("protocol {other}"),
            }
        }
    }
    assert_eq!((options, headers), (8_988, 679));
}
