//! Any bytes as a frame of Saratoga: what is read must be written and read again as the same.
#![no_main]

use bentpipe_wire::saratoga::{Frame, entries};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = entries(bytes).count();
    let Ok((frame, payload)) = Frame::parse(bytes) else {
        return;
    };
    let mut written = Vec::new();
    frame.emit(&mut written).expect("what was read can be written");
    written.extend_from_slice(payload);
    let (again, same) = Frame::parse(&written).expect("what was written can be read");
    assert_eq!((again, same), (frame, payload));
});
