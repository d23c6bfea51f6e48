//! One direction of a flow: bytes from one socket to the other, and nothing kept back.
//!
//! Reads of up to [`SMALL`] bytes are copied through one buffer of the worker (two system calls,
//! no pipe); a source that has more is spliced through a borrowed pipe. What the sink does not take
//! waits here, and nothing more is read until it is gone: the source's window closes and holds its
//! sender back. The bound for a flow is thus the source's receive buffer, one pipe, and the sink's
//! send buffer.

use bentpipe_os::socket::{self, Received};
use bentpipe_os::splice::{Pipe, Pool};
use bentpipe_os::tcp;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

/// The most that is copied rather than spliced, in bytes.
pub(crate) const SMALL: usize = 16 * 1024;
/// Short splices in a row after which a lane goes back to copying.
const PATIENCE: u8 = 4;

/// What the lanes of one worker share.
pub(crate) struct Tools {
    pub(crate) pool: Pool,
    pub(crate) buffer: Box<[u8]>,
    /// Bytes that lanes hold between their sockets.
    pub(crate) held: u64,
    /// The most one splice takes, in bytes.
    pub(crate) portion: usize,
    /// The most one lane moves before others have their turn, in bytes.
    pub(crate) turn: usize,
}

/// Where a lane stands after it was pumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The source has nothing more now.
    Empty,
    /// The sink takes nothing more now.
    Full,
    /// There is more to move; others first.
    More,
    /// The source has ended and everything has gone to the sink, which is to be told. Said once.
    Ended,
}

/// A side failed: reset, timed out.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Whether it was the source.
    pub(crate) source: bool,
    pub(crate) error: io::Error,
}

/// Bytes read that the sink has not taken.
#[derive(Debug)]
enum Held {
    Nothing,
    Pipe(Pipe),
    Copied { bytes: Box<[u8]>, sent: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    /// The source has ended; what is held has still to go.
    Ending,
    Ended,
}

/// One direction.
#[derive(Debug)]
pub(crate) struct Lane {
    held: Held,
    stage: Stage,
    /// Short splices that a lane in bulk mode still forgives; 0 is copying mode.
    bulk: u8,
    /// The source's peer has closed.
    closing: bool,
    full: bool,
    /// Memory is short, and the sink takes nothing: no pipes for this lane.
    pub(crate) shrunk: bool,
    /// Whether bytes were ever read.
    begun: bool,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Self {
            held: Held::Nothing,
            stage: Stage::Open,
            bulk: 0,
            closing: false,
            full: false,
            shrunk: false,
            begun: false,
        }
    }

    /// Whether the sink is what the lane waits for.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// Whether more may follow the first bytes than the source's end.
    pub(crate) fn goes_on(&self) -> bool {
        self.begun && (!self.closing || self.full || self.bulk > 0)
    }

    /// Whether bytes wait between the sockets.
    pub(crate) fn holds(&self) -> bool {
        !matches!(self.held, Held::Nothing)
    }

    /// The source's peer has closed its sending side.
    pub(crate) fn source_closes(&mut self) {
        self.closing = true;
    }

    /// Moves what can be moved, at most a turn. `moved` is counted up by the bytes read.
    pub(crate) fn pump(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        tools: &mut Tools,
        moved: &mut u64,
    ) -> Result<Step, Broken> {
        let mut left = tools.turn;
        loop {
            if !self.flush(to, tools).map_err(sink)? {
                self.full = true;
                return Ok(Step::Full);
            }
            self.full = false;
            match self.stage {
                Stage::Open => {}
                Stage::Ending => {
                    self.stage = Stage::Ended;
                    return Ok(Step::Ended);
                }
                Stage::Ended => return Ok(Step::Empty),
            }
            if left == 0 {
                return Ok(Step::More);
            }
            let (count, drained) = self.take(from, to, tools)?;
            *moved += count as u64;
            self.begun |= count > 0;
            left = left.saturating_sub(count);
            if drained && !self.full && self.stage == Stage::Open {
                return Ok(Step::Empty);
            }
        }
    }

    /// The source is broken: moves what it had received before, then says whether bytes are still
    /// held that the sink has not taken.
    pub(crate) fn rescue(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        tools: &mut Tools,
        moved: &mut u64,
    ) -> bool {
        while self.stage == Stage::Open && matches!(self.flush(to, tools), Ok(true)) {
            match self.take(from, to, tools) {
                Ok((0, _)) | Err(_) => break,
                Ok((count, _)) => *moved += count as u64,
            }
        }
        self.holds()
    }

    /// Sends what is held; `true` when nothing is left.
    pub(crate) fn flush(&mut self, to: BorrowedFd<'_>, tools: &mut Tools) -> io::Result<bool> {
        if !self.holds() {
            return Ok(true);
        }
        let before = self.waiting();
        let result = self.send(to);
        tools.held -= before - self.waiting();
        if let Ok(true) = result {
            self.release(tools);
        }
        result
    }

    /// Bytes between the sockets.
    pub(crate) fn waiting(&self) -> u64 {
        match &self.held {
            Held::Nothing => 0,
            Held::Pipe(pipe) => pipe.held() as u64,
            Held::Copied { bytes, sent } => bytes.len() as u64 - u64::from(*sent),
        }
    }

    fn send(&mut self, to: BorrowedFd<'_>) -> io::Result<bool> {
        match &mut self.held {
            Held::Nothing => {}
            Held::Pipe(pipe) => {
                while pipe.held() > 0 {
                    match pipe.drain(to) {
                        Ok(_) => {}
                        Err(error) if would_block(&error) => return Ok(false),
                        Err(error) => return Err(error),
                    }
                }
            }
            Held::Copied { bytes, sent } => {
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
    pub(crate) fn release(&mut self, tools: &mut Tools) {
        tools.held -= self.waiting();
        if let Held::Pipe(pipe) = std::mem::replace(&mut self.held, Held::Nothing) {
            tools.pool.give_back(pipe);
        }
    }

    /// Reads once; returns the bytes read and whether the source is known to have no more now.
    fn take(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        tools: &mut Tools,
    ) -> Result<(usize, bool), Broken> {
        if self.bulk > 0
            && !self.shrunk
            && let Some(pipe) = tools.pool.borrow().ok().flatten()
        {
            let count = self.splice(from, pipe, tools)?;
            if count > 0 {
                return Ok((count, false));
            }
        }
        self.copy(from, to, tools)
    }

    /// Splices once. 0 says nothing of the source: before an urgent byte splice(2) stops as if the stream
    /// were empty or, once the peer has closed, as if it had ended. Only a read knows.
    fn splice(
        &mut self,
        from: BorrowedFd<'_>,
        mut pipe: Pipe,
        tools: &mut Tools,
    ) -> Result<usize, Broken> {
        let result = pipe.fill(from, tools.portion);
        if let Ok(count @ 1..) = result {
            tools.held += count as u64;
            self.held = Held::Pipe(pipe);
            self.bulk = if count < SMALL {
                self.bulk - 1
            } else {
                PATIENCE
            };
            return Ok(count);
        }
        tools.pool.give_back(pipe);
        match result {
            // An error of the connection is told once: a read after it would find an orderly end.
            Err(error) if !would_block(&error) && !tcp::stands(from) => Err(source(error)),
            _ => Ok(0),
        }
    }

    fn copy(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        tools: &mut Tools,
    ) -> Result<(usize, bool), Broken> {
        let Received { count, drained } =
            match socket::receive_and_rest(from, &mut tools.buffer[..SMALL]) {
                // No FIN has come: the connection is broken, and somebody has taken the error before.
                Ok(Received {
                    count: 0,
                    drained: true,
                }) => return Err(source(ErrorKind::ConnectionReset.into())),
                Ok(Received { count: 0, .. }) => {
                    self.stage = Stage::Ending;
                    return Ok((0, true));
                }
                Ok(received) => received,
                Err(error) if would_block(&error) => return Ok((0, true)),
                Err(error) => return Err(source(error)),
            };
        let bytes = &tools.buffer[..count];
        let sent = match socket::send(to, bytes) {
            Ok(sent) => sent,
            Err(error) if would_block(&error) => 0,
            Err(error) => return Err(sink(error)),
        };
        if sent < count {
            tools.held += (count - sent) as u64;
            self.held = Held::Copied {
                bytes: bytes[sent..].into(),
                sent: 0,
            };
        }
        if count == SMALL {
            self.bulk = PATIENCE;
        }
        Ok((count, drained && sent == count))
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
