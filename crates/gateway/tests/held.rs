//! SYNs that the kernel drops while they are held, because an nft chain goes from the namespace.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::protocol::{self, Request};
use bentpipe_os::need;
use bentpipe_os::nft::{HoldTable, Holding, Hook, OwnerTable, TableFamily};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use std::net::TcpStream;
use std::path::Path;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use support::{Ip, Listener, Stage, child, eventually, exchange};

/// Clients' second SYNs go after 1 s, the third after 2 or 3: what the second one gets takes no longer.
const BY_THE_SECOND: Duration = Duration::from_millis(1900);

/// The answers (SYN-ACK) of the server's host, which wait there.
struct Answers {
    _hold: HoldTable,
    _tag: OwnerTable,
    queues: Queues,
    waiting: Vec<(u16, u32)>,
}

impl Answers {
    /// From now on they wait.
    fn hold(stage: &Stage) -> Self {
        const TAG: u32 = 0x6200_0010;
        let tag = format!(
            "chain tag {{ type filter hook output priority -302; tcp flags & (syn | ack) == syn | ack meta priority set {TAG:#x}; }}"
        );
        let make = || {
            let queues = Queues::open(1, 100).unwrap();
            let holding = Holding {
                hook: Hook::Output,
                place: -301,
                queues: &[(TAG, queues.first())],
                marked: None,
                looped: None,
            };
            Self {
                _hold: HoldTable::load(&[TableFamily::Ip, TableFamily::Ip6], &holding).unwrap(),
                _tag: OwnerTable::load(TableFamily::Inet, "tag", &tag).unwrap(),
                queues,
                waiting: Vec::new(),
            }
        };
        stage.server.run(make).unwrap()
    }

    /// Waits until there are so many.
    fn await_some(&mut self, count: usize) {
        eventually("the server's answers", || {
            self.queues.receive().unwrap();
            while let Some(waiting) = self.queues.next_packet() {
                self.waiting.push((waiting.queue, waiting.id));
            }
            self.waiting.len() >= count
        });
    }

    /// They go, and none waits any more.
    fn let_go(self) {
        for (queue, id) in &self.waiting {
            self.queues.give(*queue, *id, Verdict::Pass).unwrap();
        }
        self.queues.tell().unwrap();
    }
}

/// A chain goes from the gateway's namespace, and with it all that waits in a queue there.
fn drop_what_is_held(stage: &Stage) {
    stage.apply("table ip another { chain c { type filter hook output priority 0\n } }");
    stage.apply("delete table ip another");
}

/// A client that has come to be connected, and how long that took.
type Connecting<'s> = ScopedJoinHandle<'s, (TcpStream, Duration)>;

/// Clients of each family begin to connect, while what they are to hear from the server waits.
fn begin<'s>(
    scope: &'s std::thread::Scope<'s, '_>,
    stage: &'s Stage,
    listeners: &'s [Listener; 2],
) -> ([Connecting<'s>; 2], Answers) {
    let mut answers = Answers::hold(stage);
    let clients = listeners.each_ref().map(|listener| {
        scope.spawn(|| {
            let begun = Instant::now();
            (stage.connect(listener.address()), begun.elapsed())
        })
    });
    answers.await_some(2);
    (clients, answers)
}

/// Both clients are connected in time, by one connection of their own port each that lives.
fn end(
    clients: [Connecting<'_>; 2],
    listeners: &[Listener; 2],
    patience: Duration,
) -> Vec<(TcpStream, TcpStream)> {
    let ends = clients.into_iter().zip(listeners);
    let pairs = ends.map(|(client, listener)| {
        let (client, took) = client.join().unwrap();
        // What was dialled first may be reset by now.
        let server = std::iter::repeat_with(|| listener.accept())
            .find(|server| server.peer_addr().is_ok())
            .unwrap();
        assert!(took < patience, "{took:?}");
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        let mut pair = (client, server);
        exchange(&mut pair);
        assert!(listener.accept_within(Duration::ZERO).is_none());
        pair
    });
    pairs.collect()
}

fn gateway(stage: &Stage, folder: &Path) -> (child::GatewayProcess, std::path::PathBuf) {
    let path = folder.join("gateway.sock");
    let config = format!("control = \"{}\"\n", path.display());
    (child::start(stage, &config), path)
}

/// When new connections begin to pass.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bypass {
    Never,
    BeforeTheAnswers,
    AfterTheAnswers,
}

/// The client's next SYN is served, by whomever.
#[test]
fn who_is_dropped_is_served_when_it_comes_again() {
    need!(Root, Tproxy);
    std::thread::scope(|scope| {
        for bypass in [
            Bypass::Never,
            Bypass::BeforeTheAnswers,
            Bypass::AfterTheAnswers,
        ] {
            scope.spawn(move || is_served(bypass));
        }
    });
}

fn is_served(bypass: Bypass) {
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let (_gateway, path) = gateway(&stage, folder.path());
    let listeners = Ip::BOTH.map(|ip| stage.listen(ip));
    let turn_on = || protocol::ask(&path, &Request::Bypass { on: true }).unwrap();
    std::thread::scope(|scope| {
        let (clients, answers) = begin(scope, &stage, &listeners);
        drop_what_is_held(&stage);
        if bypass == Bypass::BeforeTheAnswers {
            turn_on();
        }
        answers.let_go();
        if bypass == Bypass::AfterTheAnswers {
            std::thread::sleep(Duration::from_millis(200));
            turn_on();
        }
        let _pairs = end(clients, &listeners, BY_THE_SECOND);
        let split = if bypass == Bypass::Never { 4 } else { 0 };
        assert_eq!(support::connections_of(&stage), split, "{bypass:?}");
    });
}

/// Where addresses are translated the SYN that comes again is not the one that would pass, but it is one to let in.
#[test]
fn who_is_dropped_while_a_translated_dial_takes_long_waits_no_longer() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    stage.apply(
        "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept;
    oifname lan0 masquerade
} }",
    );
    let folder = tempfile::tempdir().unwrap();
    let (_gateway, _) = gateway(&stage, folder.path());
    let listeners = Ip::BOTH.map(|ip| stage.listen(ip));
    std::thread::scope(|scope| {
        let (clients, answers) = begin(scope, &stage, &listeners);
        drop_what_is_held(&stage);
        std::thread::sleep(Duration::from_millis(1200));
        answers.let_go();
        for (client, listener) in clients.into_iter().zip(&listeners) {
            let (client, took) = client.join().unwrap();
            assert!(took < BY_THE_SECOND, "{took:?}");
            exchange(&mut (client, listener.accept()));
        }
    });
}

/// At a handover the predecessor's dials for such SYNs go: the successor dials from the client's own port.
#[test]
fn who_is_dropped_before_a_handover_keeps_its_port() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let (_retired, path) = gateway(&stage, folder.path());
    let _stays = stage.pair(Ip::V4);
    // The SYN after the second comes after 3 s, as most clients send it, where this kernel would send it after 2.
    let linear = "net.ipv4.tcp_syn_linear_timeouts";
    let _ = stage.client.set_sysctl(linear, "0");
    let listeners = Ip::BOTH.map(|ip| stage.listen(ip));
    std::thread::scope(|scope| {
        let (clients, answers) = begin(scope, &stage, &listeners);
        std::thread::sleep(Duration::from_millis(1200));
        drop_what_is_held(&stage);
        answers.let_go();
        let config = format!("control = \"{}\"\n", path.display());
        let _successor = child::start_in_place(&stage, &config);
        let _pairs = end(clients, &listeners, Duration::from_millis(3900));
    });
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
