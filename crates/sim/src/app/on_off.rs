//! A source that sends in bursts with pauses between, at a rate of its own.

use super::App;
use crate::Socket;
use bentpipe_base::{Bytes, Instant, Rate, Stream};
use core::time::Duration;

/// When an [`OnOff`] source sends, and how fast.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// How long it sends, in the mean.
    pub on: Duration,
    /// How long it pauses, in the mean.
    pub off: Duration,
    /// How much it writes while it sends; `None`: as much as passes.
    pub rate: Option<Rate>,
    /// The stream that times are drawn from, exponentially; `None`: all alike.
    pub chance: Option<Stream>,
    /// What it writes at a time while it has a rate.
    pub piece: Bytes,
}

/// Sends for a time, pauses for a time, over and over; closes when an amount is sent. What was
/// written in a time but could not be sent in it is sent in the pause.
#[derive(Clone, Debug)]
pub struct OnOff {
    pattern: Pattern,
    left: Option<Bytes>,
    sends: bool,
    /// When the present time ends; `None` before the first.
    until: Option<Instant>,
    /// When the next piece is due.
    next: Instant,
    closed: bool,
    done: bool,
}

impl OnOff {
    /// A source of `amount`; `None`: without end.
    pub const fn new(pattern: Pattern, amount: Option<Bytes>) -> Self {
        Self {
            pattern,
            left: amount,
            sends: false,
            until: None,
            next: Instant::ZERO,
            closed: false,
            done: false,
        }
    }

    /// Moves on to the time that `now` lies in.
    fn turn(&mut self, now: Instant) {
        while self.until.is_none_or(|until| until <= now) {
            let begin = self.until.unwrap_or(now);
            self.sends = !self.sends;
            let mean = if self.sends {
                self.pattern.on
            } else {
                self.pattern.off
            };
            let length = match &mut self.pattern.chance {
                Some(chance) => mean.mul_f64(-(-chance.uniform()).ln_1p()),
                None => mean,
            };
            // At least a nanosecond, or two times of no length would never end.
            self.until = Some(begin + length.max(Duration::from_nanos(1)));
            self.next = begin;
        }
    }

    fn write(&mut self, socket: &mut Socket<'_>, bytes: Bytes) {
        let bytes = self.left.map_or(bytes, |left| left.min(bytes));
        socket.write(bytes);
        if let Some(left) = &mut self.left {
            *left = *left - bytes;
        }
    }

    fn send(&mut self, socket: &mut Socket<'_>, now: Instant) {
        let Some(rate) = self.pattern.rate else {
            let wanted = socket.wants();
            return self.write(socket, wanted);
        };
        let gap = rate.serialisation(self.pattern.piece);
        while self.next <= now && self.left != Some(Bytes(0)) {
            self.write(socket, self.pattern.piece);
            self.next += gap.max(Duration::from_nanos(1));
        }
    }
}

impl App for OnOff {
    fn ready(&mut self, socket: &mut Socket<'_>, now: Instant) {
        self.turn(now);
        if self.sends && !self.closed {
            self.send(socket, now);
        }
        if self.left == Some(Bytes(0)) {
            if !self.closed {
                self.closed = true;
                socket.close();
            }
            self.done = socket.all_acknowledged();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let piece = (self.sends && self.pattern.rate.is_some()).then_some(self.next);
        match (self.until, piece) {
            (Some(until), Some(piece)) => Some(until.min(piece)),
            (until, piece) => until.or(piece),
        }
    }

    fn done(&self) -> bool {
        self.done
    }
}
