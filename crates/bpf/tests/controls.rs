//! Loading, sharing and losing the controls, on this kernel and with real sockets. All names but
//! those of the first test are this process's own, so that a gateway at work is not met.

use bentpipe_base::Rate;
use bentpipe_bpf::{Controls, HYBLA, LinkParams, RATE, available, kernel_name};
use bentpipe_os::{socket, tcp};
use socket2::{Domain, Socket, Type};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the other process is to do, if this is the other process.
const ROLE: &str = "BENTPIPE_BPF_TEST_ROLE";

/// Names that no other test has: at most 15 characters.
fn names(test: char) -> [String; 2] {
    let pid = std::process::id();
    [format!("bp{test}h{pid}"), format!("bp{test}r{pid}")]
}

/// A mark that no gateway has.
fn mark(test: u32) -> u32 {
    0x7e57_0000 | (test << 12) | (std::process::id() & 0xfff)
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
    available().iter().any(|offer| offer == name)
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

/// Another process that loads the controls under `names` and configures `mark`.
struct Other(Child);

impl Other {
    fn start(names: &[String; 2], mark: u32) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
            .env(ROLE, format!("{} {} {mark}", names[0], names[1]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines
            .map_while(Result::ok)
            .any(|line| line.contains("ready"));
        let other = Self(child);
        assert!(ready, "the other process could not load");
        other
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "the role of another process, which other tests start"]
fn the_other_process() {
    let role = std::env::var(ROLE).expect("started by another test");
    let [hybla, rate, mark] = role.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let mut controls = Controls::load_renamed(hybla, rate).unwrap();
    controls.configure(mark.parse().unwrap(), &link()).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "ready").unwrap();
    out.flush().unwrap();
    // Until killed, or until the parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn both_controls_are_offered_and_carry_data() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let mut controls = Controls::load().unwrap();
    assert!(offered(HYBLA) && offered(RATE), "{:?}", available());
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
    let [hybla, rate] = names('p');
    let mut controls = Controls::load_renamed(&hybla, &rate).unwrap();
    let mark = mark(2);
    let params = LinkParams::of_rate(Rate::from_bits_per_sec(40_000_000));
    controls.configure(mark, &params).unwrap();
    let took = transfer(&rate, mark, 2_500_000).as_secs_f64();
    // 20 Mbit of payload at 40 Mbit/s on the wire, of which the kernel sends the first ten segments
    // (of 64 kB over loopback) at once.
    assert!((0.35..1.5).contains(&took), "{took} s");
}

#[test]
fn a_killed_holder_takes_the_names_along() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let names = names('k');
    let mark = mark(3);
    let other = Other::start(&names, mark);
    assert!(offered(&names[0]) && offered(&names[1]));
    let (mut sender, mut receiver) = connect(&names[1], mark).unwrap();
    other.kill();
    assert!(
        soon(|| !offered(&names[0]) && !offered(&names[1])),
        "{:?}",
        available()
    );
    let error = connect(&names[1], mark).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    // An open flow lives on.
    sender.write_all(b"still here").unwrap();
    let mut heard = [0; 10];
    receiver.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"still here");
}

#[test]
fn two_processes_share_a_registration_and_the_survivor_takes_it_over() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let names = names('s');
    let (theirs, ours) = (mark(4), mark(5));
    let other = Other::start(&names, theirs);
    let mut controls = Controls::load_renamed(&names[0], &names[1]).unwrap();
    assert!(
        !controls.holds(&names[1]),
        "the other process holds the name"
    );
    controls.configure(ours, &link()).unwrap();
    let taken = controls.configure(theirs, &link()).unwrap_err();
    assert!(taken.to_string().contains("use another mark"), "{taken}");
    // Their programs, our parameters: the flow shows in our link's share.
    transfer(&names[1], ours, 5_000_000);
    assert!(
        controls.share(ours).unwrap().flows >= 1,
        "{:?}",
        controls.share(ours)
    );

    other.kill();
    assert!(soon(|| !offered(&names[1])), "{:?}", available());
    assert!(controls.refresh().unwrap());
    assert!(controls.holds(&names[0]) && controls.holds(&names[1]));
    transfer(&names[1], ours, 5_000_000);
    // What the dead process left is nobody's any more.
    controls.configure(theirs, &link()).unwrap();
}

#[test]
fn nonsense_is_refused_with_the_bounds() {
    bentpipe_os::need!(Root, Btf, StructOps);
    let [hybla, rate] = names('n');
    let mut controls = Controls::load_renamed(&hybla, &rate).unwrap();
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
            .configure(mark(6), &params)
            .unwrap_err()
            .to_string();
        assert!(error.contains("lies outside"), "{error}");
    }
    assert_eq!(controls.share(mark(6)), None);
}
