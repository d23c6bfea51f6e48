//! Urgent data (MSG_OOB): every byte arrives in its place, the urgent ones too, as ordinary bytes.
//!
//! The kernel's reads stop before an urgent byte, and splice(2) does not pass it: there it says "nothing
//! more", and once the peer has closed "the end".

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::need;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;
use support::{Ip, Running, Stage, eventually, in_order, pattern};

/// What a writer does next.
#[derive(Clone, Debug)]
enum Act {
    Write(usize),
    /// Writes so many bytes, of which the last is urgent.
    Urge(usize),
    Pause,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (1usize..200).prop_map(Act::Write),
        3 => (1usize..400_000).prop_map(Act::Write),
        3 => Just(Act::Urge(1)),
        1 => (1usize..50_000).prop_map(Act::Urge),
        1 => Just(Act::Pause),
    ]
}

/// Writes as `acts` say, bytes of [`pattern`], and ends.
fn write(stream: &TcpStream, acts: &[Act]) {
    let total = acts.iter().map(length).sum();
    let bytes = pattern(total);
    let mut left = &bytes[..];
    for act in acts {
        let (piece, after) = left.split_at(length(act));
        match act {
            Act::Write(_) => (&*stream).write_all(piece).unwrap(),
            Act::Urge(_) => urge(stream, piece),
            Act::Pause => std::thread::sleep(Duration::from_millis(3)),
        }
        left = after;
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

fn length(act: &Act) -> usize {
    match act {
        Act::Write(count) | Act::Urge(count) => *count,
        Act::Pause => 0,
    }
}

/// Sends all, each part that the kernel takes with its last byte urgent.
fn urge(stream: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = socket2::SockRef::from(stream).send_out_of_band(bytes);
        bytes = &bytes[sent.unwrap()..];
    }
}

/// Reads to the end, after a rest; `slow`ly, so that the gateway is held back.
fn read(mut stream: &TcpStream, slow: bool) -> Vec<u8> {
    let (mut got, mut buffer) = (Vec::new(), vec![0; 150_000]);
    loop {
        if slow {
            std::thread::sleep(Duration::from_millis(2));
        }
        match stream.read(&mut buffer).unwrap() {
            0 => return got,
            count => got.extend_from_slice(&buffer[..count]),
        }
    }
}

/// `upload` goes by `acts`, and the other way by the same backwards.
fn every_byte_arrives(stage: &Stage, ip: Ip, upload: bool, slow: bool, acts: &[Act]) {
    let (one, other) = in_order(stage.pair(ip), upload);
    let back: Vec<Act> = acts.iter().rev().cloned().collect();
    let total: usize = acts.iter().map(length).sum();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&one, acts));
        scope.spawn(|| write(&other, &back));
        let there = scope.spawn(|| read(&other, slow));
        let again = scope.spawn(|| read(&one, false));
        for (got, way) in [(there, "there"), (again, "back")] {
            let got = got.join().unwrap();
            assert_eq!(got.len(), total, "{way}");
            assert!(got == pattern(total), "{way}: not in order");
        }
    });
}

/// Stages with a gateway for each handshake.
fn stages() -> [(Stage, Running); 2] {
    [Stage::config(), Stage::early()].map(|config| {
        let stage = Stage::new();
        let gateway = stage.split_by(config);
        (stage, gateway)
    })
}

#[test]
fn urgent_bytes_arrive_in_their_place() {
    need!(Root, Tproxy);
    let stages = stages();
    let mut runner = TestRunner::new(Cases {
        cases: 48,
        max_shrink_iters: 64,
        failure_persistence: None,
        ..Cases::default()
    });
    let acts = prop::collection::vec(act(), 1..12);
    let choice = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let property = runner.run(&(acts, choice), |(acts, (early, v6, upload, slow))| {
        let (stage, _) = &stages[usize::from(early)];
        let ip = Ip::BOTH[usize::from(v6)];
        every_byte_arrives(stage, ip, upload, slow, &acts);
        Ok(())
    });
    property.unwrap();
    for (_, gateway) in &stages {
        eventually("the orderly ends", || gateway.meter.read().open == 0);
        assert_eq!(gateway.meter.read().reset, 0);
    }
}

/// One urgent byte between much, then the end: the case of issue 13.
#[test]
fn an_urgent_byte_is_not_taken_for_the_end() {
    need!(Root, Tproxy);
    let acts = [Act::Write(250_000), Act::Urge(1), Act::Write(300_000)];
    for (stage, _gateway) in stages() {
        for ip in Ip::BOTH {
            for upload in [true, false] {
                for slow in [true, false] {
                    every_byte_arrives(&stage, ip, upload, slow, &acts);
                }
            }
        }
    }
}

/// A short read before an urgent byte does not say that nothing is behind it: nobody writes or closes
/// afterwards, so that no other event could tell.
#[test]
fn what_is_behind_an_urgent_byte_does_not_wait() {
    need!(Root, Tproxy);
    for (stage, _gateway) in stages() {
        for ip in Ip::BOTH {
            for upload in [true, false] {
                for size in [3, 100_000] {
                    let (from, mut to) = in_order(stage.pair(ip), upload);
                    support::cork(&from);
                    (&from).write_all(&pattern(size)).unwrap();
                    urge(&from, b"!");
                    (&from).write_all(b"behind").unwrap();
                    socket2::SockRef::from(&from).set_tcp_cork(false).unwrap();
                    let mut got = vec![0; size + 7];
                    to.read_exact(&mut got).unwrap();
                    assert!(got[..size] == pattern(size));
                    assert_eq!(&got[size..], b"!behind", "{ip:?} {upload} {size}");
                }
            }
        }
    }
}
