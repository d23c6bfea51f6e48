//! The long form of SNACK, with its bit vector.

use super::script::{ACK, Script, mss, seg};
use super::{LONG_OFFER, OFFER, open, plain, said, scps_option, snacked};
use bentpipe_tcp::{Config, Scps};
use bentpipe_wire::scps::Snack;
use std::time::Duration;

/// To a peer that offered it, and to no other.
#[test]
fn the_long_form_tells_of_all_holes_where_both_offer_it() {
    for (theirs, short_snacks_only, long) in [
        (LONG_OFFER, false, true),
        (OFFER, false, false),
        (LONG_OFFER, true, false),
    ] {
        let scps = Scps {
            short_snacks_only,
            ..Scps::default()
        };
        let config = Config {
            scps: Some(scps),
            ..plain()
        };
        let mut options = mss(1000);
        options.unknown = scps_option(&theirs);
        let mut script = Script::open_with(config, options);
        // Of 20 segments the first, the third, and the eleventh to the fifteenth are lost.
        for i in (1..20).filter(|i| *i != 2 && !(10..15).contains(i)) {
            script.inject(seg(ACK, i * 1000 + 1, 1).data(1000));
        }
        let out = script.out();
        let last = out.last().and_then(|out| said(out).snack);
        let Some(snack) = last else {
            panic!("{theirs:?}: {out:?}");
        };
        let holes: Vec<_> = snack.holes().collect();
        let all = [(0, 1), (2, 1), (10, 5)];
        assert_eq!(holes, all[..if long { 3 } else { 1 }], "{theirs:?}");
    }
}

/// A bit vector beside SACK blocks and timestamps is cut to the room that these leave.
#[test]
fn the_long_form_fits_beside_other_options() {
    for (sack_blocks, timestamps, corrupt) in [
        (0, false, false),
        (0, true, true),
        (4, false, true),
        (4, true, false),
        (4, true, true),
    ] {
        let config = Config {
            sack_blocks,
            timestamps,
            scps: Some(Scps {
                corruption_experienced: Some(Duration::from_secs(1)),
                ..Scps::default()
            }),
            ..plain()
        };
        let mut options = mss(1000);
        (options.unknown, options.sack_permitted) = (scps_option(&LONG_OFFER), true);
        let mut script = Script::open_with(config, options);
        let unit = if timestamps { 988 } else { 1000 };
        for i in (1..400).step_by(2) {
            let data = seg(ACK, i * unit + 1, 1).data(unit as u32);
            script.inject(if timestamps { data.stamp(51, 1) } else { data });
            if corrupt {
                script.tcp.note_damaged();
            }
            while let Some(segment) = script.tcp.transmit(script.now) {
                assert!(segment.header_len() <= 60, "{segment:?}");
                let (tcp, payload) = segment.into_header(1, 2);
                let packet = bentpipe_wire::Packet {
                    ip: bentpipe_wire::Ip::V4(bentpipe_wire::Ipv4::new(
                        [192, 0, 2, 1].into(),
                        [192, 0, 2, 2].into(),
                    )),
                    transport: bentpipe_wire::Transport::Tcp(tcp),
                    payload,
                };
                packet.emit(&mut Vec::new()).expect("its options fit");
            }
        }
    }
}

#[test]
fn what_a_bit_vector_names_goes_again_at_once_and_once() {
    let mut script = open(plain());
    script.tcp.write_virtual(20_000);
    script.expect(1, 10);
    script.pass(100);
    let long = Snack {
        // Of the ten the second, the fourth and the fifth, and the ninth are missing; what lies behind the last 1 is unknown.
        vector: [0b1001_1101].into(),
        ..Snack::short(1, 1)
    };
    script.inject(snacked(1, &long));
    let again = |data: &[(u32, usize)]| -> Vec<u32> {
        data.iter()
            .map(|(seq, _)| seq / 1000)
            .filter(|seq| *seq < 10)
            .collect()
    };
    assert_eq!(again(&script.data()), [1, 3, 4, 8]);
    script.inject(snacked(1, &long));
    assert_eq!(again(&script.data()), []);
    assert_eq!(script.tcp.counters().retransmitted, 4);
}
