//! Flows and gateways on one link that changes, packet by packet: the rate control follows it.

use bentpipe_cc::fixed_point::{HUNGRY, Params, RawAck, RawWindow};
use bentpipe_cc::rate_control::{State, rate_apply, rate_init};
use bentpipe_cc::share::{Receiver, Share, begin, join, share_ack};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const WIRE: u32 = 1500;
/// Runs do not begin at 0, which stands for "never".
const START: u64 = 5 * SECOND;

/// From a time on, in seconds: Mbit/s and the round-trip time in milliseconds.
#[derive(Clone, Copy)]
struct Phase {
    from: u64,
    mbps: u64,
    rtt: u64,
}

const fn phase(from: u64, mbps: u64, rtt: u64) -> Phase {
    Phase { from, mbps, rtt }
}

/// 10 Mbit/s at first; then everything changes.
const CHANGES: [Phase; 8] = [
    phase(0, 10, 600),
    phase(15, 2, 600),
    phase(30, 50, 600),
    phase(45, 50, 120),
    phase(60, 10, 120),
    phase(75, 2, 120),
    phase(90, 2, 600),
    phase(105, 50, 600),
];

struct Link {
    phases: Vec<Phase>,
    queue: u64,
    /// Acknowledgements a second that the way back carries, beside 0.3 s of them in its queue; what finds
    /// that full is acknowledged by the next. 0: any number, and the receiver has no clock.
    back: u64,
    /// One packet in so many is lost; 0: none is.
    lost: u64,
    noise: Noise,
}

/// A machine with other work, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Noise {
    seed: u64,
    /// Acknowledgements wait for up to so long and come at a stroke, in a third of all 0.3 s.
    late: u64,
    /// Nothing is sent meanwhile, in others.
    stalled: u64,
    /// Each acknowledgement takes up to so much longer.
    jitter: u64,
}

impl Link {
    fn clock_ms(&self, now: u64) -> u32 {
        if self.back == 0 {
            return 0;
        }
        // 100 parts in a million too fast, and about to turn over.
        (((now + now / 10_000) / MS) as u32).wrapping_sub(20_000)
    }
}

/// SplitMix64 (Steele et al., OOPSLA 2014).
fn draw(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What is due at `at` happens after the pause of up to `most` milliseconds that it falls into, if any.
fn delayed(at: u64, most: u64, seed: u64) -> u64 {
    let turn = at / (300 * MS);
    let drawn = draw(turn ^ (seed << 40));
    let pause = if most > 0 && drawn.is_multiple_of(3) {
        (drawn >> 8) % most
    } else {
        0
    };
    at.max((turn * 300 + pause) * MS)
}

/// What a receiver's acknowledgements say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Word {
    True,
    /// Its clock takes so many parts of a thousand of the time.
    Clock(u64),
    /// Everything arrived when it would have without a queue.
    NoQueue,
    /// All is acknowledged when it would have arrived without a queue, though it waits or is lost.
    Optimistic,
    /// All is acknowledged so many milliseconds late.
    Late(u64),
}

struct Flow {
    gateway: usize,
    begins: u64,
    word: Word,
    state: State,
    receiver: Receiver,
    window: RawWindow,
    next: u64,
    joined: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    /// The flow, when the segment was sent, and what the receiver's clock showed.
    Ack(usize, u64, u32),
    Lost(usize),
}

/// What happened in a tenth of a second: bytes delivered, by flow, and the longest wait in the queue.
#[derive(Clone, Default)]
struct Tenth {
    bytes: Vec<u64>,
    wait_ms: u64,
}

struct World {
    link: Link,
    params: Params,
    shares: Vec<Share>,
    flows: Vec<Flow>,
    heap: BinaryHeap<Reverse<(u64, Event)>>,
    /// When the link has sent what it was given.
    free: u64,
    /// And the way back.
    back_free: u64,
    last: u64,
    sent: u64,
    tenths: Vec<Tenth>,
}

impl World {
    /// `flows`: the gateway of each, and when it begins, in seconds.
    fn new(link: Link, rate_mbps: u64, flows: &[(usize, u64)]) -> Self {
        let params = Params {
            rate: rate_mbps * 125_000,
            rtt0_us: 25_000,
            pace_q16: 64_553,
            guard_us: 60_000,
            windows: 3,
            ..Params::default()
        };
        let window = RawWindow {
            cwnd: 10,
            ssthresh: u32::MAX,
            mss: 1448,
            wire: WIRE,
            ..RawWindow::default()
        };
        let flows: Vec<_> = flows
            .iter()
            .map(|(gateway, begins)| Flow {
                gateway: *gateway,
                begins: START + begins * SECOND,
                word: Word::True,
                state: State::default(),
                receiver: Receiver::default(),
                window,
                next: 0,
                joined: false,
            })
            .collect();
        let begin = |(at, flow): (usize, &Flow)| Reverse((flow.begins, Event::Send(at)));
        Self {
            link,
            params,
            shares: vec![Share::default(); 2],
            heap: flows.iter().enumerate().map(begin).collect(),
            flows,
            free: START,
            back_free: START,
            last: 0,
            sent: 0,
            tenths: Vec::new(),
        }
    }

    /// The first flow's receiver lies.
    fn with(mut self, word: Word) -> Self {
        self.flows[0].word = word;
        self
    }

    fn run(mut self, seconds: u64) -> Vec<Tenth> {
        let none = Tenth {
            bytes: vec![0; self.flows.len()],
            wait_ms: 0,
        };
        self.tenths = vec![none; 10 * seconds as usize];
        let mut mbps = self.link.phases[0].mbps;
        while let Some(Reverse((now, event))) = self.heap.pop() {
            let passed = now - START;
            if passed >= seconds * SECOND {
                break;
            }
            let mut phases = self.link.phases.iter().rev();
            let phase = *phases
                .find(|p| p.from * SECOND <= passed)
                .expect("the first begins at 0");
            if phase.mbps != mbps {
                // What waits takes longer, or shorter.
                self.free = now + self.free.saturating_sub(now) * mbps / phase.mbps;
                mbps = phase.mbps;
            }
            match event {
                Event::Send(flow) => self.send(flow, now, phase),
                Event::Ack(flow, sent, stamp_ms) => self.acknowledge(flow, now, sent, stamp_ms),
                Event::Lost(flow) => {
                    self.flows[flow].window.in_flight -= 1;
                    self.again(flow, now);
                }
            }
        }
        self.tenths
    }

    fn tenth(&mut self, now: u64) -> &mut Tenth {
        &mut self.tenths[((now - START) / (SECOND / 10)) as usize]
    }

    fn again(&mut self, flow: usize, now: u64) {
        let noise = self.link.noise;
        let next = now.max(self.flows[flow].next);
        let next = delayed(next, noise.stalled, noise.seed + 77);
        self.heap.push(Reverse((next, Event::Send(flow))));
    }

    fn send(&mut self, at: usize, now: u64, phase: Phase) {
        let p = self.params;
        let flow = &mut self.flows[at];
        if !flow.joined {
            flow.joined = true;
            let s = &mut self.shares[flow.gateway];
            let start = RawAck {
                now_ns: now,
                rtt_us: phase.rtt as u32 * 1000,
                stamp_ms: self.link.clock_ms(now),
                ..RawAck::default()
            };
            rate_init(&mut flow.state, &start, at as u32 + 1);
            let (c, member) = (&mut flow.receiver, &mut flow.state.member);
            begin(s, c, member, &p, now);
            let budget = join(s, c, member, &p, now);
            rate_apply(&mut flow.state, &mut flow.window, &p, budget, 0);
        }
        if flow.window.in_flight >= flow.window.cwnd || now < flow.next {
            return;
        }
        flow.window.in_flight += 1;
        flow.next = now + 1448 * SECOND / flow.window.pacing.max(1);
        self.again(at, now);
        self.sent += 1;
        let wait = self.free.saturating_sub(now);
        let full = wait * phase.mbps / 8000 + u64::from(WIRE) > self.link.queue;
        if !full {
            self.free = self.free.max(now) + 8000 * u64::from(WIRE) / phase.mbps;
            let tenth = self.tenth(now);
            tenth.wait_ms = tenth.wait_ms.max(wait / MS);
        }
        let noise = self.link.noise;
        let jitter = draw(self.sent ^ (noise.seed << 33)) % (noise.jitter * MS).max(1);
        let there = self.free + phase.rtt * MS / 2;
        if let Some(each) = SECOND.checked_div(self.link.back)
            && self.back_free < there + 300 * MS
        {
            self.back_free = self.back_free.max(there) + each;
        }
        let back = self.back_free.max(there) + phase.rtt * MS / 2 + jitter;
        let back = delayed(back, noise.late, noise.seed);
        // Nothing overtakes.
        let back = back.max(self.last);
        self.last = back;
        // A step of 7919 spreads the losses without a pattern that fits the bursts.
        let unlucky = self.link.lost != 0 && self.sent * 7919 % 10_007 < 10_007 / self.link.lost;
        let quick = now + phase.rtt * MS;
        let (back, stamp_at) = match self.flows[at].word {
            Word::True => (back, there),
            Word::Clock(parts) => (back, there / 1000 * parts),
            Word::NoQueue => (back, now + phase.rtt * MS / 2),
            Word::Optimistic => (quick, now + phase.rtt * MS / 2),
            Word::Late(ms) => (back + ms * MS, there + ms * MS),
        };
        let arrives = self.flows[at].word == Word::Optimistic || !(full || unlucky);
        let event = if arrives {
            Event::Ack(at, now, self.link.clock_ms(stamp_at))
        } else {
            Event::Lost(at)
        };
        self.heap.push(Reverse((back, event)));
    }

    fn acknowledge(&mut self, at: usize, now: u64, sent: u64, stamp_ms: u32) {
        let flow = &mut self.flows[at];
        flow.window.in_flight -= 1;
        let ack = RawAck {
            now_ns: now,
            rtt_us: ((now - sent) / 1000) as u32,
            acked: 1,
            flags: HUNGRY,
            stamp_ms,
            ..RawAck::default()
        };
        let s = &mut self.shares[flow.gateway];
        let (c, member) = (&mut flow.receiver, &mut flow.state.member);
        let budget = share_ack(s, c, member, &self.params, &ack, WIRE);
        rate_apply(&mut flow.state, &mut flow.window, &self.params, budget, 1);
        self.tenth(now).bytes[at] += u64::from(WIRE);
        self.again(at, now);
    }
}

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
