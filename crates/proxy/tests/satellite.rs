//! Real connections through a proxy and a near end, over a link like a geostationary satellite's in wall time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "what was measured, for whoever asks for it"
)]

mod support;

use rustix::time::{ClockId, clock_gettime};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use support::{Pair, Path, geo};

/// A server that hands each of its connections to `act`.
fn serve(act: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let act = &act;
        thread::scope(|scope| {
            for socket in listener.incoming().flatten() {
                scope.spawn(move || act(socket));
            }
        });
    });
    address
}

/// What the threads of servers that have ended took of the processors.
static SERVED: Mutex<Duration> = Mutex::new(Duration::ZERO);

fn cpu(clock: ClockId) -> Duration {
    let spent = clock_gettime(clock);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// A server that answers each request, a number of bytes in eight, by so many.
fn giver() -> SocketAddr {
    serve(|mut socket| {
        let mut wanted = [0; 8];
        if socket.read_exact(&mut wanted).is_ok() {
            let mut left = u64::from_be_bytes(wanted) as usize;
            let piece = vec![7; left.min(PIECE)];
            // Who asked may have gone.
            while left > 0 && socket.write_all(&piece[..left.min(PIECE)]).is_ok() {
                left -= left.min(PIECE);
            }
            *SERVED.lock().unwrap() += cpu(ClockId::ThreadCPUTime);
        }
    })
}

/// Bytes that server and client have in their hands at once: what they do themselves is to take little of the time.
const PIECE: usize = 1 << 17;

/// Fetches `count` bytes, from connecting on.
fn fetch(pair: &Pair, giver: SocketAddr, count: usize) -> Duration {
    let began = Instant::now();
    let mut client = pair.connect(giver);
    client.write_all(&(count as u64).to_be_bytes()).unwrap();
    let mut left = count;
    let mut piece = vec![0; count.min(PIECE)];
    while left > 0 {
        let got = client.read(&mut piece).unwrap();
        assert!(
            got > 0 && got <= left,
            "{left} of {count} bytes are missing"
        );
        left -= got;
    }
    began.elapsed()
}

#[test]
fn a_lossy_satellite_carries_files_both_ways_and_their_ends() {
    let pair = Pair::new(Some(geo(0.01)), geo(0.01));
    let echo = serve(|mut socket| {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        socket.write_all(&all).unwrap();
    });
    let sent: Vec<u8> = (0..1_000_000_u32)
        .map(|at| (at ^ (at >> 8)) as u8)
        .collect();
    let mut client = pair.connect(echo);
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert!(got == sent);
    // A refused dial is a reset.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = pair.connect(closed).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn curl_fetches_and_sends_over_the_satellite() {
    let pair = Pair::new(Some(geo(0.01)), geo(0.01));
    let web = serve(|mut socket| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|read| read > 0) {
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let mut sent = vec![0; length];
        socket.read_exact(&mut sent).unwrap();
        let body = if length > 0 {
            sent
        } else {
            vec![b'x'; 300_000]
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        socket.write_all(answer.as_bytes()).unwrap();
        socket.write_all(&body).unwrap();
    });
    let url = format!("http://{}/", pair.entrance(web));
    let curl = |options: &[&str]| {
        let output = Command::new("curl")
            .args(["-s", "-H", "Expect:"])
            .args(options)
            .arg(&url)
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    assert_eq!(curl(&[]), vec![b'x'; 300_000]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![b'y'; 200_000]).unwrap();
    let from = format!("@{}", file.path().display());
    assert_eq!(curl(&["--data-binary", &from]), vec![b'y'; 200_000]);
}

/// A client that does not read holds its own window; what others fetch meanwhile takes as long as ever.
#[test]
fn a_slow_reader_holds_only_itself() {
    let pair = Pair::new(Some(geo(0.0)), geo(0.0));
    let giver = giver();
    let mut slow = pair.connect(giver);
    slow.write_all(&50_000_000_u64.to_be_bytes()).unwrap();
    thread::sleep(Duration::from_secs(4));
    let took = fetch(&pair, giver, 100_000);
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

/// The figures of docs/distributed.md: `cargo test --release -p bentpipe-proxy --test satellite -- --ignored --nocapture --test-threads 1`.
#[test]
#[ignore = "takes five minutes of a quiet machine"]
fn figures_over_a_satellite() {
    let giver = giver();
    for loss in [0.0, 0.01, 0.05] {
        let pair = Pair::new(Some(geo(loss)), geo(loss));
        let mut fetches: Vec<_> = (0..100).map(|_| fetch(&pair, giver, 100_000)).collect();
        fetches.sort();
        let at = |part: usize| fetches[part].as_secs_f64();
        let (p50, p90, p99) = (at(50), at(90), at(99));
        let mut client = pair.connect(giver);
        let began = Instant::now();
        client.write_all(&200_000_000_u64.to_be_bytes()).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut got = 0;
        while began.elapsed() < Duration::from_secs(60) {
            got += client.read(&mut buffer).unwrap();
        }
        let mbps = got as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64();
        println!(
            "loss {loss}: download {mbps:.2} Mbit/s; 100 kB p50 {p50:.3} p90 {p90:.3} p99 {p99:.3} s"
        );
    }
}

/// No link between, as fast as the machine is, without forward error correction and with it; likewise.
#[test]
#[ignore = "wants a quiet machine"]
fn figures_without_a_link() {
    for fec in ["off", "10%"] {
        let told = Path {
            mbps: 20_000,
            round_trip: Duration::from_millis(2),
            loss: 0.0,
            fec,
        };
        figures_of(&Pair::new(None, told), fec);
    }
}

fn figures_of(pair: &Pair, fec: &str) {
    let giver = giver();
    let spent =
        || cpu(ClockId::ProcessCPUTime) - cpu(ClockId::ThreadCPUTime) - *SERVED.lock().unwrap();
    let before = spent();
    let took = fetch(pair, giver, 1_000_000_000);
    // The server's thread may not have noted its own yet.
    thread::sleep(Duration::from_millis(100));
    let ends = (spent() - before).as_secs_f64();
    println!(
        "fec {fec}: one download: {:.2} Gbit/s, {ends:.2} s of the processors for both ends",
        8.0 / took.as_secs_f64()
    );
    let began = Instant::now();
    let count = 2000;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..count / 4 {
                    fetch(pair, giver, 1000);
                }
            });
        }
    });
    println!(
        "fec {fec}: short connections: {:.0} a second",
        f64::from(count) / began.elapsed().as_secs_f64()
    );
}
