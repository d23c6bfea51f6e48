//! Any packet at the SCONE element: what it advises is lowered once, its checksum stays as right as it was, and all else is as it came.
#![no_main]

use bentpipe_wire::scone::{Advice, advice, lower};
use bentpipe_wire::{Checksums, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|octets: &[u8]| {
    let [signal, packet @ ..] = octets else {
        return;
    };
    let Some(ours) = Advice::of_signal(*signal) else {
        return;
    };
    let _ = advice(packet);
    let was_right = Packet::parse(packet, Checksums::Verify).is_ok();
    let mut passed = packet.to_vec();
    if !lower(&mut passed, ours) {
        assert_eq!(passed, packet);
        return;
    }
    let changed = passed
        .iter()
        .zip(packet)
        .filter(|(now, before)| now != before);
    assert!((1..=4).contains(&changed.count()));
    assert!(!lower(&mut passed.clone(), ours), "it is lowered twice");
    if was_right {
        Packet::parse(&passed, Checksums::Verify).expect("its checksum is right again");
    }
});
