//! Flows and gateways on one link that changes, packet by packet.

use bentpipe_cc::fixed_point::{HUNGRY, Params, RawAck, RawWindow};
use bentpipe_cc::rate_control::{State, rate_apply, rate_init};
use bentpipe_cc::share::{Receiver, Share, begin, join, share_ack};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const WIRE: u32 = 1500;
/// Runs do not begin at 0, which stands for "never".
pub(crate) const START: u64 = 5 * SECOND;

/// From a time on, in seconds: Mbit/s and the round-trip time in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Phase {
    pub(crate) from: u64,
    pub(crate) mbps: u64,
    pub(crate) rtt: u64,
}

pub(crate) const fn phase(from: u64, mbps: u64, rtt: u64) -> Phase {
    Phase { from, mbps, rtt }
}

/// 10 Mbit/s at first; then everything changes.
pub(crate) const CHANGES: [Phase; 8] = [
    phase(0, 10, 600),
    phase(15, 2, 600),
    phase(30, 50, 600),
    phase(45, 50, 120),
    phase(60, 10, 120),
    phase(75, 2, 120),
    phase(90, 2, 600),
    phase(105, 50, 600),
];

pub(crate) struct Link {
    pub(crate) phases: Vec<Phase>,
    pub(crate) queue: u64,
    /// Acknowledgements a second that the way back carries, beside 0.3 s of them in its queue; what finds
    /// that full is acknowledged by the next. 0: any number, and the receiver has no clock.
    pub(crate) back: u64,
    /// Others' data keep a queue of up to so many milliseconds on the way back from the second second on, and more than half of it:
    /// as an upload by loss-based TCP does.
    pub(crate) upload_ms: u64,
    /// One packet in so many is lost; 0: none is.
    pub(crate) lost: u64,
    pub(crate) noise: Noise,
}

/// A machine with other work, in milliseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Noise {
    pub(crate) seed: u64,
    /// Acknowledgements wait for up to so long and come at a stroke, in a third of all 0.3 s.
    pub(crate) late: u64,
    /// Nothing is sent meanwhile, in others.
    pub(crate) stalled: u64,
    /// Each acknowledgement takes up to so much longer.
    pub(crate) jitter: u64,
    /// And up to so much longer, by what is drawn anew each half second.
    pub(crate) wander: u64,
}

impl Link {
    fn upload_us(&self, passed: u64) -> u64 {
        let full = self.upload_ms * 1000;
        match passed / MS {
            ms @ 2000..4000 => full * (ms - 2000) / 2000,
            0..4000 => 0,
            ms => full / 2 + full / 2 * (ms % 8000) / 8000,
        }
    }

    fn clock_ms(&self, now: u64) -> u32 {
        if self.back == 0 {
            return 0;
        }
        // 100 parts in a million too fast, and about to turn over.
        (((now + now / 10_000) / MS) as u32).wrapping_sub(20_000)
    }
}

/// SplitMix64 (Steele et al., OOPSLA 2014).
pub(crate) fn draw(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What is due at `at` happens after the pause of up to `most` milliseconds that it falls into, if any.
pub(crate) fn delayed(at: u64, most: u64, seed: u64) -> u64 {
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
pub(crate) enum Word {
    True,
    /// Its clock takes so many parts of a thousand of the time.
    Clock(u64),
    /// Everything arrived when it would have without a queue.
    NoQueue,
    /// All is acknowledged when it would have arrived without a queue, though it waits or is lost.
    Optimistic,
    /// All is acknowledged so many milliseconds late.
    Late(u64),
    /// One in so many never arrives, it says, for the first half of each so many seconds.
    Lost(u64, u64),
}

pub(crate) struct Flow {
    gateway: usize,
    begins: u64,
    word: Word,
    state: State,
    receiver: Receiver,
    window: RawWindow,
    next: u64,
    joined: bool,
    lost: u32,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    Send(usize),
    /// The flow, when the segment was sent, and what the receiver's clock showed.
    Ack(usize, u64, u32),
    Lost(usize),
}

/// What happened in a tenth of a second: bytes delivered, by flow, and the longest wait in the queue.
#[derive(Clone, Default)]
pub(crate) struct Tenth {
    pub(crate) bytes: Vec<u64>,
    pub(crate) wait_ms: u64,
    pub(crate) lost: u64,
}

pub(crate) struct World {
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
    pub(crate) fn new(link: Link, rate_mbps: u64, flows: &[(usize, u64)]) -> Self {
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
                lost: 0,
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
    pub(crate) fn with(mut self, word: Word) -> Self {
        self.flows[0].word = word;
        self
    }

    pub(crate) fn run(mut self, seconds: u64) -> Vec<Tenth> {
        let none = Tenth {
            bytes: vec![0; self.flows.len()],
            wait_ms: 0,
            lost: 0,
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
                    self.flows[flow].lost += 1;
                    self.tenth(now).lost += u64::from(WIRE);
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
        let drawn = draw((there / (500 * MS)) ^ (noise.seed << 21));
        let wander = drawn % (noise.wander * MS).max(1);
        let back = self.back_free.max(there) + phase.rtt * MS / 2 + jitter + wander;
        let back = back + self.link.upload_us(there - START) * 1000;
        let back = delayed(back, noise.late, noise.seed);
        // Nothing overtakes.
        let back = back.max(self.last);
        self.last = back;
        // A step of 7919 spreads the losses without a pattern that fits the bursts.
        let unlucky = self.link.lost != 0 && self.sent * 7919 % 10_007 < 10_007 / self.link.lost;
        let quick = now + phase.rtt * MS;
        let (back, stamp_at) = match self.flows[at].word {
            Word::True | Word::Lost(..) => (back, there),
            Word::Clock(parts) => (back, there / 1000 * parts),
            Word::NoQueue => (back, now + phase.rtt * MS / 2),
            Word::Optimistic => (quick, now + phase.rtt * MS / 2),
            Word::Late(ms) => (back + ms * MS, there + ms * MS),
        };
        let arrives = match self.flows[at].word {
            Word::Optimistic => true,
            Word::Lost(each, seconds) => {
                let says = (now / SECOND) % seconds < seconds / 2 && self.sent.is_multiple_of(each);
                !(full || unlucky || says)
            }
            _ => !(full || unlucky),
        };
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
            lost: std::mem::take(&mut flow.lost),
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
