//! What an agent heeds whose packets are anybody's ([`SharedAgentLimits`]), packet by packet.

mod support;

use bentpipe_base::{Bytes, Seq};
use bentpipe_pep::snoop::{Config, SharedAgentLimits};
use bentpipe_pep::{Pep as _, Side};
use bentpipe_wire::{Flags, Ip, Ipv4, Packet, Payload, Transport};
use support::{Script, ack, data, from_ground, sack, tcp};

/// What a segment takes of the cache of all.
const SEGMENT: u64 = 540 + SharedAgentLimits::GATEWAY.overhead.0;

fn shared_limits() -> Config {
    let mut config = Config::standard();
    config.shared_limits = Some(SharedAgentLimits::GATEWAY);
    config
}

/// The same packet of the connection of another port and, if it goes up, of another host.
fn of(host: u8, port: u16, mut packet: Packet) -> Packet {
    let up = tcp(&packet).destination == 4000;
    let Ip::V4(ip) = packet.ip else {
        panic!("IPv4");
    };
    packet.ip = Ip::V4(if up {
        Ipv4::new([10, 1, 0, host].into(), ip.destination)
    } else {
        Ipv4::new(ip.source, [10, 1, 0, host].into())
    });
    if let Transport::Tcp(tcp) = &mut packet.transport {
        if up {
            tcp.source = port
        } else {
            tcp.destination = port
        }
    }
    packet
}

impl Script {
    /// The receiver of this connection has shown that it is there.
    fn answered(&mut self, host: u8, port: u16) {
        self.give(Side::Space, of(host, port, ack(0)));
    }

    /// These segments of that connection go by.
    fn load(&mut self, host: u8, port: u16, segments: core::ops::Range<u32>) {
        for n in segments {
            self.give(Side::Ground, of(host, port, data(n)));
        }
    }
}

#[test]
fn nothing_is_kept_for_a_receiver_that_was_never_heard() {
    let mut script = Script::new(shared_limits());
    script.send(0..10);
    assert_eq!(script.agent.buffered(), Bytes(0));
    script.passes(ack(5));
    script.send(10..15);
    assert_eq!(script.agent.buffered(), Bytes(5 * SEGMENT));
}

#[test]
fn a_copy_takes_more_than_its_bytes() {
    let mut config = shared_limits();
    config.total = Bytes(5 * SEGMENT);
    let mut script = Script::new(config);
    script.passes(ack(0));
    script.send(0..10);
    assert_eq!(script.agent.buffered(), Bytes(5 * SEGMENT));
    assert_eq!(script.tally().uncached, 5);
}

#[test]
fn who_fills_the_cache_makes_room_for_others() {
    let mut config = shared_limits();
    config.total = Bytes(64 * SEGMENT);
    let mut script = Script::new(config);
    for port in 1..9 {
        script.answered(1, port);
        script.load(1, port, 0..10);
    }
    assert!(script.agent.buffered() <= Bytes(64 * SEGMENT));
    // Of the host that has all of it, whose receivers have said nothing since.
    script.wait(1000);
    script.answered(2, 1);
    let before = script.tally();
    script.load(2, 1, 0..8);
    let now = script.tally();
    assert!(now.cached - before.cached >= 7, "{now:?}");
    assert!(now.evicted >= 4, "{now:?}");
    // Its losses are repaired as if nobody else were there.
    script.give(Side::Space, of(2, 1, ack(1)));
    script.give(Side::Space, of(2, 1, ack(1)));
    let out = script.give(Side::Space, of(2, 1, ack(1)));
    assert_eq!(out, [(Side::Space, of(2, 1, data(1)))]);
}

#[test]
fn a_host_with_a_small_share_keeps_it() {
    let mut config = shared_limits();
    config.total = Bytes(64 * SEGMENT);
    let mut script = Script::new(config);
    script.answered(2, 1);
    script.load(2, 1, 0..8);
    for port in 1..20 {
        script.answered(1, port);
        script.load(1, port, 0..10);
    }
    // One that has little asks, and who has most gives.
    assert_eq!(script.tally().evicted, 0);
    script.wait(100);
    script.answered(3, 1);
    script.load(3, 1, 0..10);
    assert!(script.tally().evicted > 0);
    script.give(Side::Space, of(2, 1, ack(1)));
    script.give(Side::Space, of(2, 1, ack(1)));
    let out = script.give(Side::Space, of(2, 1, ack(1)));
    assert_eq!(out, [(Side::Space, of(2, 1, data(1)))]);
}

#[test]
fn what_stands_still_gives_way_whoever_has_it() {
    let mut config = shared_limits();
    config.total = Bytes(16 * SEGMENT);
    let mut script = Script::new(config);
    for host in 1..9 {
        script.answered(host, 1);
        // Its receiver waits for what was lost before the agent.
        script.load(host, 1, 1..3);
    }
    script.answered(9, 1);
    script.load(9, 1, 1..2);
    assert_eq!(script.tally().evicted, 0);
    script.wait(29_000);
    script.load(9, 1, 2..3);
    assert_eq!(script.tally().evicted, 0);
    script.wait(1000);
    script.load(9, 1, 3..5);
    assert!(script.tally().evicted >= 16, "{:?}", script.tally());
    assert!(script.agent.buffered() >= Bytes(SEGMENT));
}

#[test]
fn flows_that_never_began_or_have_ended_are_forgotten_soon() {
    let mut script = Script::new(shared_limits());
    // A SYN-ACK, and data, and no word of the other end.
    script.send([0]);
    script.wait(30_000);
    assert_eq!(script.agent.flows(), 0);
    // One that both ends are in stays.
    script.send([0]);
    script.passes(ack(1));
    script.wait(30_000);
    assert_eq!(script.agent.flows(), 1);
    script.give(
        Side::Ground,
        from_ground(Seq(1500), Flags::ACK | Flags::FIN, Payload::Absent),
    );
    script.wait(30_000);
    assert_eq!(script.agent.flows(), 1);
    let mut fin = ack(1);
    if let Transport::Tcp(tcp) = &mut fin.transport {
        tcp.flags = tcp.flags | Flags::FIN;
    }
    script.passes(fin);
    script.wait(30_000);
    assert_eq!(
        (script.agent.flows(), script.agent.buffered()),
        (0, Bytes(0))
    );
}

#[test]
fn a_refused_copy_leaves_the_direction_to_its_sender() {
    let mut script = Script::new(shared_limits());
    script.passes(ack(0));
    script.send(0..10);
    script.passes(ack(1));
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    script.agent.refused(Side::Space, &data(1));
    assert_eq!(script.agent.buffered(), Bytes(0));
    for _ in 0..5 {
        script.passes(ack(1));
    }
    script.send(10..12);
    assert_eq!(script.agent.buffered(), Bytes(0));
    assert_eq!(script.tally().given_up, 1);
    // No timer of ours goes on.
    assert_eq!(script.wait(20_000), []);
}

#[test]
fn copies_that_do_not_arrive_are_given_up() {
    let mut script = Script::new(shared_limits());
    script.passes(ack(0));
    script.send(0..2);
    script.passes(ack(1));
    // By the timer: three fail, where ten would be tried.
    assert_eq!(script.wait(100_000).len(), 3);
    assert_eq!(script.tally().given_up, 1);
    script.passes(ack(1));

    // Its sender has to help three times.
    let mut script = Script::new(shared_limits());
    script.passes(ack(0));
    for n in [1, 11, 21] {
        script.send(n - 1..n + 9);
        script.wait(300);
        script.passes(ack(n));
        script.suppresses(ack(n));
        script.repairs(ack(n), &[n]);
        script.wait(300);
        script.send([n]);
        script.passes(ack(n + 9));
    }
    assert_eq!(script.tally().given_up, 1);
    script.send(30..40);
    for _ in 0..3 {
        script.passes(ack(30));
    }
}

#[test]
fn a_sender_that_did_not_wait_for_the_copy_says_nothing_of_it() {
    let mut script = Script::new(shared_limits());
    script.passes(ack(0));
    for n in [1, 11, 21, 31, 41] {
        script.send(n - 1..n + 9);
        script.wait(300);
        script.passes(ack(n));
        script.suppresses(ack(n));
        script.repairs(ack(n), &[n]);
        // It heard of the loss in another way.
        script.wait(20);
        script.send([n]);
        script.passes(ack(n + 9));
    }
    assert_eq!(script.tally().given_up, 0);
}

#[test]
fn where_copies_arrive_some_may_be_lost() {
    let mut script = Script::new(shared_limits());
    script.passes(ack(0));
    script.send(0..10);
    script.wait(300);
    script.passes(ack(1));
    script.suppresses(ack(1));
    script.repairs(ack(1), &[1]);
    script.wait(300);
    script.passes(ack(10));
    script.send([10]);
    assert!(script.wait(30_000).len() > 3);
    script.passes(ack(11));
    assert_eq!(script.tally().given_up, 0);
}

#[test]
fn many_copies_lost_at_once_are_a_full_queue() {
    let mut script = Script::new(shared_limits());
    script.passes(ack(0));
    script.send(0..12);
    script.wait(500);
    script.passes(ack(1));
    // 1, 3, 5 and 7 are lost, and so are their copies.
    let holes = |right| sack(1, &[(8, right), (6, 7), (4, 5), (2, 3)]);
    let again = |script: &mut Script, right| {
        let out = script.give(Side::Space, holes(right));
        out.iter().filter(|(side, _)| *side == Side::Space).count()
    };
    let first: usize = (9..=12).map(|right| again(&mut script, right)).sum();
    assert_eq!(first, 4);
    script.send(12..20);
    script.wait(500);
    let second: usize = (13..=20).map(|right| again(&mut script, right)).sum();
    assert_eq!(second, 4);
    assert_eq!(script.tally().given_up, 0);
}
