//! What a successor takes over, and when it takes nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::protocol::{self, Request};
use bentpipe_os::need;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Ip, Stage, child, eventually, exchange};

/// What is being made at a handover is seen once by the server, from the client's own port: the SYN that is held passes, or
/// comes again to the successor.
#[test]
fn what_is_dialled_at_a_handover_keeps_its_port() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let config = format!("control = \"{}\"\n", path.display());
    let listeners = Ip::BOTH.map(|ip| stage.listen(ip));
    let _retired = child::start(&stage, &config);
    let _stays = stage.pair(Ip::V4);
    let silence = "table inet silence {
        chain out {
            type filter hook output priority 0; policy accept;
            tcp flags & syn == syn drop
        }
    }";
    let apply = |rules: &str| bentpipe_os::nft::apply(rules).unwrap();
    stage.server.run(|| apply(silence)).unwrap();
    std::thread::scope(|scope| {
        let made = listeners.each_ref().map(|listener| {
            let to = listener.address();
            let stage = &stage;
            scope.spawn(move || stage.connect(to))
        });
        std::thread::sleep(Duration::from_millis(100));
        let successor = child::start_in_place(&stage, &config);
        eventually("the successor at the socket", || {
            child::pid_at(&path) == Some(u64::from(successor.child.id()))
        });
        stage
            .server
            .run(|| apply("delete table inet silence"))
            .unwrap();
        for (client, listener) in made.into_iter().zip(&listeners) {
            let mut pair = (client.join().unwrap(), listener.accept());
            let from = pair.0.local_addr().unwrap();
            assert_eq!(pair.1.peer_addr().unwrap(), from);
            exchange(&mut pair);
            assert!(listener.accept_within(Duration::ZERO).is_none());
        }
    });
}

/// Whom the operator has out of the way stays so over a handover.
#[test]
fn a_bypass_outlives_a_handover() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let config = format!("control = \"{}\"\n", path.display());
    let _retired = child::start(&stage, &config);
    protocol::ask(&path, &Request::Bypass { on: true }).unwrap();
    let done = AtomicBool::new(false);
    // No connection is split meanwhile.
    let _pairs = std::thread::scope(|scope| {
        let pairs = scope.spawn(|| {
            let mut pairs = Vec::new();
            while !done.load(Ordering::Relaxed) && pairs.len() < 400 {
                pairs.push(stage.pair(Ip::BOTH[pairs.len() % 2]));
            }
            pairs
        });
        {
            let _done = support::ends::SetAtEnd(&done);
            hand_over_bypassed(&stage, &path, &config);
        }
        pairs.join().unwrap()
    });
}

fn hand_over_bypassed(stage: &Stage, path: &Path, config: &str) {
    let running = child::start_in_place(stage, config);
    eventually("the successor at the socket", || {
        child::pid_at(path) == Some(u64::from(running.child.id()))
    });
    std::thread::sleep(Duration::from_millis(100));
    let status = protocol::ask(path, &Request::Status).unwrap();
    let status = &status["status"];
    assert_eq!(status["admission"], "bypassed");
    assert_eq!(status["counters"]["accepted"], 0, "{status}");
}

/// Of several successors at once one is left, and no connection is lost.
#[test]
fn of_several_successors_one_is_left() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let config = format!("control = \"{}\"\n", path.display());
    let _first = child::start(&stage, &config);
    let mut standing = Ip::BOTH.map(|ip| stage.pair(ip));
    let mut successors: Vec<_> = (0..5)
        .map(|_| child::attempt_in_place(&stage, &config))
        .collect();
    eventually("one successor", || {
        successors.retain_mut(|each| each.child.try_wait().unwrap().is_none());
        assert!(!successors.is_empty());
        let left = u64::from(successors[0].child.id());
        successors.len() == 1 && child::pid_at(&path) == Some(left)
    });
    assert!(stage.intercepts());
    Ip::BOTH
        .into_iter()
        .for_each(|ip| exchange(&mut stage.pair(ip)));
    standing.iter_mut().for_each(exchange);
}

/// A successor that has given up, while the gateway stood still, is no reason for that one to go.
#[test]
fn a_successor_that_gave_up_retires_nobody() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let gateway = child::start(&stage, &format!("control = \"{}\"\n", path.display()));
    let ask = |ending: &dyn Fn(&UnixStream)| {
        gateway.signal("-STOP");
        let mut asker = UnixStream::connect(&path).unwrap();
        asker.write_all(b"{\"do\":\"retire\"}\n").unwrap();
        ending(&asker);
        gateway.signal("-CONT");
        asker
    };
    drop(ask(&|asker| asker.shutdown(Shutdown::Both).unwrap()));
    let retired = || gateway_ends_within(&gateway, Duration::from_millis(800));
    assert!(!retired());
    assert_eq!(child::pid_at(&path), Some(u64::from(gateway.child.id())));
    // Who only has no more to say still listens.
    let mut asker = ask(&|asker| asker.shutdown(Shutdown::Write).unwrap());
    let mut answer = String::new();
    asker.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("true"), "{answer}");
    assert!(retired());
}

fn gateway_ends_within(gateway: &child::GatewayProcess, time: Duration) -> bool {
    let until = Instant::now() + time;
    let stat = format!("/proc/{}/stat", gateway.child.id());
    let ended = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
    while Instant::now() < until {
        if ended() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
