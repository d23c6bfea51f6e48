//! A hostile peer of both machines of Saratoga: any frames at any time must neither make them panic
//! nor let them grow without bound.
#![no_main]

use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_saratoga::sender::Congestion;
use bentpipe_saratoga::{HoleEnd, MAX_STRETCHES, Receiver, Sender, receiver, sender};
use bentpipe_wire::saratoga::{Checksum, Entry, EntryKind, Frame, Kind, Metadata, Time, Width};
use core::time::Duration;
use libfuzzer_sys::fuzz_target;

const SESSION: u32 = 0;

fn sender(congestion: Congestion) -> Sender {
    let entry = Entry {
        kind: EntryKind::File,
        width: Width::Bits32,
        unreliable: false,
        size: 100_000,
        modified: Time(0),
        created: Time(0),
        path: "a".to_owned(),
    };
    let metadata = Metadata {
        session: SESSION,
        width: Width::Bits32,
        kind: Kind::File,
        ended: false,
        unreliable: false,
        mode: None,
        checksum: Checksum::None,
        entry,
    };
    let config = sender::Config {
        metadata,
        request: None,
        rate: Rate::from_bits_per_sec(8_000_000),
        payload: 1000,
        overhead: Bytes(28),
        congestion,
        silence: Duration::from_secs(30),
        late_checksum: false,
        nonce: Some(0),
        blind: false,
    };
    Sender::new(config, Instant::ZERO)
}

fn receiver() -> Receiver {
    let config = receiver::Config {
        session: SESSION,
        request: None,
        width: Width::Bits16,
        kept: None,
        unannounced: Bytes(1 << 16),
        hole_end: HoleEnd::Inclusive,
        room: 500,
        silence: Duration::from_secs(30),
        linger: Duration::from_secs(1),
    };
    Receiver::new(config, Instant::ZERO)
}

/// Puts `frame` in, lets the time pass, and takes out what comes.
fn drive<M: Machine<Packet = Frame, Port = ()>>(machine: &mut M, frame: Frame, now: Instant) {
    machine.input((), frame, now);
    machine.timeout(now);
    for _ in 0..100 {
        let Some(((), frame)) = machine.transmit(now) else {
            break;
        };
        let mut octets = Vec::new();
        frame.emit(&mut octets).expect("what is sent can be written");
    }
    while machine.event().is_some() {}
}

fuzz_target!(|bytes: &[u8]| {
    let mut machines = (sender(Congestion::None), sender(Congestion::Tfrc), receiver());
    let mut now = Instant::ZERO;
    // Records of: pause in units of 4 ms, length, frame.
    let mut rest = bytes;
    while let [pause, len, tail @ ..] = rest {
        let (octets, next) = tail.split_at((*len as usize).min(tail.len()));
        rest = next;
        now += Duration::from_millis(4 * u64::from(*pause));
        let Ok((frame, _)) = Frame::parse(octets) else {
            continue;
        };
        drive(&mut machines.0, frame.clone(), now);
        drive(&mut machines.1, frame.clone(), now);
        drive(&mut machines.2, frame, now);
        assert!(machines.2.have().len() <= MAX_STRETCHES);
    }
});
