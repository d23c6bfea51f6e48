//! The Wireshark dissector of Saratoga, run by tshark on a capture of ours: every type of frame, and
//! frames that are cut short.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::Instant;
use bentpipe_wire::pcapng::Writer;
use bentpipe_wire::saratoga::{
    Beacon, Capabilities, Checksum, Code, Data, Entry, EntryKind, Frame, FreeSpace, Hole, Kind,
    Metadata, PORT, Request, RequestKind, Status, Time, Timestamp, Width,
};
use bentpipe_wire::{Ip, Ipv4, Packet, Payload, Transport, Udp};
use core::time::Duration;
use std::process::Command;

fn frames() -> Vec<Frame> {
    let entry = Entry {
        kind: EntryKind::File,
        width: Width::Bits32,
        unreliable: false,
        size: 300_000,
        modified: Time::from_posix(1_600_000_000),
        created: Time(0),
        path: "big.bin".to_owned(),
    };
    let data = Data {
        session: 7,
        width: Width::Bits64,
        kind: Kind::File,
        timestamp: Some(Timestamp([9; 16])),
        status_wanted: true,
        end: true,
        offset: 5_000_000_000,
        len: 3,
    };
    let status = Status {
        session: 7,
        width: Width::Bits32,
        timestamp: None,
        metadata_missing: false,
        incomplete: false,
        voluntary: true,
        code: Code::OK,
        progress: 100,
        in_response_to: 900,
        holes: vec![
            Hole {
                first: 100,
                last: 199,
            },
            Hole {
                first: 300,
                last: 300,
            },
        ],
    };
    vec![
        Frame::Beacon(Beacon {
            capabilities: Capabilities::default(),
            free: Some(FreeSpace {
                width: Width::Bits16,
                kib: 513,
            }),
            name: "ground".to_owned(),
        }),
        Frame::Request(Request {
            capabilities: Capabilities::default(),
            session: 7,
            kind: RequestKind::Take,
            late_checksum: true,
            path: "big.bin".to_owned(),
            authentication: vec![1, 2],
        }),
        Frame::Metadata(Metadata {
            session: 7,
            width: Width::Bits64,
            kind: Kind::File,
            ended: false,
            unreliable: false,
            mode: None,
            checksum: Checksum::Md5([5; 16]),
            entry,
        }),
        Frame::Data(data),
        Frame::Status(Status {
            code: Code::NOT_FOUND,
            progress: 0,
            in_response_to: 0,
            holes: Vec::new(),
            ..status.clone()
        }),
        Frame::Status(status),
    ]
}

fn capture() -> Vec<u8> {
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    for frame in frames() {
        let mut octets = Vec::new();
        frame.emit(&mut octets).unwrap();
        if matches!(frame, Frame::Data(_)) {
            octets.extend_from_slice(b"end");
        }
        datagrams.push(octets);
    }
    // Two alike and a shorter one as they leave in a batch, a STATUS cut short, and version 0.
    let (data, status) = (datagrams[3].clone(), datagrams[5].clone());
    datagrams.push([&data[..], &data, &status].concat());
    datagrams.push(status[..10].to_vec());
    datagrams.push(vec![0x01, 0, 0, 0]);
    let mut writer = Writer::new(Vec::new(), "bentpipe", Duration::ZERO).unwrap();
    let link = writer.interface("link").unwrap();
    for (at, datagram) in (0..).zip(datagrams) {
        let packet = Packet {
            ip: Ip::V4(Ipv4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
            transport: Transport::Udp(Udp {
                source: 40_000,
                destination: PORT,
            }),
            payload: Payload::from(&datagram[..]),
        };
        let octets = packet.to_vec().unwrap();
        writer
            .packet(link, Instant::from_nanos(at), &octets, "")
            .unwrap();
    }
    writer.finish().unwrap()
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
#[allow(clippy::disallowed_methods, reason = "tshark reads files")]
fn tshark_dissects_every_frame() {
    let version = Command::new("tshark").arg("--version").output();
    let able = |text: &[u8]| {
        String::from_utf8_lossy(text)
            .to_lowercase()
            .contains("with lua")
    };
    if !version.is_ok_and(|output| able(&output.stdout)) {
        eprintln!("SKIPPED tshark_dissects_every_frame: there is no tshark with Lua");
        return;
    }
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/wireshark/saratoga.lua"
    );
    let file =
        std::env::temp_dir().join(format!("bentpipe-saratoga-{}.pcapng", std::process::id()));
    std::fs::write(&file, capture()).unwrap();
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{script}"))
        .arg("-r")
        .arg(&file)
        .args(["-T", "fields", "-E", "separator=|"])
        .args([
            "-e",
            "_ws.col.Info",
            "-e",
            "saratoga.session",
            "-e",
            "saratoga.checksum",
        ])
        .args([
            "-e",
            "saratoga.modified",
            "-e",
            "saratoga.hole",
            "-e",
            "saratoga.authentication",
            "-e",
            "saratoga.late_checksum",
        ])
        .args(["-e", "_ws.expert.message"])
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    // A flag is `1` up to Wireshark 4.0, `True` later.
    let said = String::from_utf8(output.stdout).unwrap();
    let said = said.replace("|True|", "|1|");
    let expected = "\
BEACON ground|||||||
REQUEST take big.bin|0x00000007||||0102|1|
METADATA big.bin, 300000 octets|0x00000007|05050505050505050505050505050505|Sep 13, 2020 12:26:40.000000000 UTC||||
DATA 5000000000+3 ask end|0x00000007||||||
STATUS file not found|0x00000007||||||
STATUS 100/900, 2 holes|0x00000007|||100-199,300-300|||
DATA 5000000000+3 ask end (+2 in one batch)|0x00000007,0x00000007,0x00000007|||100-199,300-300|||
STATUS [cut short]|0x00000007||||||Frame is cut short
";
    let (dissected, other) = said.split_at(expected.len().min(said.len()));
    assert_eq!(dissected, expected, "{errors}");
    assert!(other.contains("Not Saratoga version 1"), "{other}");
}
