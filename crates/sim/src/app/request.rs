//! A client that asks on one connection again and again, and the server that answers.

use super::App;
use crate::Socket;
use bentpipe_base::{Bytes, Instant};
use core::time::Duration;

/// Asks, waits for the answer, thinks, asks again, all on one connection; closes when the answers
/// sum up to an amount.
#[derive(Clone, Debug)]
pub struct Requester {
    request: Bytes,
    response: Bytes,
    think: Duration,
    /// What is still to be answered in all; `None`: no end.
    left: Option<Bytes>,
    state: State,
    /// When the last request went out.
    asked: Instant,
    /// How long each whole answer took.
    responses: Vec<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next request goes out at this time.
    Asks(Instant),
    /// So much of an answer is missing.
    Waits(Bytes),
    Done,
}

impl Requester {
    /// Asks for `response` by `request`, pauses for `think` after each answer, and stops after
    /// `amount` of answers.
    pub fn new(request: Bytes, response: Bytes, think: Duration, amount: Option<Bytes>) -> Self {
        Self {
            request,
            response,
            think,
            left: amount,
            state: State::Asks(Instant::ZERO),
            asked: Instant::ZERO,
            responses: Vec::new(),
        }
    }

    /// How long each answer took so far, from the request until its last byte was read.
    pub fn responses(&self) -> &[Duration] {
        &self.responses
    }

    /// What the next answer brings: the last one is cut to the amount.
    fn next(&self) -> Bytes {
        self.left
            .map_or(self.response, |left| left.min(self.response))
    }

    fn took(&mut self, bytes: Bytes) {
        if let Some(left) = &mut self.left {
            *left = *left - bytes;
        }
    }
}

impl App for Requester {
    fn ready(&mut self, socket: &mut Socket<'_>, now: Instant) {
        let read = socket.read();
        self.took(read);
        if let State::Waits(missing) = self.state {
            let missing = missing - read;
            self.state = if missing == Bytes(0) {
                self.responses.push(now - self.asked);
                State::Asks(now + self.think)
            } else {
                State::Waits(missing)
            };
        }
        if socket.at_end() || self.left == Some(Bytes(0)) {
            self.state = State::Done;
            socket.close();
        }
        match self.state {
            State::Asks(at) if at <= now => {
                socket.write(self.request);
                self.asked = now;
                self.state = State::Waits(self.next());
            }
            _ => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asks(at) => Some(at),
            _ => None,
        }
    }

    fn done(&self) -> bool {
        self.state == State::Done
    }
}

/// Answers each request, and closes when the other side has.
#[derive(Clone, Debug)]
pub struct Responder {
    request: Bytes,
    response: Bytes,
    left: Option<Bytes>,
    /// Read of the next request so far.
    asked: Bytes,
    done: bool,
}

impl Responder {
    /// The counterpart of a [`Requester`] of the same sizes.
    pub const fn new(request: Bytes, response: Bytes, amount: Option<Bytes>) -> Self {
        Self {
            request,
            response,
            left: amount,
            asked: Bytes(0),
            done: false,
        }
    }
}

impl App for Responder {
    fn ready(&mut self, socket: &mut Socket<'_>, _now: Instant) {
        self.asked += socket.read();
        // A request of nothing would be answered for ever.
        while self.request > Bytes(0) && self.asked >= self.request {
            self.asked = self.asked - self.request;
            let answer = self
                .left
                .map_or(self.response, |left| left.min(self.response));
            socket.write(answer);
            if let Some(left) = &mut self.left {
                *left = *left - answer;
            }
        }
        if !self.done && socket.at_end() {
            self.done = true;
            socket.close();
        }
    }

    fn done(&self) -> bool {
        self.done
    }
}
