//! The receiving side of a session.

mod answer;
mod interface;

pub use interface::{Config, Event, Kept};

use crate::MAX_STRETCHES;
use crate::report::refusal;
use crate::sender::Failure;
use crate::timing::Timing;
use answer::Answer;
use bentpipe_base::{Instant, Machine, Ranges};
use bentpipe_wire::saratoga::{
    Checksum, Code, Data, Frame, Kind, Metadata, RequestKind, Timestamp, Width,
};
use core::time::Duration;
use std::collections::VecDeque;

/// How often a receiver that hears nothing sends a STATUS of its own.
const NUDGE: Duration = Duration::from_millis(2500);
/// A peer asks no oftener than each 10 ms: how much longer than two round trips one waits for it.
const SLACK: Duration = Duration::from_millis(20);
/// A peer may send nothing of the content for so many times its silence.
const PATIENCE: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking,
    Receiving,
    Verifying,
    /// Until then, the last word is repeated.
    Complete(Instant),
    Over,
}

/// One session's receiver. See [`Machine`] for how it is driven.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: Config,
    state: State,
    timing: Timing,
    width: Width,
    metadata: Option<Metadata>,
    have: Ranges,
    /// Stretches of these at most.
    most_stretches: usize,
    /// The octet after the highest seen.
    extent: u64,
    /// The octet after the highest that an earlier session left: a sender that asks below it has not heard of that yet.
    kept_until: u64,
    /// The octet after the last, once that is known.
    size: Option<u64>,
    /// The highest offset, and its timestamp.
    highest: (u64, Option<Timestamp>),
    /// When the last of it came, or METADATA that said what comes.
    content_at: Instant,
    /// When the session began.
    opened_at: Instant,
    /// DATA has come.
    begun: bool,
    /// DATA has come that wants a report.
    asked: bool,
    /// When it wanted a report last, and what was between such DATA.
    question_at: Instant,
    questions: Timing,
    ask_at: Instant,
    /// When it was asked first, until there is an answer.
    asked_at: Option<Instant>,
    /// After completion something else arrived under the session's Id, so that no further STATUS is sent.
    superseded: bool,
    /// The peer says what became of its original, which this side waits for.
    awaits_word: bool,
    answer: Answer,
    events: VecDeque<Event>,
}

impl Receiver {
    /// Receives from `now` on.
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            state: match config.request {
                Some(_) => State::Asking,
                None => State::Receiving,
            },
            timing: Timing::new(now),
            width: config.width,
            metadata: None,
            have: Ranges::default(),
            most_stretches: MAX_STRETCHES,
            extent: 0,
            kept_until: 0,
            size: None,
            highest: (0, None),
            content_at: now,
            opened_at: now,
            begun: false,
            asked: false,
            question_at: now,
            questions: Timing::new(now),
            ask_at: now,
            asked_at: None,
            superseded: false,
            awaits_word: false,
            answer: Answer::new(config.room),
            events: VecDeque::new(),
            config,
        }
    }

    /// The driver has verified the content: the peer is told.
    pub fn verified(&mut self, now: Instant) {
        if self.state == State::Verifying {
            // Where the round-trip time is known, two of them are long enough; but not before any DATA came, for the sender
            // believes no report that echoes none of its timestamps, and its pace may let its first question wait a second.
            let round_trip = self.round_trip().filter(|_| self.begun);
            let two_round_trips = round_trip.map(|time| (2 * time + SLACK).min(NUDGE));
            // An outage that takes the last word should not have all of a long transfer come again. (Who has asked for it
            // ends as soon as it can.)
            let is_long = now.since(self.opened_at) > self.config.silence;
            let is_long = is_long && self.config.request.is_none();
            if self.awaits_word || is_long {
                self.config.linger = self.config.silence;
            } else if let Some(time) = two_round_trips {
                self.config.linger = time.min(self.config.linger);
            }
            self.ask_at = now + self.nudge();
            self.state = State::Complete(now + self.config.linger);
            if self.superseded {
                self.is_superseded()
            } else {
                self.say_complete()
            }
        }
    }

    /// Ends the session with `code`, and tells the peer.
    pub fn refuse(&mut self, code: Code) {
        if self.state != State::Over {
            self.answer.say(refusal(self.config.session, code));
            self.end(Failure::Own(code));
        }
    }

    /// Sends a STATUS now, for instance when a REQUEST repeats for a session that is under way.
    pub fn repeat(&mut self) {
        match self.state {
            State::Complete(_) => self.say_complete(),
            _ => self.report(true, self.highest.1, self.extent),
        }
    }

    /// Whether no more will come of it than its last word.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// When the peer was last heard.
    pub const fn heard_at(&self) -> Instant {
        self.timing.heard_at()
    }

    /// What is stored.
    pub const fn have(&self) -> &Ranges {
        &self.have
    }

    /// At most `most` stretches of it from now on, and [`MAX_STRETCHES`]: what would be one more is not stored.
    pub fn limit_stretches(&mut self, most: usize) {
        self.most_stretches = most.min(MAX_STRETCHES);
    }

    /// What comes, once that is announced.
    pub const fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Octets in all, once that is known.
    pub const fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether the peer is to say what became of its original.
    pub const fn awaits_word(&self) -> bool {
        self.awaits_word
    }

    /// Every octet below this one is stored.
    pub fn arrived(&self) -> u64 {
        self.have
            .first()
            .map_or(0, |(from, to)| if from == 0 { to } else { 0 })
    }

    fn end(&mut self, failure: Failure) {
        if self.state != State::Over {
            self.state = State::Over;
            self.events.push_back(Event::Failed(failure));
        }
    }

    fn done(&mut self) {
        self.state = State::Over;
        self.events.push_back(Event::Done);
    }

    fn hear(&mut self, now: Instant) {
        self.timing.hear(now);
        if let Some(asked) = self.asked_at.take() {
            self.timing.sample(now.since(asked));
        }
        if self.state == State::Asking {
            self.state = State::Receiving;
        }
        if matches!(self.state, State::Complete(_)) && self.awaits_word && !self.superseded {
            // A peer that deletes its original, which may take long, says so by METADATA.
            self.state = State::Complete(now + self.config.linger);
        }
        self.ask_at = now + self.nudge();
    }

    /// When it says something of its own, after it heard or said something.
    fn nudge(&self) -> Duration {
        if self.awaits_word {
            NUDGE.min(self.config.silence / 3)
        } else {
            NUDGE
        }
    }

    fn announce(&mut self, metadata: Metadata, now: Instant) {
        self.hear(now);
        if matches!(self.state, State::Verifying | State::Complete(_)) {
            let same = |known: &Metadata| {
                !names_another(known, &metadata) && same_content(known, &metadata)
            };
            if !self.metadata.as_ref().is_some_and(same) {
                self.is_superseded();
            }
            return;
        }
        // What comes is not of the file whose name this session has.
        if (self.metadata.as_ref()).is_some_and(|known| names_another(known, &metadata)) {
            return self.refuse(Code::UNKNOWN_ID);
        }
        if let Some(known) = &mut self.metadata
            && same_content(known, &metadata)
        {
            if known.checksum.is_later() {
                known.checksum = metadata.checksum;
                self.check();
            }
            return;
        }
        let streams = metadata.kind == Kind::Stream;
        let size = u64::try_from(metadata.entry.size);
        let Ok(size) = size else {
            return self.refuse(Code::TOO_LONG);
        };
        let kept = self.config.kept.take().filter(|kept| {
            !streams && same_content(&kept.metadata, &metadata) && is_told(&metadata)
        });
        let resumed = kept.is_some();
        // DATA that came before METADATA counts, unless METADATA announces something else.
        if self.metadata.is_some() || resumed {
            self.have.clear();
            self.extent = 0;
            self.kept_until = 0;
        }
        if let Some(kept) = kept {
            self.have = kept.have;
            self.extent = self.have.last().map_or(0, |(_, to)| to);
            self.kept_until = self.extent;
        }
        if !streams && self.extent > size {
            return self.refuse(Code::UNSPECIFIED);
        }
        if !streams {
            self.size = Some(size);
        }
        self.width = metadata.width;
        self.content_at = now;
        // Who tells the checksum last also says whether it has deleted what was taken. By then it may be known, or there
        // is none; but to nobody else does such a peer tell the mode.
        let request = self.config.request.as_ref();
        let takes = request.is_some_and(|request| request.kind == RequestKind::Take);
        self.awaits_word = takes && (metadata.checksum.is_later() || metadata.mode.is_some());
        self.metadata = Some(metadata.clone());
        self.events.push_back(Event::Announced {
            metadata: Box::new(metadata),
            resumed,
        });
        self.check();
        if resumed {
            self.report(true, self.highest.1, self.extent);
        }
    }

    /// Notes that frames of another content arrive under the session's Id, because the sender has begun a new session.
    /// A STATUS on the old session would count for the new one, so that none is sent any more.
    fn is_superseded(&mut self) {
        self.superseded = true;
        if matches!(self.state, State::Complete(_)) && !self.awaits_word {
            self.answer.clear();
            self.done();
        }
    }

    /// Whether `data` may be of the content that is all here.
    fn is_known(&self, data: &Data) -> bool {
        let (Some(end), Some(size)) = (data.payload_end(), self.size.map(u128::from)) else {
            return false;
        };
        end <= size && (!data.end || end == size) && self.fits(data).is_ok()
    }

    /// DATA arrives: as [`Machine::input`], but tells at once whether its payload is to be stored, at
    /// the frame's offset, instead of by an event. What the payload completes comes as an event.
    pub fn input_data(&mut self, data: &Data, now: Instant) -> bool {
        if self.state == State::Over || data.session != self.config.session {
            return false;
        }
        self.hear(now);
        // A server's question, overtaken by the answer or brought by a copy of the REQUEST: it does not know what comes.
        if data.len == 0 && !data.end && self.fits(data).is_err() {
            return false;
        }
        if matches!(self.state, State::Verifying | State::Complete(_)) {
            if !self.is_known(data) {
                self.is_superseded();
                return false;
            }
            // Everything may have been here before any DATA came; the sender wants an echo all the same.
            self.highest.1 = data.timestamp.or(self.highest.1);
        }
        match self.state {
            State::Complete(_) => {
                self.state = State::Complete(now + self.config.linger);
                self.say_complete();
                false
            }
            State::Verifying => {
                self.say_verifying();
                false
            }
            _ => self.data(data, now).unwrap_or_else(|code| {
                self.refuse(code);
                false
            }),
        }
    }

    /// Whether the payload is to be stored; refuses what cannot be of this content.
    fn data(&mut self, data: &Data, now: Instant) -> Result<bool, Code> {
        self.fits(data)?;
        let end = data.payload_end().and_then(|end| u64::try_from(end).ok());
        let (Ok(offset), Some(end)) = (u64::try_from(data.offset), end) else {
            return Err(Code::TOO_LONG);
        };
        if self.metadata.is_none() {
            self.width = self.width.max(data.width);
        }
        let stream = self.metadata.as_ref().map_or(data.kind, |known| known.kind) == Kind::Stream;
        let beyond = self.size.is_some_and(|size| end > size);
        let early = data.end && self.size.is_some_and(|size| end < size);
        if beyond || early {
            return Err(Code::UNSPECIFIED);
        }
        if stream && data.end {
            if self.extent > end {
                return Err(Code::UNSPECIFIED);
            }
            self.size = Some(end);
        }
        let seen = self.extent;
        self.extent = self.extent.max(end);
        if data.len > 0 {
            self.content_at = now;
        }
        if offset >= self.highest.0 {
            self.highest = (offset, data.timestamp);
        }
        let new = self.add(offset, end);
        if new && offset < seen {
            self.answer.took_effect();
        }
        self.check();
        if data.status_wanted {
            self.asked = true;
            if self.begun {
                self.questions.sample(now.since(self.question_at));
            }
            self.question_at = now;
            self.report(false, data.timestamp, end.max(self.kept_until));
        } else if !self.begun {
            self.report(true, self.highest.1, self.extent);
        }
        self.begun = true;
        Ok(new)
    }

    /// Whether the frame is of the session that METADATA announced.
    fn fits(&self, data: &Data) -> Result<(), Code> {
        match &self.metadata {
            Some(known) if known.kind != data.kind => Err(Code::KIND_CHANGED),
            Some(known) if known.width != data.width => Err(Code::DESCRIPTOR_MISMATCH),
            _ => Ok(()),
        }
    }

    /// Takes `[offset, end)` for stored, if any of it is new and there is room to remember it.
    fn add(&mut self, offset: u64, end: u64) -> bool {
        let announced = self.metadata.is_some();
        let early = self.config.kept.is_none() && end <= self.config.unannounced.0;
        let beyond = self.have.last().is_none_or(|(_, to)| to <= offset);
        let known = offset == end || !beyond && self.have.uncovered(offset, end).is_none();
        if known || !(announced || early) {
            return false;
        }
        let touches = |at: u64| self.have.covering(at).is_some();
        let extends = || touches(offset) || offset > 0 && touches(offset - 1) || touches(end);
        if self.have.len() >= self.most_stretches && !extends() {
            return false;
        }
        self.have.insert(offset, end);
        true
    }

    fn check(&mut self) {
        if self.metadata.is_some()
            && self.state == State::Receiving
            && self.is_all()
            && !self.lacks_checksum()
        {
            self.state = State::Verifying;
            self.events.push_back(Event::Complete);
        }
    }

    /// Up to where a silent sender is told of holes. One that never asks may have sent all of it, and lost the
    /// end: up to METADATA's length.
    fn expected(&self) -> u64 {
        let silent = if self.asked { None } else { self.size };
        silent.unwrap_or(self.extent)
    }

    /// Whether every octet is stored.
    fn is_all(&self) -> bool {
        self.size.is_some_and(|size| size == self.arrived())
    }

    /// When a peer that talks and sends nothing counts as gone. A stream may have nothing to send, and a checksum that
    /// comes last may take its time.
    fn no_data_deadline(&self) -> Instant {
        let kind = self.metadata.as_ref().map(|metadata| metadata.kind);
        if kind == Some(Kind::Stream) || self.is_all() {
            Instant::MAX
        } else {
            self.content_at + PATIENCE * self.config.silence
        }
    }

    /// Whether METADATA came and is to come again, with the checksum.
    fn lacks_checksum(&self) -> bool {
        let metadata = self.metadata.as_ref();
        metadata.is_some_and(|metadata| metadata.checksum.is_later())
    }

    /// No longer than a round trip is what the answer to a REQUEST took, the peer's preparations
    /// included, and about four times what is between questions of a peer that asks as our sender does.
    fn round_trip(&self) -> Option<Duration> {
        let answer = self.timing.round_trip();
        let questions = self.questions.round_trip().map(|between| 4 * between);
        answer.map(|answer| questions.map_or(answer, |questions| questions.min(answer)))
    }
}

/// Whether both are of one session, and of files of different names: a peer of another kind has used its Id again.
fn names_another(one: &Metadata, other: &Metadata) -> bool {
    one.entry.path != other.entry.path
}

/// Whether anything tells a content from another of its length: a checksum, the time of the inode's last change, which peers of
/// our kind tell, or at least a time of its own.
fn is_told(metadata: &Metadata) -> bool {
    metadata.checksum != Checksum::None || metadata.mode.is_some() || metadata.entry.modified.0 != 0
}

/// Whether both announce the same content. Where nothing is summed up, only the times tell a file from another of
/// its length: then all of them count.
fn same_content(one: &Metadata, other: &Metadata) -> bool {
    let summed = one.checksum != Checksum::None && other.checksum != Checksum::None;
    one.checksum.may_be(&other.checksum)
        && one.kind == other.kind
        && one.width == other.width
        && one.entry.size == other.entry.size
        && one.entry.modified == other.entry.modified
        && (summed || one.entry.created == other.entry.created)
}

impl Machine for Receiver {
    type Packet = Frame;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), frame: Frame, now: Instant) {
        if self.state == State::Over || frame.session() != Some(self.config.session) {
            return;
        }
        match frame {
            Frame::Metadata(metadata) => self.announce(metadata, now),
            Frame::Data(data) => {
                let before = self.events.len();
                if self.input_data(&data, now) {
                    let (offset, len) = (data.offset as u64, data.len);
                    // Stored before it is complete.
                    self.events.insert(before, Event::Store { offset, len });
                }
            }
            Frame::Status(status) if status.code != Code::OK => {
                let complete = matches!(self.state, State::Complete(_));
                match status.code {
                    // After completion the peer may have forgotten the session: there is no more to say.
                    Code::UNKNOWN_ID if complete && !self.awaits_word => self.done(),
                    code if !complete || self.awaits_word || code == Code::NOT_DELETED => {
                        self.end(Failure::Peer(code));
                    }
                    _ => {}
                }
            }
            // The peer has heard the last word; ours says so, and echoes nothing: a STATUS that does is the proof that was
            // asked for before, or a copy of it.
            Frame::Status(status)
                if status.timestamp.is_none() && matches!(self.state, State::Complete(_)) =>
            {
                self.done();
            }
            Frame::Status(_) => self.hear(now),
            Frame::Request(_) => self.repeat(),
            Frame::Beacon(_) => {}
        }
    }

    fn timeout(&mut self, now: Instant) {
        match self.state {
            State::Over => {}
            State::Complete(until) if until <= now && self.awaits_word => {
                self.end(Failure::Silence)
            }
            State::Complete(until) if until <= now => self.done(),
            State::Complete(_) if self.awaits_word && self.ask_at <= now => {
                self.ask_at = now + self.nudge();
                self.say_complete();
            }
            State::Complete(_) | State::Verifying => {}
            State::Asking | State::Receiving => {
                if self.timing.silent_at(self.config.silence) <= now {
                    let session = self.config.session;
                    self.answer.say(refusal(session, Code::SENDER_SILENT));
                    self.end(Failure::Silence);
                } else if self.no_data_deadline() <= now {
                    self.refuse(Code::SENDER_SILENT);
                } else if self.state == State::Receiving && self.ask_at <= now {
                    self.ask_at = now + NUDGE;
                    self.report(true, self.highest.1, self.expected());
                }
            }
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Frame)> {
        if self.state == State::Asking && self.ask_at <= now {
            self.ask_at = now + self.timing.pause(now);
            self.asked_at.get_or_insert(now);
            let request = self.config.request.clone()?;
            return Some(((), Frame::Request(request)));
        }
        if let Some(due) = self.answer.next_due() {
            self.make(due);
        }
        self.answer.next().map(|frame| ((), frame))
    }

    fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Over | State::Verifying => None,
            State::Complete(until) if self.awaits_word => Some(until.min(self.ask_at)),
            State::Complete(until) => Some(until),
            State::Asking | State::Receiving => {
                let silent = self.timing.silent_at(self.config.silence);
                Some(self.ask_at.min(silent).min(self.no_data_deadline()))
            }
        }
    }
}
