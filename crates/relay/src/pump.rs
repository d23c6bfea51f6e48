//! A pump moves the bytes of one direction of a flow from one socket, its source, to the other, its sink.
//!
//! Reads of up to [`SMALL`] bytes are copied through one buffer of the worker (two system calls,
//! no pipe); a source that has more is spliced through a borrowed pipe. What the sink does not take
//! waits here, and nothing more is read until it is gone: the source's window closes and holds its
//! sender back. The bound for a flow is thus the source's receive buffer, one pipe, and the sink's
//! send buffer.
//!
//! Spliced bytes keep the pages in which they arrived, first in the pipe and then in the sink's send buffer, where the
//! kernel counts only the bytes. With tiny segments that is a page for a few bytes. So a splice that brings less than
//! [`SMALL`] is copied, and a pipe counts as full as soon as anything waits in it.

use bentpipe_base::Bytes;
use bentpipe_sockets::socket::{self, Received};
use bentpipe_sockets::splice::{Pipe, Pool};
use bentpipe_sockets::tcp;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

/// The most that is copied rather than spliced, in bytes.
pub(crate) const SMALL: usize = 16 * 1024;
/// Short splices in a row after which a pump goes back to copying.
const PATIENCE: u8 = 4;

/// What the pumps of one worker share.
pub(crate) struct PumpBuffers {
    pub(crate) pool: Pool,
    pub(crate) buffer: Box<[u8]>,
    /// Memory that pumps hold between their sockets, in bytes.
    pub(crate) pending: u64,
    /// The most one splice takes, in bytes.
    pub(crate) portion: usize,
    /// The most one pump moves before others have their turn, in bytes.
    pub(crate) turn: usize,
}

/// What a pump waits for after it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PumpState {
    /// The source has nothing more now.
    Empty,
    /// The sink takes nothing more now.
    Full,
    /// There is more to move, but its turn is over: other flows go first.
    More,
    /// The source has ended and everything has gone to the sink, which is to be told. This is returned once.
    Ended,
}

/// One side of the flow has failed: it was reset, or timed out.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Whether it was the source.
    pub(crate) source: bool,
    pub(crate) error: io::Error,
}

/// Bytes that were read from the source and that the sink has not taken yet.
#[derive(Debug)]
enum Pending {
    Nothing,
    Pipe(Pipe),
    Copied { bytes: Box<[u8]>, sent: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    Open,
    /// The source has ended; what is pending has still to go to the sink.
    Ending,
    Ended,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Pump {
    pending: Pending,
    source: SourceState,
    /// How many more short splices it takes until the pump goes back to copying; at 0 it copies.
    bulk: u8,
    /// The source's peer has closed.
    closing: bool,
    full: bool,
    /// Whether the sink is watched for room; from the first time that it was full, or from its dial on.
    pub(crate) watches_sink: bool,
    /// Memory is short, and the sink takes nothing: no pipes for this pump.
    pub(crate) shrunk: bool,
    /// Bytes read so far; the count stops at its maximum.
    read: u16,
}

impl Pump {
    pub(crate) fn new() -> Self {
        Self {
            pending: Pending::Nothing,
            source: SourceState::Open,
            bulk: 0,
            closing: false,
            full: false,
            watches_sink: false,
            shrunk: false,
            read: 0,
        }
    }

    /// Whether the sink is what the pump waits for.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.source == SourceState::Ended
    }

    /// Whether the source may still send more than its end after the first bytes.
    pub(crate) fn expects_more(&self) -> bool {
        self.read > 0 && (!self.closing || self.full || self.bulk > 0)
    }

    /// Whether more than `size` bytes were ever read; `size` is less than 64 KiB.
    pub(crate) fn has_read_more_than(&self, size: Bytes) -> bool {
        debug_assert!(size.0 < u64::from(u16::MAX));
        u64::from(self.read) > size.0
    }

    /// Whether bytes wait between the sockets.
    pub(crate) fn holds(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }

    /// The source's peer has closed its sending side.
    pub(crate) fn source_closes(&mut self) {
        self.closing = true;
    }

    /// Whether it has done so.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Whether its end is known to be among what has come from it.
    pub(crate) fn has_said_end(&self) -> bool {
        self.closing || self.source != SourceState::Open
    }

    /// Moves what can be moved, at most a turn. `moved` is counted up by the bytes read.
    pub(crate) fn run(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        buffers: &mut PumpBuffers,
        moved: &mut u64,
    ) -> Result<PumpState, Broken> {
        let mut left = buffers.turn;
        loop {
            if !self.flush(to, buffers).map_err(sink)? {
                self.full = true;
                return Ok(PumpState::Full);
            }
            self.full = false;
            match self.source {
                SourceState::Open => {}
                SourceState::Ending => {
                    self.source = SourceState::Ended;
                    return Ok(PumpState::Ended);
                }
                SourceState::Ended => return Ok(PumpState::Empty),
            }
            if left == 0 {
                return Ok(PumpState::More);
            }
            let (count, drained) = self.take(from, to, buffers)?;
            *moved += count as u64;
            let count_as_read = u16::try_from(count).unwrap_or(u16::MAX);
            self.read = self.read.saturating_add(count_as_read);
            left = left.saturating_sub(count);
            if drained && !self.full && self.source == SourceState::Open {
                return Ok(PumpState::Empty);
            }
        }
    }

    /// Moves the bytes that a failed source had received before; returns whether bytes are still held that the sink has
    /// not taken.
    pub(crate) fn flush_failed_source(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        buffers: &mut PumpBuffers,
        moved: &mut u64,
    ) -> bool {
        while self.source == SourceState::Open && matches!(self.flush(to, buffers), Ok(true)) {
            match self.take(from, to, buffers) {
                Ok((0, _)) | Err(_) => break,
                Ok((count, _)) => *moved += count as u64,
            }
        }
        self.holds()
    }

    /// Sends what is held; `true` when nothing is left.
    pub(crate) fn flush(
        &mut self,
        to: BorrowedFd<'_>,
        buffers: &mut PumpBuffers,
    ) -> io::Result<bool> {
        if !self.holds() {
            return Ok(true);
        }
        let before = self.waiting();
        let result = self.send(to);
        buffers.pending -= before - self.waiting();
        if let Ok(true) = result {
            self.release(buffers);
        }
        result
    }

    /// Memory that is held between the sockets, in bytes.
    pub(crate) fn waiting(&self) -> u64 {
        match &self.pending {
            Pending::Nothing => 0,
            Pending::Pipe(pipe) => pipe.capacity() as u64,
            Pending::Copied { bytes, sent } => bytes.len() as u64 - u64::from(*sent),
        }
    }

    fn send(&mut self, to: BorrowedFd<'_>) -> io::Result<bool> {
        match &mut self.pending {
            Pending::Nothing => {}
            Pending::Pipe(pipe) => {
                while pipe.held() > 0 {
                    match pipe.drain(to) {
                        Ok(_) => {}
                        Err(error) if would_block(&error) => return Ok(false),
                        Err(error) => return Err(error),
                    }
                }
            }
            Pending::Copied { bytes, sent } => {
                while (*sent as usize) < bytes.len() {
                    match socket::send(to, &bytes[*sent as usize..]) {
                        Ok(0) => return Err(ErrorKind::WriteZero.into()),
                        Ok(count) => *sent += count as u32,
                        Err(error) if would_block(&error) => return Ok(false),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(true)
    }

    /// Gives the pipe back, with or without bytes in it.
    pub(crate) fn release(&mut self, buffers: &mut PumpBuffers) {
        buffers.pending -= self.waiting();
        if let Pending::Pipe(pipe) = std::mem::replace(&mut self.pending, Pending::Nothing) {
            buffers.pool.give_back(pipe);
        }
    }

    /// Reads once; returns the bytes read and whether the source is known to have no more now.
    fn take(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        buffers: &mut PumpBuffers,
    ) -> Result<(usize, bool), Broken> {
        if self.bulk > 0
            && !self.shrunk
            && let Some(pipe) = buffers.pool.borrow().ok().flatten()
        {
            let count = self.splice((from, to), pipe, buffers)?;
            if count > 0 {
                return Ok((count, false));
            }
        }
        self.copy(from, to, buffers)
    }

    /// Splices once. A result of 0 says nothing of the source: before an urgent byte splice(2) returns as if the stream were
    /// empty or, once the peer has closed, as if it had ended. Only a read tells.
    fn splice(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        mut pipe: Pipe,
        buffers: &mut PumpBuffers,
    ) -> Result<usize, Broken> {
        match pipe.fill(from, buffers.portion) {
            Ok(count @ 1..SMALL) => {
                self.bulk -= 1;
                let copied = pipe.read(&mut buffers.buffer);
                buffers.pool.give_back(pipe);
                match copied {
                    Ok(copied) if copied == count => {}
                    // Bytes of the stream are lost with the pipe.
                    Ok(_) => return Err(source(ErrorKind::UnexpectedEof.into())),
                    Err(error) => return Err(source(error)),
                }
                self.pass_on(count, to, buffers)?;
                Ok(count)
            }
            Ok(count @ 1..) => {
                self.bulk = PATIENCE;
                self.pending = Pending::Pipe(pipe);
                buffers.pending += self.waiting();
                Ok(count)
            }
            result => {
                buffers.pool.give_back(pipe);
                match result {
                    // The kernel reports an error of the connection once. A read after it would look like an orderly
                    // end.
                    Err(error) if !would_block(&error) && !tcp::stands(from) => Err(source(error)),
                    _ => Ok(0),
                }
            }
        }
    }

    fn copy(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        buffers: &mut PumpBuffers,
    ) -> Result<(usize, bool), Broken> {
        let Received { count, drained } =
            match socket::receive_and_rest(from, &mut buffers.buffer[..SMALL]) {
                // No FIN has arrived, so the connection has failed, and its error has been read before.
                Ok(Received {
                    count: 0,
                    drained: true,
                }) => return Err(source(ErrorKind::ConnectionReset.into())),
                Ok(Received { count: 0, .. }) => {
                    self.source = SourceState::Ending;
                    return Ok((0, true));
                }
                Ok(received) => received,
                Err(error) if would_block(&error) => return Ok((0, true)),
                Err(error) => return Err(source(error)),
            };
        self.pass_on(count, to, buffers)?;
        if count == SMALL {
            self.bulk = PATIENCE;
        }
        Ok((count, drained && !self.holds()))
    }

    /// Sends the first `count` bytes of the buffer, and keeps what the sink does not take.
    fn pass_on(
        &mut self,
        count: usize,
        to: BorrowedFd<'_>,
        buffers: &mut PumpBuffers,
    ) -> Result<(), Broken> {
        let bytes = &buffers.buffer[..count];
        let sent = match socket::send(to, bytes) {
            Ok(sent) => sent,
            Err(error) if would_block(&error) => 0,
            Err(error) => return Err(sink(error)),
        };
        if sent < count {
            buffers.pending += (count - sent) as u64;
            self.pending = Pending::Copied {
                bytes: bytes[sent..].into(),
                sent: 0,
            };
        }
        Ok(())
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

fn source(error: io::Error) -> Broken {
    Broken {
        source: true,
        error,
    }
}

fn sink(error: io::Error) -> Broken {
    Broken {
        source: false,
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    /// Both ends of a connection.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        for end in [&near, &far] {
            end.set_nodelay(true).unwrap();
        }
        (near, far)
    }

    fn buffers() -> PumpBuffers {
        PumpBuffers {
            pool: Pool::new(1, 1, 1 << 20),
            buffer: vec![0; SMALL].into(),
            pending: 0,
            portion: 1 << 20,
            turn: 1 << 20,
        }
    }

    /// A pump that has moved much of late, whose sink takes nothing more.
    struct Stalled {
        pump: Pump,
        buffers: PumpBuffers,
        source: TcpStream,
        from: TcpStream,
        to: TcpStream,
        sink: TcpStream,
        /// What the sink's buffers took.
        before: usize,
    }

    impl Stalled {
        fn new() -> Self {
            let ((source, from), (to, sink)) = (pair(), pair());
            for end in [&from, &to] {
                end.set_nonblocking(true).unwrap();
            }
            tcp::tell_rest(&from).unwrap();
            let mut pump = Pump::new();
            pump.bulk = PATIENCE;
            let mut before = 0;
            while let Ok(sent) = socket::send(&to, &[2; SMALL]) {
                before += sent;
            }
            Self {
                pump,
                buffers: buffers(),
                source,
                from,
                to,
                sink,
                before,
            }
        }

        /// Has `bytes` come, in segments of `size`, and pumps.
        fn comes(&mut self, bytes: &[u8], size: usize) {
            for piece in bytes.chunks(size) {
                self.source.write_all(piece).unwrap();
            }
            let mut all = vec![0; bytes.len()];
            while self.from.peek(&mut all).unwrap() < bytes.len() {}
            let step = self.run();
            assert_eq!(step, PumpState::Full);
        }

        fn run(&mut self) -> PumpState {
            let (from, to) = (self.from.as_fd(), self.to.as_fd());
            let mut moved = 0;
            let step = self.pump.run(from, to, &mut self.buffers, &mut moved);
            step.unwrap()
        }

        /// Lets the sink read until it has `bytes` behind what it had before.
        fn ends_with(mut self, bytes: &[u8]) {
            let mut all = vec![0; self.before + bytes.len()];
            let (mut at, patience) = (0, std::time::Duration::from_millis(5));
            self.sink.set_read_timeout(Some(patience)).unwrap();
            while at < all.len() {
                at += self.sink.read(&mut all[at..]).unwrap_or(0);
                self.run();
            }
            assert!(all[self.before..] == *bytes);
            assert_eq!((self.buffers.pending, self.pump.holds()), (0, false));
        }
    }

    #[test]
    fn a_pump_knows_whether_it_has_read_much() {
        for (sent, much) in [(SMALL, false), (SMALL + 1, true), (5 * SMALL, true)] {
            let ((mut source, from), (to, mut sink)) = (pair(), pair());
            let (mut pump, mut buffers) = (Pump::new(), buffers());
            let sender = std::thread::spawn(move || source.write_all(&vec![7; sent]).unwrap());
            from.set_nonblocking(true).unwrap();
            let mut moved = 0;
            while moved < sent as u64 {
                let (from, to) = (from.as_fd(), to.as_fd());
                pump.run(from, to, &mut buffers, &mut moved).unwrap();
            }
            sender.join().unwrap();
            sink.read_exact(&mut vec![0; sent]).unwrap();
            assert_eq!(pump.has_read_more_than(Bytes(SMALL as u64)), much, "{sent}");
        }
    }

    /// Each tiny segment lies in a page of its own, which a pipe and a send buffer would keep for it.
    #[test]
    fn tiny_segments_that_wait_keep_no_pages() {
        let mut stalled = Stalled::new();
        let bytes: Vec<u8> = (0..200).collect();
        stalled.comes(&bytes, 1);
        assert!(matches!(stalled.pump.pending, Pending::Copied { .. }));
        assert_eq!(
            (stalled.buffers.pool.lent(), stalled.buffers.pending),
            (0, 200)
        );
        stalled.ends_with(&bytes);
    }

    /// What waits in a pipe may be a page for each of its slots.
    #[test]
    fn a_pipe_counts_as_full() {
        let mut stalled = Stalled::new();
        let bytes: Vec<u8> = (0..3 * SMALL).map(|at| (at % 251) as u8).collect();
        stalled.comes(&bytes, bytes.len());
        assert!(matches!(stalled.pump.pending, Pending::Pipe(_)));
        assert_eq!(stalled.buffers.pending, 1 << 20);
        stalled.ends_with(&bytes);
    }
}
