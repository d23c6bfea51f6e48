//! Keep-alive probes of the ends. The gateway's kernel answers them, so they go no further; what they are for is done on the
//! other leg.
//!
//! An end probes a connection without traffic so that boxes on the path do not forget it, and to learn that the other end is
//! gone. Where an end is seen to probe, the gateway therefore probes the other end as often. While that one does not answer,
//! the gateway does not answer the first either, whose own patience then decides, as it would without a gateway.
//!
//! An end that has said all, and closed, is soon forgotten by its host, which would answer a probe by a reset. It is not probed
//! before the other end has got everything, and then only where that asks, or after hours: without a gateway nobody else would ask.
//!
//! Probes are seen in what the kernel counts (TCP_INFO): a segment has come, and no byte that is new. Each worker looks at
//! its flows at a few ages after their last byte, ever more rarely ([`PAUSES`]): that is two system calls a minute for a flow
//! that has long been idle, and none for one that moves bytes.

use super::{Worker, complete_far};
use crate::flow::{Flow, Phase, Side};
use crate::socket_policy::LegPolicies;
use bentpipe_base::Instant;
use bentpipe_sockets::tcp::{self, Info};
use bentpipe_sockets::{socket, timer};
use std::collections::VecDeque;
use std::time::Duration;

/// How long after one look at a flow the next one comes.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
    Duration::from_secs(60),
];
/// The pause of flows one of whose ends may be silent.
const SHORT: usize = 0;
/// The pause of flows that move bytes.
const USUAL: usize = 1;
/// After the last byte so long, what acknowledges it has come.
const SETTLED: Duration = Duration::from_secs(2);
/// A worker wakes for looks no more often than this,
const LOOK: Duration = Duration::from_secs(1);
/// and looks at no more flows than this before others have their turn.
const BATCH: usize = 256;
/// Segments are counted anew after this many of an end's intervals, and after [`LONG`] at the latest, so that an end is found
/// out that probes no longer.
const INTERVALS: u32 = 4;
const SOME_TIME: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);
/// An end that leaves so many probes in a row without an answer is silent: some may be lost, and a silence that is none would
/// try the other end's patience.
const SILENT: u8 = 4;
/// A probe without an answer is soon repeated, so many times, and then less often.
const HASTY: u64 = 15;
/// `net.ipv4.tcp_keepalive_time` as Linux has it.
const KERNELS: Duration = Duration::from_secs(7200);
/// The largest TCP_KEEPCNT.
const MOST_PROBES: u64 = 127;
/// `net.ipv4.tcp_keepalive_intvl` and `_probes` as Linux has them.
const REPETITION: (Duration, u32) = (Duration::from_secs(75), 9);
/// The most flows of a worker in which an end's probes stay without answer, because each takes some 6 KiB of the kernel's
/// memory. The others of an outage learn of it later, by our own patience.
const MOST_UNANSWERED: usize = 2048;

/// A flow that is looked at again.
#[derive(Debug)]
struct Watched {
    index: u32,
    /// When its flow began. It tells whether the slot with this number has been given to another flow since.
    begun: Instant,
    looked: Instant,
    /// Since when no byte has moved, and how many segments had come from each end by then.
    counted: Option<(Instant, [u32; 2])>,
    /// How often each end probes, in seconds, by [`Side`]; 0: it does not.
    intervals: [u16; 2],
    /// By [`Side`]: it has been silent for so long that it is asked less often.
    slow: [bool; 2],
}

/// The flows of a worker, each waiting for its next look.
#[derive(Debug, Default)]
pub(super) struct Keepalive {
    /// By pause, the next one first.
    queues: [VecDeque<Watched>; PAUSES.len()],
    looked: Instant,
    /// Flows in which an end's probes stay without answer.
    unanswered: usize,
}

impl Keepalive {
    /// Begins to watch a flow.
    pub(super) fn watch(&mut self, index: u32, flow: &Flow, now: Instant) {
        self.queues[USUAL].push_back(Watched {
            index,
            begun: flow.begun,
            looked: now,
            counted: None,
            intervals: [0; 2],
            slow: [false; 2],
        });
    }

    /// A flow ends.
    pub(super) fn closes(&mut self, flow: &Flow) {
        if flow.unanswered.is_some() {
            self.unanswered -= 1;
        }
    }

    /// When the next look is due.
    fn next(&self) -> Option<Instant> {
        let fronts = self.queues.iter().zip(PAUSES);
        fronts
            .filter_map(|(queue, pause)| Some(queue.front()?.looked + pause))
            .min()
    }
}

impl Worker {
    /// How long the worker may sleep for the sake of keep-alive probes.
    pub(super) fn keepalive_tick(&self) -> Option<Duration> {
        let due = self.keepalive.next()?.max(self.keepalive.looked + LOOK);
        Some(due.since(timer::now()))
    }

    /// Looks at the flows whose time has come.
    pub(super) fn on_keepalive(&mut self) {
        let now = self.idle.now;
        if now.since(self.keepalive.looked) < LOOK {
            return;
        }
        for _ in 0..BATCH {
            let due = |(queue, pause): (&VecDeque<Watched>, Duration)| {
                queue.front().is_some_and(|flow| flow.looked + pause <= now)
            };
            let mut queues = self.keepalive.queues.iter().zip(PAUSES);
            let Some(pause) = queues.position(due) else {
                self.keepalive.looked = now;
                return;
            };
            let Some(mut watched) = self.keepalive.queues[pause].pop_front() else {
                return;
            };
            if let Some(next) = self.look_at(&mut watched, pause, now) {
                watched.looked = now;
                self.keepalive.queues[next].push_back(watched);
            }
        }
    }

    /// Looks at a flow; returns the pause until the next look, unless the flow has ended.
    fn look_at(&mut self, watched: &mut Watched, pause: usize, now: Instant) -> Option<usize> {
        let index = watched.index;
        let flow = self.flows.get_mut(index)?;
        if flow.begun != watched.begun || flow.phase != Phase::Open {
            return None;
        }
        if !flow.far_complete {
            complete_far(flow, &self.settings);
        }
        let mut counted = watched.counted.take();
        let ends: [Side; 2] = Side::BOTH;
        if flow.active > watched.looked {
            counted = None;
            if now.since(flow.active) < SETTLED {
                for side in ends {
                    if flow.pump(side).is_closing() {
                        set_probed(flow, side, false);
                    }
                }
                return Some(USUAL);
            }
        }
        let infos = [
            tcp::info(flow.socket(Side::Near)).ok()?,
            tcp::info(flow.socket(Side::Far)).ok()?,
        ];
        let mut owes = false;
        for side in ends {
            let info = &infos[side.other() as usize];
            let owed = info.unacked > 0 || info.not_sent.0 > 0 || flow.pump(side).holds();
            if flow.pump(side).is_closing() {
                let asks = watched.intervals[side.other() as usize] > 0;
                let late = now.since(flow.active) >= KERNELS;
                set_probed(flow, side, !owed && (asks || late));
            }
            owes |= owed;
        }
        for side in ends {
            let asked = side.other();
            if watched.intervals[side as usize] > 0 {
                self.repeat(watched, asked, &infos[asked as usize]);
            }
        }
        let flow = self.flows.get_mut(index)?;
        if let Some(side) = flow.unanswered {
            if infos[side.other() as usize].probes > 0 {
                return Some(SHORT);
            }
            self.answer_again(index);
            return Some(USUAL);
        }
        if owes {
            return Some(longer(pause));
        }
        for side in ends {
            let probes = infos[side.other() as usize].probes;
            if watched.intervals[side as usize] == 0 || probes == 0 {
                continue;
            }
            if probes < SILENT {
                watched.counted = counted;
                return Some(SHORT);
            }
            let pause = if self.leave_unanswered(index, side) {
                SHORT
            } else {
                USUAL
            };
            return Some(pause);
        }
        let counts = [infos[0].segs_in, infos[1].segs_in];
        watched.counted = Some((now, counts));
        let Some((since, before)) = counted else {
            return Some(USUAL);
        };
        let window = now.since(since);
        for side in Side::BOTH {
            self.adopt_interval(watched, side, (&infos, before), window);
        }
        let shortest = watched.intervals.iter().filter(|secs| **secs > 0).min();
        let longest = watched.intervals.iter().max().copied().unwrap_or(0);
        let enough = match longest {
            0 => LONG,
            secs => (Duration::from_secs(secs.into()) * INTERVALS).max(SOME_TIME),
        };
        if window < enough {
            watched.counted = counted;
        }
        Some(shortest.map_or(longer(pause), |secs| pause_for(*secs)))
    }

    /// Probes the other end of a flow as often as the end of `side` is seen to probe, if that is not done yet.
    fn adopt_interval(
        &mut self,
        watched: &mut Watched,
        side: Side,
        (infos, before): (&[Info; 2], [u32; 2]),
        window: Duration,
    ) {
        let known = watched.intervals[side as usize];
        // What is known is known from a longer time than this.
        if window < 3 * Duration::from_secs(known.into()) {
            return;
        }
        let Some(flow) = self.flows.get_mut(watched.index) else {
            return;
        };
        let legs = &self.settings.legs;
        let ours = match watched.intervals[side.other() as usize] {
            0 => usual(flow, side, legs),
            secs => Duration::from_secs(secs.into()),
        };
        let usual = usual(flow, side.other(), legs);
        let found = interval(&infos[side as usize], before[side as usize], window, ours)
            .filter(|secs| Duration::from_secs((*secs).into()) < usual)
            .unwrap_or(0);
        if found == known {
            return;
        }
        let other = side.other();
        watched.intervals[side as usize] = found;
        watched.slow[other as usize] = false;
        let (idle, (interval, count)) = match found {
            0 => (usual, self.repetition()),
            secs => {
                let repetition = Repetition::new(self.repetition(), infos[other as usize].rtt);
                let first = (repetition.first, repetition.count);
                (Duration::from_secs(secs.into()), first)
            }
        };
        let Some(flow) = self.flows.get_mut(watched.index) else {
            return;
        };
        let result = tcp::set_keepalive(flow.socket(other), idle, interval, count);
        tracing::debug!(?side, seconds = found, ?result, "an end's probes");
    }

    /// How sockets repeat their probes by themselves.
    fn repetition(&self) -> (Duration, u32) {
        let listener = self.listeners.first();
        listener
            .and_then(|listener| tcp::keepalive_repetition(&listener.socket).ok())
            .unwrap_or(REPETITION)
    }

    /// Has an end that is probed, and does not answer, be probed less often in time.
    fn repeat(&mut self, watched: &mut Watched, side: Side, info: &Info) {
        let slow = u64::from(info.probes) >= HASTY;
        if std::mem::replace(&mut watched.slow[side as usize], slow) == slow {
            return;
        }
        let repetition = Repetition::new(self.repetition(), info.rtt);
        let interval = if slow {
            repetition.later
        } else {
            repetition.first
        };
        if let Some(flow) = self.flows.get_mut(watched.index) {
            let result = tcp::set_keepalive_interval(flow.socket(side), interval);
            tracing::debug!(?side, ?interval, ?result, "a silent end");
        }
    }

    /// From now on the probes of the end of `side` get no answer, because the other end gives none; returns whether that is so.
    fn leave_unanswered(&mut self, index: u32, side: Side) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        if self.keepalive.unanswered >= MOST_UNANSWERED {
            return false;
        }
        let socket = flow.socket(side);
        // The answers to our own probes would be dropped too.
        let result =
            socket::set_keepalive(socket, false).and_then(|()| socket::drop_empty_segments(socket));
        if let Err(error) = result {
            tracing::debug!(%error, "the probes of an end are answered, and the other end is silent");
            let _ = socket::set_keepalive(socket, true);
            return false;
        }
        flow.unanswered = Some(side);
        self.keepalive.unanswered += 1;
        true
    }

    /// Takes [`Worker::leave_unanswered`] back: something has been heard.
    pub(super) fn answer_again(&mut self, index: u32) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let Some(side) = flow.unanswered.take() else {
            return;
        };
        self.keepalive.unanswered -= 1;
        let (socket, probed) = (flow.socket(side), !flow.unprobed[side as usize]);
        let result =
            socket::take_all_packets(socket).and_then(|()| socket::set_keepalive(socket, probed));
        if let Err(error) = result {
            tracing::warn!(%error, "a connection does not hear its end's acknowledgements");
        }
    }
}

/// The pause after that one.
fn longer(pause: usize) -> usize {
    (pause + 1).min(PAUSES.len() - 1)
}

/// The pause of a flow of which an end probes every `seconds`.
fn pause_for(seconds: u16) -> usize {
    let shorter = PAUSES.partition_point(|pause| pause.as_secs() <= seconds.into());
    shorter.saturating_sub(1).max(USUAL)
}

/// How often the end of `side` is probed by itself.
fn usual(flow: &Flow, side: Side, legs: &LegPolicies) -> Duration {
    let leg = flow.outward(side.other());
    let keepalive = legs.of(flow.profile())[leg as usize].keepalive;
    keepalive.unwrap_or(KERNELS)
}

/// How often an end probes, in seconds, of which `before` segments had come `window` ago and no new byte since; `None` where it
/// does not. It is at most what the end itself has set, so that no box forgets sooner. The gateway probes that end every `ours`.
fn interval(info: &Info, before: u32, window: Duration, ours: Duration) -> Option<u16> {
    // The answer to a probe of ours is the last acknowledgement. A probe of the end's is none, because its sequence number is
    // an old one; or it is one too, where it has a byte in it (Windows).
    let answers = if info.last_ack_received < window {
        window.as_secs() / ours.as_secs().max(1) + 1
    } else {
        0
    };
    let probes = u64::from(info.segs_in.wrapping_sub(before)).saturating_sub(answers);
    let seconds = window.as_secs() / (probes + 1);
    (probes > 0).then(|| u16::try_from(seconds.max(1)).unwrap_or(u16::MAX))
}

/// Whether the end of `side`, which has closed, is probed from now on.
pub(super) fn set_probed(flow: &mut Flow, side: Side, probed: bool) {
    if flow.unprobed[side as usize] != probed {
        return;
    }
    flow.unprobed[side as usize] = !probed;
    if flow.unanswered != Some(side)
        && let Err(error) = socket::set_keepalive(flow.socket(side), probed)
    {
        tracing::debug!(%error, "an end that has closed is probed as before");
    }
}

/// How probes of an end are repeated that does not answer, where another end asks. It has as much time as it would have by the kernel's
/// own numbers.
struct Repetition {
    /// The time between the first of them.
    first: Duration,
    /// The time between the others, from the [`HASTY`]th on.
    later: Duration,
    count: u32,
}

impl Repetition {
    fn new((interval, count): (Duration, u32), rtt: Duration) -> Self {
        let patience = interval.as_secs() * u64::from(count);
        // Longer than a round trip, or the answer would not be there yet.
        let first = (rtt.as_secs() + 1).min(patience.max(1));
        let rest = patience.saturating_sub(HASTY * first);
        let later = rest.div_ceil(MOST_PROBES - HASTY).max(first);
        let count = if rest == 0 {
            patience.div_ceil(first)
        } else {
            HASTY + rest.div_ceil(later)
        };
        Self {
            first: Duration::from_secs(first),
            later: Duration::from_secs(later),
            count: count.clamp(1, MOST_PROBES) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(segs_in: u32, last_ack: u64) -> Info {
        Info {
            segs_in,
            last_ack_received: Duration::from_secs(last_ack),
            ..Info::default()
        }
    }

    #[test]
    fn probes_are_told_from_answers() {
        let window = Duration::from_secs(20);
        let ours = Duration::from_secs(180);
        assert_eq!(interval(&info(7, 25), 7, window, ours), None);
        // Four probes of Linux in 20 s, and the first of an end that probes every 20 s.
        assert_eq!(interval(&info(11, 25), 7, window, ours), Some(4));
        assert_eq!(interval(&info(8, 25), 7, window, ours), Some(10));
        // One acknowledgement, which may be to a probe of ours; of more than one all but one are the end's.
        assert_eq!(interval(&info(8, 10), 7, window, ours), None);
        assert_eq!(interval(&info(12, 1), 7, window, ours), Some(4));
        // We probe every 4 s: what comes as often is the answer to that.
        let ours = Duration::from_secs(4);
        assert_eq!(interval(&info(12, 1), 7, window, ours), None);
        assert_eq!(interval(&info(17, 1), 7, window, ours), Some(4));
        assert_eq!(interval(&info(3, 25), u32::MAX, window, ours), Some(4));
    }

    #[test]
    fn a_silent_end_has_as_much_time_as_before() {
        let secs = Duration::from_secs;
        for (kernel, rtt, (first, later, count)) in [
            (REPETITION, 600, (1, 6, 15 + 110)),
            (REPETITION, 2_500, (3, 6, 15 + 105)),
            ((secs(3), 100), 0, (1, 3, 15 + 95)),
            ((secs(1), 2), 600, (1, 1, 2)),
            ((secs(5), 2), 30_000, (10, 10, 1)),
        ] {
            let repetition = Repetition::new(kernel, Duration::from_millis(rtt));
            let Repetition {
                first: one,
                later: other,
                count: all,
            } = repetition;
            assert_eq!((one, other, all), (secs(first), secs(later), count));
            let hasty = HASTY.min(count.into());
            let time = hasty * first + (u64::from(count) - hasty) * later;
            assert!(time >= kernel.0.as_secs() * u64::from(kernel.1), "{time}");
        }
    }

    #[test]
    fn a_flow_is_looked_at_as_often_as_its_end_probes() {
        let pauses = [1, 5, 14, 60, 3_000].map(|secs| PAUSES[pause_for(secs)].as_secs());
        assert_eq!(pauses, [5, 5, 10, 60, 60]);
        assert_eq!(
            PAUSES[longer(longer(longer(longer(longer(SHORT)))))],
            PAUSES[5]
        );
        assert_eq!(longer(5), 5);
    }
}
