//! Loading and losing the controls, on this kernel and with real sockets.

use bentpipe_base::Rate;
use bentpipe_bpf::{Controls, HYBLA, LinkParams, RATE, available, kernel_name};
use bentpipe_sockets::{socket, tcp};
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the other process is to do, if this is the other process.
const ROLE: &str = "BENTPIPE_BPF_TEST_ROLE";

/// A mark that no other test has.
fn mark(test: u32) -> u32 {
    0x7e57_0000 | test
}

fn link() -> LinkParams {
    LinkParams::of_rate(Rate::from_bits_per_sec(400_000_000))
}

/// A connected pair over loopback: the sender of `control` and `mark`, and the receiver.
fn connect(control: &str, mark: u32) -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    tcp::set_congestion(&sender, control)?;
    socket::set_mark(&sender, mark)?;
    let address: SocketAddr = listener.local_addr()?;
    sender.connect(&address.into())?;
    Ok((sender.into(), listener.accept()?.0))
}

/// Sends `size` bytes; all must arrive. The time it took.
fn transfer(control: &str, mark: u32, size: usize) -> Duration {
    let (mut sender, mut receiver) = connect(control, mark).expect("a pair");
    assert_eq!(tcp::congestion(&sender).expect("a control"), control);
    let begin = Instant::now();
    let sending = std::thread::spawn(move || sender.write_all(&vec![7; size]));
    let mut received = Vec::new();
    receiver.read_to_end(&mut received).expect("the data");
    sending.join().expect("no panic").expect("all sent");
    assert!(received.len() == size && received.iter().all(|byte| *byte == 7));
    begin.elapsed()
}

fn offered(name: &str) -> bool {
    let all = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    all.expect("the kernel lists them")
        .split_whitespace()
        .any(|offer| offer == name)
}

/// Whether it comes true within a second.
fn soon(holds: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > Duration::from_secs(1) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Another process that loads the controls and configures `mark`.
struct Other {
    child: Child,
    /// Its name for the rate control.
    rate: String,
}

impl Other {
    fn start(mark: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .env(ROLE, mark.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let rate = lines.find_map(|line| Some(line.ok()?.split_once("ready ")?.1.to_owned()));
        let rate = rate.expect("the other process could not load");
        Self { child, rate }
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the role of another process, which other tests start"]
fn the_other_process() {
    let mark = std::env::var(ROLE).expect("started by another test");
    let mut controls = Controls::load().unwrap();
    controls.configure(mark.parse().unwrap(), &link()).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "ready {}", kernel_name(RATE)).unwrap();
    out.flush().unwrap();
    // Until killed, or until the parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn both_controls_are_offered_and_carry_data() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let mut controls = Controls::load().unwrap();
    for name in [HYBLA, RATE] {
        assert!(available().iter().any(|offer| offer == name));
    }
    let mark = mark(1);
    controls.configure(mark, &link()).unwrap();
    for name in [HYBLA, RATE].map(kernel_name) {
        transfer(name, mark, 5_000_000);
        // And where nothing is configured.
        transfer(name, 0, 5_000_000);
    }
    let share = controls.share(mark).expect("configured");
    assert!(share.flows >= 1, "{share:?}");
    controls.forget(mark);
    assert_eq!(controls.share(mark), None);
}

#[test]
fn the_rate_control_keeps_to_the_configured_rate() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let mut controls = Controls::load().unwrap();
    let mark = mark(2);
    let params = LinkParams::of_rate(Rate::from_bits_per_sec(40_000_000));
    controls.configure(mark, &params).unwrap();
    let took = transfer(kernel_name(RATE), mark, 2_500_000).as_secs_f64();
    // 20 Mbit of payload at 40 Mbit/s on the wire, of which the kernel sends the first ten segments
    // (of 64 kB over loopback) at once.
    assert!((0.35..1.5).contains(&took), "{took} s");
}

#[test]
fn a_killed_process_takes_its_names_along() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let mark = mark(3);
    let other = Other::start(mark);
    let theirs = other.rate.clone();
    assert!(offered(&theirs));
    let (mut sender, mut receiver) = connect(&theirs, mark).unwrap();
    other.kill();
    assert!(soon(|| !offered(&theirs)), "{theirs}");
    let error = connect(&theirs, mark).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    // An open flow lives on.
    sender.write_all(b"still here").unwrap();
    let mut heard = [0; 10];
    receiver.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here");
}

/// A listener hands its control down only while that is registered, and else without a word the
/// kernel's default: no other process may have a part in it.
#[test]
fn the_end_of_another_process_changes_nothing() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let mark = mark(4);
    let other = Other::start(mark);
    assert_ne!(other.rate, kernel_name(RATE));
    let mut controls = Controls::load().unwrap();
    controls.configure(mark, &link()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    tcp::set_congestion(&listener, kernel_name(RATE)).unwrap();
    socket::set_mark(&listener, mark).unwrap();
    let theirs = other.rate.clone();
    other.kill();
    assert!(soon(|| !offered(&theirs)), "{theirs}");

    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    assert_eq!(tcp::congestion(&accepted).unwrap(), kernel_name(RATE));
    accepted.write_all(&[7; 100_000]).unwrap();
    client.read_exact(&mut [0; 100_000]).unwrap();
    let share = controls.share(mark).expect("configured");
    assert!(share.flows >= 1, "{share:?}");
}

#[test]
fn all_values_of_a_process_are_one_registration() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let (mut one, mut other) = (Controls::load().unwrap(), Controls::load().unwrap());
    let (first, second) = (mark(5), mark(6));
    one.configure(first, &link()).unwrap();
    other.configure(second, &link()).unwrap();
    drop(one);
    assert_eq!(other.share(first), None, "an orderly end forgets its marks");
    transfer(kernel_name(RATE), second, 5_000_000);
    assert!(other.share(second).unwrap().flows >= 1);
}

#[test]
fn nonsense_is_refused_with_the_bounds() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let mut controls = Controls::load().unwrap();
    let wrong = [
        LinkParams {
            windows: 0,
            ..link()
        },
        LinkParams {
            rtt0: Duration::ZERO,
            ..link()
        },
        LinkParams {
            guard: Some(Duration::from_secs(60)),
            ..link()
        },
        LinkParams::of_rate(Rate::from_bits_per_sec(1)),
    ];
    for params in wrong {
        let error = controls
            .configure(mark(7), &params)
            .unwrap_err()
            .to_string();
        assert!(error.contains("lies outside"), "{error}");
    }
    assert_eq!(controls.share(mark(7)), None);
}
