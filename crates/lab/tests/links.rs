//! What links do to packets, in real runs on kernel TCP.

mod common;

use bentpipe_base::{Bytes, Instant, Probability, Silent};
use bentpipe_link::keys::Value;
use bentpipe_link::{Direction, Settings};
use bentpipe_os::need;
use bentpipe_outcome::Point;
use bentpipe_plan::links;
use bentpipe_scenario::{EcnMode, Ip, Queue, QueueLimit};
use common::{last_of, measure, scenario, valid};
use std::time::Duration;

#[test]
fn a_link_changes_its_rate_and_delay_when_its_time_has_come() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nopened_by = \"terminal\"\n\
                 duration = \"6s\"\n";
    let link = "changes = [{ at = \"2s\", rate = \"2Mbit/s\" }, \
                { at = \"4s\", rate = \"20Mbit/s\", delay = \"5ms\" }]\n\
                [links.space.reverse]\nchanges = []";
    let result = measure(&scenario("changes", link, flows));
    let measured = valid(&result);
    // Mbit received by a time of the run. What lies behind a hole counts when the hole is filled: only
    // sums tell the link's rate.
    let received = |by: f64| {
        let samples = measured.samples.iter();
        let samples = samples.filter(|sample| sample.point == Point::Receiver);
        let until = samples.take_while(|sample| sample.at.as_secs_f64() <= by);
        8e-6 * until.last().unwrap().bytes.0 as f64
    };
    // 2 s of 10 and 1.9 s of 2 Mbit/s; the queue holds 0.5 s of the latter: the link is never idle.
    let slow = received(3.9);
    assert!((10.0..24.5).contains(&slow), "{slow} Mbit by 3.9 s");
    let fast = (received(5.9) - received(5.0)) / 0.9;
    assert!(fast > 5.0, "{fast} Mb/s of 20");
    // 55 ms there and back since the fourth second, and a queue that 20 Mbit/s empties.
    let last = last_of(measured);
    assert!(
        last.min_rtt.unwrap() < Duration::from_millis(75),
        "{last:?}"
    );
}

#[test]
fn a_link_has_bursts_and_early_drops_as_in_the_simulator() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nduration = \"5s\"\n";
    let link = "gilbert = { mean_burst = 4, error_rate = \"0.5%\" }\n[links.space.reverse]\n\
                gilbert = \"none\"";
    let mut scenario = scenario("bursts", link, flows);
    let space = scenario.links.get_mut("space").unwrap();
    // Twice the link's BDP: a window that Reno or Cubic reaches between two bursts, and the limit never.
    let red = [
        ("min_threshold", Value::Length(5)),
        ("max_threshold", Value::Length(15)),
        ("weight", Value::Number(0.02)),
    ];
    space.forward.queue = Queue::new("red", QueueLimit::Packets(1000), &red).unwrap();
    let result = measure(&scenario);
    let sent = &valid(&result).links["space"].from_a;
    assert!(sent.dropped_queue > 0, "{sent:?}");
    assert!(sent.wait_max < Duration::from_millis(1000), "{sent:?}");
    // What is lost depends on the numbers of packets alone: the same link in virtual time loses as many.
    let [forward, _] = links::settings(&scenario.links["space"]).unwrap();
    let forward = Settings {
        rate: None,
        queue: Settings::default().queue,
        ..forward
    };
    let mut twin = Direction::new(forward, scenario.seed, "space.a-b", Silent);
    let departed = sent.packets_in - sent.dropped_queue - sent.waiting_packets;
    for packet in 0..departed {
        assert!(twin.push(packet, Bytes(1500), Instant::ZERO).is_none());
    }
    let hit = departed - twin.under_way() as u64;
    assert!(hit > 0 && sent.dropped_corrupted == hit, "{hit}: {sent:?}");
}

/// Marks stand in the packets of the kernel's own TCP, which would drop them if their checksum were wrong, and heeds them.
#[test]
fn a_queue_marks_what_the_kernel_sends_as_capable_and_the_kernel_heeds_it() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nduration = \"4s\"\n";
    let cases = [
        (Ip::V4, EcnMode::Ask),
        (Ip::V6, EcnMode::Ask),
        (Ip::V4, EcnMode::Accept),
    ];
    let [four, six, none] = cases.map(|(ip, asks)| {
        let mut scenario = scenario("marks", "", flows);
        scenario.ip = ip;
        scenario.hosts.get_mut("server").unwrap().tcp.ecn = asks;
        let space = scenario.links.get_mut("space").unwrap();
        let red = [
            ("min_threshold", Value::Length(5)),
            ("max_threshold", Value::Length(60)),
            ("weight", Value::Number(0.02)),
            ("ecn", Value::Flag(true)),
        ];
        space.forward.queue = Queue::new("red", QueueLimit::Packets(1000), &red).unwrap();
        let result = measure(&scenario);
        let measured = valid(&result);
        (measured.links["space"].from_a, last_of(measured))
    });
    for (sent, tcp) in [four, six] {
        assert!(sent.marked > 0, "{sent:?}");
        assert!(sent.dropped_queue < sent.marked, "{sent:?}");
        assert!(tcp.retransmitted <= sent.dropped_queue, "{sent:?} {tcp:?}");
        assert!(tcp.ssthresh.is_some(), "{tcp:?}");
    }
    let (sent, _) = none;
    assert!(sent.marked == 0 && sent.dropped_queue > 0, "{sent:?}");
}

#[test]
fn nothing_arrives_in_an_outage() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nduration = \"5s\"\n";
    let link = "outage = [{ start = \"2s\", length = \"1s\" }]\n[links.space.reverse]\noutage = []";
    let mut scenario = scenario("outage", link, flows);
    let space = scenario.links.get_mut("space").unwrap();
    let chance = |value| Value::Chance(Probability::new(value).unwrap());
    let blue = [
        ("increment", chance(0.01)),
        ("decrement", chance(0.001)),
        ("freeze", Value::Time(Duration::from_millis(50))),
    ];
    space.forward.queue = Queue::new("blue", QueueLimit::Packets(60), &blue).unwrap();
    let result = measure(&scenario);
    let measured = valid(&result);
    let sent = &measured.links["space"].from_a;
    assert!(sent.dropped_lost > 0 && sent.dropped_queue > 0, "{sent:?}");
    let received = |from: u64, to: u64| -> Vec<u64> {
        let samples = measured.samples.iter();
        let samples = samples.filter(|sample| sample.point == Point::Receiver);
        let within = |at: Duration| (from..to).contains(&(at.as_millis() as u64));
        let samples = samples.filter(|sample| within(sample.at));
        samples.map(|sample| sample.bytes.0).collect()
    };
    // What left before it arrives within 50 ms, and what leaves behind it after 50 ms more.
    let gap = received(2200, 2950);
    assert!(
        gap.len() > 4 && gap.windows(2).all(|it| it[0] == it[1]),
        "{gap:?}"
    );
    assert!(received(0, 1900).last() < gap.first(), "{gap:?}");
    assert!(gap.last() < received(4000, 5000).last(), "{gap:?}");
}
