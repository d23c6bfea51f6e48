//! A source that sends without pause, and the sink that reads everything.

use super::App;
use crate::Socket;
use bentpipe_base::{Bytes, Instant};

/// Sends without pause: so many bytes and then, as a rule, an orderly close, or without end.
#[derive(Clone, Debug)]
pub struct Bulk {
    amount: Option<Bytes>,
    closes: bool,
    begun: bool,
    done: bool,
}

impl Bulk {
    /// Sends `amount`; `None`: until the run ends.
    pub const fn new(amount: Option<Bytes>) -> Self {
        Self {
            amount,
            closes: true,
            begun: false,
            done: false,
        }
    }

    /// Sends `amount` and leaves the connection as it is, as senders of ns-2 do.
    pub const fn without_close(amount: Option<Bytes>) -> Self {
        Self {
            closes: false,
            ..Self::new(amount)
        }
    }

    /// The same with another amount.
    pub(crate) const fn renewed(&self, amount: Bytes) -> Self {
        Self {
            closes: self.closes,
            ..Self::new(Some(amount))
        }
    }
}

impl App for Bulk {
    #[inline]
    fn ready(&mut self, socket: &mut Socket<'_>, _now: Instant) {
        if !self.begun {
            self.begun = true;
            socket.write(self.amount.unwrap_or(Socket::ENDLESS));
            if self.amount.is_some() && self.closes {
                socket.close();
            }
        }
        if self.amount.is_some() {
            let nothing = !self.closes && self.amount == Some(Bytes(0));
            self.done = nothing || socket.all_acknowledged();
        }
    }

    #[inline]
    fn done(&self) -> bool {
        self.done
    }
}

/// Reads whatever comes, and closes when the other side has.
#[derive(Clone, Debug, Default)]
pub struct Sink {
    /// After how many bytes it is done, where the other side will not close.
    enough: Option<Bytes>,
    taken: Bytes,
    done: bool,
}

impl Sink {
    /// Is done when it has read `amount`; with `None` never: the other side does not close.
    pub const fn without_close(amount: Option<Bytes>) -> Self {
        Self {
            enough: amount,
            taken: Bytes(0),
            done: false,
        }
    }

    /// The same for another amount.
    pub(crate) fn renewed(&self, amount: Bytes) -> Self {
        Self::without_close(self.enough.map(|_| amount))
    }
}

impl App for Sink {
    #[inline]
    fn ready(&mut self, socket: &mut Socket<'_>, _now: Instant) {
        self.taken += socket.read();
        self.done |= self.enough.is_some_and(|enough| self.taken >= enough);
        if !self.done && socket.at_end() {
            self.done = true;
            socket.close();
        }
    }

    #[inline]
    fn done(&self) -> bool {
        self.done
    }
}
