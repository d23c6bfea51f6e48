//! Many connections that begin at one moment.

use super::support::pair::{Pair, SCPS};
use super::support::{Ip, connect_in, eventually};
use bentpipe_os::need;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CROWD: u64 = 100;
/// How long a read or a write waits before it looks whether the test is over.
const LOOK: Duration = Duration::from_millis(200);

/// Sends for as long as the test lasts.
fn serve(mut stream: TcpStream, over: &AtomicBool) {
    stream.set_nonblocking(false).unwrap();
    stream.set_write_timeout(Some(LOOK)).unwrap();
    let piece = vec![7; 64 << 10];
    while !over.load(Ordering::Relaxed) {
        let waits = |error: &std::io::Error| error.kind() == ErrorKind::WouldBlock;
        if stream.write(&piece).is_err_and(|error| !waits(&error)) {
            break;
        }
    }
}

/// A hundred downloads of one host are all connected, and all get something, while those that came first take the link. Another
/// rate than 200 Mbit/s is told with `BENTPIPE_CROWD_RATE`.
#[test]
fn a_hundred_downloads_at_once_are_connected() {
    need!(Root, Nft, Tproxy);
    let rate = std::env::var("BENTPIPE_CROWD_RATE").unwrap_or("200Mbit/s".to_owned());
    let pair = Pair::new();
    let [near, _far] = pair.split(&SCPS.replace("200Mbit/s", &rate));
    let bound = pair.server.run(|| TcpListener::bind((Ip::V4.server(), 0)));
    let listener = bound.unwrap().unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = listener.local_addr().unwrap();
    let (connected, fed) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let over = &AtomicBool::new(false);
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => drop(scope.spawn(move || serve(stream, over))),
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        });
        for _ in 0..CROWD {
            let client = &pair.client;
            scope.spawn(move || {
                let Ok(mut stream) = connect_in(client, to) else {
                    return;
                };
                connected.fetch_add(1, Ordering::Relaxed);
                stream.set_read_timeout(Some(LOOK)).unwrap();
                let (mut piece, mut got) = (vec![0; 64 << 10], false);
                while !over.load(Ordering::Relaxed) {
                    let read = stream.read(&mut piece).unwrap_or(0);
                    if read > 0 && !std::mem::replace(&mut got, true) {
                        fed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let count = |what: &AtomicU64| what.load(Ordering::Relaxed);
        thread::sleep(Duration::from_secs(5).saturating_sub(begun.elapsed()));
        let (soon, counters) = (count(connected), near.meter.read());
        let begun = format!(
            "{soon} connected and {} fed after 5 s: {counters:?}",
            count(fed)
        );
        let all = std::panic::catch_unwind(|| {
            eventually("all are connected", || count(connected) == CROWD);
            eventually("all get something", || count(fed) == CROWD);
        });
        over.store(true, Ordering::Relaxed);
        all.unwrap();
        // A SYN that is lost goes again after a second, after three and after seven.
        assert!(soon >= CROWD * 9 / 10, "{begun}");
    });
    // The first share that a host has of `half_open` is smaller than the crowd: the others wait for a moment. A SYN that is sent again
    // before there is room passes, and is the kernel's.
    let counters = near.meter.read();
    assert!(
        counters.carried + counters.carried_plain >= CROWD * 9 / 10,
        "{counters:?}"
    );
}
