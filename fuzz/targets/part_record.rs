//! Any record beside the part of a file: it is read or refused, and claims nothing that is not stored.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The length of the part, then the record.
    let Some((stored, record)) = input.split_first_chunk() else {
        return;
    };
    if let Ok(text) = core::str::from_utf8(record) {
        bentpipe_saratoga_files::fuzzing::part_record(text, u16::from_be_bytes(*stored).into());
    }
});
