//! Any bytes at the port of the metrics: only the first line counts, and more of them never make a
//! whole head less than whole.
#![no_main]

use bentpipe_gateway_config::http::{is_whole, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|head: &[u8]| {
    let line = head.split(|byte| *byte == b'\r').next().expect("one at least");
    assert_eq!(parse(head), parse(line));
    let (part, _) = head.split_at(head.len() / 2);
    assert!(!is_whole(part) || is_whole(head));
});
