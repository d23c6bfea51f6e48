//! What an end says before it closes, over a link that takes long for it.

use super::carried;
use super::support::pair::{Pair, SCPS, split_one};
use super::support::{Ip, eventually, pattern};
use bentpipe_os::need;
use bentpipe_sockets::tcp;
use std::io::{Read as _, Write as _};
use std::time::Duration;

/// The clients' host answers by a reset what the servers say afterwards. All that the clients had said arrives all the same, though
/// that takes twelve seconds, because they share the link, and then the reset.
#[test]
fn what_was_said_before_a_close_crosses_a_slow_link() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let far = split_one(&pair.far, SCPS);
    let _near = split_one(&pair.near, &SCPS.replace("200Mbit/s", "2Mbit/s"));
    let bytes = pattern(1 << 20);
    let ends = [Ip::V4, Ip::V6, Ip::V4].map(|ip| carried(&pair, ip, &far));
    let servers = ends.map(|(mut client, server)| {
        client.write_all(&bytes).unwrap();
        server
    });
    // The near gateway's carrier has all of it by then.
    std::thread::sleep(Duration::from_secs(1));
    // The second and the third find no connection at the client's gateway any more, nor does a segment beyond the first.
    for question in [&bytes[..8], &bytes[..8], &bytes[..3000]] {
        for mut server in &servers {
            server.write_all(question).unwrap();
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    for mut server in servers {
        let mut got = Vec::new();
        let heard = server.read_to_end(&mut got);
        assert!(heard.is_ok() && got == bytes, "{heard:?} {}", got.len());
        eventually("the reset", || tcp::is_over(&server));
    }
}
