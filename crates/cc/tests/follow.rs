//! The rate control follows a link that changes.

#[path = "follow/world.rs"]
mod world;

use world::{CHANGES, Link, Noise, Tenth, Word, World, phase};

/// Megabits a second between two times in seconds, by flow, and the longest wait in milliseconds.
fn between(tenths: &[Tenth], from: u64, to: u64) -> (Vec<f64>, u64) {
    let those = &tenths[10 * from as usize..10 * to as usize];
    let of = |flow: usize| those.iter().map(|tenth| tenth.bytes[flow]).sum::<u64>();
    let rates = (0..those[0].bytes.len()).map(|flow| of(flow) as f64 * 8e-6 / (to - from) as f64);
    let wait = those.iter().map(|tenth| tenth.wait_ms).max();
    (rates.collect(), wait.unwrap_or(0))
}

/// Judges each phase from its sixth second on: most of the rate, and a queue of less than a round trip.
fn follows(link: Link, rate_mbps: u64, most: f64) {
    let phases = link.phases.clone();
    let end = phases.last().expect("one").from + 15;
    let tenths = World::new(link, rate_mbps, &[(0, 0)]).run(end);
    for (at, phase) in phases.iter().enumerate() {
        let until = phases.get(at + 1).map_or(end, |next| next.from);
        let (rates, wait) = between(&tenths, phase.from + 5, until);
        let share = rates[0] / phase.mbps as f64;
        let what = format!(
            "told {rate_mbps}: {} Mbit/s and {} ms from {} s",
            phase.mbps, phase.rtt, phase.from
        );
        assert!(share > most, "{what}: {share}");
        assert!(wait < phase.rtt, "{what}: {wait} ms in the queue");
    }
}

fn link(lost: u64) -> Link {
    Link {
        phases: CHANGES.to_vec(),
        queue: 750_000,
        back: 0,
        upload_ms: 0,
        lost,
        noise: Noise::default(),
    }
}

#[test]
fn a_link_that_changes_is_followed_below_the_configured_rate() {
    follows(link(0), 50, 0.85);
}

#[test]
fn a_link_of_unknown_rate_is_followed() {
    follows(link(0), 0, 0.85);
}

#[test]
fn losses_do_not_lead_astray() {
    for rate in [0, 50] {
        let phases = CHANGES[..5].to_vec();
        let lossy = Link {
            phases,
            ..link(100)
        };
        follows(lossy, rate, 0.8);
    }
}

#[test]
fn a_queue_too_short_to_see_is_no_licence() {
    let shallow = Link {
        phases: CHANGES[..5].to_vec(),
        queue: 30_000,
        ..link(0)
    };
    let tenths = World::new(shallow, 0, &[(0, 0)]).run(75);
    let (rates, _) = between(&tenths, 35, 45);
    assert!(rates[0] > 0.85 * 50.0, "{rates:?}");
}

#[test]
fn the_configured_rate_is_never_exceeded() {
    let phases = vec![phase(0, 10, 600), phase(10, 50, 600)];
    let tenths = World::new(Link { phases, ..link(0) }, 10, &[(0, 0)]).run(30);
    let (rates, _) = between(&tenths, 15, 30);
    assert!((9.7..9.9).contains(&rates[0]), "{rates:?}");
}

#[test]
fn four_flows_have_equal_parts_of_a_link_of_unknown_rate() {
    let phases = vec![phase(0, 10, 600)];
    let flows = [(0, 0), (0, 1), (0, 3), (0, 4)];
    let tenths = World::new(Link { phases, ..link(0) }, 0, &flows).run(40);
    let (rates, _) = between(&tenths, 10, 40);
    let least = rates.iter().copied().fold(f64::MAX, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    assert!(
        least > 0.95 * most && rates.iter().sum::<f64>() > 9.0,
        "{rates:?}"
    );
}

/// Each told all of the carrier's rate; the second comes when the first has it all.
#[test]
fn two_gateways_share_a_carrier() {
    let phases = vec![phase(0, 10, 600)];
    let flows = [(0, 0), (0, 0), (1, 10), (1, 10)];
    let tenths = World::new(Link { phases, ..link(0) }, 10, &flows).run(70);
    let (rates, wait) = between(&tenths, 20, 70);
    assert!(rates.iter().sum::<f64>() > 9.0, "{rates:?}");
    assert!(rates.iter().all(|rate| *rate > 1.5), "{rates:?}");
    assert!(wait < 300, "{wait} ms");
}

/// The mean of the longest waits of each tenth of a second, in milliseconds.
fn mean_wait(tenths: &[Tenth], from: u64, to: u64) -> u64 {
    let those = &tenths[10 * from as usize..10 * to as usize];
    those.iter().map(|tenth| tenth.wait_ms).sum::<u64>() / those.len() as u64
}

/// What noise costs is bounded, and it never keeps a queue: 10, 2 and 20 Mbit/s at 200 ms.
#[test]
fn late_acknowledgements_and_timers_keep_no_queue() {
    let phases = vec![phase(0, 10, 200), phase(7, 2, 200), phase(27, 20, 200)];
    for (late, stalled, jitter) in [(0, 0, 20), (100, 0, 0), (0, 100, 0), (300, 0, 0)] {
        for (told, queue) in [(0, 250_000), (0, 750_000), (50, 250_000)] {
            let [mut shares, mut waits] = [[0.0; 3]; 2];
            for seed in 1..=10 {
                let noise = Noise {
                    seed,
                    late,
                    stalled,
                    jitter,
                    wander: 0,
                };
                let phases = phases.clone();
                let noisy = Link {
                    phases,
                    queue,
                    noise,
                    ..link(0)
                };
                let tenths = World::new(noisy, told, &[(0, 0)]).run(41);
                for (at, (from, to, mbps)) in [(5, 7, 10.0), (13, 27, 2.0), (33, 41, 20.0)]
                    .into_iter()
                    .enumerate()
                {
                    shares[at] += between(&tenths, from, to).0[0] / mbps / 10.0;
                    waits[at] += mean_wait(&tenths, from, to) as f64 / 10.0;
                }
            }
            let what = format!("told {told}, queue {queue}, {late}, {stalled}, {jitter} ms");
            let least = if late > 100 { 0.7 } else { 0.85 };
            assert!(
                shares.iter().all(|share| *share > least),
                "{what}: {shares:?}"
            );
            assert!(waits.iter().all(|wait| *wait < 150.0), "{what}: {waits:?}");
        }
    }
}

/// The path's own delay varies by more than what would be a queue: much of the link is still used, and no queue stands.
#[test]
fn a_delay_that_varies_by_itself_is_no_queue() {
    for (jitter, wander, rtt, least) in [
        (100, 0, 200, [0.25, 0.6]),
        (200, 0, 200, [0.08, 0.35]),
        (0, 100, 40, [0.75, 0.7]),
        (0, 100, 200, [0.7, 0.8]),
        (0, 200, 200, [0.6, 0.7]),
        (0, 200, 600, [0.4, 0.7]),
    ] {
        for (told, least) in [0, 20].into_iter().zip(least) {
            let (mut share, mut wait) = (0.0, 0.0);
            for seed in 1..=10 {
                let noise = Noise {
                    seed,
                    jitter,
                    wander,
                    ..Noise::default()
                };
                let varying = Link {
                    phases: vec![phase(0, 20, rtt)],
                    noise,
                    ..link(0)
                };
                let tenths = World::new(varying, told, &[(0, 0)]).run(60);
                share += between(&tenths, 10, 60).0[0] / 20.0 / 10.0;
                wait += mean_wait(&tenths, 10, 60) as f64 / 10.0;
            }
            let what = format!("told {told}, {jitter} and {wander} ms of {rtt} ms");
            assert!(
                share > least && wait < 40.0,
                "{what}: {share}, {wait} ms in the queue"
            );
        }
    }
}

/// Each told all of the carrier's rate, two flows each, the second gateway at once or later: their parts
/// become equal, on a quiet machine and on a busy one.
#[test]
fn parts_of_a_carrier_become_equal() {
    let (mut sum, mut runs) = (0.0, 0.0);
    for (begins, from) in [(0, 5), (10, 20)] {
        for (late, jitter) in [(0, 0), (0, 5), (50, 0)] {
            for seed in 1..=10 {
                let noise = Noise {
                    seed,
                    late,
                    stalled: late,
                    jitter,
                    wander: 0,
                };
                let carrier = Link {
                    phases: vec![phase(0, 10, 600)],
                    noise,
                    ..link(0)
                };
                let flows = [(0, 0), (0, 0), (1, begins), (1, begins)];
                let tenths = World::new(carrier, 10, &flows).run(from + 55);
                let (rates, _) = between(&tenths, from, from + 55);
                let most = rates.iter().copied().fold(0.0, f64::max);
                let even = rates.iter().copied().fold(f64::MAX, f64::min) / most;
                let what = format!("from {begins} s, {late}, {jitter} ms, seed {seed}: {rates:?}");
                assert!(even > 0.8 && rates.iter().sum::<f64>() > 8.8, "{what}");
                assert!(mean_wait(&tenths, from, from + 55) < 50, "{what}");
                (sum, runs) = (sum + even, runs + 1.0);
            }
        }
    }
    assert!(sum / runs > 0.95, "{}", sum / runs);
}

/// The way back carries half of the acknowledgements at most: its queue is none of the link's.
#[test]
fn a_queue_on_the_way_back_is_no_queue() {
    for told in [0, 20] {
        let phases = vec![phase(0, 20, 600), phase(30, 5, 600)];
        let narrow = Link {
            phases,
            back: 800,
            ..link(0)
        };
        let tenths = World::new(narrow, told, &[(0, 0)]).run(45);
        let (fast, slow) = (between(&tenths, 10, 30).0[0], between(&tenths, 36, 45).0[0]);
        assert!(fast > 17.0, "told {told}: {fast} of 20 Mbit/s");
        // And what is one is seen.
        let wait = mean_wait(&tenths, 36, 45);
        assert!(
            slow > 4.2 && wait < 150,
            "told {told}: {slow} of 5 Mbit/s, {wait} ms"
        );
    }
}

/// As an upload keeps one beside a download: the window is as much larger.
#[test]
fn a_long_queue_on_the_way_back_slows_nothing() {
    for rtt in [50, 500] {
        for (told, least) in [(0, 16.0), (20, 19.0), (50, 16.0)] {
            for upload_ms in [300, 1000, 2000] {
                let busy = Link {
                    phases: vec![phase(0, 20, rtt)],
                    back: 100_000,
                    upload_ms,
                    ..link(0)
                };
                let tenths = World::new(busy, told, &[(0, 0)]).run(60);
                let (rate, wait) = (between(&tenths, 20, 60).0[0], mean_wait(&tenths, 20, 60));
                assert!(
                    rate > least && wait < 80,
                    "told {told}, {rtt} and {upload_ms} ms: {rate} of 20 Mbit/s, {wait} ms"
                );
            }
        }
    }
}

/// The first receiver lies, about the queue or about what has arrived: of `n` the others still have most of
/// their parts, and where a majority is honest no queue stands.
fn misled(word: Word, n: usize, told: u64, most_wait_ms: u64) {
    let phases = vec![phase(0, 10, 600), phase(40, 5, 600)];
    // The receivers have clocks, and the way back has room.
    let back = 100_000;
    let link = Link {
        phases,
        back,
        ..link(0)
    };
    let flows: Vec<_> = (0..n).map(|at| (0, at as u64)).collect();
    let tenths = World::new(link, told, &flows).with(word).run(70);
    for (from, to, mbps) in [(20, 40, 10.0), (50, 70, 5.0)] {
        let (rates, _) = between(&tenths, from, to);
        let honest = rates[1..].iter().sum::<f64>();
        let part = mbps * (n - 1) as f64 / n as f64;
        let wait = mean_wait(&tenths, from, to);
        let least = if n > 2 { 0.9 } else { 0.4 };
        assert!(
            honest >= least * part && wait < most_wait_ms,
            "{word:?}, {n} receivers, told {told}: {honest} of {part} Mbit/s, {wait} ms"
        );
    }
}

const LIES: [Word; 3] = [Word::NoQueue, Word::Optimistic, Word::Late(300)];

#[test]
fn one_receiver_of_several_leads_no_leg_astray() {
    for word in LIES.into_iter().chain([Word::Clock(900)]) {
        for (n, told) in [(3, 0), (3, 50), (5, 0), (5, 50)] {
            misled(word, n, told, 60);
        }
    }
    // Of what one has lost nothing follows for the others.
    misled(Word::Lost(2, 10), 3, 10, 60);
}

/// Of two nobody knows who is right, but the other goes on; and what a slow clock hides is soon seen.
#[test]
fn one_receiver_of_two_does_not_stop_the_other() {
    for told in [0, 50] {
        for parts in [900, 990, 1010, 1100] {
            misled(Word::Clock(parts), 1, told, 60);
            misled(Word::Clock(parts), 2, told, 60);
        }
        for word in LIES {
            misled(word, 2, told, u64::MAX);
        }
    }
}

/// A rate told a little too high costs little.
#[test]
fn a_rate_told_too_high_is_followed_below() {
    for told in [10, 11, 12, 15, 20, 50] {
        let phases = vec![phase(0, 10, 600)];
        let tenths = World::new(Link { phases, ..link(0) }, told, &[(0, 0), (0, 0)]).run(65);
        let total = between(&tenths, 5, 65).0.iter().sum::<f64>();
        let wait = mean_wait(&tenths, 5, 65);
        assert!(
            total > 8.8 && wait < 50,
            "told {told}: {total} Mbit/s, {wait} ms"
        );
    }
}

/// A link that has less than was told, behind a queue too short for a delay to tell: it is followed down and up again, and little is lost.
/// What is lost by chance lowers nothing.
#[test]
fn a_policed_link_is_followed() {
    for queue in [6_000, 15_000, 60_000] {
        for (mbps, rtt) in [(1, 600), (2, 50), (2, 600), (5, 600), (10, 200)] {
            let phases = vec![phase(0, 20, rtt), phase(20, mbps, rtt), phase(60, 20, rtt)];
            let policed = Link {
                phases,
                queue,
                ..link(0)
            };
            let tenths = World::new(policed, 20, &[(0, 0), (0, 0)]).run(90);
            let lost = tenths[300..600].iter().map(|tenth| tenth.lost).sum::<u64>();
            let share = lost as f64 * 8e-6 / 30.0 / mbps as f64;
            let got = |from, to| between(&tenths, from, to).0.iter().sum::<f64>();
            let what = format!("{mbps} Mbit/s, {rtt} ms, queue {queue}");
            assert!(got(30, 60) > 0.8 * mbps as f64, "{what}: {}", got(30, 60));
            assert!(share < 0.2, "{what}: {share} lost");
            assert!(got(80, 90) > 18.0, "{what}: {} afterwards", got(80, 90));
        }
    }
    for one in [3, 4, 6, 10] {
        let lossy = Link {
            phases: vec![phase(0, 20, 600)],
            ..link(one)
        };
        let tenths = World::new(lossy, 20, &[(0, 0), (0, 0)]).run(60);
        let got = between(&tenths, 20, 60).0.iter().sum::<f64>();
        let most = 19.7 * (1.0 - 1.0 / one as f64);
        assert!(got > 0.9 * most, "one in {one}: {got} of {most}");
    }
}
