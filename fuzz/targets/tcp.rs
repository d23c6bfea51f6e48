//! Two endpoints on a network that loses, repeats and swaps what it likes, with applications that do
//! what they like; in some histories forged segments too. Nothing panics, bounds hold; and unless
//! something was forged, what is read is what was written, all of it in the end.
#![no_main]

use arbitrary::Arbitrary;
use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_tcp::{Config, Connection, Event, State, VARIANTS};
use bentpipe_wire::{Flags, Payload, SackBlock, Segment, TcpOptions, Timestamps};
use core::time::Duration;
use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Arbitrary, Debug)]
struct Plan {
    hosts: [Host; 2],
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
struct Host {
    variant: u8,
    ns2: bool,
    iss: u32,
    mss: u16,
    receive_buffer: u16,
    send_buffer: u16,
    sack_blocks: u8,
    timestamps: bool,
    window_scaling: bool,
    nagle: bool,
    limited_transmit: bool,
    delayed_ack: u8,
    keep_alive: Option<u8>,
}

/// `bool`s name a side.
#[derive(Arbitrary, Debug)]
enum Step {
    Deliver(bool),
    Lose(bool),
    Repeat(bool),
    Swap(bool),
    Wait(u16),
    Write(bool, u16),
    WriteVirtual(bool, u16),
    Read(bool, u16),
    Consume(bool, u16),
    Close(bool),
    Abort(bool),
    Forge(bool, Forged),
}

#[derive(Arbitrary, Debug)]
struct Forged {
    seq: i16,
    ack: i16,
    far: Option<(u32, u32)>,
    flags: u8,
    window: u16,
    len: u16,
    timestamps: Option<(u32, u32)>,
    options: Option<(u16, u8, bool, Vec<(i16, u16)>)>,
}

struct Side {
    connection: Connection,
    /// What it has sent and the network holds.
    sent: VecDeque<Segment>,
    /// The latest numbers that it used.
    seq: Seq,
    ack: Seq,
    written: u64,
    read: u64,
    aborted: bool,
    receive_buffer: u64,
    mss: usize,
}

struct World {
    sides: [Side; 2],
    now: Instant,
    forged: bool,
}

/// What the network holds of one side; more is lost.
const HELD: usize = 200;

/// Without progress this long, something stands still for good.
const HOUR: Duration = Duration::from_secs(3600);

impl Host {
    fn config(&self) -> Config {
        let preset = if self.ns2 {
            Config::ns2()
        } else {
            Config::rfc()
        };
        let variant = &VARIANTS[usize::from(self.variant) % VARIANTS.len()];
        let config = preset
            .variant(variant.name)
            .expect("the table's variants are built in");
        Config {
            mss: self.mss.max(1),
            receive_buffer: Bytes(self.receive_buffer.max(1).into()),
            send_buffer: Bytes(self.send_buffer.max(1).into()),
            sack_blocks: self.sack_blocks % 5,
            timestamps: self.timestamps,
            window_scaling: self.window_scaling,
            nagle: self.nagle,
            limited_transmit: self.limited_transmit,
            delayed_ack: Duration::from_millis(self.delayed_ack.into()),
            keep_alive: self
                .keep_alive
                .map(|seconds| Duration::from_secs(u64::from(seconds) + 1)),
            ..config
        }
    }

    fn side(&self, opens: bool) -> Side {
        let config = self.config();
        let (receive_buffer, mss) = (config.receive_buffer.0, usize::from(config.mss));
        let (config, iss) = (Arc::new(config), Seq(self.iss));
        let connection = if opens {
            Connection::connect(config, iss, Instant::ZERO)
        } else {
            Connection::listen(config, iss, Instant::ZERO)
        };
        Side {
            connection,
            sent: VecDeque::new(),
            seq: iss,
            ack: Seq(0),
            written: 0,
            read: 0,
            aborted: false,
            receive_buffer,
            mss,
        }
    }
}

impl Side {
    fn drain(&mut self, now: Instant) {
        for _ in 0..HELD {
            let Some(segment) = self.connection.transmit(now) else {
                break;
            };
            assert!(
                segment.payload.len() <= self.mss,
                "a segment beyond the MSS"
            );
            self.seq = segment.seq + segment.payload.len() as u32;
            self.ack = segment.ack;
            if self.sent.len() < HELD {
                self.sent.push_back(segment);
            }
        }
        while let Some(event) = self.connection.event() {
            self.aborted |= matches!(event, Event::Aborted(_));
        }
        assert!(
            self.connection.readable() <= self.receive_buffer,
            "beyond the receive buffer"
        );
        let delivered = self.connection.counters().bytes_delivered;
        assert_eq!(delivered, self.read + self.connection.readable());
    }

    fn read(&mut self, len: u16, check: bool) {
        // No longer than it pays: to clear 64 KiB for each segment would be most of the work.
        let len = self.connection.readable().min(len.into());
        let mut out = vec![0; len as usize];
        let got = self.connection.read(&mut out);
        for (offset, byte) in (self.read..).zip(&out[..got]) {
            assert!(
                !check || *byte == Payload::pattern(offset),
                "byte {offset} is another one"
            );
        }
        self.read += got as u64;
    }

    fn write(&mut self, len: u16) {
        let bytes: Vec<u8> = (0..u64::from(len))
            .map(|i| Payload::pattern(self.written + i))
            .collect();
        self.written += self.connection.write(&bytes) as u64;
    }
}

impl Forged {
    /// A segment to a host, near the numbers of its `peer`.
    fn segment(&self, peer: &Side) -> Segment {
        let near = |at: Seq, offset: i16| Seq(at.0.wrapping_add_signed(offset.into()));
        let (seq, ack) = match self.far {
            Some((seq, ack)) => (Seq(seq), Seq(ack)),
            None => (near(peer.seq, self.seq), near(peer.ack, self.ack)),
        };
        let block = |&(left, len): &(i16, u16)| SackBlock {
            left: near(ack, left),
            right: near(ack, left) + u32::from(len),
        };
        let options = self
            .options
            .as_ref()
            .map(|(mss, scale, sack_permitted, blocks)| {
                Box::new(TcpOptions {
                    mss: Some(*mss),
                    window_scale: Some(*scale),
                    sack_permitted: *sack_permitted,
                    sack: blocks.iter().map(block).collect(),
                    unknown: None,
                })
            });
        let len = u32::from(self.len);
        Segment {
            seq,
            ack,
            flags: Flags::from_bits(self.flags.into()),
            window: self.window,
            timestamps: self
                .timestamps
                .map(|(value, echo)| Timestamps { value, echo }),
            options,
            payload: if len == 0 {
                Payload::Absent
            } else {
                Payload::Virtual { offset: 0, len }
            },
        }
    }
}

impl World {
    fn settle(&mut self) {
        let now = self.now;
        for side in &mut self.sides {
            side.drain(now);
        }
    }

    /// The next segment of `from` arrives.
    fn deliver(&mut self, from: usize) -> bool {
        let Some(segment) = self.sides[from].sent.pop_front() else {
            return false;
        };
        self.sides[1 - from].connection.input(segment, self.now);
        true
    }

    fn wait(&mut self, ms: u16) {
        let end = self.now + Duration::from_millis(ms.into());
        for turn in 0.. {
            let due = self
                .sides
                .iter()
                .filter_map(|side| side.connection.deadline());
            let Some(at) = due.min().filter(|at| *at <= end) else {
                break;
            };
            assert!(turn < 100_000, "timers do not come to rest");
            self.now = self.now.max(at);
            for side in &mut self.sides {
                if side.connection.deadline().is_some_and(|at| at <= self.now) {
                    side.connection.timeout(self.now);
                }
            }
            self.settle();
        }
        self.now = end;
    }

    fn step(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Deliver(side) => {
                self.deliver(side.into());
            }
            Step::Lose(side) => {
                self.sides[usize::from(side)].sent.pop_front();
            }
            Step::Repeat(side) => {
                let sent = &mut self.sides[usize::from(side)].sent;
                if let Some(front) = sent.front().cloned().filter(|_| sent.len() < HELD) {
                    sent.push_back(front);
                }
            }
            Step::Swap(side) => {
                let sent = &mut self.sides[usize::from(side)].sent;
                if let Some(front) = sent.pop_front() {
                    sent.push_back(front);
                }
            }
            Step::Wait(ms) => self.wait(ms),
            Step::Write(side, len) => self.sides[usize::from(side)].write(len),
            Step::WriteVirtual(side, len) => {
                let side = &mut self.sides[usize::from(side)];
                side.written += side.connection.write_virtual(len.into());
            }
            Step::Read(side, len) => self.sides[usize::from(side)].read(len, !self.forged),
            Step::Consume(side, len) => {
                let side = &mut self.sides[usize::from(side)];
                side.read += side.connection.consume(len.into());
            }
            Step::Close(side) => self.sides[usize::from(side)].connection.close(now),
            Step::Abort(side) => self.sides[usize::from(side)].connection.abort(now),
            Step::Forge(side, forged) => {
                self.forged = true;
                let side = usize::from(side);
                let segment = forged.segment(&self.sides[1 - side]);
                self.sides[side].connection.input(segment, now);
            }
        }
        self.settle();
    }

    /// The network is good from now on, and the applications read: everything arrives, or at least
    /// goes on to (with buffers of one byte it takes as many round trips).
    fn finish(&mut self) {
        let (mut before, mut since) = (0, self.now);
        for _ in 0..300 {
            while self.deliver(0) || self.deliver(1) {
                self.settle();
                for side in &mut self.sides {
                    side.read(u16::MAX, true);
                }
                self.settle();
            }
            let behind = |at: usize| self.sides[at].read < self.sides[1 - at].written;
            if self.sides.iter().any(|side| side.aborted) || !(behind(0) || behind(1)) {
                return;
            }
            // One side was closed before the handshake: nobody is there to read.
            if self
                .sides
                .iter()
                .any(|side| side.connection.state() == State::Closed)
            {
                return;
            }
            let read = self.sides[0].read + self.sides[1].read;
            if read > before {
                (before, since) = (read, self.now);
            }
            // A paced sender has many timers in the second before its retransmission timer, and that
            // waits for 60 s at most.
            assert!(
                self.now - since < HOUR,
                "bytes are missing and none arrives"
            );
            let due = self
                .sides
                .iter()
                .filter_map(|side| side.connection.deadline());
            let Some(at) = due.min() else {
                panic!("bytes are missing and nothing is due");
            };
            let ms = (at - self.now).as_millis() as u64 + 1;
            self.wait(ms.min(60_000) as u16);
        }
    }
}

fuzz_target!(|plan: Plan| {
    let [opener, listener] = &plan.hosts;
    let sides = [opener.side(true), listener.side(false)];
    let mut world = World {
        sides,
        now: Instant::ZERO,
        forged: false,
    };
    world.settle();
    for step in plan.steps {
        world.step(step);
    }
    if !world.forged {
        world.finish();
    }
});
