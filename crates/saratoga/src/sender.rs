//! The side of a session that has the content.

mod interface;

pub use interface::{Config, Congestion, Event, Failure, Progress};

use crate::pace::Pacer;
use crate::reach::{Reach, shorter};
use crate::repair::{Horizon, Repairs};
use crate::report::{echo, refusal};
use crate::stamp;
use crate::tfrc::{Feedback, Tfrc};
use crate::timing::Timing;
use crate::window::Window;
use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_wire::saratoga::{Checksum, Code, Data, Frame, Kind, Metadata, Status, Timestamp};
use core::time::Duration;

/// How often a repair goes out when the line would be idle otherwise.
const COPIES: u8 = 3;
/// METADATA is sent this often at most for peers that say they cannot do without.
const MOST_METADATA: u32 = 1000;
/// A round trip of which nothing is known takes at most so long, about.
const UNKNOWN: Duration = Duration::from_secs(1);
/// Questions that go unanswered for so long may be lost with the packets that carry them: long ones may not reach the
/// peer at all. They go alone then.
const UNANSWERED: Duration = Duration::from_secs(2);
/// What a frame other than DATA takes on the line, about.
const SMALL: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking,
    Sending,
    Over,
}

/// One session's sender. See [`Machine`] for how it is driven.
#[derive(Clone, Debug)]
pub struct Sender {
    config: Config,
    state: State,
    timing: Timing,
    pacer: Pacer,
    tfrc: Option<Tfrc>,
    repairs: Repairs,
    /// Octets that may be sent; grows in streams.
    available: u64,
    /// Whether `available` is all there will be.
    ended: bool,
    progress: Progress,
    window: Window,
    reach: Reach,
    /// The window was full.
    held: bool,
    /// Of the next DATA.
    number: u64,
    /// The packet that the latest report answered.
    answered: u64,
    /// When a question was answered last, or could be at first.
    answered_at: Instant,
    /// When the next question is due: a REQUEST, or a DATA that wants STATUS.
    ask_at: Instant,
    /// The line just became idle: ask at once.
    ask_now: bool,
    metadata_due: bool,
    metadata_at: Option<Instant>,
    metadata_sent: u32,
    /// Number and time of the first DATA that said where the content ends.
    end_sent: Option<(u64, Instant)>,
    /// When all was sent for the first time.
    all_sent_at: Option<Instant>,
    farewell: Option<Frame>,
    /// A STATUS of the peer has echoed a timestamp of this session.
    echoes: bool,
    /// A timestamp of the peer's, to be echoed: it wants to know whether we hear it.
    echo_due: Option<Timestamp>,
    /// The peer is of our kind: it waits for a word that its last one was heard.
    acknowledges: bool,
    event: Option<Event>,
}

impl Sender {
    /// Sends from `now` on.
    pub fn new(config: Config, now: Instant) -> Self {
        let stream = config.metadata.kind == Kind::Stream;
        let size = u64::try_from(config.metadata.entry.size).unwrap_or(u64::MAX);
        let packet = Bytes(u64::from(config.payload)) + config.overhead;
        Self {
            state: match config.request {
                Some(_) => State::Asking,
                None => State::Sending,
            },
            timing: Timing::new(now),
            pacer: Pacer::new(now),
            tfrc: match config.congestion {
                Congestion::None => None,
                Congestion::Tfrc => Some(Tfrc::new(packet, now)),
            },
            repairs: Repairs::default(),
            available: if stream { 0 } else { size },
            ended: !stream,
            progress: Progress::default(),
            window: Window::new(now),
            reach: Reach::default(),
            held: false,
            number: 1,
            answered: 0,
            answered_at: now,
            ask_at: now,
            ask_now: false,
            metadata_due: true,
            metadata_at: None,
            metadata_sent: 0,
            end_sent: None,
            all_sent_at: None,
            farewell: None,
            echoes: false,
            echo_due: None,
            acknowledges: config.late_checksum || config.metadata.checksum.is_later(),
            event: None,
            config,
        }
    }

    /// Of a stream: octets below `available` can be read now, and no more will come when `ended`.
    pub fn extend(&mut self, available: u64, ended: bool) {
        if self.ended {
            return;
        }
        self.available = self.available.max(available);
        if ended {
            self.ended = true;
            self.config.metadata.ended = true;
            self.metadata_due = true;
            self.ask_now = true;
        }
    }

    /// The checksum over the content, once it is known: METADATA goes out again.
    pub fn set_checksum(&mut self, checksum: Checksum) {
        self.config.metadata.checksum = checksum;
        self.metadata_due = true;
    }

    /// Another rate from now on, as when sessions share a line.
    pub const fn set_rate(&mut self, rate: Rate) {
        self.config.rate = rate;
    }

    /// Ends the session with `code`, and tells the peer.
    pub fn abort(&mut self, code: Code) {
        if self.state != State::Over {
            self.farewell = Some(refusal(self.config.metadata.session, code));
            self.end(Event::Failed(Failure::Own(code)));
        }
    }

    /// After the end: the last word to a peer that has asked and waits for one is `code`, not that all is
    /// well. Whether the peer is of that kind.
    pub fn regret(&mut self, code: Code) -> bool {
        let asked = self.config.request.is_none();
        let waits = self.state == State::Over && self.acknowledges && asked;
        if waits {
            self.farewell = Some(refusal(self.config.metadata.session, code));
        }
        waits
    }

    /// What is sent, as the peer was told last.
    pub const fn metadata(&self) -> &Metadata {
        &self.config.metadata
    }

    /// A REQUEST that this session serves came once more: its answer was lost. That is no sign of life,
    /// for anybody may send it again.
    pub fn repeat(&mut self, now: Instant) {
        self.want_metadata(now);
    }

    /// Octets of its longest packet.
    pub fn packet(&self) -> Bytes {
        // Type, session, timestamp and offset.
        let header = 24 + self.config.metadata.width.octets() as u64;
        Bytes(header + u64::from(self.config.payload)) + self.config.overhead
    }

    /// Whether the peer has shown that DATA reaches it.
    pub const fn is_proven(&self) -> bool {
        self.echoes
    }

    /// When the peer was last heard.
    pub const fn heard_at(&self) -> Instant {
        self.timing.heard_at()
    }

    /// What [`Machine::transmit`] would give, if that is DATA: the short way for nearly all packets.
    pub fn transmit_data(&mut self, now: Instant) -> Option<Data> {
        match self.state {
            State::Sending if !self.metadata_due && self.echo_due.is_none() => self.next_data(now),
            _ => None,
        }
    }

    /// How far it has come.
    pub const fn progress(&self) -> Progress {
        self.progress
    }

    /// Octets in all, once that is known.
    pub const fn size(&self) -> Option<u64> {
        if self.ended {
            Some(self.available)
        } else {
            None
        }
    }

    /// When the last octet was sent for the first time.
    pub const fn all_sent_at(&self) -> Option<Instant> {
        self.all_sent_at
    }

    /// The rate of now.
    pub fn rate(&self) -> Rate {
        let allowed = self.tfrc.as_ref().map(Tfrc::rate);
        allowed.map_or(self.config.rate, |rate| rate.min(self.config.rate))
    }

    fn end(&mut self, event: Event) {
        if self.state != State::Over {
            self.state = State::Over;
            self.event = Some(event);
        }
    }

    fn want_metadata(&mut self, now: Instant) {
        let pause = self
            .timing
            .round_trip()
            .unwrap_or(Duration::from_millis(200));
        let recent = self.metadata_at.is_some_and(|at| now.since(at) < pause);
        if !recent {
            self.metadata_due = true;
        }
    }

    fn status(&mut self, status: &Status, now: Instant) {
        let echo = status.timestamp.and_then(|stamp| self.echo(stamp));
        // A peer of our kind echoes in every report: one without is of somebody else.
        if self.echoes && self.acknowledges && echo.is_none() && status.code == Code::OK {
            return;
        }
        // Nor does what anybody could have sent keep the session alive.
        if !self.echoes || echo.is_some() {
            self.timing.hear(now);
        }
        // "METADATA required" ends a session by the letter, but its mend is at hand. One revision of
        // the draft writes 10 for 0x10.
        let strict = [Code::METADATA_REQUIRED, Code::BAD_FRAME].contains(&status.code);
        if strict && self.state == State::Sending && self.metadata_sent < MOST_METADATA {
            return self.want_metadata(now);
        }
        if status.code != Code::OK {
            return self.end(Event::Failed(Failure::Peer(status.code)));
        }
        if self.state == State::Asking {
            self.state = State::Sending;
            (self.ask_at, self.answered_at) = (now, now);
        }
        // A timestamp that is not ours is the question of a peer which was asked, whether we hear it.
        if self.config.request.is_some() && echo.is_none() {
            self.echo_due = status.timestamp;
        }
        if status.metadata_missing {
            self.want_metadata(now);
        }
        // Whatever else it says: a peer that lacks nothing has all, even if an older list of holes
        // comes in later.
        if self.completes(status) && self.knows_the_end(echo, now) {
            self.progress.arrived = self.available;
            // A peer that was asked to receive would remember the session for long without the word; one of
            // another kind has no use for it.
            if self.acknowledges || self.config.request.is_some() {
                self.farewell = Some(self.heard());
            }
            return self.end(Event::Done);
        }
        // A peer that was sent no timestamps cannot say which question it answers.
        if echo.is_some() || self.config.nonce.is_none() {
            self.answered_at = now;
        }
        self.learn(status, echo, now);
    }

    /// What tells the peer that it need not repeat its last word.
    fn heard(&self) -> Frame {
        echo(self.config.metadata.session, None)
    }

    fn completes(&self, status: &Status) -> bool {
        self.ended
            && self.metadata_sent > 0
            && !self.config.metadata.checksum.is_later()
            && !status.metadata_missing
            && !status.incomplete
            && status.holes.is_empty()
            && status.progress >= self.available.into()
    }

    /// Whether the report is of after the peer knew where the content ends: of a stream it may have all that was
    /// sent and wait for more.
    fn knows_the_end(&self, echo: Option<(u64, Instant)>, now: Instant) -> bool {
        if self.config.metadata.kind != Kind::Stream {
            return true;
        }
        self.end_sent.is_some_and(|(number, at)| match echo {
            Some((answered, _)) => answered >= number,
            // It does not say what it answers: then an answer takes as long as others took.
            None => now >= at + self.timing.round_trip().unwrap_or(UNKNOWN),
        })
    }

    /// Takes what the report says of octets.
    fn learn(&mut self, status: &Status, echo: Option<(u64, Instant)>, now: Instant) {
        if let Some((number, sent)) = echo {
            self.echoes = true;
            if number < self.answered {
                // Overtaken by a later one.
                return;
            }
            self.answered = number;
            if !status.voluntary {
                self.timing.sample(now.since(sent));
                // The first questions are asked without knowing how long an answer takes.
                self.ask_at = self.ask_at.min(now + self.timing.interval(now));
            }
            let least = self.timing.least();
            self.window.told(number, self.rate(), least, now);
            self.held = false;
        }
        let clipped = |value: u128| {
            u64::try_from(value).map_or(self.available, |value| value.min(self.available))
        };
        // The peer has seen octets that this sender has not sent: it resumes.
        let seen = clipped(status.in_response_to);
        self.progress.sent = self.progress.sent.max(seen);
        let sent = self.progress.sent;
        let progress = clipped(status.progress);
        let lowest = status
            .holes
            .first()
            .map_or(progress, |hole| clipped(hole.first));
        self.progress.arrived = self.progress.arrived.max(progress.min(lowest).min(sent));
        // An end that is exclusive costs an octet too many, which is less than one missing.
        let holes = status.holes.iter().filter(|hole| hole.first <= hole.last);
        let holes = holes.map(|hole| {
            let to = clipped(hole.last.saturating_add(1)).min(sent);
            (clipped(hole.first), to)
        });
        let horizon = match echo {
            Some((number, _)) => Horizon::Packet(number),
            None => {
                let pause = self.timing.round_trip().unwrap_or(UNKNOWN);
                let before = now.as_nanos().saturating_sub(pause.as_nanos() as u64);
                Horizon::Time(Instant::from_nanos(before))
            }
        };
        let holes: Vec<(u64, u64)> = holes.filter(|(from, to)| from < to).collect();
        if let Some((number, _)) = echo {
            let lacking: u64 = holes.iter().map(|(from, to)| to - from).sum();
            let have = seen.max(progress) - lacking.min(seen.max(progress));
            if have == self.available || status.incomplete {
                self.reach.arrives();
            } else if self.reach.told(number, have, progress) {
                self.config.payload = shorter(self.config.payload);
            }
        }
        let lost = self.repairs.report(holes.into_iter(), horizon);
        if let (Some(tfrc), Some((number, _)), Some(round_trip)) =
            (&mut self.tfrc, echo, self.timing.round_trip())
        {
            let feedback = Feedback {
                number,
                lost,
                round_trip,
                interval: self.timing.interval(now),
            };
            tfrc.report(feedback, now);
            self.pacer.hasten(self.rate());
        }
    }

    /// Number and time of the DATA whose timestamp this is; `None` if it was never sent.
    fn echo(&self, stamp: Timestamp) -> Option<(u64, Instant)> {
        let (number, at) = stamp::read(stamp, self.config.nonce?)?;
        (number > 0 && number < self.number).then_some((number, at))
    }

    fn data(&mut self, offset: u64, len: u32, ask: bool, now: Instant) -> Data {
        let data = Data {
            session: self.config.metadata.session,
            width: self.config.metadata.width,
            kind: self.config.metadata.kind,
            timestamp: (self.config.nonce).map(|nonce| stamp::write(self.number, now, nonce)),
            status_wanted: ask,
            end: self.ended && offset + u64::from(len) == self.available,
            offset: offset.into(),
            len,
        };
        self.window.sent(self.number, u64::from(len), ask);
        // A peer that does not echo cannot say which packets it got.
        if data.end {
            self.end_sent.get_or_insert((self.number, now));
        }
        if len > 0 && self.echoes {
            self.reach.sent(self.number, now);
        }
        self.number += 1;
        self.progress.transmitted += u64::from(len);
        if ask {
            self.ask_at = now + self.timing.interval(now);
            self.ask_now = false;
            self.reach.asked();
        }
        let size = Bytes((data.header_len() + len as usize) as u64) + self.config.overhead;
        self.pacer.sent(size, self.rate(), now);
        data
    }

    /// The next DATA, if it is time for some.
    fn next_data(&mut self, now: Instant) -> Option<Data> {
        let ready = self.pacer.ready(now);
        let data = ready.then(|| self.due_data(now)).flatten();
        if data.is_none() && (ready || !self.waits_for_line()) {
            self.pacer.rest();
        }
        data
    }

    /// Whether there is something to send as soon as the line has room.
    fn waits_for_line(&self) -> bool {
        let content = self.progress.sent < self.available
            || !self.repairs.is_empty()
            || self.ask_now
            || self.copies();
        let small = self.metadata_due || self.echo_due.is_some();
        small || content && !self.held && self.reach.careful().is_none()
    }

    /// Repairs first, then what is new, then copies of open repairs, then a question.
    fn due_data(&mut self, now: Instant) -> Option<Data> {
        let (most, number) = (self.config.payload, self.number);
        let fresh = self.progress.sent < self.available;
        let mut open = self.window.has_room();
        self.held = !open;
        if now.since(self.answered_at) >= UNANSWERED {
            self.reach.doubt();
        }
        if let Some(tried) = self.reach.careful() {
            if self.ask_at > now {
                return None;
            }
            if tried {
                return Some(self.data(self.progress.sent, 0, true, now));
            }
            open = true;
        } else if self.reach.is_doubtful() && self.ask_at <= now {
            return Some(self.data(self.progress.sent, 0, true, now));
        }
        if open && let Some((offset, len)) = self.repairs.next(most, number, now) {
            self.ask_now |= self.repairs.is_empty() && !fresh;
            return Some(self.data(offset, len, false, now));
        }
        let due = self.ask_at <= now || open && self.window.wants_a_report();
        if open && fresh {
            let offset = self.progress.sent;
            let len = (self.available - offset).min(most.into()) as u32;
            self.progress.sent += u64::from(len);
            let last = self.progress.sent == self.available;
            if last && self.ended {
                self.all_sent_at.get_or_insert(now);
            }
            return Some(self.data(offset, len, due || last, now));
        }
        if self.ask_now && open || due {
            return Some(self.data(self.progress.sent, 0, true, now));
        }
        if open && self.copies() {
            let (offset, len) = self.repairs.another(COPIES, number, now)?;
            self.ask_now = !self.copies();
            return Some(self.data(offset, len, false, now));
        }
        None
    }

    /// Whether copies of repairs may go out: at the end, on a path that is not shared.
    fn copies(&self) -> bool {
        self.ended && self.tfrc.is_none() && self.repairs.has_another(COPIES)
    }

    fn small(&mut self, frame: Frame, now: Instant) -> Frame {
        self.pacer.sent(Bytes(SMALL), self.rate(), now);
        frame
    }
}

impl Machine for Sender {
    type Packet = Frame;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), frame: Frame, now: Instant) {
        if self.state == State::Over || frame.session() != Some(self.config.metadata.session) {
            return;
        }
        match frame {
            Frame::Status(status) => self.status(&status, now),
            Frame::Request(_) => self.repeat(now),
            // A receiver sends nothing else; whatever it is, it is not for this side.
            Frame::Beacon(_) | Frame::Metadata(_) | Frame::Data(_) => {}
        }
    }

    fn timeout(&mut self, now: Instant) {
        if self.state == State::Over {
            return;
        }
        if let Some(tfrc) = &mut self.tfrc {
            let (round_trip, interval) = (self.timing.round_trip(), self.timing.interval(now));
            tfrc.timeout(round_trip, interval, now);
        }
        let vain = |at: Instant| at + self.config.silence <= now;
        let failure = if self.timing.silent_at(self.config.silence) <= now {
            Failure::Silence
        } else if self.reach.vain_since().is_some_and(vain) {
            Failure::Vain
        } else {
            return;
        };
        let session = self.config.metadata.session;
        self.farewell = Some(refusal(session, Code::TERMINATED));
        self.end(Event::Failed(failure));
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Frame)> {
        let frame = match self.state {
            State::Over => self.farewell.take()?,
            State::Asking if self.ask_at <= now => {
                self.ask_at = now + self.timing.interval(now).max(Duration::from_secs(1));
                let request = self.config.request.clone()?;
                self.small(Frame::Request(request), now)
            }
            State::Asking => return None,
            State::Sending if self.echo_due.is_some() => {
                let stamp = self.echo_due.take();
                self.small(echo(self.config.metadata.session, stamp), now)
            }
            State::Sending if self.metadata_due => {
                self.metadata_due = false;
                self.metadata_at = Some(now);
                self.metadata_sent = self.metadata_sent.saturating_add(1);
                self.small(Frame::Metadata(self.config.metadata.clone()), now)
            }
            State::Sending => Frame::Data(self.next_data(now)?),
        };
        Some(((), frame))
    }

    fn event(&mut self) -> Option<Event> {
        self.event.take()
    }

    fn deadline(&self) -> Option<Instant> {
        let line = match self.state {
            State::Over => return None,
            State::Asking => self.ask_at,
            State::Sending => {
                let due = if self.waits_for_line() {
                    Instant::ZERO
                } else {
                    self.ask_at
                };
                due.max(self.pacer.deadline())
            }
        };
        let silent = self.timing.silent_at(self.config.silence);
        let rate = self.tfrc.as_ref().map_or(Instant::MAX, Tfrc::deadline);
        let vain = self.reach.vain_since();
        let vain = vain.map_or(Instant::MAX, |at| at + self.config.silence);
        Some(line.min(silent).min(vain).min(rate))
    }
}
