//! Any bytes as a packet: what is read must be written and read again as the same. What it has of SCPS-TP too.
#![no_main]

use bentpipe_wire::scps::{CompressedTcp, ScpsOptions};
use bentpipe_wire::{Checksums, Packet, Payload, Transport, protocol};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Packet::parse(bytes, Checksums::Verify);
    let Ok(packet) = Packet::parse(bytes, Checksums::Ignore) else {
        return;
    };
    let written = packet.to_vec().expect("what was read can be written");
    assert_eq!(written.len() as u64, packet.length().0);
    let again = Packet::parse(&written, Checksums::Verify).expect("what was written can be read");
    assert_eq!(again, packet);
    // Written once, the bytes are settled: order of options, padding, checksums.
    assert_eq!(again.to_vec().expect("it was written before"), written);
    match (&packet.transport, &packet.payload) {
        (Transport::Tcp(tcp), _) => {
            let unknown = tcp
                .options
                .as_deref()
                .and_then(|all| all.unknown.as_deref());
            let scps = unknown.map_or_else(ScpsOptions::default, ScpsOptions::parse);
            if let Some(raw) = scps.to_raw().expect("part of a header that was read") {
                assert_eq!(ScpsOptions::parse(&raw), scps);
            }
        }
        (
            Transport::Other {
                protocol: protocol::SCPS_TP,
            },
            Payload::Bytes(body),
        ) => {
            let _ = CompressedTcp::parse(&packet.ip, body, Checksums::Ignore);
        }
        _ => {}
    }
});
