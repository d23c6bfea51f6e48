//! Whatever is lost, and whatever an enemy sends.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::{Instant, Machine, Output};
use bentpipe_fec::{Config, Frame, Layer, MAX_WINDOW, Overhead, Report, Side, Strength, Window};
use bytes::Bytes;
use core::time::Duration;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn layer(strength: Strength) -> Layer {
    Layer::new(Config {
        overhead: Overhead::Fixed(strength),
        silence: Duration::from_millis(4),
    })
}

fn turn(layer: &mut Layer, arrived: Option<(Side, Bytes)>, now: Instant) -> Vec<Bytes> {
    let mut sent = Vec::new();
    layer.turn(arrived, now, |out| match out {
        Output::Packet(_, packet) => sent.push(packet),
        Output::Event(event) => match event {},
    });
    sent
}

/// Packet number `n` of length `len`.
fn packet(n: usize, len: usize) -> Bytes {
    let number = (n as u32).to_be_bytes();
    number
        .into_iter()
        .chain((0..len).map(|i| (n * 31 + i) as u8))
        .collect()
}

fn strengths() -> impl Strategy<Value = Strength> {
    (1u16..12, 1u16..40, 0u8..4).prop_map(|(every, more, tail)| Strength {
        every,
        window: every + more,
        tail,
    })
}

proptest! {
    /// Frames may be lost, come late, and come twice.
    #[test]
    fn any_losses_and_any_order_give_only_what_was_sent(
        strength in strengths(),
        packets in proptest::collection::vec((0usize..200, 0u8..10), 1..200),
    ) {
        let (mut near, mut far) = (layer(strength), layer(strength));
        let now = Instant::ZERO;
        let sent: Vec<Bytes> = packets.iter().enumerate().map(|(n, (len, _))| packet(n, *len)).collect();
        let mut frames = Vec::new();
        for (packet, (_, fate)) in sent.iter().zip(&packets) {
            let out = turn(&mut near, Some((Side::Quic, packet.clone())), now);
            frames.extend(out.into_iter().map(|frame| (frame, *fate)));
        }
        let silent = near.deadline().unwrap();
        frames.extend(turn(&mut near, None, silent).into_iter().map(|frame| (frame, 9)));
        let mut late = Vec::new();
        let mut given = BTreeSet::new();
        for (index, (frame, fate)) in frames.into_iter().enumerate() {
            let copies = match fate {
                0 | 1 => 0,
                2 => { late.push((index + 7, frame.clone())); 0 }
                3 => 2,
                _ => 1,
            };
            let due = late.iter().position(|(at, _)| *at <= index).map(|at| late.swap_remove(at).1);
            for frame in core::iter::repeat_n(frame, copies).chain(due) {
                given.extend(turn(&mut far, Some((Side::Path, frame)), now));
            }
        }
        let sent: BTreeSet<Bytes> = sent.into_iter().collect();
        prop_assert!(given.is_subset(&sent));
        prop_assert_eq!(far.counters().received.contradictions, 0);
        prop_assert_eq!(far.counters().malformed, 0);
    }

    /// Factors are drawn at random: as many repairs as packets lost fail once in 256, and three more once in 4,000 million.
    #[test]
    fn any_losses_are_repaired_by_as_many_repairs_and_a_few_more(
        lost in proptest::collection::btree_set(0usize..60, 1..20),
        lengths in proptest::collection::vec(0usize..100, 60),
    ) {
        let strength = Strength { every: 60, window: 60, tail: lost.len() as u8 + 2 };
        let (mut near, mut far) = (layer(strength), layer(strength));
        let now = Instant::ZERO;
        let mut given = BTreeSet::new();
        let mut sent = BTreeSet::new();
        for (n, len) in lengths.into_iter().enumerate() {
            let packet = packet(n, len);
            sent.insert(packet.clone());
            let mut out = turn(&mut near, Some((Side::Quic, packet)), now);
            if lost.contains(&n) {
                out.remove(0);
            }
            given.extend(out.into_iter().flat_map(|frame| turn(&mut far, Some((Side::Path, frame)), now)));
        }
        let silent = near.deadline().unwrap();
        let tail = turn(&mut near, None, silent);
        given.extend(tail.into_iter().flat_map(|frame| turn(&mut far, Some((Side::Path, frame)), now)));
        prop_assert_eq!(given, sent);
        prop_assert_eq!(far.counters().received.recovered, lost.len() as u64);
    }
}

/// A frame as an enemy would write it: near what is expected, or far from it.
fn forged() -> impl Strategy<Value = Bytes> {
    let id = prop_oneof![0u32..2_000, any::<u32>()];
    let octets = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        (9_000usize..65_000).prop_map(|len| vec![1; len])
    ];
    let repair = (1..=MAX_WINDOW as u16, any::<u16>(), any::<[u8; 2]>());
    (id, octets, proptest::option::of(repair)).prop_map(|(id, octets, repair)| {
        let report = Report {
            loss: u16::MAX,
            burst: u8::MAX,
        };
        let octets = Bytes::from(octets);
        let frame = match repair {
            None => Frame::Source {
                report,
                id,
                packet: octets,
            },
            Some((count, key, length)) => Frame::Repair {
                report,
                window: Window { first: id, count },
                key,
                length,
                symbol: octets,
            },
        };
        frame.emit()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// It neither panics nor grows, a true packet is handed on among the forged ones, and it is soon at work again.
    #[test]
    fn any_forged_frames_cost_repairs_and_no_more(frames in proptest::collection::vec(forged(), 0..300)) {
        let strength = Strength { every: 4, window: 16, tail: 0 };
        let (mut near, mut far) = (layer(strength), layer(strength));
        let now = Instant::ZERO;
        for (n, frame) in frames.into_iter().enumerate() {
            turn(&mut far, Some((Side::Path, frame)), now);
            let sent = packet(n, 10);
            let out = turn(&mut near, Some((Side::Quic, sent.clone())), now);
            let given: Vec<Bytes> =
                out.into_iter().flat_map(|frame| turn(&mut far, Some((Side::Path, frame)), now)).collect();
            prop_assert!(given.contains(&sent));
            prop_assert_eq!(far.strength(), strength);
        }
        // Forged ids may lie up to a history ahead.
        for n in 0..4 * MAX_WINDOW {
            let out = turn(&mut near, Some((Side::Quic, packet(n, 10))), now);
            out.into_iter().for_each(|frame| { turn(&mut far, Some((Side::Path, frame)), now); });
        }
        let mut recovered = false;
        for n in 0..8 {
            let packet = packet(n, 20);
            let mut out = turn(&mut near, Some((Side::Quic, packet.clone())), now);
            if n == 1 {
                out.remove(0);
            }
            let given = out.into_iter().flat_map(|frame| turn(&mut far, Some((Side::Path, frame)), now));
            recovered |= n != 1 && given.into_iter().any(|it| it == self::packet(1, 20));
        }
        prop_assert!(recovered);
    }
}
