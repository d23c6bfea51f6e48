//! Sessions as the tests begin them.
#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_saratoga::sender::Congestion;
use bentpipe_saratoga::{HoleEnd, Sender, receiver, sender};
use bentpipe_wire::saratoga::{
    Capabilities, Code, Data, Entry, Frame, Hole, Kind, Metadata, Request, RequestKind, Status,
    Time, Width,
};
use std::time::Duration;

pub(crate) const SESSION: u32 = 0x5a7a_706a;

/// A file of ten packets as [`sending`] sends them.
pub(crate) const SIZE: u64 = 14_440;

pub(crate) fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

pub(crate) fn metadata(size: u64, kind: Kind) -> Metadata {
    let width = Width::holding(size.into()).max(Width::Bits32);
    let entry = Entry {
        width,
        modified: Time(800_000_000),
        created: Time(800_000_000),
        ..Entry::file("data/big.bin", if kind == Kind::Stream { 0 } else { size })
    };
    Metadata::new(SESSION, kind, entry)
}

pub(crate) fn request(kind: RequestKind) -> Request {
    Request {
        capabilities: Capabilities::default(),
        session: SESSION,
        kind,
        late_checksum: false,
        path: "data/big.bin".to_owned(),
        authentication: Vec::new(),
    }
}

/// 8 Mbit/s in packets of 1500 octets over IPv4.
pub(crate) fn sending(size: u64) -> sender::Config {
    sender::Config {
        metadata: metadata(size, Kind::File),
        request: None,
        rate: Rate::from_bits_per_sec(8_000_000),
        payload: 1444,
        overhead: Bytes(28),
        congestion: Congestion::None,
        silence: Duration::from_secs(30),
        late_checksum: false,
        nonce: Some(0x6e6f_6e63),
        blind: false,
    }
}

pub(crate) fn receiving() -> receiver::Config {
    receiver::Config {
        session: SESSION,
        request: None,
        width: Width::Bits16,
        kept: None,
        unannounced: Bytes(1 << 24),
        hole_end: HoleEnd::Inclusive,
        room: 1200,
        silence: Duration::from_secs(30),
        linger: Duration::from_secs(5),
    }
}

/// All frames that the machine has to send now.
pub(crate) fn frames(
    machine: &mut impl Machine<Packet = Frame, Port = ()>,
    now: Instant,
) -> Vec<Frame> {
    std::iter::from_fn(|| machine.transmit(now).map(|((), frame)| frame)).collect()
}

/// All that `from` has to send now reaches `to`.
pub(crate) fn pass(
    from: &mut impl Machine<Packet = Frame, Port = ()>,
    to: &mut impl Machine<Packet = Frame, Port = ()>,
    now: Instant,
) {
    for frame in frames(from, now) {
        to.input((), frame, now);
    }
}

/// All that it has to tell.
pub(crate) fn events<E>(machine: &mut impl Machine<Event = E>) -> Vec<E> {
    std::iter::from_fn(|| machine.event()).collect()
}

pub(crate) fn status(progress: u64, response: u64, holes: &[(u64, u64)]) -> Status {
    Status {
        session: SESSION,
        width: Width::Bits32,
        timestamp: None,
        metadata_missing: false,
        incomplete: false,
        voluntary: false,
        code: Code::OK,
        progress: progress.into(),
        in_response_to: response.into(),
        holes: holes
            .iter()
            .map(|&(first, last)| Hole {
                first: first.into(),
                last: last.into(),
            })
            .collect(),
    }
}

/// A piece of a file of [`SIZE`] octets.
pub(crate) fn data(offset: u64, len: u32) -> Data {
    Data {
        session: SESSION,
        width: Width::Bits32,
        kind: Kind::File,
        timestamp: None,
        status_wanted: false,
        end: offset + u64::from(len) == SIZE,
        offset: offset.into(),
        len,
    }
}

pub(crate) fn announced(size: u64) -> Frame {
    Frame::Metadata(metadata(size, Kind::File))
}

/// A sender that has sent all ten packets of its file, unasked, and when.
pub(crate) fn all_sent() -> (Sender, Instant) {
    let config = sender::Config {
        blind: true,
        ..sending(SIZE)
    };
    let mut sender = Sender::new(config, Instant::ZERO);
    let mut now = Instant::ZERO;
    while sender.all_sent_at().is_none() {
        frames(&mut sender, now);
        now += Duration::from_millis(1);
    }
    (sender, at(1000))
}
