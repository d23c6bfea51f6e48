//! Real TCP connections through a pair of drivers, on loopback: what a client and its server see is what they would see of each
//! other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

#[path = "carry/far_end_limit.rs"]
mod far_end_limit;

use bentpipe_base::Bytes;
use bentpipe_connect_tcp::{Target, Template};
use bentpipe_quic::{Config, Limits};
use bentpipe_tunnel_sockets::{Driver, Handle, Near, Rule};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::loopback;

/// A near and a far end, each in a thread of its own.
struct Pair {
    near: Near,
    handles: [Handle; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Pair {
    fn new(rules: Vec<Rule>) -> Self {
        Self::with(rules, Limits::default(), 1000)
    }

    /// With so many tunnels, whatever the connection has room for.
    fn with(rules: Vec<Rule>, limits: Limits, tunnels: usize) -> Self {
        let [near, far] = support::configs(limits, Instant::now()).map(|config| Config {
            segments: 16,
            ..config
        });
        let template = Template::of_authority("far.example").unwrap();
        let serve = support::far(&template, rules, tunnels, Duration::from_secs(120));
        let far = Driver::far(&far, loopback(), serve).unwrap();
        let peer = far.address().unwrap();
        let (driver, near) = Driver::near(&near, loopback(), peer, template).unwrap();
        let handles = [driver.handle(), far.handle()];
        let threads =
            [driver, far].map(|driver| thread::spawn(move || driver.run().map(drop).unwrap()));
        let until = Instant::now() + Duration::from_secs(10);
        while !near.is_up() {
            assert!(Instant::now() < until, "the far end is not reached");
            thread::sleep(Duration::from_millis(1));
        }
        Self {
            near,
            handles,
            threads: threads.into(),
        }
    }

    /// With all of this machine to be reached.
    fn open() -> Self {
        Self::new(all())
    }

    /// The far end comes to count so many flows as reset, the near one all of which it has heard that they stood, and neither any as ended.
    fn end_as_resets(&self, count: u64) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let [near, far] = [0, 1].map(|end| {
                let status = self.handles[end].status(Duration::from_secs(5));
                let counters = status.unwrap().counters;
                (counters.opened, counters.reset, counters.ended)
            });
            if near == (near.0, near.0, 0) && far == (count, count, 0) {
                return;
            }
            assert!(Instant::now() < until, "{near:?} {far:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A client's end of a connection that is carried to `target`.
    fn client(&self, target: Target) -> TcpStream {
        support::client(&self.near, target)
    }
}

/// All of this machine may be reached.
fn all() -> Vec<Rule> {
    vec![Rule {
        prefix: "127.0.0.1/32".parse().unwrap(),
        ports: 1..=65_535,
        allow: true,
    }]
}

impl Drop for Pair {
    fn drop(&mut self) {
        for handle in &self.handles {
            handle.stop();
        }
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

/// A server of one connection.
fn serve<T: Send + 'static>(
    act: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (Target, JoinHandle<T>) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let target = listener.local_addr().unwrap().into();
    (
        target,
        thread::spawn(move || act(listener.accept().unwrap().0)),
    )
}

fn is_reset(result: std::io::Result<usize>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn megabytes_there_and_back_and_both_half_closes_arrive() {
    let pair = Pair::open();
    let (target, server) = serve(|mut socket| {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        // The client has said that it has no more, and still listens.
        socket.write_all(&all).unwrap();
        all.len()
    });
    let client = pair.client(target);
    let sent = pattern(5_000_000);
    let mut writer = client.try_clone().unwrap();
    let copy = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    writing.join().unwrap();
    let mut got = Vec::new();
    (&client).read_to_end(&mut got).unwrap();
    assert_eq!(server.join().unwrap(), sent.len());
    assert!(got == sent);
}

/// Bytes that tell where they belong.
fn pattern(length: u32) -> Vec<u8> {
    (0..length)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

/// What the socket takes only in parts is whole in the end.
#[test]
fn a_reader_slower_than_the_tunnel_gets_every_byte() {
    let pair = Pair::open();
    let (target, server) = serve(|mut socket| socket.write_all(&pattern(5_000_000)).unwrap());
    let mut client = pair.client(target);
    // Meanwhile the kernel's buffers fill up, and then the tunnel's window.
    thread::sleep(Duration::from_millis(300));
    let mut got = Vec::new();
    let mut piece = [0; 30_011];
    loop {
        match client.read(&mut piece).unwrap() {
            0 => break,
            read => got.extend_from_slice(&piece[..read]),
        }
    }
    server.join().unwrap();
    assert!(got == pattern(5_000_000));
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let pair = Pair::open();
    let (target, server) = serve(|mut socket| {
        socket.write_all(b"220 ready\r\n").unwrap();
        let mut line = [0; 6];
        socket.read_exact(&mut line).unwrap();
        line
    });
    let mut client = pair.client(target);
    let mut greeting = [0; 11];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
    client.write_all(b"QUIT\r\n").unwrap();
    assert_eq!(&server.join().unwrap(), b"QUIT\r\n");
    // The server has closed.
    assert_eq!(client.read(&mut greeting).unwrap(), 0);
}

#[test]
fn a_port_that_is_closed_or_not_allowed_is_a_reset() {
    let pair = Pair::open();
    let closed = TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    assert!(is_reset(pair.client(closed.into()).read(&mut [0])));
    // Without a rule nothing of this machine is reached, by name neither.
    let pair = Pair::new(Vec::new());
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    for target in [
        address.into(),
        format!("localhost:{}", address.port()).parse().unwrap(),
    ] {
        assert!(is_reset(pair.client(target).read(&mut [0])));
    }
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_name_is_resolved_at_the_far_end() {
    let pair = Pair::open();
    let (target, server) = serve(|mut socket| socket.write_all(b"x").unwrap());
    let mut client = pair.client(format!("localhost:{}", target.port).parse().unwrap());
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    server.join().unwrap();
}

#[test]
fn a_reset_of_either_end_reaches_the_other() {
    let pair = Pair::open();
    // A socket that is closed with data unread is reset by the kernel.
    let (target, server) = serve(|socket| {
        socket.peek(&mut [0]).unwrap();
    });
    let mut client = pair.client(target);
    client.write_all(b"never read").unwrap();
    assert!(is_reset(client.read(&mut [0])));
    server.join().unwrap();

    let (target, server) = serve(|mut socket| {
        socket.write_all(b"never read").unwrap();
        is_reset(socket.read(&mut [0]))
    });
    let client = pair.client(target);
    client.peek(&mut [0]).unwrap();
    drop(client);
    assert!(server.join().unwrap());
}

#[test]
fn a_far_end_that_stops_takes_its_connections_along_and_the_near_one_does_not_wait() {
    let pair = Pair::open();
    let (target, server) = serve(|mut socket| {
        socket.write_all(b"x").unwrap();
        is_reset(socket.read(&mut [0]))
    });
    let mut client = pair.client(target);
    client.read_exact(&mut [0]).unwrap();
    pair.handles[1].stop();
    assert!(is_reset(client.read(&mut [0])));
    assert!(server.join().unwrap());
}

/// Clients that do not read hold their own windows: another is served meanwhile.
#[test]
fn who_does_not_read_disturbs_nobody() {
    let pair = Pair::open();
    let idle: Vec<_> = (0..3)
        .map(|_| {
            let (target, server) = serve(|mut socket| socket.write_all(&[1; 20_000_000]));
            (pair.client(target), server)
        })
        .collect();
    for (client, _) in &idle {
        client.peek(&mut [0]).unwrap();
    }
    let (target, server) = serve(|mut socket| socket.write_all(&[2; 100_000]));
    let mut got = Vec::new();
    pair.client(target).read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), 100_000);
    server.join().unwrap().unwrap();
    // What they have not read is more than all buffers on the way hold.
    assert!(idle.iter().all(|(_, server)| !server.is_finished()));
    // They read again, and get all.
    for (mut client, server) in idle {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), 20_000_000);
        server.join().unwrap().unwrap();
    }
}

/// What waits for those who do not read fills no window of the others, however many they are: as many as fill four windows of
/// the connection stay, and the longest stalled of the others are reset.
#[test]
fn many_who_do_not_read_disturb_nobody() {
    for (count, all_stay) in [(8, true), (24, false)] {
        // A stream's window is 2.5 MB.
        let limits = Limits {
            memory: Bytes(8_000_000),
            ..Limits::default()
        };
        let pair = Pair::with(all(), limits, 1000);
        let idle: Vec<_> = (0..count)
            .map(|_| {
                let (target, server) = serve(|mut socket| socket.write_all(&[1; 20_000_000]));
                (pair.client(target), server)
            })
            .collect();
        thread::sleep(Duration::from_secs(if all_stay { 4 } else { 15 }));
        for _ in 0..5 {
            let begun = Instant::now();
            let (target, server) = serve(|mut socket| socket.write_all(&[2; 100_000]));
            let mut got = Vec::new();
            pair.client(target).read_to_end(&mut got).unwrap();
            assert_eq!(got.len(), 100_000);
            server.join().unwrap().unwrap();
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(5), "{count}: {took:?}");
        }
        let mut whole = 0;
        for (mut client, server) in idle {
            let result = client.read_to_end(&mut Vec::new());
            let is_whole = result.is_ok_and(|got| got == 20_000_000);
            assert_eq!(server.join().unwrap().is_ok(), is_whole);
            whole += usize::from(is_whole);
        }
        if all_stay {
            assert_eq!(whole, count);
        } else {
            assert!((12..count).contains(&whole), "{whole}");
        }
    }
}

#[test]
fn an_urgent_byte_arrives_in_its_place() {
    let pair = Pair::open();
    let said = |mut socket: &TcpStream| {
        socket.write_all(b"abc").unwrap();
        thread::sleep(Duration::from_millis(50));
        rustix::net::send(socket, b"U", rustix::net::SendFlags::OOB).unwrap();
        thread::sleep(Duration::from_millis(50));
        socket.write_all(b"def").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
    };
    let heard = |mut socket: &TcpStream| {
        let mut got = Vec::new();
        socket.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"abcUdef");
    };
    let (target, server) = serve(move |socket| {
        said(&socket);
        heard(&socket);
    });
    let client = pair.client(target);
    heard(&client);
    said(&client);
    server.join().unwrap();
}

/// Where the far end allows no more tunnels, none are offered, and who asked for one is reset after a while.
#[test]
fn beyond_the_far_ends_tunnels_nothing_hangs() {
    let limits = Limits {
        streams: 4,
        ..Limits::default()
    };
    let pair = Pair::with(all(), limits, 1000);
    let mut idle: Vec<_> = (0..4)
        .map(|_| {
            let (target, server) = serve(|mut socket| socket.read(&mut [0]));
            (pair.client(target), server)
        })
        .collect();
    let (target, _) = serve(drop);
    let begun = Instant::now();
    assert!(is_reset(pair.client(target).read(&mut [0])));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(!pair.near.is_up());
    let (client, server) = idle.remove(0);
    drop(client);
    assert_eq!(server.join().unwrap().unwrap(), 0);
    while !pair.near.is_up() {
        assert!(begun.elapsed() < Duration::from_secs(20), "no room");
        thread::sleep(Duration::from_millis(10));
    }
    let (target, server) = serve(|mut socket| socket.write_all(b"x").unwrap());
    pair.client(target).read_exact(&mut [0]).unwrap();
    server.join().unwrap();
}

/// What an end has said before it closed arrives, though its host answers by a reset what the other end says; then that hears the reset.
#[test]
fn what_was_said_before_a_reset_arrives() {
    let pair = Pair::open();
    let (closed, is_closed) = std::sync::mpsc::channel();
    let (target, server) = serve(move |mut socket| {
        socket.read_exact(&mut [0; 1000]).unwrap();
        is_closed.recv().unwrap();
        socket.write_all(b"stop").unwrap();
        let mut got = 1000;
        let mut buffer = [0; 64 << 10];
        while let Ok(read @ 1..) = socket.read(&mut buffer) {
            got += read;
        }
        let begun = Instant::now();
        // Behind the end a reset is told by an error of writing alone.
        while socket.write_all(b"x").is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(10), "no reset");
            thread::sleep(Duration::from_millis(100));
        }
        got
    });
    let mut client = pair.client(target);
    client.write_all(&[7; 3_000_000]).unwrap();
    drop(client);
    // Until all of it has left the client's host, which a reset would keep back.
    thread::sleep(Duration::from_secs(1));
    closed.send(()).unwrap();
    assert_eq!(server.join().unwrap(), 3_000_000);
}

/// Closes a socket by a reset.
fn abort(socket: TcpStream) {
    bentpipe_sockets::socket::abort_on_close(&socket, true).unwrap();
    drop(socket);
}

/// All that comes before a reset, which has to come.
fn read_to_reset(mut socket: &TcpStream) -> usize {
    let mut got = Vec::new();
    let end = socket.read_to_end(&mut got);
    assert!(is_reset(end), "an end in order behind {}", got.len());
    got.len()
}

/// What an end says right before it resets the connection is not overtaken by the reset.
#[test]
fn what_is_said_right_before_a_reset_arrives() {
    let pair = Pair::open();
    for _ in 0..25 {
        let begun = Instant::now();
        // A server that refuses a request whose rest it does not read: its kernel resets the connection when it closes.
        let (target, server) = serve(|mut socket| {
            socket.peek(&mut [0]).unwrap();
            socket.write_all(&[7; 3000]).unwrap();
        });
        let mut client = pair.client(target);
        client.write_all(b"never read").unwrap();
        assert_eq!(read_to_reset(&client), 3000);
        server.join().unwrap();
        // And a client that gives up, perhaps before its server is dialled.
        let (target, server) = serve(|socket| read_to_reset(&socket));
        let mut client = pair.client(target);
        client.write_all(&[7; 3000]).unwrap();
        abort(client);
        assert_eq!(server.join().unwrap(), 3000);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    pair.end_as_resets(50);
}

/// Also where it is the answer to one that has ended its own side.
#[test]
fn what_is_said_before_a_reset_behind_a_half_close_arrives() {
    let pair = Pair::open();
    for _ in 0..25 {
        let (target, server) = serve(|mut socket| {
            assert_eq!(socket.read_to_end(&mut Vec::new()).unwrap(), 5);
            socket.write_all(&[7; 3000]).unwrap();
            abort(socket);
        });
        let mut client = pair.client(target);
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_reset(&client), 3000);
        server.join().unwrap();
    }
    pair.end_as_resets(25);
}

/// A client that gives a download up stops its server at once.
#[test]
fn a_server_whose_client_aborts_stops_within_a_second() {
    let pair = Pair::open();
    let (target, server) = serve(|mut socket| {
        while socket.write_all(&[7; 64 << 10]).is_ok() {}
        Instant::now()
    });
    let mut client = pair.client(target);
    client.read_exact(&mut vec![0; 5_000_000]).unwrap();
    let aborted = Instant::now();
    abort(client);
    let took = server.join().unwrap() - aborted;
    assert!(took < Duration::from_secs(1), "{took:?}");
    pair.end_as_resets(1);
}

/// What was said before a reset waits for a reader that is slow, and not for ever for one that stands still.
#[test]
fn a_slow_reader_gets_what_was_said_before_a_reset_and_one_that_stands_still_is_given_up() {
    let pair = Pair::open();
    let download = || {
        let (target, server) = serve(|mut socket| {
            socket.write_all(&[7; 300_000]).unwrap();
            while bentpipe_sockets::tcp::unacknowledged(&socket).unwrap() > Bytes(0) {
                thread::sleep(Duration::from_millis(1));
            }
            abort(socket);
        });
        let client = pair.client(target);
        server.join().unwrap();
        client
    };
    let slow = download();
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(read_to_reset(&slow), 300_000);
    let still = download();
    let begun = Instant::now();
    while !matches!(still.take_error(), Ok(Some(_))) {
        let waits = begun.elapsed();
        assert!(waits < Duration::from_secs(15), "it is not given up");
        thread::sleep(Duration::from_millis(50));
    }
    pair.end_as_resets(2);
}

/// A reset behind a half-close is told, and so is one of who is not read.
#[test]
fn a_reset_that_reading_does_not_tell_is_told() {
    let pair = Pair::open();
    for closes in [true, false] {
        let (target, server) = serve(move |socket| {
            if closes {
                let mut said = String::new();
                (&socket).read_to_string(&mut said).unwrap();
                assert_eq!(said, "bye");
            }
            let begun = Instant::now();
            while !matches!(socket.take_error(), Ok(Some(_))) {
                assert!(begun.elapsed() < Duration::from_secs(15), "no reset");
                thread::sleep(Duration::from_millis(50));
            }
        });
        let mut client = pair.client(target);
        if closes {
            client.write_all(b"bye").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            thread::sleep(Duration::from_millis(200));
        } else {
            client.set_nonblocking(true).unwrap();
            let mut full = 0;
            while full < 20 {
                if client.write(&[7; 64 << 10]).is_err() {
                    full += 1;
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
        abort(client);
        server.join().unwrap();
    }
}
