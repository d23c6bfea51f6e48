//! A sending session: joins the machine to the content.

use crate::Error;
use crate::original::Original;
use crate::source::Source;
use crate::task::{Task, spawn};
use bentpipe_base::{Instant, Machine};
use bentpipe_saratoga::sender::{Event, Sender};
use bentpipe_wire::saratoga::{Code, Data, Frame};
use core::time::Duration;
use std::sync::mpsc;

/// How long a peer that missed that the original stays is told again: some of its questions.
const REGRET: Duration = Duration::from_secs(10);

/// Between two signs of life while the original is deleted, at least.
const SIGNS: Duration = Duration::from_millis(500);

/// See the file's head.
#[derive(Debug)]
pub struct Outgoing {
    /// The machine.
    pub sender: Sender,
    source: Source,
    path: String,
    /// What went wrong on this side.
    fault: Option<Error>,
    after: After,
}

/// What comes after the content has arrived.
#[derive(Debug)]
enum After {
    /// Nothing.
    Nothing,
    /// This is deleted.
    Delete(Box<Original>),
    /// A thread deletes it; the peer hears the last word when it has.
    Deleting(Deletion),
    /// It was not deleted, of which the peer may not have heard until then.
    Regret(Option<Error>, Instant),
}

/// The deletion of an original, which takes as long as reading it: perhaps longer than a peer may be silent.
#[derive(Debug)]
struct Deletion {
    verdict: Task<Result<(), Error>>,
    /// The peer has asked how it goes.
    asked: bool,
    /// When it was sent METADATA again, as a sign that this side is still there.
    said_at: Option<Instant>,
}

impl Deletion {
    fn hear(&mut self, now: Instant) {
        self.asked |= self.said_at.is_none_or(|at| now.since(at) >= SIGNS);
    }
}

impl Outgoing {
    /// What `sender` names is read from `source`, of which `path` tells in messages.
    pub fn new(sender: Sender, source: Source, path: String) -> Self {
        Self {
            sender,
            source,
            path,
            fault: None,
            after: After::Nothing,
        }
    }

    /// Deletes `original` once its content has arrived.
    #[must_use]
    pub fn deleting(mut self, original: Original) -> Self {
        self.sender.deletes();
        self.after = After::Delete(Box::new(original));
        self
    }

    /// A frame arrives.
    pub fn input(&mut self, frame: Frame, now: Instant) {
        match (&mut self.after, &frame) {
            (After::Deleting(deletion), Frame::Status(status))
                if status.code == Code::OK && self.sender.owes_final_status() =>
            {
                deletion.hear(now);
            }
            (After::Regret(..), Frame::Status(status)) if status.code == Code::OK => {
                self.sender.fail_final_status(Code::NOT_DELETED);
            }
            _ => self.sender.input((), frame, now),
        }
    }

    /// The next datagram, appended to `out`; `false` when nothing is due.
    pub fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if let After::Deleting(deletion) = &mut self.after {
            if !std::mem::take(&mut deletion.asked) {
                return false;
            }
            deletion.said_at = Some(now);
            let again = Frame::Metadata(self.sender.metadata().clone());
            return again.emit(out).is_ok();
        }
        if let Some(data) = self.sender.transmit_data(now)
            && self.data(&data, out)
        {
            return true;
        }
        while let Some(((), frame)) = self.sender.transmit(now) {
            let done = match frame {
                Frame::Data(data) => self.data(&data, out),
                frame => frame.emit(out).is_ok(),
            };
            if done {
                return true;
            }
        }
        false
    }

    /// Appends DATA with its payload; `false`, and the session is over, where that cannot be.
    fn data(&mut self, data: &Data, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        if data.emit(out).is_err() {
            // A descriptor that does not hold the offset of a stream.
            self.sender.abort(Code::TOO_LONG);
            return false;
        }
        let (offset, len) = (data.offset as u64, data.len as usize);
        if let Err(error) = self.source.read(offset, len, &self.path, out) {
            out.truncate(start);
            self.fail(error);
            return false;
        }
        true
    }

    fn fail(&mut self, error: Error) {
        self.sender.abort(error.code());
        self.fault = Some(error);
    }

    /// Time passes, a stream grows, and a checksum becomes known.
    pub fn timeout(&mut self, now: Instant) {
        match self.source.available() {
            Some(Ok((available, ended))) => {
                self.source.release(self.sender.progress().arrived);
                self.sender.extend(available, ended);
            }
            Some(Err(error)) if self.fault.is_none() => self.fail(error),
            _ => {}
        }
        let sent = self.sender.progress().sent;
        match self.source.checksum(sent, &self.path) {
            Some(Ok(checksum)) => self.sender.set_checksum(checksum),
            Some(Err(error)) if self.fault.is_none() => self.fail(error),
            _ => {}
        }
        self.sender.timeout(now);
    }

    /// How it ended, if it has.
    pub fn ended(&mut self, now: Instant) -> Option<Result<(), Error>> {
        match &mut self.after {
            After::Deleting(deletion) => {
                let verdict = match deletion.verdict.try_recv() {
                    Err(mpsc::TryRecvError::Empty) => return None,
                    Err(mpsc::TryRecvError::Disconnected) => Err(self.lost()),
                    Ok(verdict) => verdict,
                };
                self.settle(verdict, now)
            }
            After::Regret(error, until) => {
                let over = *until <= now;
                over.then(|| error.take().map(Err)).flatten()
            }
            After::Nothing | After::Delete(_) => match self.sender.event()? {
                Event::Done => self.done(now),
                Event::Failed(failure) => {
                    let fault = self.fault.take();
                    Some(Err(
                        fault.unwrap_or_else(|| Error::session(&self.path, failure))
                    ))
                }
            },
        }
    }

    /// All has arrived.
    fn done(&mut self, now: Instant) -> Option<Result<(), Error>> {
        let After::Delete(original) = std::mem::replace(&mut self.after, After::Nothing) else {
            return Some(Ok(()));
        };
        let checksum = self.sender.metadata().checksum.clone();
        match spawn("delete", move |_| original.delete(&checksum)) {
            Ok(verdict) => {
                self.after = After::Deleting(Deletion {
                    verdict,
                    asked: false,
                    said_at: None,
                });
                None
            }
            Err(error) => {
                let error = Error::file("delete what arrived", &*self.path)(error);
                self.settle(Err(error), now)
            }
        }
    }

    /// Tells the peer that took the file whether the original was deleted.
    fn settle(&mut self, verdict: Result<(), Error>, now: Instant) -> Option<Result<(), Error>> {
        self.after = After::Nothing;
        match verdict {
            Err(error) if self.sender.fail_final_status(Code::NOT_DELETED) => {
                self.after = After::Regret(Some(error), now + REGRET);
                None
            }
            verdict => Some(verdict),
        }
    }

    /// The thread ended without a result.
    fn lost(&self) -> Error {
        Error::file("delete what arrived", &*self.path)(std::io::ErrorKind::Other.into())
    }

    /// When it must be asked again.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.after {
            After::Regret(_, until) => Some(*until),
            _ => self.sender.deadline(),
        }
    }

    /// Whether it must be asked now and then what a thread has read.
    pub const fn waits(&self) -> bool {
        if matches!(self.after, After::Deleting(_)) {
            return true;
        }
        match self.source {
            Source::Pipe(_) => self.sender.size().is_none(),
            _ => self.source.sums(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::{Bytes, Rate};
    use bentpipe_saratoga::echo;
    use bentpipe_saratoga::sender::{Config, Congestion};
    use bentpipe_wire::saratoga::{Checksum, Entry, Kind, Metadata, Status};

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// All that it sends at `now`.
    fn said(outgoing: &mut Outgoing, now: Instant) -> Vec<Frame> {
        let datagrams = std::iter::from_fn(|| {
            let mut out = Vec::new();
            outgoing.transmit(now, &mut out).then_some(out)
        });
        let frames = datagrams.map(|out| Frame::parse(&out).expect("a frame").0);
        frames.collect()
    }

    /// A session of an empty file without timestamps, whose peer has said that it has all: it is deleted.
    fn deleting(late_checksum: bool) -> (Outgoing, mpsc::Sender<Result<(), Error>>, Frame) {
        let config = Config {
            metadata: Metadata {
                checksum: Checksum::Crc32c(0),
                ..Metadata::new(7, Kind::File, Entry::file("a", 0))
            },
            request: None,
            rate: Rate::from_bits_per_sec(8_000_000),
            payload: 1000,
            overhead: Bytes(28),
            congestion: Congestion::None,
            silence: Duration::from_secs(30),
            late_checksum,
            nonce: None,
            blind: false,
        };
        let empty = crate::list_room::ListShare::ample().list(Vec::new());
        let source = Source::Memory(empty.unwrap().into());
        let mut outgoing = Outgoing::new(Sender::new(config, at(0)), source, "a".to_owned());
        said(&mut outgoing, at(0));
        let Frame::Status(status) = echo(7, None) else {
            panic!("it is a STATUS");
        };
        let all = Frame::Status(Status {
            voluntary: true,
            ..status
        });
        outgoing.input(all.clone(), at(10));
        assert_eq!(outgoing.sender.event(), Some(Event::Done));
        let (tell, told) = mpsc::channel();
        let work = move |_: &_| told.recv().expect("it is told");
        let verdict = spawn("delete", work).expect("a thread");
        outgoing.after = After::Deleting(Deletion {
            verdict,
            asked: false,
            said_at: None,
        });
        (outgoing, tell, all)
    }

    /// Who waits for the last word asks now and then; others take METADATA for the begin of something.
    #[test]
    fn who_waits_for_a_deletion_hears_that_it_goes_on() {
        for ours in [true, false] {
            let (mut outgoing, tell, all) = deleting(ours);
            assert_eq!(said(&mut outgoing, at(20)), []);
            let mut signs = 0;
            // Each 2.5 s, and a flood.
            for millis in (2500..=30_000).step_by(2500).chain(30_001..31_000) {
                outgoing.input(all.clone(), at(millis));
                for frame in said(&mut outgoing, at(millis)) {
                    let same = matches!(&frame, Frame::Metadata(metadata) if metadata == outgoing.sender.metadata());
                    assert!(same, "{frame:?}");
                    signs += 1;
                }
                assert!(outgoing.ended(at(millis)).is_none());
            }
            assert_eq!(signs, if ours { 13 } else { 0 });
            tell.send(Ok(())).expect("it waits");
            let ended = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(1));
                outgoing.ended(at(40_000))
            });
            let ended = ended.take(10_000).flatten().next();
            assert!(matches!(ended, Some(Ok(()))), "{ended:?}");
            let last = if ours { vec![echo(7, None)] } else { vec![] };
            assert_eq!(said(&mut outgoing, at(40_000)), last);
        }
    }
}
