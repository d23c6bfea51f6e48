//! The sending side of a session.

mod interface;
mod status;

pub use interface::{Config, Congestion, Event, Failure, Progress};

use crate::pace::Pacer;
use crate::reach::Reach;
use crate::repair::Repairs;
use crate::report::{echo, refusal};
use crate::stamp;
use crate::suspects::Suspects;
use crate::tfrc::Tfrc;
use crate::timing::Timing;
use crate::window::Window;
use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_wire::saratoga::{Checksum, Code, Data, Frame, Kind, Metadata, Timestamp};
use core::time::Duration;

/// How often a repair goes out when the line would be idle otherwise.
const COPIES: u8 = 3;
/// When questions go unanswered for so long, the packets that carry them may be too long to reach the peer. They are
/// then sent alone, in short packets.
const UNANSWERED: Duration = Duration::from_secs(2);
/// An answer should not take longer than so many round trips, where these are known.
const SLACK: Duration = Duration::from_millis(200);
/// The approximate size on the line of a frame other than DATA.
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
    suspects: Suspects,
    /// Octets that may be sent; grows in streams.
    available: u64,
    /// Whether `available` is all there will be.
    ended: bool,
    progress: Progress,
    window: Window,
    reach: Reach,
    /// The window was full.
    held: bool,
    /// The number of the next DATA packet.
    number: u64,
    /// What was sent is deleted when all has arrived.
    deletes: bool,
    /// The peer has said that it has all, and is to say so again of this packet or a later one.
    confirms_from: Option<u64>,
    /// The number of the packet that the latest report answered.
    answered: u64,
    /// What was sent before this packet may have come before the peer knew the session. `None`: it has not said that it does.
    known_from: Option<u64>,
    /// When a question was answered last, or could be at first.
    answered_at: Instant,
    /// When the next question is due: a REQUEST, or a DATA that wants STATUS.
    ask_at: Instant,
    /// The line has just become idle, so that a question is due at once.
    ask_now: bool,
    metadata_due: bool,
    metadata_at: Option<Instant>,
    metadata_sent: u32,
    /// Number and time of the first DATA that said where the content ends.
    end_sent: Option<(u64, Instant)>,
    /// When all was sent for the first time.
    all_sent_at: Option<Instant>,
    last_status: Option<Frame>,
    /// A STATUS of the peer has echoed a timestamp of this session.
    echoes: bool,
    /// When the peer said first that it has all, and echoed nothing of this session.
    claimed_at: Option<Instant>,
    /// A timestamp of the peer's that is to be echoed, to show the peer that we hear it.
    echo_due: Option<Timestamp>,
    /// The peer is another bentpipe, which repeats its last frame until that is answered.
    acknowledges: bool,
    /// The peer is another bentpipe: it acknowledges, or has put a question before METADATA came.
    is_ours: bool,
    event: Option<Event>,
}

impl Sender {
    /// Sends from `now` on.
    pub fn new(config: Config, now: Instant) -> Self {
        let stream = config.metadata.kind == Kind::Stream;
        let size = u64::try_from(config.metadata.entry.size).unwrap_or(u64::MAX);
        let packet = Bytes(u64::from(config.payload)) + config.overhead;
        let headers = header(&config.metadata) + config.overhead.0;
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
            suspects: Suspects::default(),
            available: if stream { 0 } else { size },
            ended: !stream,
            progress: Progress::default(),
            window: Window::new(now),
            reach: Reach::new(config.payload, headers as u32),
            held: false,
            number: 1,
            deletes: false,
            confirms_from: None,
            answered: 0,
            known_from: None,
            answered_at: now,
            ask_at: now,
            ask_now: false,
            metadata_due: true,
            metadata_at: None,
            metadata_sent: 0,
            end_sent: None,
            all_sent_at: None,
            last_status: None,
            echoes: false,
            claimed_at: None,
            echo_due: None,
            acknowledges: config.late_checksum || config.metadata.checksum.is_later(),
            is_ours: config.late_checksum || config.metadata.checksum.is_later(),
            event: None,
            config,
        }
    }

    /// What is sent is deleted when all has arrived, so that the peer must say so twice.
    pub const fn deletes(&mut self) {
        self.deletes = true;
    }

    /// More of a stream has come: octets below `available` can be read now, and no more will come when `ended`.
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

    /// Another rate from now on, as when sessions share a line; a higher one also for the rest of what was sent last.
    pub fn set_rate(&mut self, rate: Rate, now: Instant) {
        let old = self.rate();
        self.config.rate = rate;
        self.pacer.change_rate(old, self.rate(), now);
    }

    /// Whether it would send now if the line had room: content, repairs, or a frame that is due.
    pub fn has_more(&self) -> bool {
        self.state == State::Sending && self.waits_for_line()
    }

    /// Until when what it sent last takes the line, at its rate.
    pub const fn line_free_at(&self) -> Instant {
        self.pacer.free_at()
    }

    /// Stretches that are kept of what is to be sent again.
    pub fn stretches(&self) -> usize {
        self.repairs.len()
    }

    /// At most `most` of them from now on, and [`MAX_STRETCHES`](crate::MAX_STRETCHES): what a peer names beyond these is
    /// heard of when it names it again.
    pub fn limit_stretches(&mut self, most: usize) {
        self.repairs.limit(most);
    }

    /// Ends the session with `code`, and tells the peer.
    pub fn abort(&mut self, code: Code) {
        if self.state != State::Over {
            self.last_status = Some(refusal(self.config.metadata.session, code));
            self.end(Event::Failed(Failure::Own(code)));
        }
    }

    /// Sets the final STATUS to `code`, in place of success, after the session's end. Returns whether the peer waits
    /// for such a final STATUS.
    pub fn fail_final_status(&mut self, code: Code) -> bool {
        let waits = self.owes_final_status();
        if waits {
            self.last_status = Some(refusal(self.config.metadata.session, code));
        }
        waits
    }

    /// Whether the session is over and the peer waits for the final STATUS.
    pub fn owes_final_status(&self) -> bool {
        let asked = self.config.request.is_none();
        self.state == State::Over && self.acknowledges && asked
    }

    /// The METADATA that was last sent to the peer.
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
        let content = u64::from(self.config.payload);
        Bytes(header(&self.config.metadata) + content) + self.config.overhead
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

    /// The progress so far.
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

    /// Between questions. On a slow line they leave the time of four packets of content between them, up to two seconds: each
    /// has an answer at once where the round trip is short, and they would have the whole line. The line's rate counts, not
    /// what TFRC allows: it begins with little, and its first doublings wait for the answers.
    fn interval(&self, now: Instant) -> Duration {
        let packets =
            { self.config.rate }.serialisation(Bytes(4 * u64::from(self.reach.content())));
        self.timing.interval(now).max(packets.min(UNANSWERED))
    }

    fn end(&mut self, event: Event) {
        if self.state != State::Over {
            self.state = State::Over;
            self.event = Some(event);
        }
    }

    /// When a peer counts as one that echoes nothing, though it says that it has all.
    fn unechoed_at(&self) -> Instant {
        let claimed = self.claimed_at.filter(|_| !self.echoes);
        claimed.map_or(Instant::MAX, |at| at + self.config.silence)
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
            self.reach.sent(self.number, len, now);
        }
        if ask {
            self.reach.asked(self.number);
        }
        self.number += 1;
        self.progress.transmitted += u64::from(len);
        if ask {
            self.ask_at = now + self.interval(now);
            self.ask_now = false;
        }
        let size = Bytes((data.header_len() + len as usize) as u64) + self.config.overhead;
        self.pacer.sent(size, self.rate(), now);
        data
    }

    /// The next DATA frame, if one is due.
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

    /// Chooses what to send next: repairs first, then new content, then copies of open repairs, then a question.
    fn due_data(&mut self, now: Instant) -> Option<Data> {
        let (most, number) = (self.reach.content(), self.number);
        let fresh = self.progress.sent < self.available;
        let mut open = self.window.has_room();
        self.held = !open;
        let patience = self
            .timing
            .round_trip()
            .map(|round_trip| 2 * round_trip + SLACK);
        if now.since(self.answered_at) >= patience.map_or(UNANSWERED, |it| it.min(UNANSWERED)) {
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
        if open && let Some(probe) = self.probe(now) {
            return Some(probe);
        }
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
            let data = self.data(offset, len, false, now);
            self.reach.copied(len);
            return Some(data);
        }
        None
    }

    /// A longer packet than others, if one is to be tried: with new content, and without a question, which follows in a
    /// packet that arrives.
    fn probe(&mut self, now: Instant) -> Option<Data> {
        if self.ask_at <= now {
            return None;
        }
        let (number, offset) = (self.number, self.progress.sent);
        let more = self.available - offset;
        let len = self.reach.probe(now).filter(|&len| more > len.into())?;
        let end = offset + u64::from(len);
        self.progress.sent = end;
        let data = self.data(offset, len, false, now);
        self.reach.probed(number, offset, end, now);
        self.ask_at = now;
        Some(data)
    }

    /// Whether copies of repairs may go out: at the end, on a path that is not shared.
    fn copies(&self) -> bool {
        self.ended && self.tfrc.is_none() && self.repairs.has_another(COPIES)
    }

    /// Limits the content of each packet to `most` octets from now on.
    pub fn limit(&mut self, most: u32) {
        self.reach.limit(most);
    }

    /// Frames without content count against the line's rate, not against that of TCP-friendly rate control, which is of data
    /// packets: at its least, a packet in a minute, the answers to a peer that asks would leave none for DATA.
    fn small(&mut self, frame: Frame, now: Instant) -> Frame {
        self.pacer.sent(Bytes(SMALL), self.config.rate, now);
        frame
    }
}

/// Octets before the content of DATA: type, session, timestamp and offset.
const fn header(metadata: &Metadata) -> u64 {
    24 + metadata.width.octets() as u64
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
            // A receiver sends no other frames, so that this one is not for this side.
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
        } else if self.reach.stalled_since().is_some_and(vain) {
            Failure::Vain
        } else if self.unechoed_at() <= now {
            Failure::Unechoed
        } else {
            return;
        };
        let session = self.config.metadata.session;
        self.last_status = Some(refusal(session, Code::TERMINATED));
        self.end(Event::Failed(failure));
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Frame)> {
        let frame = match self.state {
            State::Over => self.last_status.take()?,
            State::Asking if self.ask_at <= now => {
                self.ask_at = now + self.timing.pause(now);
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
        let stalled = { self.reach.stalled_since() }
            .map_or(Instant::MAX, |since| since + self.config.silence);
        let in_vain = stalled.min(self.unechoed_at());
        Some(line.min(silent).min(in_vain).min(rate))
    }
}
