//! The ECN field (RFC 3168), in headers and in the bytes of packets.

mod common;

use bentpipe_wire::{Checksums, Ecn, Packet, ecn_of, mark};
use common::packet;
use proptest::prelude::*;

#[test]
fn the_field_is_the_two_lower_bits_of_the_traffic_class() {
    for class in 0..=u8::MAX {
        let ecn = Ecn::of_traffic_class(class);
        assert_eq!(ecn as u8, class & 3);
        assert_eq!(ecn.is_capable(), class & 3 != 0);
        assert_eq!(ecn.in_traffic_class(class), class);
        assert_eq!(Ecn::Capable0.in_traffic_class(class), class & 0xfc | 2);
    }
}

proptest! {
    /// A mark changes the field alone, and the checksum is right afterwards.
    #[test]
    fn a_mark_in_the_bytes_is_a_mark_in_the_packet(packet in packet(), room in 0usize..4) {
        let mut bytes = packet.to_vec().unwrap();
        bytes.resize(bytes.len() + room, 0xee);
        prop_assert_eq!(ecn_of(&bytes), Some(packet.ip.ecn()));
        let before = bytes.clone();
        let capable = packet.ip.ecn().is_capable();
        prop_assert_eq!(mark(&mut bytes), capable);
        if capable {
            let read = Packet::parse(&bytes, Checksums::Verify).unwrap();
            prop_assert_eq!(read, packet.with_ecn(Ecn::Marked));
        } else {
            prop_assert_eq!(bytes, before);
        }
    }

    #[test]
    fn what_is_no_packet_is_left_alone(mut bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let before = bytes.clone();
        let version = bytes.first().map_or(0, |first| first >> 4);
        let marked = mark(&mut bytes);
        if !matches!(version, 4 | 6) {
            prop_assert!(!marked);
        }
        if !marked {
            prop_assert_eq!(bytes, before);
        }
    }
}
