//! Snoop under any packets at any times: bounds hold, nothing is made up, and only an
//! acknowledgement that says what the one before it said is suppressed.
#![no_main]

use arbitrary::Arbitrary;
use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_pep::snoop::{Config, Snoop, Toward, SharedAgentLimits};
use bentpipe_pep::{Packet, Pep, SegmentView, Side};
use bentpipe_wire::{Flags, SackBlock};
use core::time::Duration;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Plan {
    ns2: bool,
    both: bool,
    shared_limits: bool,
    bytes: u16,
    total: u16,
    packets: u8,
    flows: u8,
    threshold: u8,
    tries: u8,
    start: u32,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// The sender goes on.
    Data { len: u8 },
    /// The sender goes back, or leaves a gap.
    Resend { back: i8, len: u8 },
    /// The receiver acknowledges so much more.
    Advance { by: u8 },
    /// The receiver repeats itself, with SACK blocks (gap and length in hundreds).
    Repeat { blocks: [Option<(u8, u8)>; 3] },
    /// Time passes, in milliseconds.
    Wait(u16),
    /// Anything.
    Any { ground: bool, segment: Segment },
}

#[derive(Arbitrary, Clone, Debug)]
struct Segment {
    port: u8,
    readable: bool,
    seq: u32,
    ack: u32,
    flags: u16,
    window: u16,
    payload: u32,
    sack: Vec<(u32, u32)>,
}

/// A packet that knows its number.
#[derive(Clone, Debug)]
struct Numbered {
    id: usize,
    from: Side,
    segment: Segment,
    sack: Vec<SackBlock>,
}

impl Packet for Numbered {
    type Endpoint = u8;
    type Host = u8;

    fn host(end: u8) -> u8 {
        end
    }

    fn view(&self) -> Option<SegmentView<'_, u8>> {
        let segment = &self.segment;
        let (ground, space) = (segment.port % 3, 10 + segment.port % 3);
        let (source, destination) = match self.from {
            Side::Ground => (ground, space),
            Side::Space => (space, ground),
        };
        segment.readable.then_some(SegmentView {
            source,
            destination,
            seq: Seq(segment.seq),
            ack: Seq(segment.ack),
            flags: Flags::from_bits(segment.flags),
            window: segment.window,
            payload: segment.payload,
            sack: &self.sack,
        })
    }

    fn wire_length(&self) -> Bytes {
        Bytes(40 + u64::from(self.segment.payload.min(65_000)))
    }
}

/// The agent and both ends of its main flow.
struct World {
    agent: Snoop<Numbered>,
    config: Config,
    now: Instant,
    next: u32,
    ack: u32,
    history: Vec<Numbered>,
}

const ACK: u16 = 0x10;

impl World {
    fn new(plan: &Plan) -> Self {
        let preset = if plan.ns2 {
            Config::ns2()
        } else {
            Config::standard()
        };
        let config = Config {
            toward: if plan.both {
                Toward::Both
            } else {
                Toward::Space
            },
            bytes: Bytes(plan.bytes.into()),
            total: Bytes(plan.total.into()),
            packets: plan.packets.into(),
            flows: plan.flows.into(),
            threshold: plan.threshold.into(),
            tries: plan.tries,
            idle: Duration::from_secs(30),
            shared_limits: plan.shared_limits.then_some(SharedAgentLimits::GATEWAY),
            ..preset
        };
        Self {
            agent: Snoop::new(config.clone()),
            config,
            now: Instant::ZERO,
            next: plan.start,
            ack: plan.start,
            history: Vec::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let plain = Segment {
            port: 0,
            readable: true,
            seq: 0,
            ack: 0,
            flags: ACK,
            window: 8000,
            payload: 0,
            sack: Vec::new(),
        };
        let (from, segment) = match step {
            Step::Data { len } => {
                let seq = self.next;
                self.next = seq.wrapping_add(len.into());
                let payload = len.into();
                (
                    Side::Ground,
                    Segment {
                        seq,
                        payload,
                        ..plain
                    },
                )
            }
            Step::Resend { back, len } => {
                let seq = self.next.wrapping_add_signed(-50 * i32::from(back));
                let payload = len.into();
                (
                    Side::Ground,
                    Segment {
                        seq,
                        payload,
                        ..plain
                    },
                )
            }
            Step::Advance { by } => {
                self.ack = self.ack.wrapping_add(by.into());
                (
                    Side::Space,
                    Segment {
                        ack: self.ack,
                        ..plain
                    },
                )
            }
            Step::Repeat { blocks } => {
                let at = |n: u8| self.ack.wrapping_add(u32::from(n) * 100);
                let blocks = blocks.into_iter().flatten();
                let sack = blocks.map(|(gap, len)| (at(gap), at(gap).wrapping_add(len.into())));
                let sack = sack.collect();
                (
                    Side::Space,
                    Segment {
                        ack: self.ack,
                        sack,
                        ..plain
                    },
                )
            }
            Step::Wait(ms) => {
                self.now += Duration::from_millis(ms.into());
                self.agent.timeout(self.now);
                self.copies(usize::MAX);
                assert!(self.agent.deadline().is_none_or(|at| at > self.now));
                return;
            }
            Step::Any { ground, segment } => {
                (if ground { Side::Ground } else { Side::Space }, segment)
            }
        };
        self.pass(from, segment);
    }

    fn pass(&mut self, from: Side, segment: Segment) {
        let block = |&(left, right): &(u32, u32)| SackBlock {
            left: Seq(left),
            right: Seq(right),
        };
        let sack = segment.sack.iter().take(4).map(block).collect();
        let id = self.history.len();
        let packet = Numbered {
            id,
            from,
            segment,
            sack,
        };
        self.history.push(packet.clone());
        self.agent.input(from, packet, self.now);
        if !self.copies(id) {
            self.check_suppressed(id);
        }
        assert!(self.agent.buffered() <= self.config.total);
        assert!(self.agent.flows() <= self.config.flows);
    }

    /// Takes what goes out: copies of earlier data, and `id` itself as the last. Returns whether
    /// `id` was among them.
    fn copies(&mut self, id: usize) -> bool {
        let mut passed = false;
        while let Some((to, packet)) = self.agent.transmit(self.now) {
            assert!(!passed, "something follows the packet");
            assert_eq!(to, packet.from.opposite());
            passed = packet.id == id;
            assert!(passed || packet.segment.payload > 0 || packet.segment.flags & 1 == 1);
            assert!(packet.id <= self.history.len());
        }
        passed
    }

    fn check_suppressed(&self, id: usize) {
        let segment = &self.history[id].segment;
        let from = self.history[id].from;
        // FIN, SYN, RST, URG; PSH says nothing.
        assert!(segment.payload == 0 && segment.flags & 0x27 == 0 && segment.window != 0);
        let said = |segment: &Segment| {
            let flags = Flags::from_bits(segment.flags).bits() & !8;
            (segment.ack, segment.window, flags)
        };
        let before = self.history[..id].iter().any(|earlier| {
            earlier.from == from
                && earlier.segment.readable
                && earlier.segment.port % 3 == segment.port % 3
                && said(&earlier.segment) == said(segment)
        });
        assert!(before, "suppressed although it is the first to say so");
    }
}

fuzz_target!(|plan: Plan| {
    let mut world = World::new(&plan);
    for step in plan.steps {
        world.step(step);
    }
    // Left alone, it comes to rest.
    let mut turns = 0;
    while let Some(at) = world.agent.deadline() {
        turns += 1;
        assert!(turns < 10_000, "it never comes to rest");
        world.now = world.now.max(at);
        world.agent.timeout(world.now);
        world.copies(usize::MAX);
    }
    assert_eq!((world.agent.flows(), world.agent.buffered()), (0, Bytes(0)));
});
