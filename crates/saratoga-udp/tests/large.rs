//! Large files that are put: the server is asked before all of it is summed up, and where the server takes the checksum last,
//! what it takes begins to go at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Rate;
use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::{Key, client, serve};
use bentpipe_wire::saratoga::Code;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{LINK, Served, code, config, content, get, give, put, run, run_at};

/// Holes take no room, and their sum takes as long as that of everything else: MD5 over so much, half a minute.
const HUGE: u64 = 40_000_000_000;
/// A refusal takes 0.1 s, two round trips, and what a busy host makes of it.
const SOON: Duration = Duration::from_secs(10);

/// A file of `len` octets, the last of which are `end`.
fn file(path: &Path, len: u64, end: &[u8]) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    file.write_all_at(end, len - end.len() as u64).unwrap();
}

fn client() -> client::ClientConfig {
    client::ClientConfig {
        checksum: Algorithm::Md5,
        ..support::client()
    }
}

#[test]
fn what_a_server_refuses_is_refused_before_it_is_summed_up() {
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("huge");
    file(&local, HUGE, b"x");
    for may_put in [false, true] {
        let served = Served::new(serve::ServerConfig {
            put: may_put,
            ..config()
        });
        std::fs::create_dir(served.file("directory")).unwrap();
        std::fs::write(served.file("small"), "content").unwrap();
        // What is longer than this server takes, then what cannot be, of an address that it knows.
        let refused = [
            ("huge", Code::TOO_LONG),
            ("huge", Code::TOO_LONG),
            ("directory", Code::DENIED),
        ];
        for (remote, because) in refused {
            let begun = Instant::now();
            let report = run_at(served.address, client(), put(&local, remote));
            let expected = if may_put { because } else { Code::DENIED };
            assert_eq!(code(report.result), expected, "{may_put} {remote}");
            assert!(begun.elapsed() < SOON, "{:?} {remote}", begun.elapsed());
            run(&served, get("small", here.path())).unwrap();
        }
        assert_eq!(served.count(), 2);
    }
}

#[test]
fn where_no_server_is_that_is_said_before_it_is_summed_up() {
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("huge");
    file(&local, HUGE, b"x");
    // It hears everything, and says nothing.
    let mute = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut config = client();
    config.link.silence = Duration::from_secs(2);
    let begun = Instant::now();
    let report = run_at(mute.local_addr().unwrap(), config, put(&local, "huge"));
    assert!(report.result.is_err() && begun.elapsed() < SOON);
}

/// With a key and without; put, and given, which deletes here what has arrived there.
#[test]
fn what_is_sent_before_it_is_summed_up_arrives_whole() {
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("large");
    // MD5 over it takes longer than the time after which the server is asked.
    let len = 400_000_000;
    let end = content(3_000_000);
    let secret = here.path().join("key");
    std::fs::write(&secret, "a key that both sides have").unwrap();
    let key = Key::load(&secret).unwrap();
    for (key, gives) in [(None, false), (None, true), (Some(key), true)] {
        file(&local, len, &end);
        let mut link = LINK;
        link.rate = Rate::from_bits_per_sec(20_000_000_000);
        let served = Served::new(serve::ServerConfig {
            max_size: len,
            key: key.clone(),
            link,
            ..config()
        });
        let client = client::ClientConfig {
            key,
            link,
            ..client()
        };
        let job = if gives { give } else { put }(&local, "large");
        run_at(served.address, client, job).result.unwrap();
        let there = File::open(served.file("large")).unwrap();
        assert_eq!(there.metadata().unwrap().len(), len);
        let mut arrived = vec![0; end.len() + 1];
        let from = len - arrived.len() as u64;
        there.read_exact_at(&mut arrived, from).unwrap();
        assert!(arrived[0] == 0 && arrived[1..] == end);
        assert_eq!(local.exists(), !gives);
    }
}
