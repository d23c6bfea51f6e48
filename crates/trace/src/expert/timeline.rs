//! The sender's time, taken apart by what ended each silence.

use super::Limit;
use crate::event::Kind;
use crate::series::{AckMark, SackMark, SegmentMark, Stream};
use crate::{Direction, Flags};
use bentpipe_base::Instant;
use std::collections::BTreeMap;

/// A time between two turns of the sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) from: Instant,
    pub(super) to: Instant,
    pub(super) cause: Cause,
}

/// What ended a stretch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// It is known what held the sender back.
    Known(Limit),
    /// A window of the sender's own; which one, its neighbours tell.
    Window(Answer),
}

/// What was sent for what was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Bytes that were acknowledged.
    pub(super) acked: u64,
    /// Bytes that were sent at once for them.
    pub(super) sent: u64,
    /// Bytes in flight after that.
    pub(super) flight: u64,
    /// The last segment before it was short: the sender had no more.
    pub(super) emptied: bool,
    /// Counts the losses before it: a window that was reduced grows anew.
    pub(super) epoch: u32,
}

/// The stretches of one direction, and the payload of a full segment.
#[derive(Debug)]
pub(super) struct Stretches {
    pub(super) all: Vec<Stretch>,
    pub(super) mss: u64,
}

/// What the sender's state was before acknowledgements came that nothing separates.
#[derive(Clone, Copy, Debug)]
struct Before {
    flight: u64,
    room: u64,
    freed: u64,
}

/// The time since new data were last sent.
#[derive(Clone, Copy, Debug)]
struct Silence {
    from: Instant,
    /// Bytes acknowledged in it.
    freed: u64,
    /// A part of it in which duplicate acknowledgements came.
    disorder: Option<(Instant, Option<Instant>)>,
}

/// A loss, or what the sender took for one.
#[derive(Debug)]
struct Episode {
    from: Instant,
    /// It is over when all before this is acknowledged.
    point: u64,
    timeout: bool,
    /// What was sent again and is not acknowledged: its end, and when.
    again: BTreeMap<u64, Instant>,
    /// Whether a repair came sooner than a round trip takes, and whether one did not.
    spurious: bool,
    genuine: bool,
}

/// How a silence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With new data of so many bytes, at once after an acknowledgement.
    Answered(u64),
    /// With new data of so many bytes that no acknowledgement let go.
    Spontaneous(u64),
    /// With a loss, or the capture.
    Unknown,
    /// Nothing more was sent.
    Last,
}

/// Follows one sender.
#[derive(Debug)]
pub(super) struct Timeline {
    mss: u64,
    /// The longest segment, which with offloads is many.
    longest: u64,
    /// An answer comes within so many nanoseconds.
    promptness: u64,
    min_rtt: u64,
    /// Smoothed round-trip time, in nanoseconds.
    srtt: u64,
    /// When what is in flight was last sent, by its end.
    in_flight: BTreeMap<u64, Instant>,
    una: u64,
    next: u64,
    /// The right edge of the peer's window.
    edge: u64,
    /// Where the last data end.
    last_data: u64,
    silence: Option<Silence>,
    before: Option<Before>,
    last_ack: Option<Instant>,
    last_sent: Option<Instant>,
    last_event: Instant,
    in_disorder: bool,
    /// The last new segment was no full one.
    emptied: bool,
    /// Since a loss no acknowledgement was answered: more may be in flight than the reduced window holds.
    overfull: bool,
    /// Both ends have SACK.
    sack: bool,
    episode: Option<Episode>,
    epoch: u32,
    stretches: Vec<Stretch>,
    /// The last stretch is still being answered.
    answering: bool,
}

/// How much later than a round trip the retransmission timer expires at least: Linux has 200 ms, RFC 6298 a second in all.
const LEAST_TIMER: u64 = 150_000_000;

impl Timeline {
    pub(super) fn new(own: &Direction, peer: &Direction, stream: &Stream) -> Self {
        let longest = u64::from(own.longest).max(1);
        let stamps = own.requests_timestamps && peer.requests_timestamps;
        let offered = u64::from(peer.mss).saturating_sub(if stamps { 12 } else { 0 });
        let mss = match offered {
            0 => longest,
            offered => longest.min(offered),
        };
        let last = stream.segments.iter().filter(|mark| mark.length > 0);
        let last = last
            .map(|mark| mark.start.saturating_add(mark.length.into()))
            .max();
        let min_rtt = own.rtt.samples.min;
        Self {
            mss,
            longest,
            promptness: promptness(stream),
            min_rtt,
            srtt: min_rtt,
            in_flight: BTreeMap::new(),
            una: 0,
            next: 0,
            edge: 0,
            last_data: last.unwrap_or(0),
            silence: None,
            before: None,
            last_ack: None,
            last_sent: None,
            last_event: Instant::ZERO,
            in_disorder: false,
            emptied: false,
            overfull: false,
            sack: own.permits_sack && peer.permits_sack,
            episode: None,
            epoch: 0,
            stretches: Vec::new(),
            answering: false,
        }
    }

    /// Takes the marks in the order of time. Of an acknowledgement and a segment at one instant the acknowledgement was
    /// first.
    pub(super) fn run(mut self, stream: &Stream) -> Stretches {
        let mut segments = stream.segments.iter().peekable();
        let mut sacks = stream.sacks.as_slice();
        for ack in &stream.acks {
            while let Some(segment) = segments.next_if(|segment| segment.at < ack.at) {
                self.sent(segment);
            }
            let own = sacks.iter().take_while(|sack| sack.at <= ack.at).count();
            let (blocks, rest) = sacks.split_at(own);
            sacks = rest;
            self.acknowledged(ack, blocks);
        }
        for segment in segments {
            self.sent(segment);
        }
        self.finish()
    }

    fn acknowledged(&mut self, ack: &AckMark, blocks: &[SackMark]) {
        let now = ack.at.max(self.last_event);
        if ack.place < self.una {
            return;
        }
        let beyond =
            |at: Option<Instant>| at.is_none_or(|at| now.nanos_since(at) > self.promptness);
        if beyond(self.last_ack) || self.last_sent >= self.last_ack {
            self.before = Some(Before {
                flight: self.next.saturating_sub(self.una),
                room: self.edge.saturating_sub(self.next),
                freed: self.silence.map_or(0, |silence| silence.freed),
            });
        }
        let advanced = ack.place - self.una;
        let first = self.una == 0;
        self.una = ack.place;
        while let Some(first) = self
            .in_flight
            .first_entry()
            .filter(|it| *it.key() <= ack.place)
        {
            first.remove();
        }
        if ack.sample > 0 {
            self.srtt = self.srtt - self.srtt / 8 + u64::from(ack.sample) / 8;
        }
        self.edge = ack.place.saturating_add(ack.window.into());
        self.last_ack = Some(now);
        if !first && let Some(silence) = &mut self.silence {
            silence.freed += advanced;
        }
        self.reports(ack, blocks, now);
        self.disorder(ack, blocks, advanced > 0, now);
        let over = self
            .episode
            .as_ref()
            .is_some_and(|episode| self.una >= episode.point);
        if over {
            self.end_episode(now);
        }
        self.last_event = now;
        if self.una >= self.last_data && self.last_data > 0 && self.silence.is_some() {
            // All is acknowledged: the connection has no more to tell.
            self.resolve(now, End::Last);
            self.silence = None;
        }
    }

    /// What an acknowledgement says of repairs.
    fn reports(&mut self, ack: &AckMark, blocks: &[SackMark], now: Instant) {
        let Some(episode) = &mut self.episode else {
            return;
        };
        episode.spurious |= blocks.iter().any(|block| block.end <= ack.place);
        let soon = self.min_rtt / 10 * 9;
        while let Some(first) = episode
            .again
            .first_entry()
            .filter(|it| *it.key() <= ack.place)
        {
            match now.nanos_since(first.remove()) < soon {
                true => episode.spurious = true,
                false => episode.genuine = true,
            }
        }
    }

    fn disorder(&mut self, ack: &AckMark, blocks: &[SackMark], advanced: bool, now: Instant) {
        let holes = blocks.iter().any(|block| block.end > ack.place);
        if ack.duplicate || holes {
            if !self.in_disorder
                && let Some(silence) = &mut self.silence
                && silence.disorder.is_none()
            {
                silence.disorder = Some((now, None));
            }
            self.in_disorder = true;
        } else if advanced {
            if let Some(silence) = &mut self.silence
                && let Some((_, to @ None)) = &mut silence.disorder
            {
                *to = Some(now);
            }
            self.in_disorder = false;
        }
    }

    fn sent(&mut self, segment: &SegmentMark) {
        let now = segment.at.max(self.last_event);
        let end = segment.start.saturating_add(segment.length.into());
        let numbers =
            u64::from(segment.flags.has(Flags::SYN)) + u64::from(segment.flags.has(Flags::FIN));
        match segment.kind {
            Kind::Again if self.next > self.una && segment.length > 0 => self.sent_again(end, now),
            Kind::New if segment.length > 0 && self.episode.is_none() => {
                self.sent_new(end, segment.length.into(), now);
            }
            _ => {}
        }
        if segment.length > 0 {
            self.in_flight.insert(end, now);
        }
        self.next = self.next.max(end.saturating_add(numbers));
        self.last_event = now;
    }

    fn sent_new(&mut self, end: u64, length: u64, now: Instant) {
        let within =
            |at: Option<Instant>| at.is_some_and(|at| now.nanos_since(at) <= self.promptness);
        let goes_on = within(self.last_sent) && self.last_ack <= self.last_sent;
        if self.silence.is_some() && !goes_on {
            let answered = within(self.last_ack) && self.last_ack >= self.last_sent;
            let how = match answered {
                true => End::Answered(length),
                false => End::Spontaneous(length),
            };
            self.resolve(now, how);
            let freed = self.silence.is_some_and(|silence| silence.freed > 0);
            self.overfull &= !(answered && freed && !self.in_disorder);
        }
        if self.silence.is_none() || !goes_on {
            self.silence = Some(Silence {
                from: now,
                freed: 0,
                disorder: self.in_disorder.then_some((now, None)),
            });
        }
        if self.answering
            && let Some(Stretch {
                cause: Cause::Window(answer),
                ..
            }) = self.stretches.last_mut()
        {
            answer.sent += length;
            answer.flight = end.saturating_sub(self.una);
        }
        self.last_sent = Some(now);
        self.emptied = !length.is_multiple_of(self.mss);
    }

    fn sent_again(&mut self, end: u64, now: Instant) {
        if self.is_timer(end, now) {
            self.timed_out(now);
        } else if self.episode.is_none() {
            let open = self.silence.and_then(|silence| silence.disorder);
            let from = open
                .filter(|_| self.in_disorder)
                .map_or(now, |(from, _)| from);
            self.resolve(from, End::Unknown);
            self.begin(from, false);
        }
        if let Some(episode) = &mut self.episode {
            episode.again.insert(end, now);
        }
        self.last_sent = Some(now);
    }

    /// Whether the retransmission timer sends what ends at `end` again: no acknowledgement let it go. Where there is SACK a
    /// recovery may have a timer of its own, of a quarter of a round trip (RACK, RFC 8985): then it was either sent long ago, or so
    /// lately that only that timer does it.
    fn is_timer(&self, end: u64, now: Instant) -> bool {
        let within =
            |at: Option<Instant>| at.is_some_and(|at| now.nanos_since(at) <= self.promptness);
        if within(self.last_ack) || within(self.last_sent) {
            return false;
        }
        if !self.sack || !self.in_disorder && self.episode.is_none() {
            return true;
        }
        let sent = self.in_flight.range(end..).next();
        let age = sent.map_or(0, |(_, at)| now.nanos_since(*at));
        let again = self.episode.as_ref();
        let again = again.is_some_and(|episode| episode.again.contains_key(&end));
        age > self.srtt.saturating_add(LEAST_TIMER.max(self.min_rtt / 4))
            || again && age < self.min_rtt / 10 * 9
    }

    fn timed_out(&mut self, now: Instant) {
        let mut from = self.last_event;
        match self.episode.take() {
            Some(episode) => self.close(&episode, self.last_event),
            None => {
                // Duplicate acknowledgements that were too few are part of the wait.
                let open = self.silence.and_then(|silence| silence.disorder);
                let few = open.filter(|(_, to)| to.is_none());
                from = few.map_or(from, |(from, _)| from);
                self.resolve(from, End::Unknown);
            }
        }
        self.push(from, now, Cause::Known(Limit::Timeout));
        self.begin(now, true);
    }

    fn begin(&mut self, from: Instant, timeout: bool) {
        self.episode = Some(Episode {
            from,
            point: self.next,
            timeout,
            again: BTreeMap::new(),
            spurious: false,
            genuine: false,
        });
        self.silence = None;
        self.epoch += 1;
    }

    fn end_episode(&mut self, now: Instant) {
        if let Some(episode) = self.episode.take() {
            self.close(&episode, now);
            self.silence = Some(Silence {
                from: now,
                freed: 0,
                disorder: self.in_disorder.then_some((now, None)),
            });
            self.before = None;
            self.overfull = true;
        }
    }

    fn close(&mut self, episode: &Episode, to: Instant) {
        let limit = match (episode.timeout, episode.spurious && !episode.genuine) {
            (true, _) => Limit::Timeout,
            (false, true) => Limit::Reordering,
            (false, false) => Limit::Recovery,
        };
        self.push(episode.from, to, Cause::Known(limit));
    }

    /// The silence until `to` ended by `how`.
    fn resolve(&mut self, to: Instant, how: End) {
        let Some(silence) = self.silence else {
            return;
        };
        let cause = self.cause(&silence, how);
        let idle = matches!(cause, Cause::Known(Limit::Application));
        match silence.disorder.filter(|_| !idle) {
            Some((from, until)) => {
                let until = until.unwrap_or(to).min(to);
                self.push(silence.from, from.min(to), cause);
                self.push(from, until, Cause::Known(Limit::Reordering));
                self.push(until, to, cause);
            }
            None => self.push(silence.from, to, cause),
        }
        // What follows at once belongs to it.
        self.answering = matches!(
            self.stretches.last(),
            Some(Stretch { to: end, cause: Cause::Window(_), .. }) if *end == to
        );
    }

    fn cause(&self, silence: &Silence, how: End) -> Cause {
        let now = Before {
            flight: self.next.saturating_sub(self.una),
            room: self.edge.saturating_sub(self.next),
            freed: silence.freed,
        };
        let (state, length) = match how {
            End::Answered(length) => (self.before.unwrap_or(now), length),
            End::Spontaneous(length) => (now, length),
            End::Unknown => (now, self.mss),
            End::Last => return Cause::Known(Limit::Application),
        };
        if state.room < length.min(self.mss) {
            return Cause::Known(Limit::ReceiveWindow);
        }
        let unanswered = state.freed >= self.longest && !self.overfull;
        if matches!(how, End::Spontaneous(_)) || state.flight == 0 || unanswered {
            return Cause::Known(Limit::Application);
        }
        Cause::Window(Answer {
            acked: silence.freed,
            sent: 0,
            flight: now.flight,
            emptied: self.emptied,
            epoch: self.epoch,
        })
    }

    fn push(&mut self, from: Instant, to: Instant, cause: Cause) {
        if from < to {
            self.stretches.push(Stretch { from, to, cause });
        }
        self.answering = false;
    }

    fn finish(mut self) -> Stretches {
        match self.episode.take() {
            Some(episode) => self.close(&episode, self.last_event),
            None => self.resolve(self.last_event, End::Unknown),
        }
        Stretches {
            all: self.stretches,
            mss: self.mss,
        }
    }
}

/// How soon this sender answers, in nanoseconds: the twentieth part of its new data that came soonest after an
/// acknowledgement tells, with a margin for a host that was busy.
fn promptness(stream: &Stream) -> u64 {
    let mut acks = stream.acks.iter().map(|ack| ack.at).peekable();
    let mut last = None;
    let mut delays = Vec::new();
    for segment in stream
        .segments
        .iter()
        .filter(|it| it.length > 0 && it.kind == Kind::New)
    {
        while let Some(ack) = acks.next_if(|ack| *ack <= segment.at) {
            last = Some(ack);
        }
        // Only the first segment behind an acknowledgement answers it.
        if let Some(ack) = last.take() {
            delays.push(segment.at.nanos_since(ack));
        }
    }
    if delays.is_empty() {
        return PROMPTEST;
    }
    let place = delays.len() / 20;
    let (_, soonest, _) = delays.select_nth_unstable(place);
    soonest.saturating_mul(4).clamp(PROMPTEST, SLOWEST)
}

const PROMPTEST: u64 = 20_000;
const SLOWEST: u64 = 200_000;
