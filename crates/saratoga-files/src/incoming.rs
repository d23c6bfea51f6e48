//! A receiving session: joins the machine to the place where the content goes.

use crate::Error;
use crate::checksum::{Algorithm, Sum};
use crate::gather::Gather;
use crate::path;
use crate::reservation::Reservation;
use crate::sink::Sink;
use crate::stdout::StdoutQueue;
use crate::task::{Task, Thread};
use crate::tree::is_gone;
use bentpipe_base::{Instant, Machine, Ranges};
use bentpipe_saratoga::receiver::{Event, Receiver};
use bentpipe_saratoga::sender::Failure;
use bentpipe_wire::saratoga::{Checksum, Code, Data, Frame, Kind, Metadata};
use core::time::Duration;
use std::io;
use std::sync::Arc;

/// The time between two records of what is stored.
const RECORD: Duration = Duration::from_secs(1);
/// The room that always stays free on the disk.
const RESERVE: u64 = 1 << 20;

/// How long what has arrived waits for a thread that verifies it.
const NO_THREAD: Duration = Duration::from_secs(60);

/// See the file's head.
#[derive(Debug)]
pub struct Incoming {
    /// The machine.
    pub receiver: Receiver,
    sink: Option<Sink>,
    /// Standard output, which is written as fast as it is read.
    output: Option<Arc<StdoutQueue>>,
    /// What has arrived and is not in the sink yet: until the next record.
    gathered: Gather,
    /// The checksum over the content, as long as it arrives in order from the beginning.
    sum: Option<Sum>,
    path: String,
    max_size: u64,
    /// The peer is there: what it announces may have room of its own.
    believed: bool,
    reservation: Option<Reservation>,
    saved: Instant,
    /// Something that the receiver counts could not be written: the record stays as it was.
    unwritten: bool,
    /// All is here, and until then there may be no thread to verify it.
    unverified_until: Option<Instant>,
    verdict: Option<Task<Result<Vec<u8>, Error>>>,
    /// What arrived in memory.
    content: Vec<u8>,
    fault: Option<Error>,
    /// The content is right.
    right: bool,
    /// Standard output must have it before it counts as verified.
    wants_reader: bool,
    verified: bool,
    end: Option<Result<(), Error>>,
}

impl Incoming {
    /// What `receiver` is told goes to `sink`, of which `path` tells in messages; no more than `max_size` octets of it.
    pub fn new(receiver: Receiver, sink: Sink, path: String, max_size: u64, now: Instant) -> Self {
        Self {
            receiver,
            output: sink.output(),
            sink: Some(sink),
            gathered: Gather::default(),
            sum: None,
            path,
            max_size,
            believed: true,
            reservation: None,
            saved: now,
            unwritten: false,
            unverified_until: None,
            verdict: None,
            content: Vec::new(),
            fault: None,
            right: false,
            wants_reader: false,
            verified: false,
            end: None,
        }
    }

    /// What it is taken from is deleted at the peer: not before standard output, where it goes there, has all,
    /// and where that is a file, the disk.
    pub fn taking(mut self) -> Self {
        self.wants_reader = self.output.is_some();
        if let Some(output) = &self.output {
            output.sync_at_end();
        }
        self
    }

    /// The peer has shown nothing yet: what it announces takes no room from others.
    pub const fn doubt(&mut self) {
        self.believed = false;
    }

    /// The peer is there.
    pub fn believe(&mut self) {
        let believed = std::mem::replace(&mut self.believed, true);
        if !believed
            && self.sink.is_some()
            && self.receiver.metadata().is_some()
            && let Err(error) = self.claim()
        {
            self.fail(error);
        }
    }

    /// A frame arrives that is not DATA.
    pub fn input(&mut self, frame: Frame, now: Instant) {
        if let Frame::Metadata(metadata) = &frame
            && self.is_damaged(metadata)
        {
            return;
        }
        if let Frame::Metadata(metadata) = &frame
            && is_of_our_kind(metadata)
        {
            let names_another = !self.is_named(&metadata.entry.path);
            if names_another && self.receiver.metadata().is_none() {
                let named = metadata.entry.path.clone();
                self.fail(Error::Misnamed {
                    path: self.path.clone(),
                    named,
                });
                return self.take_events(now);
            }
            // Damaged: as if it had been lost, it is sent again. A kind of checksum that nobody knows is no reason to verify
            // nothing.
            if names_another || matches!(metadata.checksum, Checksum::Other { .. }) {
                return;
            }
        }
        self.receiver.input((), frame, now);
        self.take_events(now);
    }

    /// Whether `metadata` is something else that damage has made look so: no file is without a name, and no sender says less
    /// of it than before.
    fn is_damaged(&self, metadata: &Metadata) -> bool {
        let nameless = metadata.kind == Kind::File && metadata.entry.path.is_empty();
        let says_less = |before: &Metadata| {
            is_of_our_kind(before) && !is_of_our_kind(metadata)
                || before.checksum != Checksum::None && metadata.checksum == Checksum::None
        };
        nameless || self.receiver.metadata().is_some_and(says_less)
    }

    /// Whether `path` is the one that was asked for, of the REQUEST.
    fn is_named(&self, path: &str) -> bool {
        matches!(
            (path::normal(path), path::normal(&self.path)),
            (Ok(named), Ok(asked)) if named == asked
        )
    }

    /// DATA arrives.
    pub fn data(&mut self, data: &Data, payload: &[u8], now: Instant) {
        if self.receiver.input_data(data, now) {
            self.store(data.offset as u64, payload);
        }
        self.take_events(now);
    }

    /// Time passes: the record, the verdict, the machine.
    pub fn timeout(&mut self, now: Instant) {
        if let Some(verdict) = &self.verdict
            && let Ok(verdict) = verdict.try_recv()
        {
            self.verdict = None;
            match verdict {
                Ok(content) => {
                    self.content = content;
                    self.right = true;
                }
                Err(error) => self.fail(error),
            }
        }
        if self.unverified_until.is_some() {
            self.complete(now);
        }
        if self.settles() {
            match self.is_delivered() {
                Ok(true) => {
                    self.verified = true;
                    self.receiver.verified(now);
                }
                Ok(false) => {}
                Err(error) => self.fail(Error::file("write", "standard output")(error)),
            }
        }
        if now.since(self.saved) >= RECORD {
            self.saved = now;
            if self.sink.as_ref().is_some_and(Sink::is_gone) {
                self.fail(Error::file("go on with", &*self.path)(is_gone()));
            } else {
                self.save(Sink::save);
            }
            if let Some(sink) = &self.sink
                && let Err(error) = sink.pass_on(self.receiver.arrived())
            {
                self.fail(Error::file("write", "standard output")(error));
            }
        }
        self.receiver.timeout(now);
        self.take_events(now);
    }

    /// Writes down how far it has come.
    fn save(&mut self, by: impl Fn(&mut Sink, Option<&Metadata>, &Ranges) -> io::Result<()>) {
        self.write();
        if self.unwritten {
            return;
        }
        if let Some(sink) = &mut self.sink
            && let Err(error) = by(sink, self.receiver.metadata(), self.receiver.have())
        {
            if sink.is_lost() {
                return self.fail(Error::file("put on the disk", &*self.path)(error));
            }
            tracing::warn!(path = self.path, %error, "a later session cannot go on from here");
        }
    }

    /// Ends without telling the peer. A later session resumes from the record; of a stream, which comes once, nothing stays.
    pub fn let_go(&mut self) {
        if self.is_stream() {
            return self.discard();
        }
        self.save(Sink::save_last);
        if let Some(sink) = &self.sink {
            sink.tidy();
        }
    }

    /// Throws away what has come.
    fn discard(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.discard();
        }
    }

    fn is_stream(&self) -> bool {
        let metadata = self.receiver.metadata();
        metadata.is_some_and(|metadata| metadata.kind == Kind::Stream)
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.receiver.event() {
            match event {
                Event::Announced { metadata, resumed } => {
                    tracing::debug!(path = self.path, resumed, size = %metadata.entry.size, "announced");
                    self.sum = Algorithm::of(&metadata.checksum).map(Sum::new);
                    let have = self.receiver.have();
                    if have.is_empty() {
                        // What is gathered is of another content.
                        self.gathered.octets.clear();
                    }
                    let sink = self.sink.as_mut().filter(|_| !resumed);
                    let begun = sink.map_or(Ok(()), |sink| sink.begin_anew(have));
                    let begun = begun.map_err(Error::file("go on with", &*self.path));
                    if let Err(error) = begun.and_then(|()| self.check()) {
                        self.fail(error);
                    }
                }
                // DATA says it at once.
                Event::Store { .. } => {}
                Event::Complete => self.complete(now),
                Event::Done => self.end = Some(Ok(())),
                Event::Failed(failure) => {
                    // The peer says that what it announced has changed: nobody can complete it.
                    if failure == Failure::Peer(Code::IN_USE) && self.receiver.metadata().is_some()
                    {
                        self.discard();
                    }
                    self.let_go();
                    self.end = Some(self.failed(failure));
                }
            }
        }
    }

    /// What a failure of the machine means for the file.
    fn failed(&mut self, failure: Failure) -> Result<(), Error> {
        // What is verified and under its name is there, whatever the peer says now; but what was to be
        // deleted there may not be.
        if self.verified && failure != Failure::Peer(Code::NOT_DELETED) {
            return if self.receiver.awaits_word() {
                Err(Error::Unconfirmed {
                    path: self.path.clone(),
                })
            } else {
                Ok(())
            };
        }
        let fault = self.fault.take();
        Err(fault.unwrap_or_else(|| Error::session(&self.path, failure)))
    }

    /// Whether what is announced may come, and there is room for it.
    fn check(&mut self) -> Result<(), Error> {
        let size = self.receiver.size().unwrap_or(0);
        if size > self.max_size {
            return Err(Error::TooLong {
                path: self.path.clone(),
                size,
                most: self.max_size,
            });
        }
        self.claim()
    }

    /// Has the room promised that what is announced still takes.
    fn claim(&mut self) -> Result<(), Error> {
        // METADATA that changes voids what was promised.
        self.reservation = None;
        let size = self.receiver.size().unwrap_or(0);
        let missing = self.missing();
        let Some((sink, Ok(room))) = self.sink.as_ref().map(|sink| (sink, sink.room())) else {
            return Ok(());
        };
        let room = room.saturating_sub(RESERVE);
        if missing == 0 {
            return Ok(());
        }
        if missing > room {
            return Err(sink.lacks_room(&self.path, size, room));
        }
        let Ok(Some((reservations, device))) = sink.reservations() else {
            return Ok(());
        };
        let fits = if self.believed {
            self.reservation = reservations.reserve(device, missing, room);
            self.reservation.is_some()
        } else {
            missing <= room.saturating_sub(reservations.on(device))
        };
        if fits {
            Ok(())
        } else {
            Err(Error::Promised {
                path: self.path.clone(),
                size,
            })
        }
    }

    /// Octets that are announced and not here.
    fn missing(&self) -> u64 {
        let size = self.receiver.size().unwrap_or(0);
        size.saturating_sub(self.receiver.have().total())
    }

    fn store(&mut self, offset: u64, octets: &[u8]) {
        let end = offset + octets.len() as u64;
        if end > self.max_size {
            return self.fail(Error::TooLong {
                path: self.path.clone(),
                size: end,
                most: self.max_size,
            });
        }
        let mut stored = self.gathered.push(offset, octets);
        while stored < octets.len() {
            self.write();
            stored += self
                .gathered
                .push(offset + stored as u64, &octets[stored..]);
        }
    }

    /// That there is room for what is gathered of a stream, beside what is promised to others. Its length nobody knows, so
    /// that nothing is promised to it.
    fn has_room(&self) -> Result<(), Error> {
        let (Some(sink), true) = (&self.sink, self.is_stream()) else {
            return Ok(());
        };
        let Ok(room) = sink.room() else {
            return Ok(());
        };
        let promised = match sink.reservations() {
            Ok(Some((reservations, device))) => reservations.on(device),
            _ => 0,
        };
        let room = room.saturating_sub(RESERVE).saturating_sub(promised);
        let Gather { from, octets } = &self.gathered;
        if octets.len() as u64 <= room {
            return Ok(());
        }
        let size = from.saturating_add(octets.len() as u64);
        Err(sink.lacks_room(&self.path, size, room))
    }

    /// Puts what is gathered into the sink.
    fn write(&mut self) {
        if self.gathered.octets.is_empty() {
            return;
        }
        if let Err(error) = self.has_room() {
            self.gathered.octets.clear();
            self.unwritten = true;
            return self.fail(error);
        }
        let Gather { from, octets } = &mut self.gathered;
        Sum::follow(&mut self.sum, *from, octets);
        let written = self.sink.as_mut().map(|sink| sink.write(*from, octets));
        if let Some(reservation) = &mut self.reservation {
            reservation.release(octets.len() as u64);
        }
        octets.clear();
        if let Some(Err(error)) = written {
            self.unwritten = true;
            self.fail(Error::file("write", self.path.clone())(error));
        }
    }

    fn complete(&mut self, now: Instant) {
        self.write();
        self.reservation = None;
        let waited = self.unverified_until.take();
        if self.fault.is_some() {
            return;
        }
        let thread = match Thread::start("verify") {
            Ok(thread) => thread,
            Err(error) => {
                let error = Error::file("verify", &*self.path)(error);
                let until = waited.unwrap_or(now + NO_THREAD);
                if !error.is_want_of_room() || until <= now {
                    return self.fail(error);
                }
                self.unverified_until = Some(until);
                return;
            }
        };
        let (Some(sink), Some(size)) = (self.sink.take(), self.receiver.size()) else {
            return;
        };
        if let Err(error) = sink.pass_on(self.receiver.arrived()) {
            return self.fail(Error::file("write", "standard output")(error));
        }
        let Some(metadata) = self.receiver.metadata().cloned() else {
            return;
        };
        let begun = self.sum.take();
        let path = self.path.clone();
        // Content that is complete is not given up.
        let work = move |_: &_| sink.finish(size, &metadata, begun, &path);
        self.verdict = Some(thread.work(work));
    }

    /// It cannot be received, and the peer is told why; the first reason counts.
    pub fn fail(&mut self, error: Error) {
        if self.fault.is_none() {
            self.reservation = None;
            self.receiver.refuse(error.code());
            self.fault = Some(error);
        }
    }

    /// Whether a thread works on the verdict, or on what must be done before it is told.
    pub const fn verifies(&self) -> bool {
        self.unverified_until.is_some() || self.verdict.is_some() || self.settles()
    }

    /// The content is right, and the peer has not been told.
    const fn settles(&self) -> bool {
        self.right && !self.verified && self.fault.is_none()
    }

    /// Whether who must have it before the peer deletes its own has it.
    fn is_delivered(&self) -> std::io::Result<bool> {
        match self.output.as_deref().filter(|_| self.wants_reader) {
            Some(output) => output.is_settled(),
            None => Ok(true),
        }
    }

    /// Whether another bentpipe sends it.
    pub fn is_of_our_kind(&self) -> bool {
        self.receiver.metadata().is_some_and(is_of_our_kind)
    }

    /// Everything is here, verified and under its name.
    pub const fn is_verified(&self) -> bool {
        self.verified
    }

    /// What came of it where its content is verified, and where it should be, though the peer may not have heard
    /// of it: what arrived in memory.
    pub fn settled(&mut self) -> Option<Result<Vec<u8>, Error>> {
        if !self.verified {
            return None;
        }
        match self.output.as_deref().map(StdoutQueue::is_written) {
            Some(Ok(false)) => None,
            Some(Err(error)) => Some(Err(Error::file("write", "standard output")(error))),
            Some(Ok(true)) | None => Some(Ok(std::mem::take(&mut self.content))),
        }
    }

    /// How it ended, if it has, with what arrived in memory.
    pub fn ended(&mut self) -> Option<Result<Vec<u8>, Error>> {
        match self.end.take()? {
            Err(error) => Some(Err(error)),
            Ok(()) => {
                let settled = self.settled();
                if settled.is_none() {
                    // Its reader takes its time.
                    self.end = Some(Ok(()));
                }
                settled
            }
        }
    }
}

/// Whether only another bentpipe says so: nobody else tells a mode, or the checksum last.
const fn is_of_our_kind(metadata: &Metadata) -> bool {
    metadata.mode.is_some() || metadata.checksum.is_later()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Part;
    use crate::tree::Tree;
    use bentpipe_base::Bytes;
    use bentpipe_saratoga::{HoleEnd, receiver};
    use bentpipe_wire::saratoga::{Entry, Width};

    fn data(offset: u128) -> Data {
        Data {
            session: 7,
            width: Width::Bits16,
            kind: Kind::File,
            timestamp: None,
            status_wanted: false,
            end: false,
            offset,
            len: 1000,
        }
    }

    fn announced() -> Frame {
        Frame::Metadata(Metadata::new(7, Kind::File, Entry::file("a", 3000)))
    }

    /// It would be zeros in a file that the next session takes for whole.
    #[test]
    fn what_could_not_be_written_is_not_recorded() {
        let root = tempfile::tempdir().expect("a directory");
        let tree = Tree::open(root.path()).expect("it opens");
        // What another test starts keeps it locked for a moment.
        let open = || {
            let tries = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(10));
                let (folder, name) = tree.place("a", false).expect("a place");
                Part::open(folder, name, "a", false)
            });
            { tries.take(1000).find_map(Result::ok) }.expect("a part")
        };
        let now = Instant::ZERO;
        let config = receiver::Config {
            session: 7,
            request: None,
            width: Width::Bits32,
            kept: None,
            unannounced: Bytes(0),
            hole_end: HoleEnd::Inclusive,
            room: 1000,
            silence: Duration::from_secs(30),
            linger: Duration::from_secs(1),
        };
        let (receiver, sink) = (Receiver::new(config, now), Sink::Part(Box::new(open().0)));
        let mut incoming = Incoming::new(receiver, sink, "a".to_owned(), 1 << 20, now);
        incoming.input(announced(), now);
        incoming.data(&data(0), &[1; 1000], now);
        incoming.save(Sink::save_last);
        if let Some(Sink::Part(part)) = &mut incoming.sink {
            part.break_off();
        }
        incoming.data(&data(2000), &[1; 1000], now);
        incoming.let_go();
        assert!(matches!(incoming.fault, Some(Error::File { .. })));
        drop(incoming);
        let kept = open().1.expect("it is recorded");
        assert_eq!(kept.have.total(), 1000);
    }
}
