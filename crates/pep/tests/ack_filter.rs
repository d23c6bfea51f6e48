//! The ACK filter: what it may replace, and what holds for all packets.

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Rate, Seq};
use bentpipe_pep::ack_filter::{AckFilter, Config};
use bentpipe_pep::{Pep, Side};
use bentpipe_wire::{Flags, Packet, Payload, SackBlock, Transport};
use core::time::Duration;
use proptest::prelude::*;
use support::{acknowledgement, leaving, packet, tcp};

/// 40 bytes take 10 ms.
const SLOW: Config = Config {
    rate: Some(Rate::from_bits_per_sec(32_000)),
    overhead: Bytes(0),
    packets: 8,
    flows: 3,
};
const STEP: Duration = Duration::from_millis(10);

/// Host 2, in space for the packets of `support`, is the terminal here: its side is the ground.
fn filter(config: Config) -> AckFilter<Packet> {
    AckFilter::new(config)
}

/// All that leaves towards space until nothing waits, with the instants.
fn drained(agent: &mut AckFilter<Packet>, mut now: Instant) -> Vec<(Instant, Packet)> {
    let mut sent = Vec::new();
    loop {
        for (side, packet) in leaving(agent, now) {
            assert_eq!(side, Side::Space);
            sent.push((now, packet));
        }
        match agent.deadline() {
            Some(due) => now = due,
            None => return sent,
        }
        agent.timeout(now);
    }
}

/// What is left of packets that come at once behind two acknowledgements, of which one is on the link
/// and the other waits.
fn left(more: Vec<Packet>) -> Vec<Packet> {
    let mut agent = filter(SLOW);
    for n in [0, 1] {
        agent.input(Side::Ground, support::ack(n), Instant::ZERO);
    }
    for packet in more {
        agent.input(Side::Ground, packet, Instant::ZERO);
    }
    let sent = drained(&mut agent, Instant::ZERO);
    assert_eq!(sent[0].1, support::ack(0));
    assert_eq!(agent.buffered(), Bytes(0));
    sent.into_iter().skip(1).map(|(_, packet)| packet).collect()
}

fn edited(ack: u32, edit: impl Fn(&mut bentpipe_wire::Tcp)) -> Packet {
    let mut header = acknowledgement(Seq(support::START) + ack * support::MSS, &[]);
    edit(&mut header);
    packet(2, header, Payload::Absent)
}

#[test]
fn the_newest_takes_the_place_of_the_oldest() {
    use support::ack;
    assert_eq!(left(vec![ack(2), ack(3), ack(7)]), [ack(7)]);
    let mut agent = filter(SLOW);
    for n in 0..5 {
        let now = Instant::ZERO + Duration::from_millis(2) * n;
        agent.input(Side::Ground, ack(n), now);
    }
    assert_eq!(agent.waiting(), 1);
    let sent = drained(&mut agent, Instant::ZERO);
    let expected = [(Instant::ZERO, ack(0)), (Instant::ZERO + STEP, ack(4))];
    assert_eq!(sent, expected, "when the first that waited would have left");
    assert_eq!(agent.tally().replaced, 3);
}

#[test]
fn what_the_link_adds_takes_its_time() {
    use support::ack;
    let mut agent = filter(Config {
        overhead: Bytes(40),
        ..SLOW
    });
    for n in [1, 9] {
        agent.input(Side::Ground, ack(n), Instant::ZERO);
    }
    let sent = drained(&mut agent, Instant::ZERO);
    let expected = [(Instant::ZERO, ack(1)), (Instant::ZERO + STEP * 2, ack(9))];
    assert_eq!(sent, expected);
}

#[test]
fn what_says_more_than_an_advance_passes() {
    use support::{ack, sack};
    // (what comes behind `ack(1)`, whether `ack(1)` itself is replaced by it)
    let cases = [
        (ack(1), false),
        (edited(1, |tcp| tcp.window = 9000), false),
        (edited(2, |tcp| tcp.flags = Flags::ACK | Flags::FIN), false),
        (edited(2, |tcp| tcp.flags = Flags::ACK | Flags::SYN), false),
        (edited(2, |tcp| tcp.flags = Flags::ACK | Flags::RST), false),
        (edited(2, |tcp| tcp.flags = Flags::ACK | Flags::ECE), false),
        (edited(2, |tcp| tcp.window = 0), true),
        (sack(2, &[(4, 5)]), true),
    ];
    for (newcomer, replaced) in cases {
        let mut expected = if replaced { vec![] } else { vec![ack(1)] };
        expected.push(newcomer.clone());
        // Nor is it replaced by the one behind it.
        expected.push(ack(9));
        assert_eq!(left(vec![newcomer, ack(9)]), expected);
    }
    let data = packet(
        2,
        acknowledgement(Seq(5000), &[]),
        Payload::from([7; 10].as_slice()),
    );
    assert_eq!(
        left(vec![data.clone(), ack(9)]),
        [ack(1), data, ack(9)],
        "nothing overtakes data"
    );
    assert_eq!(left(vec![ack(0)]), [ack(1), ack(0)], "an old one");
}

#[test]
fn a_full_queue_refuses_and_confuses_nobody() {
    let config = Config { packets: 1, ..SLOW };
    let mut agent = filter(config);
    let other = |n: u32| edited(n, |tcp| tcp.source = 5000);
    // On the link; waiting; refused; then the number of the refused goes to another.
    agent.input(Side::Ground, support::ack(0), Instant::ZERO);
    agent.input(Side::Ground, other(0), Instant::ZERO);
    agent.input(Side::Ground, support::ack(1), Instant::ZERO);
    assert_eq!(agent.tally().refused, 1);
    let later = Instant::ZERO + STEP;
    agent.timeout(later);
    agent.input(Side::Ground, other(1), later);
    agent.input(Side::Ground, support::ack(2), later);
    let sent: Vec<Packet> = drained(&mut agent, later)
        .into_iter()
        .map(|(_, packet)| packet)
        .collect();
    assert_eq!(sent, [support::ack(0), other(0), other(1)]);
    assert_eq!(agent.tally().refused, 2);
}

/// One packet from the terminal, and the milliseconds before it.
fn step() -> impl Strategy<Value = (Packet, u64)> {
    let flags = prop_oneof![
        20 => Just(0x010u16), 1 => Just(0x011), 1 => Just(0x012), 1 => Just(0x014), 1 => Just(0x050), 2 => 0u16..0x200,
    ];
    let seq = (0u32..40).prop_map(|n| Seq(u32::MAX - 2000) + n * 100);
    let window = prop_oneof![8 => Just(8000u16), 1 => Just(0), 1 => any::<u16>()];
    let blocks = prop_oneof![
        6 => Just(vec![]),
        1 => prop::collection::vec((0u32..9, 9u32..20), 1..4),
    ];
    let len = prop_oneof![9 => Just(0u32), 1 => 1u32..200];
    (0u16..5, flags, seq, window, blocks, len, 0u64..25).prop_map(
        |(port, flags, ack, window, blocks, len, wait)| {
            let blocks: Vec<SackBlock> = blocks
                .iter()
                .map(|&(left, right)| SackBlock {
                    left: Seq(left),
                    right: Seq(right),
                })
                .collect();
            let mut header = acknowledgement(ack, &blocks);
            header.source = 4000 + port;
            header.flags = Flags::from_bits(flags);
            header.window = window;
            let payload = match len {
                0 => Payload::Absent,
                len => Payload::Virtual { offset: 0, len },
            };
            let mut packet = packet(2, header, payload);
            if flags == 0x1ff {
                packet.transport = Transport::Other { protocol: 50 };
            }
            (packet, wait)
        },
    )
}

/// Says nothing but that more has arrived.
fn is_bare(packet: &Packet) -> bool {
    let Transport::Tcp(tcp) = &packet.transport else {
        return false;
    };
    tcp.flags == Flags::ACK && packet.payload == Payload::Absent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn only_what_a_newer_one_says_too_is_left_out(
        steps in prop::collection::vec(step(), 1..120),
        flows in 1usize..5,
        packets in prop_oneof![Just(3usize), Just(1000)],
    ) {
        let config = Config { packets, flows, ..SLOW };
        let mut agent = filter(config);
        let (mut now, mut sent) = (Instant::ZERO, Vec::new());
        let mut input = Vec::new();
        for (number, (packet, wait)) in steps.into_iter().enumerate() {
            let until = now + Duration::from_millis(wait);
            while let Some(due) = agent.deadline().filter(|due| *due <= until) {
                now = due;
                agent.timeout(now);
                for (side, packet) in leaving(&mut agent, now) {
                    prop_assert_eq!(side, Side::Space);
                    sent.push((now, packet));
                }
            }
            now = until;
            // The sequence number tells inputs apart that are otherwise alike.
            let packet = numbered(packet, number);
            input.push(packet.clone());
            agent.input(Side::Ground, packet, now);
            sent.extend(leaving(&mut agent, now).into_iter().map(|(_, packet)| (now, packet)));
            prop_assert!(agent.waiting() <= packets && agent.flows() <= flows);
        }
        sent.extend(drained(&mut agent, now));
        let tally = agent.tally();
        prop_assert_eq!(agent.buffered(), Bytes(0));
        prop_assert_eq!(sent.len() as u64, tally.passed);
        prop_assert_eq!(input.len() as u64, tally.passed + tally.replaced + tally.refused);
        for pair in sent.windows(2) {
            let gap = SLOW.rate.expect("it has one").serialisation(pair[0].1.length());
            prop_assert!(pair[1].0 >= pair[0].0 + gap, "no faster than the link");
        }
        // Of each flow: what was sent is what came, in order, but for the replaced and refused.
        let mut missing = 0;
        for port in 4000..4005 {
            let of = |packet: &&Packet| matches!(&packet.transport, Transport::Tcp(tcp) if tcp.source == port);
            let came: Vec<&Packet> = input.iter().filter(of).collect();
            let went: Vec<&Packet> = sent.iter().map(|(_, packet)| packet).filter(of).collect();
            let mut rest = went.iter().peekable();
            for (at, packet) in came.iter().enumerate() {
                if rest.next_if(|next| *next == packet).is_some() {
                    continue;
                }
                missing += 1;
                if tally.refused > 0 {
                    continue;
                }
                let next = came.get(at + 1).expect("the last of a flow is never left out");
                prop_assert!(is_bare(packet) && is_bare(next));
                prop_assert!(tcp(next).ack > tcp(packet).ack);
                prop_assert!(tcp(packet).window > 0 && tcp(packet).sack().is_empty());
                // No duplicate: an acknowledgement right before it said less.
                let before = came.get(at.wrapping_sub(1)).map(|before| tcp(before));
                let before = before.filter(|it| it.flags.contains(Flags::ACK));
                prop_assert!(at > 0 && before.is_none_or(|it| it.ack < tcp(packet).ack));
            }
            prop_assert_eq!(rest.next(), None, "nothing is made up or overtaken");
        }
        let unread = input.iter().filter(|packet| matches!(packet.transport, Transport::Other { .. }));
        let through = sent.iter().filter(|(_, packet)| matches!(packet.transport, Transport::Other { .. }));
        prop_assert!(through.count() <= unread.count());
        prop_assert!(missing as u64 <= tally.replaced + tally.refused);
    }

    #[test]
    fn the_way_back_is_left_alone(steps in prop::collection::vec(step(), 1..20)) {
        let mut agent = filter(Config { packets: 0, ..SLOW });
        for (packet, _) in steps {
            agent.input(Side::Space, packet.clone(), Instant::ZERO);
            prop_assert_eq!(agent.transmit(Instant::ZERO), Some((Side::Ground, packet)));
        }
    }
}

/// With `number` as its sequence number, which the agent does not look at.
fn numbered(mut packet: Packet, number: usize) -> Packet {
    if let Transport::Tcp(tcp) = &mut packet.transport {
        tcp.seq = Seq(number as u32);
    }
    packet
}
