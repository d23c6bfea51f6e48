//! Policies of IPsec on the gateway (`ip xfrm policy`): what they would not let cross is not split, and nothing hangs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::need;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use support::{HANDSHAKES, Ip, Stage, eventually, exchange};

/// A client's first SYN, and its second and third.
const PATIENCE: Duration = Duration::from_secs(6);

/// What came of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    /// It was made, and nothing crosses.
    Hangs,
    Works,
}

/// `ip xfrm policy CHANGE` for what goes from the client to the server, or back.
fn policy(stage: &Stage, change: &str, forth: bool, ip: Ip, kind: &str) {
    let (one, other) = (ip.client(), ip.server());
    let (from, to) = if forth { (one, other) } else { (other, one) };
    let words = format!("xfrm policy {change} src {from} dst {to} {kind}");
    let mut program = stage.gateway.command("ip");
    let done = program.args(words.trim().split(' ')).status();
    assert!(done.unwrap().success(), "{words}");
}

fn arrives(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    from.write_all(b"hello").is_ok() && to.read_exact(&mut [0; 5]).is_ok()
}

fn outcome(stage: &Stage, ip: Ip) -> Outcome {
    let listener = stage.listen(ip);
    let to = listener.address();
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    let Ok(mut client) = stage.client.run(connect).unwrap() else {
        return Outcome::Refused;
    };
    let Some(mut server) = listener.accept_within(PATIENCE) else {
        return Outcome::Hangs;
    };
    if arrives(&mut client, &mut server) && arrives(&mut server, &mut client) {
        Outcome::Works
    } else {
        Outcome::Hangs
    }
}

/// One policy of each direction, about each way, that blocks or wants what is encrypted.
#[test]
fn a_policy_judges_split_connections_as_forwarded_ones() {
    need!(Root, Tproxy);
    let judged = |ip: Ip, direction: &str, forth: bool, kind: &str| {
        let stage = Stage::new();
        policy(&stage, &format!("add dir {direction}"), forth, ip, kind);
        let without = outcome(&stage, ip);
        let expected = match direction {
            "in" => Outcome::Works,
            _ => Outcome::Refused,
        };
        assert_eq!(without, expected, "{direction} {forth} {kind}");
        for handshake in HANDSHAKES {
            let _gateway = stage.split_after(handshake);
            for _ in 0..2 {
                let with = outcome(&stage, ip);
                let what = format!("{ip:?} {direction} {forth} {kind} {handshake:?}");
                assert_eq!(with, without, "{what}");
            }
        }
    };
    std::thread::scope(|scope| {
        for ip in Ip::BOTH {
            for direction in ["in", "fwd", "out"] {
                for (forth, kind) in [
                    (true, "action block"),
                    (false, "action block"),
                    (true, "tmpl proto esp mode transport"),
                    (false, "tmpl proto esp mode transport"),
                ] {
                    scope.spawn(move || judged(ip, direction, forth, kind));
                }
            }
        }
    });
}

/// What others' connections are judged by, and what both directions have, leaves connections split; what comes later is
/// seen, and what goes.
#[test]
fn only_what_in_and_fwd_judge_apart_passes() {
    need!(Root, Tproxy);
    for (ip, other) in [(Ip::V4, Ip::V6), (Ip::V6, Ip::V4)] {
        let stage = Stage::new();
        let gateway = stage.split();
        let is_split = || {
            let before = gateway.meter.read().accepted;
            let mut pair = stage.pair(ip);
            exchange(&mut pair);
            gateway.meter.read().accepted > before
        };
        policy(&stage, "add dir in", true, other, "action block");
        // Encrypted or not.
        let optional = "tmpl proto esp mode transport level use";
        policy(&stage, "add dir fwd", true, ip, optional);
        policy(&stage, "add dir in", true, ip, optional);
        std::thread::sleep(Duration::from_secs(5));
        assert!(is_split());
        policy(&stage, "delete dir in", true, ip, "");
        eventually("it passes", || !is_split());
        policy(&stage, "add dir in", true, ip, optional);
        eventually("it is split again", is_split);
    }
}
