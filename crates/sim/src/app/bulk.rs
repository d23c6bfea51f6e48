use super::App;
use crate::Socket;
use bentpipe_base::{Bytes, Instant};

/// Sends without pause: so many bytes and then an orderly close, or without end.
#[derive(Clone, Debug)]
pub struct Bulk {
    amount: Option<Bytes>,
    begun: bool,
    done: bool,
}

impl Bulk {
    /// Sends `amount`; `None`: until the run ends.
    pub const fn new(amount: Option<Bytes>) -> Self {
        Self {
            amount,
            begun: false,
            done: false,
        }
    }
}

impl App for Bulk {
    #[inline]
    fn ready(&mut self, socket: &mut Socket<'_>, _now: Instant) {
        if !self.begun {
            self.begun = true;
            socket.write(self.amount.unwrap_or(Socket::ENDLESS));
            if self.amount.is_some() {
                socket.close();
            }
        }
        if self.amount.is_some() {
            self.done = socket.all_acknowledged();
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
    done: bool,
}

impl App for Sink {
    #[inline]
    fn ready(&mut self, socket: &mut Socket<'_>, _now: Instant) {
        socket.read();
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
