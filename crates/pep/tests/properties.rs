//! What holds for all packets, under both sets of rules.

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_pep::snoop::{Config, Snoop, Toward};
use bentpipe_pep::{Pep, Side};
use bentpipe_wire::{Flags, Packet, Payload, SackBlock, Transport};
use core::time::Duration;
use proptest::prelude::*;
use support::{ack_at, acknowledgement, data_at, packet, tcp};

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

/// One step of a history: which side a packet comes from, the packet, and the time before it.
fn step() -> impl Strategy<Value = (bool, Packet, u64)> {
    (
        any::<bool>(),
        any_segment(),
        prop_oneof![4 => 0u64..50, 1 => 0u64..7000],
    )
}

fn drain(agent: &mut Snoop<Packet>, now: Instant) -> Vec<(Side, Packet)> {
    std::iter::from_fn(|| agent.transmit(now)).collect()
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
        for (ground, packet, ms) in steps {
            now += Duration::from_millis(ms);
            let from = if ground { Side::Ground } else { Side::Space };
            agent.timeout(now);
            for (to, copy) in drain(&mut agent, now) {
                prop_assert!(history.contains(&(to.opposite(), copy)));
                local += 1;
            }
            prop_assert!(agent.deadline().is_none_or(|at| at > now));
            agent.input(from, packet.clone(), now);
            let mut out = drain(&mut agent, now);
            if out.last() == Some(&(from.opposite(), packet.clone())) {
                out.pop();
            } else {
                // Suppressed: the same was said before by the same host.
                let seen = history.iter().any(|(side, earlier)| {
                    *side == from
                        && matches!(earlier.transport, Transport::Tcp(_))
                        && tcp(earlier).ack == tcp(&packet).ack
                        && tcp(earlier).window == tcp(&packet).window
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
                prop_assert_eq!(drain(&mut agent, now), [(Side::Space, packet)]);
            }
            now += Duration::from_millis(560);
            agent.timeout(now);
            prop_assert_eq!(drain(&mut agent, now), []);
            let ack = ack_at(seq, &[]);
            agent.input(Side::Space, ack.clone(), now);
            prop_assert_eq!(drain(&mut agent, now), [(Side::Ground, ack)]);
            prop_assert_eq!(agent.buffered(), Bytes(0));
        }
        prop_assert_eq!(agent.tally().suppressed, 0);
    }
}
