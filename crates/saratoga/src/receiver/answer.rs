//! What a receiver says next. A report is made when its first frame may leave, which a driver that bounds what is said may put
//! off: it tells of then, and answers the newest question of those that came meanwhile.

use super::{Receiver, State};
use crate::report::{HoleEnd, Report};
use bentpipe_base::Ranges;
use bentpipe_wire::saratoga::{Frame, Status, Timestamp, Width};
use std::collections::VecDeque;

/// Long lists without effect after which a shorter one is tried: questions of two round trips.
const IN_VAIN: u32 = 8;
/// Octets of a STATUS frame that fits a packet of 576 with all headers and a seal.
const SHORT: usize = 512;

/// A report that is to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    voluntary: bool,
    timestamp: Option<Timestamp>,
    response: u64,
    /// Holes below this octet are listed.
    extent: u64,
}

/// See the file's head.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    due: Option<Due>,
    out: VecDeque<Frame>,
    /// Octets of a STATUS frame at most. Nothing probes what the way back carries, but lists that are too long for it
    /// have no effect.
    room: usize,
    /// Lists in frames longer than [`SHORT`] since one had an effect.
    in_vain: u32,
}

impl Answer {
    /// With frames of at most `room` octets.
    pub(super) const fn new(room: usize) -> Self {
        Self {
            due: None,
            out: VecDeque::new(),
            room,
            in_vain: 0,
        }
    }

    /// `frame` and nothing else.
    pub(super) fn say(&mut self, frame: Frame) {
        self.clear();
        self.out.push_back(frame);
    }

    pub(super) fn clear(&mut self) {
        self.due = None;
        self.out.clear();
    }

    /// `due` is to be made, in the place of another, unless that answers a question and this does not.
    fn owe(&mut self, due: Due) {
        if !due.voluntary || self.due.is_none_or(|known| known.voluntary) {
            self.due = Some(due);
        }
    }

    /// What is due, once all that was said before has left.
    pub(super) fn next_due(&mut self) -> Option<Due> {
        self.due.take_if(|_| self.out.is_empty())
    }

    pub(super) fn next(&mut self) -> Option<Frame> {
        self.out.pop_front()
    }

    /// Lists what of `[0, extent)` is not in `have`.
    fn list(&mut self, report: &Report, have: &Ranges, extent: u64, end: HoleEnd) {
        if self.in_vain == IN_VAIN {
            self.room = self.room.min(SHORT);
        }
        let frames = report.frames(have, extent, end, self.room);
        let is_long = |status: &Status| status.holes.len() > report.most_holes(SHORT);
        if frames.first().is_some_and(is_long) {
            self.in_vain += 1;
        }
        self.out.extend(frames.into_iter().map(Frame::Status));
    }

    /// A hole was filled: a list was heard.
    pub(super) const fn took_effect(&mut self) {
        self.in_vain = 0;
    }
}

impl Receiver {
    fn frame(&self, voluntary: bool, timestamp: Option<Timestamp>, response: u64) -> Report {
        Report {
            session: self.config.session,
            width: self.width.max(Width::holding(self.extent.into())),
            timestamp,
            metadata_missing: self.metadata.is_none() || self.lacks_checksum() && self.is_all(),
            voluntary,
            in_response_to: response,
        }
    }

    /// A report is to be made, of what is missing now below the highest octet seen.
    pub(super) fn report(&mut self, voluntary: bool, timestamp: Option<Timestamp>, response: u64) {
        if self.state == State::Verifying {
            return self.say_verifying();
        }
        self.answer.owe(Due {
            voluntary,
            timestamp,
            response,
            extent: self.extent.max(response),
        });
    }

    /// Makes the report that is due.
    pub(super) fn make(&mut self, due: Due) {
        match self.state {
            State::Asking | State::Receiving => {
                let report = self.frame(due.voluntary, due.timestamp, due.response);
                let end = self.config.hole_end;
                self.answer.list(&report, &self.have, due.extent, end);
            }
            State::Verifying => self.say_verifying(),
            State::Complete(_) | State::Over => {}
        }
    }

    pub(super) fn say_complete(&mut self) {
        if self.superseded {
            return;
        }
        let size = self.size.unwrap_or(0);
        let status = self.frame(true, self.highest.1, size).status(size);
        self.answer.say(Frame::Status(status));
    }

    /// Everything has arrived but is not verified yet, so that the STATUS says that its list is incomplete.
    pub(super) fn say_verifying(&mut self) {
        let size = self.size.unwrap_or(0);
        let mut status = self.frame(false, self.highest.1, size).status(size);
        status.incomplete = true;
        self.answer.say(Frame::Status(status));
    }
}
