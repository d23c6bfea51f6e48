//! Any line at the control socket is read or refused, and what is read is written the same way again.
#![no_main]

use bentpipe_gateway_config::request::{LONGEST, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let Ok(request) = parse(line) else {
        return;
    };
    assert!(line.len() <= LONGEST);
    let mut again = serde_json::to_vec(&request).expect("a request is plain data");
    again.push(b'\n');
    assert_eq!(parse(&again).expect("it was one before"), request);
});
