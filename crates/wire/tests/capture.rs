//! Captures read back by tshark, field by field.

mod common;

use bentpipe_base::Instant;
use bentpipe_wire::{Ip, Ipv6, Payload, pcapng::Writer};
use common::segment;
use core::time::Duration;
use std::process::Command;

/// The capture of three packets at two interfaces.
#[allow(clippy::unwrap_used, reason = "part of tests")]
fn capture() -> Vec<u8> {
    let epoch = Duration::from_secs(1_700_000_000);
    let mut writer = Writer::new(Vec::new(), "bentpipe", epoch).unwrap();
    let forward = writer.interface("forward").unwrap();
    let back = writer.interface("back").unwrap();
    let four = segment(Payload::from(&b"odd"[..])).to_vec().unwrap();
    let mut six = segment(Payload::Absent);
    six.ip = Ip::V6(Box::new(Ipv6::new([1; 16].into(), [2; 16].into())));
    let six = six.to_vec().unwrap();
    let at = Instant::from_nanos;
    writer.packet(forward, at(1), &four, "").unwrap();
    writer
        .packet(back, at(2_000_000_003), &six, "lost on the way")
        .unwrap();
    writer
        .packet(forward, at(2_000_000_004), &four, "")
        .unwrap();
    writer.finish().unwrap()
}

#[test]
fn every_block_says_its_length_twice_and_ends_on_a_word() {
    let bytes = capture();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut kinds) = (0, Vec::new());
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        assert_eq!(len % 4, 0);
        assert_eq!(word(at + len - 4) as usize, len);
        kinds.push(word(at));
        at += len;
    }
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 6, 6]);
}

#[test]
fn a_packet_beyond_the_format_is_refused() {
    let mut writer = Writer::new(Vec::new(), "bentpipe", Duration::ZERO).unwrap();
    let name = "x".repeat(65_536);
    let refused = writer.interface(&name).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
#[allow(clippy::disallowed_methods, reason = "tshark reads files")]
fn tshark_reads_it_back() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED tshark_reads_it_back: tshark is not installed");
        return;
    }
    let file = std::env::temp_dir().join(format!("bentpipe-capture-{}.pcapng", std::process::id()));
    std::fs::write(&file, capture()).unwrap();
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.len",
        "frame.comment",
        "ip.dst",
        "ipv6.dst",
        "tcp.seq_raw",
        "_ws.malformed",
    ];
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(&file)
        .args(["-T", "fields", "-E", "separator=|"]);
    fields.iter().for_each(|field| {
        tshark.args(["-e", field]);
    });
    let output = tshark.output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let expected = "1700000000.000000001|forward|43||10.0.0.2||1000|\n\
         1700000002.000000003|back|60|lost on the way||202:202:202:202:202:202:202:202|1000|\n\
         1700000002.000000004|forward|43||10.0.0.2||1000|\n";
    assert_eq!(lines, expected, "{errors}");
}
