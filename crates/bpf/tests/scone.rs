//! The SCONE element in the kernel does to packets what its twin does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_bpf::scone::{SconeCounts, SconeElement, Way};
use bentpipe_os::need;
use bentpipe_wire::scone::{Advice, lower};
use bentpipe_wire::{Ip, Packet, Payload, Transport, Udp};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::{Cell, RefCell};

const ETHERNET: usize = 14;

/// An IP packet of UDP with `datagram`, as a frame of Ethernet.
fn frame(v4: bool, datagram: Vec<u8>) -> Vec<u8> {
    let addresses = if v4 {
        ["10.0.0.1", "10.0.0.2"]
    } else {
        ["fd00::1", "fd00::2"]
    };
    let [from, to] = addresses.map(|ip| ip.parse().unwrap());
    let packet = Packet {
        ip: Ip::between(from, to).unwrap(),
        transport: Transport::Udp(Udp {
            source: 443,
            destination: 5000,
        }),
        payload: Payload::Bytes(Box::new(datagram.into())),
    };
    let kind: &[u8] = if v4 { &[8, 0] } else { &[0x86, 0xdd] };
    [&[2; 12], kind, &packet.to_vec().unwrap()].concat()
}

/// Datagrams that begin as SCONE packets, or nearly.
fn datagrams() -> impl Strategy<Value = Vec<u8>> {
    let scone = (
        any::<u8>(),
        any::<bool>(),
        proptest::collection::vec(any::<u8>(), 0..30),
    );
    let scone = scone.prop_map(|(first, odd, rest)| {
        let version = [0x6f | u8::from(odd) << 7, 0x7d, 0xc0, 0xfd];
        [&[first | 0x80], &version[..], &rest].concat()
    });
    let other = proptest::collection::vec(any::<u8>(), 0..30);
    prop_oneof![3 => scone, 1 => other]
}

#[test]
fn the_kernels_element_and_its_twin_do_the_same() {
    need!(Root);
    let element = RefCell::new(SconeElement::load(ETHERNET as u32).unwrap());
    // Damage to the IP header, to UDP's or to the datagram, but not to the version, which the frame tells too.
    let damage = proptest::option::of((1usize..60, any::<u8>()));
    let strategy = (any::<bool>(), datagrams(), 0u8..127, damage);
    let lowered = Cell::new(0);
    let ran = TestRunner::default().run(&strategy, |(v4, datagram, signal, damage)| {
        let mut frame = frame(v4, datagram);
        if let Some((at, value)) = damage {
            let at = (ETHERNET + at).min(frame.len() - 1);
            frame[at] = value;
        }
        let advice = Advice::of_signal(signal).unwrap();
        let mut expected = frame.clone();
        lowered.set(lowered.get() + usize::from(lower(&mut expected[ETHERNET..], advice)));
        for way in Way::BOTH {
            let mut element = element.borrow_mut();
            element.advise(way, Some(advice)).unwrap();
            prop_assert_eq!(element.run(way, &frame).unwrap(), expected.clone());
        }
        Ok(())
    });
    ran.unwrap();
    assert!(lowered.get() > 50, "only {} were lowered", lowered.get());
    for way in Way::BOTH {
        let counts = element.borrow().counts(way);
        assert_eq!(counts.lowered, lowered.get() as u64);
        assert!(counts.seen > counts.lowered, "{counts:?}");
    }
}

#[test]
fn without_advice_nothing_is_touched() {
    need!(Root);
    let mut element = SconeElement::load(ETHERNET as u32).unwrap();
    let frame = frame(true, vec![0xff, 0xef, 0x7d, 0xc0, 0xfd, 0, 0]);
    for way in Way::BOTH {
        assert_eq!(element.run(way, &frame).unwrap(), frame);
        assert_eq!(element.counts(way), SconeCounts::default());
    }
}
