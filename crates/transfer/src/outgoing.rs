//! A session that sends: the machine, and the content behind it.

use crate::Error;
use crate::source::Source;
use bentpipe_base::{Instant, Machine};
use bentpipe_saratoga::sender::{Event, Sender};
use bentpipe_wire::saratoga::{Code, Data, Frame};

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) sender: Sender,
    source: Source,
    path: String,
    /// What went wrong on this side.
    fault: Option<Error>,
}

impl Outgoing {
    pub(crate) fn new(sender: Sender, source: Source, path: String) -> Self {
        Self {
            sender,
            source,
            path,
            fault: None,
        }
    }

    /// The next datagram, appended to `out`; `false` when nothing is due.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
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
    pub(crate) fn timeout(&mut self, now: Instant) {
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
    pub(crate) fn ended(&mut self) -> Option<Result<(), Error>> {
        match self.sender.event()? {
            Event::Done => Some(Ok(())),
            Event::Failed(failure) => {
                let fault = self.fault.take();
                Some(Err(
                    fault.unwrap_or_else(|| Error::session(&self.path, failure))
                ))
            }
        }
    }

    /// Whether it must be asked now and then what a thread has read.
    pub(crate) const fn waits(&self) -> bool {
        match self.source {
            Source::Pipe(_) => self.sender.size().is_none(),
            _ => self.source.sums(),
        }
    }
}
