//! System calls that fail, each with the errors that it has, again and again, while connections come and go: no wrong
//! byte, no end that was not said, nothing that hangs, nothing left behind.
//!
//! `strace` has the calls of the gateway's working threads fail (`--inject`): the call is not made, and the thread
//! sees the error. The errors `EAGAIN` are not tried: of a socket that is watched edge-triggered a false one hides
//! what no event will tell again, and no kernel gives it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::need;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::{Ip, Listener, Stage, child, connect_in, eventually, exchange, pattern};

/// Calls, and the errors that they have been seen or are documented to have.
const FAILURES: [(&str, &[&str]); 13] = [
    (
        "socket",
        &["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EACCES"],
    ),
    (
        "setsockopt",
        &["ENOMEM", "ENOBUFS", "EPERM", "ENOENT", "EINVAL"],
    ),
    ("bind", &["EADDRINUSE", "EADDRNOTAVAIL", "ENOMEM", "EACCES"]),
    (
        "connect",
        &[
            "EADDRNOTAVAIL",
            "ECONNREFUSED",
            "ENETUNREACH",
            "EHOSTUNREACH",
            "ETIMEDOUT",
            "ENOBUFS",
            "EPERM",
        ],
    ),
    (
        "accept4",
        &["EMFILE", "ENOBUFS", "ECONNABORTED", "EPERM", "EINTR"],
    ),
    ("getsockopt", &["ENOMEM", "ENOPROTOOPT"]),
    ("epoll_ctl", &["ENOMEM", "ENOSPC"]),
    ("pipe2", &["EMFILE", "ENFILE", "ENOMEM"]),
    (
        "splice",
        &[
            "EINVAL",
            "ENOMEM",
            "EPERM",
            "EIO",
            "ECONNRESET",
            "EPIPE",
            "EINTR",
        ],
    ),
    (
        "recvmsg",
        &["ENOMEM", "ENOBUFS", "ECONNRESET", "ETIMEDOUT", "EINTR"],
    ),
    (
        "sendto",
        &["ENOMEM", "ENOBUFS", "EPERM", "ECONNRESET", "EPIPE", "EINTR"],
    ),
    ("recvmmsg", &["ENOMEM", "ENOBUFS", "EINTR"]),
    ("shutdown", &["ENOTCONN", "ENOBUFS"]),
];
/// Which calls of a thread fail: the first so many, and after it one in so many.
const TURNS: [(u32, u32); 2] = [(1, 2), (3, 5)];
const ROUND: Duration = Duration::from_millis(250);
const SIZES: [usize; 4] = [5, 3_000, 100_000, 900_000];

/// `strace` on threads of the gateway; detached when dropped.
struct Injector {
    strace: Child,
    log: tempfile::NamedTempFile,
}

impl Injector {
    fn start(threads: &[String], what: &str) -> Self {
        let (call, _) = what.split_once(':').unwrap();
        Self::attach(threads, call, Some(what))
    }

    /// Lets all calls of this name be made, and notes them.
    fn note(threads: &[String], call: &str) -> Self {
        Self::attach(threads, call, None)
    }

    fn attach(threads: &[String], call: &str, inject: Option<&str>) -> Self {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = Command::new("strace");
        for thread in threads {
            command.args(["-p", thread]);
        }
        if let Some(what) = inject {
            command.args(["-e", &format!("inject={what}")]);
        }
        command
            .args(["-e", &format!("trace={call}"), "-o"])
            .arg(log.path())
            .stderr(Stdio::piped());
        let mut strace = command.spawn().unwrap();
        // It says of each thread that it is attached.
        let mut said = BufReader::new(strace.stderr.take().unwrap());
        for _ in threads {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert!(line.contains("attached"), "{line}");
        }
        std::thread::spawn(move || io::copy(&mut said, &mut io::sink()));
        Self { strace, log }
    }

    /// How many calls have failed so far.
    fn failed(&self) -> usize {
        let log = std::fs::read_to_string(self.log.path()).unwrap();
        log.matches("(INJECTED)").count()
    }

    /// How many calls of this name were made so far.
    fn made(&self, call: &str) -> usize {
        let log = std::fs::read_to_string(self.log.path()).unwrap();
        log.matches(&format!("{call}(")).count()
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        let pid = self.strace.id().to_string();
        // Killed, it would leave the threads stopped.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.strace.wait();
    }
}

/// The threads of a gateway that carry flows, and begin them. Whoever gives one another name, or adds one, says here
/// which it is.
fn working_threads(pid: u32) -> Vec<String> {
    const OTHERS: [&str; 6] = [
        "table",
        "spawner",
        "watchdog",
        "flow-log",
        "chains",
        "gateway_process",
    ];
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let working = tasks.filter_map(|task| {
        let path = task.unwrap().path();
        // It may have ended meanwhile.
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let thread = path.file_name().unwrap().to_str().unwrap().to_owned();
        let name = name.trim();
        let works = name.starts_with("split-");
        // The first thread of all is the test program's.
        let is_known = works || thread == pid.to_string() || OTHERS.contains(&name);
        assert!(is_known, "is `{name}` a thread that works?");
        works.then_some(thread)
    });
    working.collect()
}

/// What a connection came to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Whole,
    /// Refused, reset or given up, which is told.
    Broken,
}

/// The sockets of the client, the gateway and the server, where `ss` is there to tell.
fn sockets_of(stage: &Stage) -> String {
    let all = [&stage.client, &stage.gateway, &stage.server].map(|netns| {
        let told = netns.command("ss").args(["-tanoi"]).output();
        told.map_or_else(
            |error| error.to_string(),
            |told| String::from_utf8_lossy(&told.stdout).into_owned(),
        )
    });
    all.map(|each| format!("\n\n{each}")).concat()
}

/// Sends `size` bytes and an end, and reads the echo to its end.
fn converse(stage: &Stage, to: SocketAddr, size: usize) -> Outcome {
    let broken = |error: io::Error| {
        let told = !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(told, "a connection hangs: {error}{}", sockets_of(stage));
        Outcome::Broken
    };
    let stream = match connect_in(&stage.client, to) {
        Ok(stream) => stream,
        Err(error) => return broken(error),
    };
    let sent = pattern(size);
    let mut got = Vec::new();
    let result = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            (&stream).write_all(&sent)?;
            stream.shutdown(Shutdown::Write)
        });
        let read = (&stream).read_to_end(&mut got);
        read.map(drop).and(writing.join().unwrap())
    });
    assert!(sent.starts_with(&got), "wrong bytes");
    match result {
        // An orderly end is one of everything.
        Ok(()) => assert_eq!(got.len(), sent.len(), "an end that nobody said"),
        Err(error) => return broken(error),
    }
    Outcome::Whole
}

/// Echoes whatever comes, until told to stop.
fn echo(listener: &Listener, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            if let Some(stream) = listener.accept_within(Duration::from_millis(20)) {
                scope.spawn(move || io::copy(&mut &stream, &mut &stream));
            }
        }
    });
}

/// Connections one after another for [`ROUND`], of three clients at once; how many were whole.
fn load(stage: &Stage, to: SocketAddr) -> u64 {
    let whole = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for first in 0..3 {
            let whole = &whole;
            scope.spawn(move || {
                let until = std::time::Instant::now() + ROUND;
                for size in SIZES.iter().cycle().skip(first) {
                    if converse(stage, to, *size) == Outcome::Whole {
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                    if std::time::Instant::now() > until {
                        return;
                    }
                }
            });
        }
    });
    whole.into_inner()
}

/// How often an error is tried: at one of [`TURNS`], the next error at the other, or at each of them.
#[derive(Clone, Copy, PartialEq)]
enum Tries {
    Alternating,
    All,
}

fn calls_fail_and_nothing_else_does(config: &str, calls: &[(&str, &[&str])], tries: Tries) {
    let stage = Stage::new();
    let gateway = child::start(&stage, config);
    let pid = gateway.child.id();
    let listener = stage.listen(Ip::V4);
    let to = listener.address();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echoing = scope.spawn(|| echo(&listener, &stop));
        let _stop = StopAtEnd(&stop);
        assert!(load(&stage, to) > 0);
        let threads = working_threads(pid);
        assert_eq!(threads.len(), 2, "as the configuration says");
        let settled = || support::connections_of(&stage) == 0;
        eventually("the end of what stood", settled);
        let before = support::descriptors_of(pid);
        let mut turns = TURNS.iter().cycle();
        let a_round = match tries {
            Tries::Alternating => 1,
            Tries::All => TURNS.len(),
        };
        for (call, errors) in calls {
            let mut failed = 0;
            for error in *errors {
                for (first, step) in turns.by_ref().take(a_round) {
                    // After an `EMFILE` new connections pass for a while.
                    eventually("splitting", || stage.intercepts());
                    let what = format!("{call}:error={error}:when={first}+{step}");
                    // Whoever looks for a failure wants to know at which call.
                    let said = format!("{what}\n");
                    io::stderr().write_all(said.as_bytes()).unwrap();
                    let injector = Injector::start(&threads, &what);
                    load(&stage, to);
                    failed += injector.failed();
                }
                eventually("the end of what stood", settled);
                let after = support::descriptors_of(pid);
                // Pipes may stay open for the next.
                assert!(after <= before + 130, "{call} {error}: {before}, {after}");
            }
            // The pipes of the first round are kept.
            assert!(failed > 0 || *call == "pipe2", "no {call} has failed");
        }
        eventually("the usual work", || load(&stage, to) > 0);
        assert!(!echoing.is_finished());
    });
}

/// Ends the echo also when a test fails.
struct StopAtEnd<'s>(&'s AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn failing_calls_break_connections_and_nothing_else() {
    need!(Root, Tproxy, Program("strace"));
    // Answered early, the workers make all calls there are.
    let config = "handshake = \"early\"\nthreads = 2\n";
    std::thread::scope(|scope| {
        // Two gateways, for it takes long.
        for calls in FAILURES.chunks(7) {
            scope.spawn(|| calls_fail_and_nothing_else_does(config, calls, Tries::Alternating));
        }
    });
}

#[test]
fn failing_calls_hold_no_syn_up() {
    need!(Root, Tproxy, Program("strace"));
    calls_fail_and_nothing_else_does("threads = 2\n", &FAILURES[..7], Tries::Alternating);
}

#[test]
#[ignore = "three minutes: --ignored"]
fn each_call_fails_at_each_turn() {
    need!(Root, Tproxy, Program("strace"));
    for handshake in ["early", "end-to-end"] {
        let config = format!("handshake = \"{handshake}\"\nthreads = 2\n");
        calls_fail_and_nothing_else_does(&config, &FAILURES, Tries::All);
    }
}

/// The first of three workers fails. Its listeners keep their numbers, by which the kernel finds those of the others, and
/// another worker serves them.
#[test]
fn a_thread_that_fails_leaves_no_connection_hanging() {
    need!(Root, Tproxy, Program("strace"));
    for handshake in ["end-to-end", "early"] {
        let stage = Stage::new();
        let config = format!("handshake = \"{handshake}\"\nthreads = 3\n");
        let gateway = child::start(&stage, &config);
        let pid = gateway.child.id();
        eventually("its threads", || working_threads(pid).len() == 3);
        let workers = working_threads(pid);
        let first = workers.iter().filter(|thread| {
            let path = format!("/proc/{pid}/task/{thread}/comm");
            std::fs::read_to_string(path).unwrap().trim() == "split-0"
        });
        let first: Vec<String> = first.cloned().collect();
        let injector = Injector::start(&first, "epoll_pwait:error=EBADF:when=1");
        eventually("the end of the thread", || working_threads(pid).len() == 2);
        drop(injector);
        let listener = stage.listen(Ip::V4);
        let to = listener.address();
        for _ in 0..60 {
            let began = std::time::Instant::now();
            let mut client = connect_in(&stage.client, to).unwrap();
            let mut server = listener.accept();
            // From another port, it would be the second dial for one client.
            assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
            assert!(
                began.elapsed() < Duration::from_millis(900),
                "a SYN was lost"
            );
        }
        assert!(listener.accept_within(Duration::from_millis(20)).is_none());
    }
}

/// The kernel lets new connections pass as long as a worker hangs, also one that has woken up to read a SYN. When it goes on, the
/// server has answered the same SYN, sent again.
#[test]
fn a_syn_that_is_read_late_passes() {
    need!(Root, Tproxy, Program("strace"));
    for handshake in ["early", "end-to-end"] {
        let stage = Stage::new();
        let config = format!("handshake = \"{handshake}\"\nthreads = 1\n");
        let gateway = child::start(&stage, &config);
        let listener = stage.listen(Ip::V4);
        let threads = working_threads(gateway.child.id());
        let injector = Injector::start(&threads, "recvmmsg:delay_enter=1500000:when=1");
        let began = std::time::Instant::now();
        let client = connect_in(&stage.client, listener.address()).unwrap();
        let server = listener.accept();
        assert!(began.elapsed() > Duration::from_millis(900), "{handshake}");
        std::thread::sleep(Duration::from_secs(2));
        drop(injector);
        support::ends::carry_both_ways((client, server));
    }
}

/// When the kernel tells of a neighbour that does not answer, the dials that are under way are looked at, of which each costs
/// a `getsockname`, and no flow that stands.
#[test]
fn a_silent_neighbour_costs_no_call_for_each_flow() {
    need!(Root, Tproxy, Program("strace"));
    const FLOWS: usize = 200;
    for handshake in ["end-to-end", "early"] {
        let stage = Stage::new();
        let config = format!("handshake = \"{handshake}\"\nthreads = 2\n");
        let gateway = child::start(&stage, &config);
        let mut pairs: Vec<_> = (0..FLOWS).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
        pairs.iter_mut().for_each(exchange);
        assert!(support::connections_of(&stage) > FLOWS, "they are split");
        let threads = working_threads(gateway.child.id());
        for ip in Ip::BOTH {
            let notes = Injector::note(&threads, "getsockname");
            let silent = SocketAddr::new(ip.nobody(), 80);
            let refused = |mut client: TcpStream| client.read(&mut [0]).map(drop);
            let met = stage.try_connect(silent).and_then(refused).unwrap_err();
            let told = [ErrorKind::HostUnreachable, ErrorKind::ConnectionReset];
            assert!(told.contains(&met.kind()), "{handshake} {ip:?}: {met}");
            let made = notes.made("getsockname");
            assert!((1..20).contains(&made), "{handshake} {ip:?}: {made} calls");
        }
        pairs.iter_mut().for_each(exchange);
    }
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
