//! What the two ends of a connection do.

use super::{abort, exchange, pattern};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are carried each way.
pub const AMOUNT: usize = 2 << 20;

/// Carries [`AMOUNT`] bytes each way at the same time, and their ends.
pub fn carry_both_ways((client, server): (TcpStream, TcpStream)) {
    thread::scope(|scope| {
        for end in [&client, &server] {
            scope.spawn(move || {
                let mut end = end;
                end.write_all(&pattern(AMOUNT)).unwrap();
                end.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let (mut end, mut got) = (end, Vec::new());
                end.read_to_end(&mut got).unwrap();
                assert!(got == pattern(AMOUNT), "other bytes: {}", got.len());
            });
        }
    });
}

/// Reads until there is a reset, `within` that time.
pub fn meets_a_reset(what: &str, stream: &mut TcpStream, within: Duration) {
    let begun = Instant::now();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(1..) => {}
            Ok(0) => panic!("{what}: an end in the place of a reset"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    let took = begun.elapsed();
    assert!(took < within, "{what}: {took:?}");
}

/// Ends new connections from each side in turn by a reset, which has to reach the other.
pub fn resets_reach_the_other_end(connect: impl Fn() -> (TcpStream, TcpStream)) {
    for of_client in [true, false] {
        let mut ends = connect();
        exchange(&mut ends);
        let (client, server) = ends;
        let (closes, mut hears) = if of_client {
            (client, server)
        } else {
            (server, client)
        };
        abort(closes);
        meets_a_reset("the other end", &mut hears, Duration::from_secs(5));
    }
}

/// Tells the threads of a scope that they are to end, also when the test fails: the scope waits for them.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
