//! The standard rules, packet by packet.

mod support;

use bentpipe_base::{Bytes, Machine, Seq};
use bentpipe_pep::snoop::{Config, Toward};
use bentpipe_pep::{Pep, Side};
use bentpipe_wire::{Flags, Packet, Payload, SackBlock, Transport};
use core::time::Duration;
use support::{
    MSS, START, Script, ack, ack_at, acknowledgement, data, data_at, from_ground, packet, sack, tcp,
};

/// Segments 0 to 9 are under way, segment 0 is acknowledged after 500 ms.
fn ten() -> Script {
    let mut script = Script::new(Config::standard());
    script.send(0..10);
    assert_eq!(script.wait(500), []);
    script.passes(ack(1));
    script
}

#[test]
fn one_loss_is_repaired_once_and_the_sender_sees_no_duplicate() {
    let mut script = ten();
    // Segment 1 is lost; 2 to 9 arrive.
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    for _ in 4..10 {
        script.suppresses(ack(1));
    }
    script.passes(ack(10));
    let tally = script.tally();
    assert_eq!((tally.retransmitted, tally.timeouts), (1, 0));
    assert_eq!(tally.suppressed, 8);
    assert_eq!(script.agent.buffered(), Bytes(0));
}

#[test]
fn one_loss_with_sack_is_repaired_once() {
    let mut script = ten();
    script.suppresses(sack(1, &[(2, 3)]));
    script.repairs(sack(1, &[(2, 4)]), &[1]);
    for right in 5..=10 {
        script.suppresses(sack(1, &[(2, right)]));
    }
    script.passes(ack(10));
    assert_eq!(script.tally().retransmitted, 1);
}

#[test]
fn every_hole_that_sack_shows_is_repaired_at_once() {
    let mut script = ten();
    // 1, 4 and 5 are lost.
    script.suppresses(sack(1, &[(2, 3)]));
    script.repairs(sack(1, &[(2, 4)]), &[1]);
    // 4 was sent two before 6, 5 two before 7.
    script.repairs(sack(1, &[(6, 7), (2, 4)]), &[4]);
    script.repairs(sack(1, &[(6, 8), (2, 4)]), &[5]);
    script.suppresses(sack(1, &[(6, 9), (2, 4)]));
    script.suppresses(sack(1, &[(6, 10), (2, 4)]));
    script.wait(500);
    script.passes(sack(4, &[(6, 10)]));
    script.passes(ack(10));
    assert_eq!(script.tally().retransmitted, 3);
}

#[test]
fn a_lost_retransmission_is_found_by_sack() {
    let mut script = ten();
    script.suppresses(sack(1, &[(2, 3)]));
    script.repairs(sack(1, &[(2, 4)]), &[1]);
    // Sent after the retransmission.
    script.send(10..13);
    for right in 5..=10 {
        script.suppresses(sack(1, &[(2, right)]));
    }
    script.wait(500);
    // 10 and 11 arrive: what was sent before them is lost.
    script.suppresses(sack(1, &[(2, 11)]));
    script.repairs(sack(1, &[(2, 12)]), &[1]);
    script.suppresses(sack(1, &[(2, 13)]));
    script.passes(ack(13));
}

#[test]
fn a_lost_retransmission_is_found_by_counting_duplicates() {
    let mut script = ten();
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    script.send(10..14);
    // 2 to 9 explain eight duplicates, of which two have come.
    for _ in 0..6 {
        script.suppresses(ack(1));
    }
    // 10 and 11 were sent after the retransmission.
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    assert_eq!(script.tally().retransmitted, 2);
}

#[test]
fn a_partial_acknowledgement_repairs_the_next_hole() {
    let mut script = ten();
    // 1 and 5 are lost; without SACK only the first shows.
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    for _ in 0..5 {
        script.suppresses(ack(1));
    }
    script.wait(500);
    script.passes_and_repairs(ack(5), &[5]);
    script.wait(500);
    script.passes(ack(10));
}

#[test]
fn the_timer_repairs_the_last_segment_and_backs_off() {
    let mut script = Script::new(Config::standard());
    script.send([0]);
    script.wait(500);
    script.passes(ack(1));
    script.send([1]);
    // SRTT 500 ms, RTTVAR 250 ms: 1.5 s, then 3 s, then 6 s.
    assert_eq!(script.wait(1499), []);
    assert_eq!(script.wait(1), [(Side::Space, data(1))]);
    assert_eq!(script.wait(2999), []);
    assert_eq!(script.wait(1), [(Side::Space, data(1))]);
    assert_eq!(script.wait(5999), []);
    assert_eq!(script.wait(1), [(Side::Space, data(1))]);
    script.passes(ack(2));
    assert_eq!(script.wait(60_000), []);
    assert_eq!(script.tally().timeouts, 3);
}

#[test]
fn a_timeout_too_early_makes_no_other_segment_lost() {
    let mut script = ten();
    // The way back is slow, not lossy.
    assert_eq!(script.wait(1500), [(Side::Space, data(1))]);
    for n in 2..=10 {
        script.passes(ack(n));
    }
    let mut script = ten();
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    // Two packets came late; what the advance acknowledges cannot be the retransmission yet.
    script.wait(100);
    script.passes(ack(4));
    script.passes(ack(10));
    assert_eq!(script.tally().retransmitted, 1);
}

#[test]
fn local_retransmissions_end() {
    let mut config = Config::standard();
    config.idle = Duration::MAX;
    let mut script = Script::new(config);
    script.send([0, 1]);
    script.passes(ack(1));
    assert_eq!(script.wait(3_600_000).len(), 10);
    // Now its sender has to help.
    script.passes(ack(1));
    script.passes(ack(1));
}

#[test]
fn what_the_sender_sent_again_is_its_own_business() {
    let mut script = ten();
    script.send([1]);
    assert_eq!(script.tally().resent, 1);
    for _ in 0..5 {
        script.passes(ack(1));
    }
    assert_eq!(script.tally().retransmitted, 0);
    // The timer still helps.
    assert_eq!(
        script.wait(10_000),
        [(Side::Space, data(1)), (Side::Space, data(1))]
    );
}

#[test]
fn a_hole_before_the_agent_is_left_to_the_sender() {
    let mut script = Script::new(Config::standard());
    // Segment 1 never comes here.
    script.send([0, 2, 3, 4, 5]);
    script.passes(ack(1));
    for _ in 0..4 {
        script.passes(ack(1));
    }
    // It comes when its sender sends it again.
    script.send([1]);
    script.passes(ack(1));
    script.passes(ack(6));
    assert_eq!(script.tally().retransmitted, 0);
}

#[test]
fn whatever_has_news_passes() {
    let news: [fn(&mut bentpipe_wire::Tcp); 6] = [
        |tcp| tcp.window = 8001,
        |tcp| tcp.window = 0,
        |tcp| tcp.flags = tcp.flags | Flags::FIN,
        |tcp| tcp.flags = tcp.flags | Flags::URG,
        |tcp| tcp.flags = tcp.flags | Flags::ECE,
        |tcp| tcp.flags = tcp.flags | Flags::RST,
    ];
    for (index, edit) in news.into_iter().enumerate() {
        let mut script = ten();
        script.suppresses(ack(1));
        script.repairs(ack(1), &[1]);
        let mut header = acknowledgement(Seq(START) + MSS, &[]);
        edit(&mut header);
        let with_news = packet(2, header, Payload::Absent);
        let out = script.give(Side::Space, with_news.clone());
        assert_eq!(out, [(Side::Ground, with_news)], "news {index}");
    }
    let mut script = ten();
    script.suppresses(ack(1));
    let carrying = Payload::Virtual { offset: 0, len: 3 };
    script.passes(packet(2, acknowledgement(Seq(START) + MSS, &[]), carrying));
}

/// As Linux's receivers do, which open theirs with each segment that arrives, beyond a gap too.
#[test]
fn a_window_that_opens_beside_sack_blocks_is_told_when_the_gap_is_closed() {
    let with_window = |mut ack: Packet, window| {
        if let Transport::Tcp(tcp) = &mut ack.transport {
            tcp.window = window;
        }
        ack
    };
    let mut script = ten();
    // Segment 1 is lost.
    script.suppresses(with_window(sack(1, &[(2, 3)]), 8001));
    script.repairs(with_window(sack(1, &[(2, 4)]), 8003), &[1]);
    script.suppresses(with_window(sack(1, &[(2, 5)]), 9000));
    // One that shrinks, and one that opens though nothing came, are news.
    script.passes(with_window(sack(1, &[(2, 6)]), 8999));
    script.passes(with_window(ack(1), 9001));
    script.passes(with_window(ack(1), 0));
    script.passes(with_window(sack(1, &[(2, 7)]), 9001));
    script.passes(with_window(ack(10), 9002));
}

#[test]
fn answers_to_window_probes_pass() {
    let mut script = ten();
    let closed = |n| {
        let mut header = acknowledgement(Seq(START) + n * MSS, &[]);
        header.window = 0;
        packet(2, header, Payload::Absent)
    };
    script.passes(closed(10));
    let probe = data_at(Seq(START) + 10 * MSS, 1);
    for _ in 0..5 {
        script.give(Side::Ground, probe.clone());
        script.passes(closed(10));
    }
    assert_eq!(script.tally().retransmitted, 0);
}

#[test]
fn a_report_of_a_duplicate_segment_is_no_sign_of_loss() {
    let mut script = ten();
    for _ in 0..4 {
        script.passes(sack(1, &[(0, 1)]));
    }
    assert_eq!(script.tally().retransmitted, 0);
}

#[test]
fn acknowledgements_out_of_order_pass() {
    let mut script = ten();
    script.passes(ack(5));
    script.passes(ack(3));
    script.passes(ack(3));
    assert_eq!(script.tally().suppressed, 0);
}

#[test]
fn numbers_wrap() {
    let mut script = Script::new(Config::standard());
    let seq = |n: u32| Seq(u32::MAX - 600) + n * MSS;
    let at = |n| data_at(seq(n), MSS);
    for n in 0..8 {
        script.give(Side::Ground, at(n));
    }
    script.wait(500);
    script.passes(ack_at(seq(1), &[]));
    let block = |left, right| {
        [SackBlock {
            left: seq(left),
            right: seq(right),
        }]
    };
    script.suppresses(ack_at(seq(1), &block(2, 3)));
    let out = script.give(Side::Space, ack_at(seq(1), &block(2, 4)));
    assert_eq!(out, [(Side::Space, at(1))]);
    script.passes(ack_at(seq(8), &[]));
    assert_eq!(script.agent.buffered(), Bytes(0));
}

#[test]
fn a_reset_and_a_new_connection_begin_anew() {
    for flags in [Flags::RST | Flags::ACK, Flags::SYN, Flags::SYN | Flags::ACK] {
        let mut script = ten();
        let opening = from_ground(Seq(0x7000_0000), flags, Payload::Absent);
        let out = script.give(Side::Ground, opening.clone());
        assert_eq!(out, [(Side::Space, opening)]);
        assert_eq!(script.agent.buffered(), Bytes(0));
        assert_eq!(script.wait(100_000), []);
        script.passes(ack(1));
        script.passes(ack(1));
    }
}

#[test]
fn another_stretch_of_numbers_is_another_connection() {
    let mut script = ten();
    // The agent missed the SYN.
    let far = Seq(START) + (1 << 31);
    script.give(Side::Ground, data_at(far, MSS));
    script.give(Side::Ground, data_at(far + MSS, MSS));
    assert_eq!(script.agent.buffered(), Bytes(2 * 540));
    script.passes(ack_at(far + 2 * MSS, &[]));
    assert_eq!(script.agent.buffered(), Bytes(0));
}

#[test]
fn caches_keep_to_their_bounds() {
    let mut config = Config::standard();
    config.bytes = Bytes(5 * 540);
    let mut script = Script::new(config.clone());
    script.send(0..10);
    assert_eq!(script.agent.buffered(), Bytes(5 * 540));
    assert_eq!(script.tally().uncached, 5);
    // The oldest are kept; of the others, duplicates reach the sender.
    script.passes(ack(1));
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    script.passes(ack(7));
    script.passes(ack(7));
    script.passes(ack(7));

    config.total = Bytes(3 * 540);
    let mut script = Script::new(config.clone());
    script.send(0..10);
    assert_eq!(script.agent.buffered(), Bytes(3 * 540));

    config.flows = 0;
    let mut script = Script::new(config);
    script.send(0..10);
    assert_eq!(script.agent.buffered(), Bytes(0));
    assert_eq!(script.tally().unwatched, 10);
}

#[test]
fn silent_flows_are_forgotten() {
    let mut config = Config::standard();
    config.flows = 1;
    let mut script = Script::new(config);
    script.send([0]);
    let mut other = data(0);
    if let Transport::Tcp(tcp) = &mut other.transport {
        tcp.source = 81;
    }
    let idle = 600_000;
    script.wait(idle - 1);
    script.give(Side::Ground, other.clone());
    assert_eq!((script.agent.flows(), script.tally().unwatched), (1, 1));
    script.wait(1);
    assert_eq!(
        (script.agent.flows(), script.agent.buffered()),
        (0, Bytes(0))
    );
    script.give(Side::Ground, other);
    assert_eq!(
        (script.agent.flows(), script.agent.buffered()),
        (1, Bytes(540))
    );
    script.wait(idle);
    assert_eq!(script.agent.deadline(), None);
}

#[test]
fn what_cannot_be_read_passes() {
    let mut script = ten();
    let mut strange = data(20);
    strange.transport = Transport::Other { protocol: 50 };
    for side in [Side::Ground, Side::Space] {
        let out = script.give(side, strange.clone());
        assert_eq!(out, [(side.opposite(), strange.clone())]);
    }
    assert_eq!(script.tally().unread, 2);
}

#[test]
fn data_from_space_is_not_cached_unless_asked_for() {
    let upload = |n: u32| {
        let mut header = acknowledgement(Seq(9), &[]);
        header.seq = Seq(START) + n * MSS;
        let payload = Payload::Virtual {
            offset: 0,
            len: MSS,
        };
        packet(2, header, payload)
    };
    let reply = |n: u32| {
        let mut packet = from_ground(Seq(9), Flags::ACK, Payload::Absent);
        if let Transport::Tcp(tcp) = &mut packet.transport {
            tcp.ack = Seq(START) + n * MSS;
        }
        packet
    };
    let mut config = Config::standard();
    for (toward, held) in [(Toward::Space, 0), (Toward::Both, 4)] {
        config.toward = toward;
        let mut script = Script::new(config.clone());
        for n in 0..4 {
            let out = script.give(Side::Space, upload(n));
            assert_eq!(out, [(Side::Ground, upload(n))]);
        }
        assert_eq!(script.agent.buffered(), Bytes(held * 540));
        let mut answers = 0;
        for _ in 0..4 {
            for (side, packet) in script.give(Side::Ground, reply(1)) {
                answers += u32::from(side == Side::Space);
                assert!(side == Side::Space || tcp(&packet).seq == Seq(START) + MSS);
            }
        }
        // Of four equal replies, the first is the acknowledgement, three are duplicates.
        assert_eq!(answers, if held == 0 { 4 } else { 1 });
    }
}

#[test]
fn segments_cut_anew_replace_those_they_overlap() {
    let mut script = ten();
    let half = |n: u32| data_at(Seq(START) + MSS + n * 250, 250);
    for n in 0..4 {
        assert_eq!(script.give(Side::Ground, half(n)), [(Side::Space, half(n))]);
    }
    // 1 and 2 are now four halves of 290 bytes on the wire; 3 to 9 are as they were.
    assert_eq!(script.agent.buffered(), Bytes(4 * 290 + 7 * 540));
    for _ in 0..3 {
        script.passes(ack(1));
    }
    script.passes(ack(10));
    assert_eq!(script.agent.buffered(), Bytes(0));
}
