//! Any bytes as a packet: what is read must be written and read again as the same.
#![no_main]

use bentpipe_wire::{Checksums, Packet};
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
});
