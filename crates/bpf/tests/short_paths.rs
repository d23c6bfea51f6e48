//! A leg of unknown rate on a short, fast path: a LAN, on which whoever tries the gateway first sees it.
//! Real TCP between two namespaces, against the kernel's cubic over the same path in turn.
//!
//! All of them, with a table of what they measured (root):
//! `cargo test -p bentpipe-bpf --test short_paths -- --ignored --nocapture --test-threads 1`

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]
#![allow(
    clippy::print_stderr,
    reason = "what was measured is shown where asked"
)]

use bentpipe_base::Rate;
use bentpipe_bpf::{Controls, LinkParams, RATE, kernel_name};
use bentpipe_os::netlink::{Veth, VethEnd};
use bentpipe_os::netns::Netns;
use bentpipe_sockets::{socket, tcp};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A mark that no other test has.
const MARK: u32 = 0x7e57_0101;
const MARK_OF_RATE: u32 = 0x7e57_0102;
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 2);

/// Two namespaces and a pair of interfaces.
struct Path {
    sender: Netns,
    receiver: Netns,
    _wire: Veth,
}

impl Path {
    /// `shaper`: how the sender's interface queues, in the words of tc; empty: it does not.
    fn new(shaper: &str) -> Self {
        let [sender, receiver] = ["sender", "receiver"].map(|label| Netns::create(label).unwrap());
        let end = |netns, name| VethEnd { netns, name };
        let wire = Veth::create(end(&sender, "up"), end(&receiver, "up")).unwrap();
        wire.set_up().unwrap();
        for (netns, address) in [(&sender, "10.87.0.1/30"), (&receiver, "10.87.0.2/30")] {
            let netlink = netns.netlink().unwrap();
            netlink.add_address("up", address.parse().unwrap()).unwrap();
        }
        let path = Self {
            sender,
            receiver,
            _wire: wire,
        };
        for words in shaper.split(';').filter(|words| !words.is_empty()) {
            path.tc(words);
        }
        path
    }

    fn tc(&self, words: &str) {
        let mut tc: Command = self.sender.command("tc");
        let done = tc.args(words.split_whitespace()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "tc {words}: {said}");
    }

    /// Megabits a second that arrive in each half second of `seconds`.
    fn transfer(&self, control: &str, mark: u32, flows: usize, seconds: u64) -> Vec<f64> {
        let (listener, port) = self
            .receiver
            .run(|| {
                let listener = TcpListener::bind((RECEIVER, 0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                (listener, port)
            })
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let arrived = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        for _ in 0..flows {
            let stream = self
                .sender
                .run(|| connect((RECEIVER, port).into(), control, mark))
                .unwrap();
            let accepted = listener.accept().unwrap().0;
            let halt = stop.clone();
            threads.push(std::thread::spawn(move || send(stream, &halt)));
            let arrived = arrived.clone();
            threads.push(std::thread::spawn(move || receive(accepted, &arrived)));
        }
        let began = Instant::now();
        let mut halves = Vec::new();
        let mut before = (Duration::ZERO, arrived.load(Relaxed));
        for half in 1..=2 * seconds {
            let at = Duration::from_millis(500) * u32::try_from(half).unwrap();
            std::thread::sleep(at.saturating_sub(began.elapsed()));
            let now = (began.elapsed(), arrived.load(Relaxed));
            let took = (now.0 - before.0).as_secs_f64();
            halves.push(8e-6 * (now.1 - before.1) as f64 / took);
            before = now;
        }
        stop.store(true, Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        halves
    }
}

fn connect(to: SocketAddr, control: &str, mark: u32) -> TcpStream {
    let stream = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    tcp::set_congestion(&stream, control).unwrap();
    socket::set_mark(&stream, mark).unwrap();
    stream.connect(&to.into()).unwrap();
    stream.into()
}

fn send(mut stream: TcpStream, stop: &AtomicBool) {
    let block = vec![7; 128 << 10];
    while !stop.load(Relaxed) && stream.write_all(&block).is_ok() {}
}

fn receive(mut stream: TcpStream, arrived: &AtomicU64) {
    let mut block = vec![0; 128 << 10];
    while let Ok(bytes @ 1..) = stream.read(&mut block) {
        arrived.fetch_add(bytes as u64, Relaxed);
    }
}

/// What `flows` carry from three to four seconds on, in Mbit/s: the mean of `rounds`, under the rate control
/// and under the kernel's cubic in turn.
fn measured(shaper: &str, flows: usize, rounds: u32) -> (f64, f64) {
    let path = Path::new(shaper);
    let mut controls = Controls::load().unwrap();
    let (mut rate, mut cubic) = (0.0, 0.0);
    for _ in 0..rounds {
        controls.configure(MARK, &LinkParams::default()).unwrap();
        let halves = path.transfer(kernel_name(RATE), MARK, flows, 4);
        rate += halves[6..].iter().sum::<f64>() / 2.0 / f64::from(rounds);
        controls.forget(MARK);
        let halves = path.transfer("cubic", 0, flows, 4);
        cubic += halves[6..].iter().sum::<f64>() / 2.0 / f64::from(rounds);
    }
    let what = if shaper.is_empty() {
        "unlimited"
    } else {
        shaper
    };
    eprintln!("{flows} flows, {what}: {rate:.0} Mbit/s, cubic {cubic:.0}");
    (rate, cubic)
}

fn shaped(rate: &str) -> String {
    format!(
        "qdisc add dev up root handle 1: htb default 1; class add dev up parent 1: classid 1:1 htb rate {rate}"
    )
}

#[test]
fn a_short_path_of_unknown_rate_is_filled_as_by_cubic() {
    bentpipe_os::need!(Root, Btf, StructOps);
    // Two transfers on one machine differ by more than a fifth where nothing but it limits them: beside other work (load 4 to 6)
    // 1.02, 0.65 and once 0.38 of cubic were seen, with the same program. Hence not 0.8, which the long one asks of a quiet machine.
    let (rate, cubic) = measured("", 1, 3);
    assert!(rate > 0.5 * cubic, "unlimited: {rate} of {cubic} Mbit/s");
    let shaper = "qdisc add dev up root tbf rate 1gbit burst 128kb limit 2mb";
    let (rate, cubic) = measured(shaper, 1, 1);
    assert!(rate > 0.8 * cubic, "1 Gbit/s: {rate} of {cubic} Mbit/s");
}

#[test]
#[ignore = "a minute and a half, for docs/congestion-control.md"]
fn short_paths_are_filled_as_by_cubic() {
    bentpipe_os::need!(Root, Btf, StructOps);
    for shaper in [String::new(), shaped("1gbit"), shaped("10gbit")] {
        for flows in [1, 100] {
            let (rate, cubic) = measured(&shaper, flows, 3);
            assert!(rate > 0.8 * cubic, "{rate} of {cubic} Mbit/s");
        }
    }
}

/// What is configured holds on a short path too, and is nobody else's business.
#[test]
fn a_configured_rate_is_kept_on_a_short_path() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let path = Path::new("");
    let mut controls = Controls::load().unwrap();
    let params = LinkParams::of_rate(Rate::from_bits_per_sec(50_000_000));
    controls.configure(MARK_OF_RATE, &params).unwrap();
    let halves = path.transfer(kernel_name(RATE), MARK_OF_RATE, 2, 2);
    let mean = halves[1..].iter().sum::<f64>() / 3.0;
    assert!((35.0..50.0).contains(&mean), "{halves:?}");
}
