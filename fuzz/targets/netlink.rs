//! Any datagram from netlink, as an answer of each kind that is read: it is read or left out, and what
//! waits in a queue is then read as a SYN.
#![no_main]

use bentpipe_gateway_config::Syn;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let _ = bentpipe_os::fuzzing::netlink(datagram, 0x6200).and_then(Syn::parse);
});
