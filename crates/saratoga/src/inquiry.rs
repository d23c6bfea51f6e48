//! A REQUEST that one STATUS answers: delete.

use crate::report::echo;
use crate::timing::Timing;
use bentpipe_base::{Instant, Machine};
use bentpipe_wire::saratoga::{Code, Frame, Request};
use core::time::Duration;

/// Asks until there is an answer.
#[derive(Clone, Debug)]
pub struct Inquiry {
    request: Request,
    timing: Timing,
    silence: Duration,
    ask_at: Instant,
    answer: Option<Answer>,
    over: bool,
    /// The peer wants to know whether we hear it.
    echo: Option<Frame>,
}

/// How an inquiry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The peer's word.
    Said(Code),
    /// The peer said nothing.
    Silence,
}

impl Inquiry {
    /// Asks `request` from `now` on, and gives up after `silence`.
    pub fn new(request: Request, silence: Duration, now: Instant) -> Self {
        Self {
            request,
            timing: Timing::new(now),
            silence,
            ask_at: now,
            answer: None,
            over: false,
            echo: None,
        }
    }

    fn end(&mut self, answer: Answer) {
        if !self.over {
            self.over = true;
            self.answer = Some(answer);
        }
    }
}

impl Machine for Inquiry {
    type Packet = Frame;
    type Port = ();
    type Event = Answer;

    fn input(&mut self, (): (), frame: Frame, _now: Instant) {
        let session = self.request.session;
        match frame {
            Frame::Status(status) if status.session == session => {
                self.end(Answer::Said(status.code));
            }
            Frame::Data(data) if data.session == session && data.status_wanted => {
                self.echo = Some(echo(session, data.timestamp));
            }
            _ => {}
        }
    }

    fn timeout(&mut self, now: Instant) {
        if self.timing.silent_at(self.silence) <= now {
            self.end(Answer::Silence);
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Frame)> {
        if let Some(echo) = self.echo.take() {
            return Some(((), echo));
        }
        if self.over || self.ask_at > now {
            return None;
        }
        self.ask_at = now + self.timing.interval(now).max(Duration::from_secs(1));
        Some(((), Frame::Request(self.request.clone())))
    }

    fn event(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.over).then(|| self.ask_at.min(self.timing.silent_at(self.silence)))
    }
}
