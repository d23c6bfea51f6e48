//! The socket through which an application uses its connection, and the record of what passed there.

use bentpipe_base::{Bytes, Instant};
use bentpipe_tcp::{Cause, Connection, Event, State};
use bentpipe_wire::Payload;

/// What an application sees of its connection. What is written exists only as a count.
pub struct Socket<'a> {
    pub(crate) connection: &'a mut Connection,
    pub(crate) record: &'a mut Record,
    pub(crate) now: Instant,
}

/// What is known about one end of a connection besides its TCP.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// When it connected.
    pub(crate) connected: Option<Instant>,
    /// Why it failed.
    pub(crate) broken: Option<Cause>,
    /// Bytes that the application has read so far.
    taken: u64,
    /// Bytes received in order until `until`.
    pub(crate) received: u64,
    /// When the last of them arrived.
    pub(crate) last: Option<Instant>,
    /// How many bytes will arrive in all, where that is known.
    pub(crate) expects: Option<u64>,
    /// When the first segment was sent that acknowledges all of them.
    pub(crate) final_ack: Option<Instant>,
    /// Bytes that arrive later are not counted.
    pub(crate) until: Instant,
    /// Whether real bytes are expected, to be checked.
    pub(crate) reads: bool,
    /// A byte was not the one that the other side wrote.
    pub(crate) damaged: bool,
    peer_closed: bool,
    drained: bool,
    closed: bool,
}

impl Record {
    pub(crate) const fn new(until: Instant, reads: bool) -> Self {
        Self {
            connected: None,
            broken: None,
            taken: 0,
            received: 0,
            last: None,
            expects: None,
            final_ack: None,
            until,
            reads,
            damaged: false,
            peer_closed: false,
            drained: false,
            closed: false,
        }
    }

    /// Whether all bytes have arrived, and are not all acknowledged so far.
    #[inline]
    pub(crate) fn owes_final_ack(&self) -> bool {
        self.final_ack.is_none() && self.expects.is_some_and(|all| self.received >= all)
    }

    #[inline]
    pub(crate) fn heard(&mut self, event: Event, now: Instant) {
        match event {
            Event::Readable | Event::Writable => {}
            Event::Connected => self.connected = Some(now),
            Event::Drained => self.drained = true,
            Event::PeerClosed => self.peer_closed = true,
            Event::Closed => self.closed = true,
            Event::Aborted(cause) => self.broken = Some(cause),
        }
    }
}

impl Socket<'_> {
    /// More bytes than any run sends.
    pub const ENDLESS: Bytes = Bytes(u64::MAX);

    /// Appends `bytes` to the stream.
    #[inline]
    pub fn write(&mut self, bytes: Bytes) {
        self.record.drained = false;
        self.connection.write_virtual(bytes.0);
    }

    /// How much to write now so that the congestion window never waits for the application: one
    /// window, and as much again for its growth until the next call, less what waits unsent.
    pub fn wants(&self) -> Bytes {
        let gauges = self.connection.gauges();
        let mss = f64::from(self.connection.config().mss);
        let ahead = Bytes((2.0 * gauges.cwnd * mss) as u64);
        ahead - Bytes(gauges.unsent)
    }

    /// Reads all bytes that are in order; returns how many.
    #[inline]
    pub fn read(&mut self) -> Bytes {
        let ready = self.connection.readable();
        if ready == 0 {
            return Bytes(0);
        }
        let taken = if self.record.reads {
            self.check()
        } else {
            self.connection.consume(ready)
        };
        self.record.taken += taken;
        if self.now <= self.record.until {
            self.record.received += taken;
            self.record.last = Some(self.now);
        }
        Bytes(taken)
    }

    /// Reads real bytes, and compares them with what the stream holds there.
    #[cold]
    fn check(&mut self) -> u64 {
        let mut buffer = [0; 4096];
        let mut taken = 0;
        loop {
            let count = self.connection.read(&mut buffer);
            if count == 0 {
                return taken;
            }
            let offsets = self.record.taken + taken..;
            let whole = buffer[..count]
                .iter()
                .zip(offsets)
                .all(|(byte, offset)| *byte == Payload::pattern(offset));
            self.record.damaged |= !whole;
            taken += count as u64;
        }
    }

    /// Whether the other side has closed and all it sent is read.
    #[inline]
    pub fn at_end(&self) -> bool {
        self.record.peer_closed && self.connection.readable() == 0
    }

    /// Whether the other side has acknowledged all that was written, and the close if there was one.
    #[inline]
    pub fn all_acknowledged(&self) -> bool {
        self.record.drained || self.record.closed || self.connection.state() == State::TimeWait
    }

    /// Nothing more will be written.
    pub fn close(&mut self) {
        self.record.drained = false;
        self.connection.close(self.now);
    }
}
