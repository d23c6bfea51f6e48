//! A gateway that is killed when both ends have said all, and it still has most of it to send.

use super::carried;
use super::support::pair::{Pair, SCPS, split_one};
use super::support::{Ip, PATIENCE, child, eventually, pattern};
use bentpipe_os::need;
use bentpipe_os::sweep::sweep;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::thread;
use std::time::{Duration, Instant};

/// The kernel of the near gateway has nobody left to reset: the far one asks after 10 s of silence, and the host behind answers.
#[test]
fn who_waits_for_a_killed_gateway_hears_a_reset() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let far = split_one(&pair.far, SCPS);
    let slow = SCPS.replace("200Mbit/s", "1Mbit/s");
    let mut near = child::start_in(&pair.near, &slow);
    let (mut client, mut server) = carried(&pair, Ip::V4, &far);
    // The client is not the first to close, and waits for nothing afterwards.
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    let port = format!(":{:04X} ", client.local_addr().unwrap().port());
    client.write_all(&pattern(2 << 20)).unwrap();
    drop(client);
    eventually("the client's end", || {
        let sockets = pair
            .client
            .command("cat")
            .arg("/proc/self/net/tcp")
            .output();
        !String::from_utf8(sockets.unwrap().stdout)
            .unwrap()
            .contains(&port)
    });
    server.read_exact(&mut [0; 4096]).unwrap();
    near.kill();
    // As the unit does. What waits there in TIME_WAIT would have the kernel drop what the client's host answers, for a minute.
    pair.near.run(sweep).unwrap();
    let reader = thread::spawn(move || server.read_to_end(&mut Vec::new()));
    let until = Instant::now() + 3 * PATIENCE;
    while !reader.is_finished() {
        assert!(Instant::now() < until, "the far side hears nothing");
        thread::sleep(Duration::from_millis(10));
    }
    let heard = reader.join().unwrap().map_err(|error| error.kind());
    assert_eq!(heard, Err(ErrorKind::ConnectionReset));
}
