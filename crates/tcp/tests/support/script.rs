//! One endpoint against a script, as packetdrill has it: inject a segment, look at what comes out.
//! Numbers are relative: our SYN and the peer's are both 0.
#![allow(dead_code, reason = "each test file uses its part of the harness")]

use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Config, Connection, Event, State};
use bentpipe_wire::{Ecn, Flags, Payload, SackBlock, Segment, TcpOptions, Timestamps};
use std::sync::Arc;
use std::time::Duration;

/// Close to the wrap, so that every script crosses it.
pub(crate) const OURS: Seq = Seq(u32::MAX - 700);
pub(crate) const PEER: Seq = Seq(u32::MAX - 2);

pub(crate) const ACK: Flags = Flags::ACK;
pub(crate) const SYN: Flags = Flags::SYN;
pub(crate) const FIN: Flags = Flags::FIN;
pub(crate) const RST: Flags = Flags::RST;

/// A segment of the peer: `seq`, `ack` and SACK blocks relative.
#[derive(Clone, Debug)]
pub(crate) struct In(pub(crate) Segment);

pub(crate) fn seg(flags: Flags, seq: i64, ack: i64) -> In {
    In(Segment {
        seq: PEER + seq as u32,
        ack: OURS + ack as u32,
        flags,
        window: 60_000,
        ..Segment::default()
    })
}

impl In {
    pub(crate) fn data(mut self, len: u32) -> Self {
        let offset = u64::from((self.0.seq - PEER.0).0).wrapping_sub(1) & 0xffff_ffff;
        self.0.payload = Payload::Virtual { offset, len };
        self
    }

    pub(crate) fn window(mut self, window: u16) -> Self {
        self.0.window = window;
        self
    }

    pub(crate) fn stamp(mut self, value: u32, echo: u32) -> Self {
        self.0.timestamps = Some(Timestamps { value, echo });
        self
    }

    pub(crate) fn sack(mut self, blocks: &[(u32, u32)]) -> Self {
        let sack = blocks.iter().map(|&(left, right)| SackBlock {
            left: OURS + left,
            right: OURS + right,
        });
        let options = self.0.options.get_or_insert_default();
        options.sack = sack.collect();
        self
    }

    pub(crate) fn options(mut self, options: TcpOptions) -> Self {
        self.0.options = Some(Box::new(options));
        self
    }
}

/// What came out, relative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) len: usize,
    pub(crate) window: u16,
    pub(crate) stamp: Option<Timestamps>,
    pub(crate) sack: Vec<(u32, u32)>,
    pub(crate) options: Option<Box<TcpOptions>>,
    pub(crate) ecn: Ecn,
}

impl Out {
    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }
}

pub(crate) struct Script {
    pub(crate) tcp: Connection,
    pub(crate) now: Instant,
}

/// The RFCs' configuration without options, so that scripts stay short.
pub(crate) fn plain() -> Config {
    Config {
        mss: 1000,
        timestamps: false,
        window_scaling: false,
        sack_blocks: 0,
        nagle: false,
        delayed_ack: Duration::from_millis(100),
        initial_window: 4,
        ..Config::rfc().variant("newreno").expect("a variant")
    }
}

pub(crate) fn mss(mss: u16) -> TcpOptions {
    TcpOptions {
        mss: Some(mss),
        ..TcpOptions::default()
    }
}

impl Script {
    pub(crate) fn connect(config: Config) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            tcp: Connection::connect(Arc::new(config), OURS, now),
            now,
        }
    }

    pub(crate) fn listen(config: Config) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        Self {
            tcp: Connection::listen(Arc::new(config), OURS, now),
            now,
        }
    }

    /// An active open to a peer that takes segments of 1000 and offers `options` besides; the round
    /// trip takes 100 ms.
    pub(crate) fn open_with(config: Config, options: TcpOptions) -> Self {
        let mut script = Self::connect(config);
        let syn = script.out();
        assert!(syn.len() == 1 && syn[0].has(SYN), "{syn:?}");
        script.pass(100);
        let stamp = syn[0].stamp.map(|stamp| (50, stamp.value));
        let mut answer = seg(SYN | ACK, 0, 1).options(options);
        if let Some((value, echo)) = stamp {
            answer = answer.stamp(value, echo);
        }
        script.inject(answer);
        let ack = script.out();
        assert!(ack.len() == 1 && ack[0].len == 0, "{ack:?}");
        assert_eq!(script.tcp.state(), State::Established);
        script.events();
        script
    }

    pub(crate) fn open(config: Config) -> Self {
        Self::open_with(config, mss(1000))
    }

    pub(crate) fn inject(&mut self, segment: In) {
        self.tcp.input(segment.0, self.now);
    }

    /// As [`Self::inject`], by an IP header that says `ecn`.
    pub(crate) fn inject_by(&mut self, ecn: Ecn, segment: In) {
        self.tcp.receive_marked(&segment.0, ecn, self.now);
    }

    /// Time passes, timers expire in order.
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while let Some(at) = self.tcp.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.tcp.timeout(self.now);
            if self.tcp.deadline() == Some(at) {
                break;
            }
        }
        self.now = end;
    }

    /// To the next deadline; returns how long that took, in milliseconds.
    pub(crate) fn expire(&mut self) -> u64 {
        let at = self.tcp.deadline().expect("a timer runs");
        let waited = at.since(self.now);
        self.now = self.now.max(at);
        self.tcp.timeout(self.now);
        waited.as_millis() as u64
    }

    pub(crate) fn out(&mut self) -> Vec<Out> {
        let mut all = Vec::new();
        while let Some(segment) = self.tcp.transmit(self.now) {
            let sack = segment.sack().iter();
            all.push(Out {
                flags: segment.flags,
                seq: (segment.seq - OURS.0).0,
                ack: (segment.ack - PEER.0).0,
                len: segment.payload.len(),
                window: segment.window,
                stamp: segment.timestamps,
                sack: sack
                    .map(|block| ((block.left - PEER.0).0, (block.right - PEER.0).0))
                    .collect(),
                options: segment.options.clone(),
                ecn: self.tcp.ecn(),
            });
        }
        all
    }

    /// Sequence numbers and lengths of the data that comes out.
    pub(crate) fn data(&mut self) -> Vec<(u32, usize)> {
        let out = self.out().into_iter();
        out.filter(|out| out.len > 0)
            .map(|out| (out.seq, out.len))
            .collect()
    }

    /// The acknowledgement numbers of what comes out without data.
    pub(crate) fn acks(&mut self) -> Vec<u32> {
        let out = self.out().into_iter();
        out.filter(|out| out.len == 0).map(|out| out.ack).collect()
    }

    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.tcp.event()).collect()
    }

    /// `count` full segments out, as one window; the first has number `first`.
    pub(crate) fn expect(&mut self, first: u32, count: u32) {
        let expected: Vec<_> = (0..count).map(|i| (first + i * 1000, 1000)).collect();
        assert_eq!(self.data(), expected);
    }
}
