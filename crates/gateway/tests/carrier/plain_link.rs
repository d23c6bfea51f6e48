//! A pair over plain interfaces, which carry all that anybody sends at once.

use super::carried;
use super::liar::sent_to_space;
use super::support::pair::{Pair, SCPS};
use super::support::{Ip, abort, eventually};
use bentpipe_os::need;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// While a socket of the gateway sends as fast as the carrier takes it, the link has its rate all the same: its acknowledgements and the
/// timers of pacing have their turns.
#[test]
fn who_sends_without_end_leaves_the_link_its_turns() {
    const MANY: u64 = 16 << 20;
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let gateways = pair.split(&format!("{SCPS}send_buffer = \"64MiB\"\n"));
    let near = &gateways[0];
    let (mut client, mut server) = carried(&pair, Ip::V4, near);
    let done = Arc::new(AtomicBool::new(false));
    let goes_on = Arc::clone(&done);
    let goes_on = move || !goes_on.load(Ordering::Relaxed);
    let writes_on = goes_on.clone();
    let writes = thread::spawn(move || {
        while writes_on() {
            let sent = client.write_all(&[7; 1 << 18]);
            // Once all is over, the server resets what it has not read.
            assert!(sent.is_ok() || !writes_on(), "{sent:?}");
        }
        abort(client);
    });
    let reads = thread::spawn(move || {
        let mut buffer = vec![0; 1 << 18];
        while goes_on() {
            let got = server.read(&mut buffer);
            // The client's reset may be what comes last.
            if goes_on() {
                assert!(got.unwrap() > 0);
            }
        }
    });
    let taken = |least: u64| {
        eventually("bytes that are taken", || {
            near.meter.read().bytes_to_sat >= least
        });
        (Instant::now(), sent_to_space(&pair.near))
    };
    let (begun, before) = taken(MANY / 4);
    let (ended, after) = taken(MANY);
    let of_the_rate = (after - before) as f64 / 25e6 / (ended - begun).as_secs_f64();
    // Nothing at all before each queue had its turns. On a busy machine the carrier itself has few.
    assert!(of_the_rate > 0.1, "{of_the_rate} of the rate");
    done.store(true, Ordering::Relaxed);
    writes.join().unwrap();
    reads.join().unwrap();
}
