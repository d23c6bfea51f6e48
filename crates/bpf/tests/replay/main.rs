//! The C rules in the kernel against their Rust twins: one random trace through both, equal in every
//! field after every step. `BENTPIPE_SEED` (a number) draws other traces.

mod image;

use bentpipe_base::Bytes;
use bentpipe_bpf::replay::Replay;
use bentpipe_cc::fixed_point::{
    AGGRESSIVE, CWR, HUNGRY, LOSS, OPEN, Params, RECOVERY, RawAck, RawWindow, UNCAPPED, link_rate,
};
use bentpipe_cc::guard::{CALM, GROW};
use bentpipe_cc::hybla::{self, ESTIMATED, hybla_ack, hybla_init, hybla_ssthresh};
use bentpipe_cc::rate_control::{self, rate_apply, rate_forget, rate_init, rate_yields};
use bentpipe_cc::share::{Receiver, Share, begin, join, share_ack};
use bentpipe_tcp as tcp;
use image::Field::{Half, Long, Pad, Word};
use image::{Image, RECEIVER, RECEIVERS_AT, SHARE_AT, STEP, WINDOW_AT, YIELDS_AT, context, read};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use std::cell::Cell;
use std::fmt::Debug;

const TRACES: u32 = 200;
const STEPS: usize = 60;
const FLOWS: usize = 3;

const INIT: u32 = 0;
const ACK: u32 = 1;
const JOIN: u32 = 2;
const FORGET: u32 = 3;
const SSTHRESH: u32 = 4;

#[derive(Clone, Debug)]
struct Step {
    what: u32,
    flow: usize,
    after_ns: u64,
    ack: RawAck,
    in_flight: u32,
    /// The sender brings another window.
    window: Option<RawWindow>,
}

/// The headers of a sender, of which each side finds by itself how long its segments are on the wire.
#[derive(Clone, Copy, Debug)]
struct Headers {
    ipv6: bool,
    timestamps: bool,
}

impl Headers {
    /// What a socket of the kernel has of them: `tcp_header_len`, and whether it is of IPv6; nothing where the
    /// window has a segment that no sender has, and says itself how long it is.
    fn of_socket(self, w: &RawWindow) -> [u32; 2] {
        let options = if self.timestamps { 12 } else { 0 };
        match w.mss {
            1..=9000 => [20 + options, u32::from(self.ipv6)],
            _ => [0, 0],
        }
    }

    /// The window as the simulator's sender has it.
    fn fill(self, p: &Params, w: &mut RawWindow) {
        let mut config = tcp::Config {
            ip_header: if self.ipv6 { 40 } else { 20 },
            timestamps: self.timestamps,
            ..tcp::Config::rfc()
        };
        config.settings.link.overhead = Bytes(p.overhead.into());
        if (1..=9000).contains(&w.mss) {
            w.wire = config.on_the_wire(w.mss).0 as u32;
        }
    }
}

#[derive(Clone, Debug)]
struct Trace {
    params: Params,
    headers: Headers,
    window: RawWindow,
    /// The state that nothing has set yet, as bytes; `None`: zeroes.
    garbage: Option<Vec<u8>>,
    /// The guard is at the configured rate, and one round short of going.
    calm: bool,
    start_ns: u64,
    /// The round-trip time without queue, the queue, and the step at which it goes.
    rtt_us: u32,
    queue_us: u32,
    drained: usize,
    steps: Vec<Step>,
}

impl Step {
    /// Nothing out of the ordinary: the guard gets epochs to judge.
    fn calm(&mut self) {
        self.what = ACK;
        self.after_ns = 30_000_000 + self.after_ns % 220_000_000;
        self.ack.rtt_us %= 1000;
        self.window = None;
    }
}

impl Trace {
    fn initial<T: Image + Default>(&self) -> T {
        let mut image = T::default();
        if let Some(garbage) = &self.garbage {
            let mut bytes = garbage.as_slice();
            for field in image.fields() {
                match field {
                    Half(half) => *half = u16::from_ne_bytes(take(&mut bytes)),
                    Word(word) => *word = u32::from_ne_bytes(take(&mut bytes)),
                    Long(long) => *long = u64::from_ne_bytes(take(&mut bytes)),
                    Pad => {}
                }
            }
        }
        image
    }

    /// The acknowledgement of a step: ordinary ones carry the trace's round-trip time.
    fn ack(&self, at: usize, now_ns: u64) -> RawAck {
        let mut ack = self.steps[at].ack;
        ack.now_ns = now_ns;
        if ack.rtt_us < 1000 {
            // Or it is none, and comes and goes.
            let stays = at < self.drained && (self.start_ns & 8 == 0 || at % 16 < 8);
            let queue = if stays { self.queue_us } else { 0 };
            let join = self.steps[at].what == INIT;
            ack.rtt_us += self.rtt_us + if join { 0 } else { queue };
        }
        // A clock that counts milliseconds, read a while ago; or none that does.
        if self.start_ns & 2 != 0 {
            ack.stamp_ms = ((now_ns / 1_000_000) as u32).wrapping_sub(ack.stamp_ms % 128);
        }
        ack
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (head, rest) = bytes.split_at(N);
    *bytes = rest;
    head.try_into().expect("of this size")
}

fn wild() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..3_u32,
        0..3000_u32,
        65_530..65_540_u32,
        any::<u32>(),
        Just(u32::MAX)
    ]
}

fn params() -> impl Strategy<Value = Params> {
    let rate = prop_oneof![2 => Just(0), 6 => 100_000..30_000_000_u64, 1 => any::<u64>()];
    let rtt0 = prop_oneof![6 => Just(25_000), 2 => 1_000..100_000_u32, 1 => wild()];
    let pace = prop_oneof![6 => 60_000..=65_536_u32, 1 => wild()];
    let guard = prop_oneof![1 => Just(0), 6 => 10_000..100_000_u32, 1 => wild()];
    let flags = prop::sample::select(vec![0, AGGRESSIVE, UNCAPPED, AGGRESSIVE | UNCAPPED]);
    let windows = prop_oneof![6 => 1..=16_u32, 1 => wild()];
    let overhead = prop_oneof![1 => Just(0), 3 => 1..=1500_u32];
    (rate, rtt0, pace, guard, overhead, flags, windows).prop_map(
        |(rate, rtt0_us, pace_q16, guard_us, overhead, flags, windows)| Params {
            rate,
            rtt0_us,
            pace_q16,
            guard_us,
            overhead,
            flags,
            windows,
        },
    )
}

fn window() -> impl Strategy<Value = RawWindow> {
    let plain = (1..500_u32, prop_oneof![Just(0x7fff_ffff_u32), 2..1000_u32]).prop_map(
        |(cwnd, ssthresh)| RawWindow {
            cwnd,
            ssthresh,
            in_flight: cwnd,
            mss: 1448,
            wire: 1500,
            pacing: 0,
        },
    );
    let any = (wild(), wild(), wild(), wild(), wild(), any::<u64>()).prop_map(
        |(cwnd, ssthresh, in_flight, mss, wire, pacing)| RawWindow {
            cwnd,
            ssthresh,
            in_flight,
            mss,
            wire,
            pacing,
        },
    );
    prop_oneof![4 => plain, 1 => any]
}

fn ack() -> impl Strategy<Value = RawAck> {
    let few = || prop_oneof![3 => Just(0), 1 => 0..20_u32];
    let plain = |acked| {
        (
            0..1000_u32,
            acked,
            0..1_000_000_u32,
            OPEN..=LOSS,
            0..4_u32,
            few(),
            0..100_u32,
            any::<u32>(),
        )
    };
    let phase = prop_oneof![OPEN..=LOSS, wild()];
    let any = (
        wild(),
        wild(),
        wild(),
        phase,
        any::<u32>(),
        wild(),
        wild(),
        wild(),
    );
    prop_oneof![20 => plain(0..200_u32), 20 => plain(0..4_u32), 1 => any].prop_map(
        |(rtt_us, acked, srtt_us, phase, flags, lost, sent, stamp_ms)| RawAck {
            now_ns: 0,
            rtt_us,
            srtt_us,
            acked,
            lost,
            sent,
            phase,
            flags,
            stamp_ms,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![40 => Just(ACK), 4 => Just(JOIN), 1 => Just(FORGET), 1 => Just(INIT)];
    let after_ns = prop_oneof![
        40 => 30_000_000..250_000_000_u64,
        3 => 0..1_000_u64,
        1 => 500_000_000..3_000_000_000_u64,
        1 => any::<u64>(),
    ];
    let other = prop_oneof![20 => Just(None), 1 => window().prop_map(Some)];
    (what, 0..FLOWS, after_ns, ack(), wild(), other).prop_map(
        |(what, flow, after_ns, ack, in_flight, window)| Step {
            what,
            flow,
            after_ns,
            ack,
            in_flight,
            window,
        },
    )
}

fn trace() -> impl Strategy<Value = Trace> {
    let garbage = prop_oneof![
        3 => Just(None),
        1 => prop::collection::vec(any::<u8>(), 288).prop_map(Some),
    ];
    let queue = prop_oneof![Just(0), 20_000..400_000_u32];
    let drained = prop_oneof![Just(STEPS), 0..=STEPS];
    let steps = prop::collection::vec(step(), STEPS / 2..=STEPS);
    let rtt_us = prop_oneof![1 => 1_000..5_000_u32, 9 => 5_000..700_000_u32];
    let times = (0..1_u64 << 40, rtt_us, queue, drained);
    let manner = any::<[bool; 4]>();
    (params(), window(), garbage, times, steps, manner).prop_map(
        |(params, window, garbage, (start_ns, rtt_us, queue_us, drained), mut steps, manner)| {
            let [calm, hungry, ipv6, timestamps] = manner;
            if calm {
                steps.iter_mut().for_each(Step::calm);
                if hungry {
                    steps.iter_mut().for_each(|step| step.ack.flags |= HUNGRY);
                }
                for step in steps.iter_mut().take(STEPS / 4) {
                    step.ack.phase = OPEN;
                }
                // Where much is lost, that is what is looked at.
                if start_ns & 4 == 0 {
                    steps.iter_mut().for_each(|step| step.ack.lost = 0);
                }
            }
            // Every flow starts with a handshake, but garbage stays.
            if garbage.is_none() {
                for (flow, step) in steps.iter_mut().take(FLOWS).enumerate() {
                    (step.what, step.flow) = (INIT, flow);
                }
            }
            Trace {
                params,
                headers: Headers { ipv6, timestamps },
                window,
                calm: calm && garbage.is_none() && start_ns & 1 == 0,
                garbage,
                start_ns,
                rtt_us,
                queue_us,
                drained,
                steps,
            }
        },
    )
}

fn same<T: PartialEq + Debug>(what: &str, at: usize, c: &T, rust: &T) -> Result<(), TestCaseError> {
    prop_assert!(c == rust, "step {at}, {what}:\n   C {c:?}\nRust {rust:?}");
    Ok(())
}

/// What the sender does to its window between two acknowledgements; whether it enters a reduction.
fn sender(window: &mut RawWindow, step: &Step, phase: &mut u32) -> bool {
    if let Some(other) = step.window {
        *window = other;
    }
    window.in_flight = step.in_flight.min(window.cwnd);
    let before = std::mem::replace(phase, step.ack.phase);
    *phase >= CWR && *phase != before
}

/// Counts how often a branch that matters was taken.
#[derive(Debug, Default)]
struct Seen(Cell<u32>);

impl Seen {
    fn note(&self, taken: bool) {
        self.0.set(self.0.get() + u32::from(taken));
    }
}

fn runner() -> TestRunner {
    let seed: u64 =
        std::env::var("BENTPIPE_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: TRACES,
        failure_persistence: None,
        max_shrink_iters: 2000,
        ..Config::default()
    };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

#[test]
fn hybla_is_the_same_in_the_kernel_and_in_rust() {
    bentpipe_os::need!(Root, Btf);
    let kernel = Replay::load().unwrap();
    let [reducing, grown, starting, avoiding, estimated] = [(); 5].map(|()| Seen::default());
    let replayed = runner().run(&trace(), |trace| {
        let mut window = trace.window;
        let mut state: hybla::State = trace.initial();
        let mut phase = OPEN;
        let mut now_ns = trace.start_ns;
        for (at, step) in trace.steps.iter().enumerate() {
            let what = u32::from(step.what != INIT);
            // Close enough for Hoe's estimate.
            now_ns = now_ns.wrapping_add(step.after_ns / 64);
            let ack = trace.ack(at, now_ns);
            let reduces = sender(&mut window, step, &mut phase);
            let headers = trace.headers.of_socket(&window);
            trace.headers.fill(&trace.params, &mut window);
            if reduces {
                let mut bytes = context(&trace.params, &window, &ack, SSTHRESH, 0, headers);
                state.write(&mut bytes);
                kernel.run("hybla", &mut bytes).unwrap();
                window.ssthresh = hybla_ssthresh(&mut state, &window);
                same("threshold", at, &read(&bytes[WINDOW_AT..]), &window)?;
                same("state at it", at, &read(&bytes[STEP..]), &state)?;
            }
            let mut bytes = context(&trace.params, &window, &ack, what, 0, headers);
            state.write(&mut bytes);
            kernel.run("hybla", &mut bytes).unwrap();
            let before = window;
            let before_flags = state.flags;
            if what == INIT {
                hybla_init(&mut state, &mut window, &trace.params, ack.rtt_us);
            } else {
                hybla_ack(&mut state, &mut window, &ack, &trace.params);
            }
            same("window", at, &read(&bytes[WINDOW_AT..]), &window)?;
            same("state", at, &read(&bytes[STEP..]), &state)?;
            let open = ack.phase == OPEN && what == ACK && window.cwnd > before.cwnd;
            reducing.note(ack.phase == RECOVERY && window.cwnd < before.cwnd);
            grown.note(state.grown > 0 && trace.garbage.is_none());
            let new = state.flags & ESTIMATED > before_flags & ESTIMATED;
            estimated.note(new && trace.params.rate == 0 && ack.phase == OPEN);
            starting.note(open && before.cwnd < before.ssthresh);
            avoiding.note(open && before.cwnd >= before.ssthresh);
        }
        Ok(())
    });
    if let Err(error) = replayed {
        panic!("{error}");
    }
    for (branch, seen) in [
        ("reduction", reducing),
        ("growth in recovery", grown),
        ("slow start", starting),
        ("avoidance", avoiding),
        ("Hoe's estimate", estimated),
    ] {
        assert!(
            seen.0.get() >= 3,
            "{branch}: the traces show it {seen:?} times, too few to tell"
        );
    }
}

#[test]
fn the_rate_control_is_the_same_in_the_kernel_and_in_rust() {
    bentpipe_os::need!(Root, Btf);
    let kernel = Replay::load().unwrap();
    let [
        fell,
        suspected,
        tested,
        varied,
        starved,
        deeper,
        drained,
        rose,
        grew,
        ended,
        moved,
        clocked,
        differed,
        yielded,
    ] = [(); 14].map(|()| Seen::default());
    let replayed = runner().run(&trace(), |trace| {
        let p = &trace.params;
        let mut share: Share = trace.initial();
        if trace.calm {
            share.guard.cap = link_rate(p);
            share.guard.known = share.guard.cap;
            share.guard.age = CALM - 1;
        }
        let mut flows =
            [(); FLOWS].map(|()| (trace.window, trace.initial::<rate_control::State>(), OPEN));
        let mut receivers = [trace.initial::<Receiver>(); 2];
        let mut now_ns = trace.start_ns;
        for (at, step) in trace.steps.iter().enumerate() {
            now_ns = now_ns.wrapping_add(step.after_ns);
            let ack = trace.ack(at, now_ns);
            let (w, r, phase) = &mut flows[step.flow];
            sender(w, step, phase);
            // The last two flows have one receiver.
            let receiver = step.flow.min(1) as u32 + 1;
            trace.headers.fill(p, w);
            let headers = trace.headers.of_socket(w);
            let mut bytes = context(p, w, &ack, step.what, receiver, headers);
            r.write(&mut bytes);
            bytes.extend([0; 8]);
            share.write(&mut bytes);
            for one in &receivers {
                one.write(&mut bytes);
            }
            kernel.run("rate", &mut bytes).unwrap();
            let before = share;
            let of = step.flow.min(1);
            let c = &mut receivers[of];
            match step.what {
                INIT => {
                    rate_init(r, &ack, receiver);
                    let budget = begin(&mut share, c, &mut r.member, p, now_ns);
                    rate_apply(r, w, p, budget, 0);
                }
                JOIN => {
                    let budget = join(&mut share, c, &mut r.member, p, now_ns);
                    rate_apply(r, w, p, budget, 0);
                }
                ACK => {
                    let budget = share_ack(&mut share, c, &mut r.member, p, &ack, w.wire);
                    rate_apply(r, w, p, budget, ack.acked);
                }
                _ => rate_forget(r, w, ack.acked),
            }
            same("window", at, &read(&bytes[WINDOW_AT..]), w)?;
            same("flow", at, &read(&bytes[STEP..]), r)?;
            same("share", at, &read(&bytes[SHARE_AT..]), &share)?;
            let theirs = read(&bytes[RECEIVERS_AT + of * RECEIVER..]);
            same("receiver", at, &theirs, &receivers[of])?;
            same(
                "yields",
                at,
                &bytes[YIELDS_AT],
                &u8::from(rate_yields(r, p)),
            )?;
            let orderly = trace.garbage.is_none();
            let (old, new) = (&before.guard, &share.guard);
            fell.note(orderly && old.level_us == 0 && new.level_us > 0);
            suspected.note(orderly && old.seen_us == 0 && new.seen_us > 0);
            tested.note(orderly && old.level_us == 0 && new.age == 2 && new.level_us > 0);
            starved.note(orderly && old.lossy < new.lossy);
            varied.note(orderly && new.varies_us > old.varies_us);
            deeper.note(orderly && old.level_us > 0 && new.known < old.known);
            drained.note(orderly && old.level_us > 0 && new.level_us == 0);
            rose.note(orderly && new.step > old.step);
            grew.note(orderly && old.step == GROW && new.cap > old.cap);
            ended.note(orderly && old.cap > 0 && new.cap == 0);
            moved.note(orderly && new.path != old.path);
            let (_, r, _) = &flows[step.flow];
            clocked.note(orderly && r.member.transit_us != 0);
            differed.note(orderly && old.delays.second_by != 0 && new.samples == 0);
            yielded.note(orderly && rate_yields(r, p));
        }
        Ok(())
    });
    if let Err(error) = replayed {
        panic!("{error}");
    }
    for (branch, seen) in [
        ("guard falls", fell),
        ("a delay is looked at again", suspected),
        ("a delay is tested", tested),
        ("a delay varies by itself", varied),
        ("much is lost", starved),
        ("guard falls deeper", deeper),
        ("queue drains", drained),
        ("guard rises", rose),
        ("guard grows", grew),
        ("guard ends", ended),
        ("path changes", moved),
        ("the way there is known", clocked),
        ("two receivers report", differed),
        ("a short path is given away", yielded),
    ] {
        assert!(seen.0.get() >= 1, "{branch}: no trace shows it");
    }
}
