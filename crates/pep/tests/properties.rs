//! What holds for all packets, under both sets of rules.

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_pep::snoop::{Config, Snoop, Toward};
use bentpipe_pep::{Pep, Side};
use bentpipe_wire::{Flags, Packet, Payload, SackBlock, Transport};
use core::time::Duration;
use proptest::prelude::*;
use support::{ack_at, acknowledgement, data_at, leaving, packet, tcp};

fn presets() -> impl Strategy<Value = Config> {
    prop_oneof![Just(Config::standard()), Just(Config::ns2())]
}

/// Small bounds, so that they are met.
fn narrow() -> impl Strategy<Value = Config> {
    (
        presets(),
        1u64..20_000,
        1usize..12,
        1usize..4,
        any::<bool>(),
    )
        .prop_map(|(config, bytes, packets, flows, both)| Config {
            bytes: Bytes(bytes),
            total: Bytes(bytes * 2),
            packets,
            flows,
            toward: if both { Toward::Both } else { Toward::Space },
            idle: Duration::from_secs(5),
            ..config
        })
}

/// Few numbers, near the wrap, so that they meet; now and then any.
fn seq() -> impl Strategy<Value = Seq> {
    prop_oneof![
        30 => (0u32..40).prop_map(|n| Seq(u32::MAX - 2000) + n * 100),
        1 => any::<u32>().prop_map(Seq),
    ]
}

prop_compose! {
    fn any_segment()(
        from in 1u8..3,
        port in 0u16..3,
        seq_no in seq(),
        ack in seq(),
        flags in prop_oneof![12 => Just(0x010u16), 2 => Just(0x011), 1 => Just(0x002), 1 => Just(0x014), 2 => 0u16..0x200],
        window in prop_oneof![8 => Just(8000u16), 1 => Just(0), 1 => any::<u16>()],
        len in prop_oneof![3 => Just(0u32), 3 => Just(100), 1 => 1u32..400],
        blocks in prop::collection::vec((seq(), seq()), 0..4),
    ) -> Packet {
        let blocks: Vec<SackBlock> =
            blocks.iter().map(|&(left, right)| SackBlock { left, right }).collect();
        let mut header = acknowledgement(ack, &blocks);
        header.seq = seq_no;
        header.flags = Flags::from_bits(flags);
        header.window = window;
        (header.source, header.destination) =
            if from == 1 { (80, 4000 + port) } else { (4000 + port, 80) };
        let payload = if len == 0 { Payload::Absent } else { Payload::Virtual { offset: 0, len } };
        let mut packet = packet(from, header, payload);
        if flags == 0x1ff {
            packet.transport = Transport::Other { protocol: 50 };
        }
        packet
    }
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// The ground sends what comes next.
    Next(u32),
    /// It sends an earlier stretch again, or skips one: so many hundred bytes back, its length.
    Again(i32, u32),
    /// Space repeats its acknowledgement, perhaps with another window, data, or flags.
    Repeat(Option<u16>, bool, u16, Option<(u32, u32)>),
    /// Space acknowledges so many hundred bytes more.
    Advance(u32),
    /// Anything from either side.
    Any(bool, Box<Packet>),
}

fn step() -> impl Strategy<Value = (Step, u64)> {
    let window = prop_oneof![6 => Just(None), 1 => any::<u16>().prop_map(Some)];
    let flags = prop_oneof![8 => Just(0x10u16), 1 => Just(0x18), 1 => Just(0x11), 1 => Just(0x30), 1 => Just(0x50)];
    let block = prop::option::of((1u32..8, 1u32..6));
    let repeat = (window, prop::bool::weighted(0.1), flags, block);
    let step = prop_oneof![
        8 => (1u32..4).prop_map(|n| Step::Next(n * 100)),
        1 => (-3i32..9, 1u32..300).prop_map(|(back, len)| Step::Again(back, len)),
        12 => repeat.prop_map(|(window, data, flags, block)| Step::Repeat(window, data, flags, block)),
        2 => (1u32..5).prop_map(Step::Advance),
        1 => (any::<bool>(), any_segment()).prop_map(|(ground, packet)| Step::Any(ground, Box::new(packet))),
    ];
    (step, prop_oneof![9 => 0u64..50, 1 => 0u64..7000])
}

/// Both ends of a flow, to make packets of steps.
struct Ends {
    next: Seq,
    ack: Seq,
}

impl Ends {
    fn packet(&mut self, step: Step) -> (Side, Packet) {
        match step {
            Step::Next(len) => {
                self.next = self.next + len;
                (Side::Ground, data_at(self.next - len, len))
            }
            Step::Again(back, len) => {
                let offset = (back * 100) as u32;
                (Side::Ground, data_at(self.next - offset, len))
            }
            Step::Advance(hundreds) => {
                self.ack = self.ack + hundreds * 100;
                (Side::Space, ack_at(self.ack, &[]))
            }
            Step::Repeat(window, data, flags, block) => {
                let block = block.map(|(gap, len)| SackBlock {
                    left: self.ack + gap * 100,
                    right: self.ack + (gap + len) * 100,
                });
                let mut header = acknowledgement(self.ack, block.as_slice());
                header.window = window.unwrap_or(header.window);
                header.flags = Flags::from_bits(flags);
                let payload = Payload::Virtual { offset: 0, len: 9 };
                (
                    Side::Space,
                    packet(2, header, if data { payload } else { Payload::Absent }),
                )
            }
            Step::Any(ground, packet) => (if ground { Side::Ground } else { Side::Space }, *packet),
        }
    }
}

fn flow(packet: &Packet) -> (std::net::IpAddr, u16, u16) {
    (
        packet.ip.source(),
        tcp(packet).source,
        tcp(packet).destination,
    )
}

/// Data, SYN, FIN, RST or URG: never to be suppressed.
fn speaks(packet: &Packet) -> bool {
    let flags = tcp(packet).flags;
    let special = [Flags::SYN, Flags::FIN, Flags::RST, Flags::URG];
    !packet.payload.is_empty() || special.iter().any(|&flag| flags.contains(flag))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever comes: bounds hold, each packet is forwarded or is a duplicate acknowledgement, and
    /// all else that goes out is a copy of what came from that side before.
    #[test]
    fn arbitrary_packets(config in narrow(), steps in prop::collection::vec(step(), 1..200)) {
        let mut agent = Snoop::new(config.clone());
        let mut now = Instant::ZERO;
        let mut history: Vec<(Side, Packet)> = Vec::new();
        let mut local = 0;
        let mut ends = Ends { next: Seq(u32::MAX - 3000), ack: Seq(u32::MAX - 3000) };
        for (step, ms) in steps {
            now += Duration::from_millis(ms);
            let (from, packet) = ends.packet(step);
            agent.timeout(now);
            for (to, copy) in leaving(&mut agent, now) {
                prop_assert!(history.contains(&(to.opposite(), copy)));
                local += 1;
            }
            prop_assert!(agent.deadline().is_none_or(|at| at > now));
            agent.input(from, packet.clone(), now);
            let mut out = leaving(&mut agent, now);
            if out.last() == Some(&(from.opposite(), packet.clone())) {
                out.pop();
            } else {
                // Suppressed: the last acknowledgement from there of that flow said the same, or of a smaller window.
                let last = history.iter().rev().find(|(side, earlier)| {
                    *side == from
                        && matches!(earlier.transport, Transport::Tcp(_))
                        && tcp(earlier).flags.contains(Flags::ACK)
                        && flow(earlier) == flow(&packet)
                        && tcp(earlier).ack >= tcp(&packet).ack
                });
                let said = |packet: &Packet| {
                    let header = tcp(packet);
                    (header.ack, header.window, header.flags.bits() & !0x08)
                };
                let seen = last.is_some_and(|(_, earlier)| {
                    let (ack, window, flags) = said(&packet);
                    let before = said(earlier);
                    let opens = window > before.1 && !tcp(&packet).sack().is_empty();
                    ack == before.0 && (window == before.1 || opens) && flags == before.2
                });
                prop_assert!(seen && !speaks(&packet), "suppressed {packet:?}");
            }
            for (to, copy) in out {
                prop_assert!(history.contains(&(to.opposite(), copy)));
                local += 1;
            }
            history.push((from, packet));
            prop_assert!(agent.buffered() <= config.total);
            prop_assert!(agent.flows() <= config.flows);
        }
        let tally = agent.tally();
        prop_assert_eq!(local, tally.retransmitted + tally.timeouts);
        // Silence ends every flow.
        for _ in 0..1000 {
            let Some(at) = agent.deadline() else { break };
            now = now.max(at);
            agent.timeout(now);
        }
        prop_assert_eq!((agent.deadline(), agent.flows(), agent.buffered()), (None, 0, Bytes(0)));
    }

    /// Nothing lost, nothing out of order, no timer due: the agent is a piece of wire.
    #[test]
    fn a_flow_without_loss_passes_as_it_is(
        config in presets(),
        start in any::<u32>(),
        lengths in prop::collection::vec(1u32..1460, 1..100),
        burst in 1usize..40,
    ) {
        let mut agent = Snoop::new(config);
        let mut seq = Seq(start);
        let mut now = Instant::ZERO;
        for lens in lengths.chunks(burst) {
            for &len in lens {
                let packet = data_at(seq, len);
                seq = seq + len;
                agent.input(Side::Ground, packet.clone(), now);
                prop_assert_eq!(leaving(&mut agent, now), [(Side::Space, packet)]);
            }
            now += Duration::from_millis(560);
            agent.timeout(now);
            prop_assert_eq!(leaving(&mut agent, now), []);
            let ack = ack_at(seq, &[]);
            agent.input(Side::Space, ack.clone(), now);
            prop_assert_eq!(leaving(&mut agent, now), [(Side::Ground, ack)]);
            prop_assert_eq!(agent.buffered(), Bytes(0));
        }
        prop_assert_eq!(agent.tally().suppressed, 0);
    }
}
