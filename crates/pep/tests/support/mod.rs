//! A flow between a host on the ground and one in space, scripted packet by packet.
#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_base::{Instant, Machine, Output, Seq};
use bentpipe_pep::Side;
use bentpipe_pep::snoop::{Config, Counters, Snoop};
use bentpipe_wire::{
    Flags, Ip, Ipv4, Packet, Payload, SackBlock, SackBlocks, Tcp, TcpOptions, Transport,
};
use core::convert::Infallible;
use core::time::Duration;

/// Payload of a data segment: with 40 bytes of headers it is 540 on the wire.
pub(crate) const MSS: u32 = 500;
/// The first data byte: the stream of a script starts here.
pub(crate) const START: u32 = 1000;

/// Segment `n` of the stream, as its sender sends it.
pub(crate) fn data(n: u32) -> Packet {
    data_at(Seq(START) + n * MSS, MSS)
}

/// `len` bytes from `seq` on.
pub(crate) fn data_at(seq: Seq, len: u32) -> Packet {
    let payload = Payload::Virtual {
        offset: u64::from(seq.0),
        len,
    };
    from_ground(seq, Flags::ACK, payload)
}

pub(crate) fn from_ground(seq: Seq, flags: Flags, payload: Payload) -> Packet {
    packet(
        1,
        Tcp {
            source: 80,
            destination: 4000,
            seq,
            ack: Seq(77),
            flags,
            window: 5000,
            ..Tcp::default()
        },
        payload,
    )
}

/// The receiver has everything before segment `n`, and misses that one.
pub(crate) fn ack(n: u32) -> Packet {
    ack_at(Seq(START) + n * MSS, &[])
}

/// The same, with the segments of `blocks` (first, one after the last) beyond the gap.
pub(crate) fn sack(n: u32, blocks: &[(u32, u32)]) -> Packet {
    let seq = |n| Seq(START) + n * MSS;
    let blocks: Vec<SackBlock> = blocks
        .iter()
        .map(|&(left, right)| SackBlock {
            left: seq(left),
            right: seq(right),
        })
        .collect();
    ack_at(seq(n), &blocks)
}

pub(crate) fn ack_at(ack: Seq, blocks: &[SackBlock]) -> Packet {
    packet(2, acknowledgement(ack, blocks), Payload::Absent)
}

/// A bare acknowledgement, to be edited.
pub(crate) fn acknowledgement(ack: Seq, blocks: &[SackBlock]) -> Tcp {
    Tcp {
        source: 4000,
        destination: 80,
        seq: Seq(77),
        ack,
        flags: Flags::ACK,
        window: 8000,
        urgent: 0,
        timestamps: None,
        options: TcpOptions {
            sack: SackBlocks::new(blocks).expect("at most four"),
            ..TcpOptions::default()
        }
        .boxed(),
    }
}

/// A packet of host 1 (ground) or 2 (space).
pub(crate) fn packet(from: u8, tcp: Tcp, payload: Payload) -> Packet {
    let host = |n| [10, 0, 0, n].into();
    Packet {
        ip: Ip::V4(Ipv4::new(host(from), host(3 - from))),
        transport: Transport::Tcp(tcp),
        payload,
    }
}

pub(crate) fn tcp(packet: &Packet) -> &Tcp {
    match &packet.transport {
        Transport::Tcp(tcp) => tcp,
        other => panic!("expected TCP, found {other:?}"),
    }
}

/// All that a proxy sends now.
pub(crate) fn leaving(
    proxy: &mut impl Machine<Packet = Packet, Port = Side, Event = Infallible>,
    now: Instant,
) -> Vec<(Side, Packet)> {
    let mut sent = Vec::new();
    proxy.drain(now, |output| match output {
        Output::Packet(side, packet) => sent.push((side, packet)),
        Output::Event(never) => match never {},
    });
    sent
}

/// The agent, and the time.
pub(crate) struct Script {
    pub(crate) agent: Snoop<Packet>,
    pub(crate) now: Instant,
}

impl Script {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            agent: Snoop::new(config),
            now: Instant::ZERO,
        }
    }

    /// Lets `ms` milliseconds pass and returns what the agent sends meanwhile.
    pub(crate) fn wait(&mut self, ms: u64) -> Vec<(Side, Packet)> {
        let end = self.now + Duration::from_millis(ms);
        let mut sent = Vec::new();
        while let Some(at) = self.agent.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.agent.timeout(self.now);
            sent.extend(self.drain());
        }
        self.now = end;
        sent
    }

    pub(crate) fn drain(&mut self) -> Vec<(Side, Packet)> {
        leaving(&mut self.agent, self.now)
    }

    pub(crate) fn give(&mut self, side: Side, packet: Packet) -> Vec<(Side, Packet)> {
        self.agent.input(side, packet, self.now);
        self.drain()
    }

    /// The sender sends these segments, and each is forwarded and nothing else.
    pub(crate) fn send(&mut self, segments: impl IntoIterator<Item = u32>) {
        for n in segments {
            let out = self.give(Side::Ground, data(n));
            assert_eq!(out, [(Side::Space, data(n))], "segment {n}");
        }
    }

    /// An acknowledgement that the sender gets, and that causes nothing.
    pub(crate) fn passes(&mut self, ack: Packet) {
        let out = self.give(Side::Space, ack.clone());
        assert_eq!(out, [(Side::Ground, ack)]);
    }

    /// An acknowledgement that ends here, and that causes these segments to be sent again.
    pub(crate) fn repairs(&mut self, ack: Packet, segments: &[u32]) {
        let out = self.give(Side::Space, ack);
        let expected: Vec<_> = segments.iter().map(|&n| (Side::Space, data(n))).collect();
        assert_eq!(out, expected);
    }

    /// An acknowledgement that the sender gets, after these segments are sent again.
    pub(crate) fn passes_and_repairs(&mut self, ack: Packet, segments: &[u32]) {
        let out = self.give(Side::Space, ack.clone());
        let mut expected: Vec<_> = segments.iter().map(|&n| (Side::Space, data(n))).collect();
        expected.push((Side::Ground, ack));
        assert_eq!(out, expected);
    }

    /// A duplicate that ends here.
    pub(crate) fn suppresses(&mut self, ack: Packet) {
        self.repairs(ack, &[]);
    }

    pub(crate) fn tally(&self) -> Counters {
        self.agent.tally()
    }
}
