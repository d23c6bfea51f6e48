//! One endpoint of SCPS-TP, and a peer that says what it likes: SNACKs of holes beyond the window, of 65,535 units, thousands
//! in a row, with any bit vector; SACK, data with holes of any kind, options of no sense. What is sent stays below the rate,
//! what is remembered below a bound, and each call comes to an end.
#![no_main]

#[path = "support/allocated.rs"]
mod allocated;

use allocated::allocated;
use arbitrary::Arbitrary;
use bentpipe_base::{Bytes, Instant, Rate, Seq};
use bentpipe_tcp::{Config, Connection, LossCause, State};
use bentpipe_wire::scps::{Capabilities, CapabilityVector, ScpsOptions, Snack};
use bentpipe_wire::{Flags, Payload, RawOptions, SackBlock, Segment, TcpOptions, Timestamps};
use core::time::Duration;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const OURS: Seq = Seq(u32::MAX - 70_000);
const PEER: Seq = Seq(u32::MAX - 30_000);
/// Milliseconds that one connection lives at most: the timers of an hour are not what is looked for.
const LIFE: u64 = 600_000;
/// What one connection may remember beside its buffers: a list of holes to announce (1,024), and each segment under way.
const REMEMBERED: i64 = 256 << 10;
const A_SEGMENT: i64 = 400;

#[derive(Arbitrary, Debug)]
struct Plan {
    mss: u16,
    peer_mss: u16,
    /// In kbit/s.
    rate: u16,
    timestamps: bool,
    sack: bool,
    congestion: bool,
    snack_delay: u8,
    short_snacks_only: bool,
    /// Milliseconds that the peer is believed to experience corruption.
    corruption: Option<u8>,
    send_buffer: u16,
    receive_buffer: u16,
    capabilities: u8,
    opens: bool,
    /// Between the first segment of the peer and its answer, in milliseconds.
    handshake: u16,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Wait(u16),
    Write(u16),
    Says(Says),
    /// The same thing so many times.
    Repeats(u16, Says),
    Data(i32, u16),
    Reads(u16),
    LinkOut,
    LinkRestored,
    /// A packet of the peer arrives damaged.
    Damaged,
}

#[derive(Arbitrary, Debug)]
struct Says {
    /// From the first byte that is not acknowledged on.
    ack: i16,
    window: u16,
    snack: Option<(u16, u16, Vec<u8>)>,
    corruption: bool,
    sack: Vec<(u16, u16)>,
    raw: Vec<u8>,
    echo: Option<u16>,
}

struct World {
    tcp: Connection,
    now: Instant,
    stamps: bool,
    clock: u32,
    /// Bytes that were written, of which so many may wait for their acknowledgement: a stream that exists only as a count
    /// knows no bound of its own.
    written: u64,
    send_buffer: u64,
    /// Payload that was sent since the connection stood, and when that was.
    sent: u64,
    since: Option<Instant>,
    rate: Rate,
    wire: u64,
    allocated: i64,
    memory: i64,
}

impl World {
    fn drain(&mut self) {
        for turn in 0.. {
            assert!(turn < 100_000, "it sends without end");
            let Some(segment) = self.tcp.transmit(self.now) else {
                break;
            };
            if let Some(stamp) = segment.timestamps {
                self.clock = stamp.value;
            }
            self.sent += segment.payload.len() as u64;
            assert!(20 + segment.header_len() as u64 + segment.payload.len() as u64 <= self.wire);
        }
        while self.tcp.event().is_some() {}
        if self.tcp.state() == State::Established && self.since.is_none() {
            (self.since, self.sent) = (Some(self.now), 0);
        }
        let Some(since) = self.since else {
            return;
        };
        // What is paced: the link's rate, and what a pacer that waits may make up for, twice a segment beside.
        let time = self.now.since(since) + Duration::from_millis(10);
        let most = self.rate.over(time).0 + 2 * self.wire;
        assert!(self.sent <= most, "{} bytes, not {most}", self.sent);
        let allocated = allocated() - self.allocated;
        assert!(
            allocated <= self.memory,
            "{allocated} bytes, not {}",
            self.memory
        );
    }

    fn wait(&mut self, ms: u16) {
        let end = self.now + Duration::from_millis(ms.into());
        for turn in 0.. {
            assert!(turn < 1_000_000, "timers do not come to rest");
            let Some(at) = self.tcp.deadline().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.tcp.timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn arrives(&mut self, segment: Segment) {
        self.tcp.input(segment, self.now);
        self.drain();
    }

    fn segment(&self, says: &Says) -> Segment {
        let acked = self.tcp.counters().bytes_acked as u32;
        let ack = (OURS + 1 + acked).0.wrapping_add_signed(says.ack.into());
        let snack = says.snack.as_ref().map(|(offset, size, vector)| {
            // As much as a header holds.
            let few = vector.len().min(34);
            Snack {
                vector: vector[..few].into(),
                ..Snack::short(*offset, *size)
            }
        });
        let scps = ScpsOptions {
            snack,
            corruption_experienced: says.corruption,
            ..ScpsOptions::default()
        };
        let unknown = if says.raw.is_empty() {
            scps.to_raw().ok().flatten()
        } else {
            RawOptions::new(&says.raw[..says.raw.len().min(30)])
        };
        let mut options = TcpOptions {
            unknown: unknown.map(Box::new),
            ..TcpOptions::default()
        };
        for &(left, len) in says.sack.iter().take(4) {
            let left = Seq(ack) + u32::from(left);
            let _full = options.sack.push(SackBlock {
                left,
                right: left + u32::from(len),
            });
        }
        Segment {
            seq: PEER + 1,
            ack: Seq(ack),
            flags: Flags::ACK,
            window: says.window,
            timestamps: self.stamps.then(|| Timestamps {
                value: self.now.as_nanos() as u32 / 1000,
                echo: says
                    .echo
                    .map_or(self.clock, |back| self.clock.wrapping_sub(back.into())),
            }),
            options: Some(Box::new(options)),
            payload: Payload::Absent,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => self.wait(*ms),
            Step::Write(bytes) => {
                let waiting = self.written.saturating_sub(self.tcp.counters().bytes_acked);
                let room = self.send_buffer.saturating_sub(waiting);
                self.written += self.tcp.write_virtual(room.min(u64::from(*bytes) * 16));
                self.drain();
            }
            Step::Says(says) => self.arrives(self.segment(says)),
            Step::Repeats(times, says) => {
                for _ in 0..times % 4096 {
                    self.arrives(self.segment(says));
                }
            }
            Step::Data(offset, len) => {
                let segment = Segment {
                    seq: Seq((PEER + 1).0.wrapping_add_signed(*offset)),
                    payload: match len {
                        0 => Payload::Absent,
                        _ => Payload::Virtual {
                            offset: 0,
                            len: u32::from(*len),
                        },
                    },
                    ..self.segment(&Says {
                        ack: 0,
                        window: u16::MAX,
                        snack: None,
                        corruption: false,
                        sack: Vec::new(),
                        raw: Vec::new(),
                        echo: None,
                    })
                };
                self.arrives(segment);
            }
            Step::Reads(bytes) => {
                self.tcp.consume(u64::from(*bytes));
                self.drain();
            }
            Step::LinkOut => self.tcp.link_out(self.now),
            Step::LinkRestored => {
                self.tcp.link_restored(self.now);
                self.drain();
            }
            Step::Damaged => self.tcp.note_damaged(),
        }
    }
}

fuzz_target!(|plan: Plan| {
    let rate = Rate::from_bits_per_sec(u64::from(plan.rate.max(8)) * 1000);
    let mut config = Config::scps();
    config.settings.link.rate = Some(rate);
    config.mss = plan.mss.clamp(64, 1460);
    config.timestamps = plan.timestamps;
    config.sack_blocks = if plan.sack { 4 } else { 0 };
    config.send_buffer = Bytes(u64::from(plan.send_buffer.max(1)) * 4);
    config.receive_buffer = Bytes(u64::from(plan.receive_buffer.max(1)) * 4);
    if plan.congestion {
        config.loss_cause = LossCause::Congestion;
    }
    if let Some(scps) = &mut config.scps {
        scps.snack_delay = Duration::from_millis(plan.snack_delay.into());
        scps.short_snacks_only = plan.short_snacks_only;
        scps.corruption_experienced = plan.corruption.map(|time| Duration::from_millis(time.into()));
    }
    // The least segment that a peer may ask for is 48 bytes, less the timestamps.
    let send_buffer = config.send_buffer.0;
    let segments = (config.send_buffer.0 + config.receive_buffer.0) as i64 / 36 + 1;
    let wire = u64::from(config.mss) + 40 + 40;
    let now = Instant::from_nanos(1_000_000_000);
    let allocated = allocated();
    let tcp = if plan.opens {
        Connection::connect(Arc::new(config), OURS, now)
    } else {
        Connection::listen(Arc::new(config), OURS, now)
    };
    let mut world = World {
        tcp,
        now,
        stamps: plan.timestamps,
        clock: 0,
        written: 0,
        send_buffer,
        sent: 0,
        since: None,
        rate,
        wire,
        allocated,
        memory: REMEMBERED + A_SEGMENT * segments,
    };
    world.drain();
    world.wait(plan.handshake % 2000);
    let offer = ScpsOptions {
        capabilities: Some(Capabilities {
            vector: CapabilityVector::from_bits(plan.capabilities | 0x40),
            connection: 0,
        }),
        ..ScpsOptions::default()
    };
    let mut syn = Segment {
        seq: PEER,
        ack: if plan.opens { OURS + 1 } else { Seq(0) },
        flags: if plan.opens {
            Flags::SYN | Flags::ACK
        } else {
            Flags::SYN
        },
        window: u16::MAX,
        timestamps: plan.timestamps.then_some(Timestamps {
            value: 1,
            echo: world.clock,
        }),
        options: Some(Box::new(TcpOptions {
            mss: Some(plan.peer_mss),
            window_scale: Some(7),
            sack_permitted: plan.sack,
            unknown: offer.to_raw().ok().flatten().map(Box::new),
            ..TcpOptions::default()
        })),
        payload: Payload::Absent,
    };
    world.arrives(syn.clone());
    if !plan.opens {
        (syn.seq, syn.ack, syn.flags, syn.options) = (PEER + 1, OURS + 1, Flags::ACK, None);
        world.arrives(syn);
    }
    for step in &plan.steps {
        world.step(step);
        if world.now.as_nanos() > LIFE * 1_000_000 {
            break;
        }
    }
});
