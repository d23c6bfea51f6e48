//! One TCP connection and its tunnel.

use crate::awaited::AwaitedAnswer;
use crate::carriers::Carriers;
use crate::near_end::Keep;
use crate::stalled::Intake;
use bentpipe_sockets::socket;
use bentpipe_tunnel::{Closed, Read, TunnelId};
use bytes::{Buf, Bytes};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Rounds that a flow has before others have theirs.
const ROUNDS: usize = 16;
/// How long what a failed socket has said is carried before its tunnel is reset, as by the split.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes that are read of a socket at once.
pub(crate) const READ: usize = 64 << 10;

/// Where a flow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Far: the kernel dials, until then.
    Dialling(Instant),
    /// Near: the far side dials; what the client says is sent already.
    Asking,
    /// Both sides carry.
    Open,
}

/// What a round of pumping came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It waits for its socket, or its tunnel.
    Waits,
    /// There is more to do at once.
    Goes,
    /// Both sides have said all.
    Over,
    /// One of them was reset.
    Broken,
}

/// One TCP connection and its tunnel.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) socket: TcpStream,
    pub(crate) tunnel: TunnelId,
    pub(crate) phase: Phase,
    /// Near, while the far side dials.
    pub(crate) awaited: Option<AwaitedAnswer>,
    /// For the socket.
    outward: Bytes,
    /// For the tunnel.
    inward: Bytes,
    /// The socket's FIN was read, and told the tunnel.
    read_done: bool,
    /// The tunnel's FIN was read, and told the socket.
    write_done: bool,
    /// The tunnel's FIN was read.
    final_seen: bool,
    /// When the tunnel is reset, because the socket has failed.
    fails_at: Option<Instant>,
    /// Bytes read of the socket and written to it, not counted yet.
    moved: [u64; 2],
    /// When a byte last moved.
    pub(crate) active: Instant,
    /// How its socket takes what has come.
    pub(crate) intake: Intake,
    /// Dropped last: the socket is closed by then.
    pub(crate) keep: Option<Keep>,
}

impl Flow {
    pub(crate) fn new(
        socket: TcpStream,
        tunnel: TunnelId,
        phase: Phase,
        keep: Option<Keep>,
    ) -> Self {
        Self {
            socket,
            tunnel,
            phase,
            awaited: None,
            outward: Bytes::new(),
            inward: Bytes::new(),
            read_done: false,
            write_done: false,
            final_seen: false,
            fails_at: None,
            moved: [0; 2],
            active: Instant::now(),
            intake: Intake::default(),
            keep,
        }
    }

    /// Whether all that is left is for the socket to take what has come.
    pub(crate) fn only_delivers(&self) -> bool {
        self.read_done && self.final_seen
    }

    /// Whether the far side has yet to answer.
    pub(crate) fn is_dialling(&self) -> bool {
        self.phase != Phase::Open
    }

    /// The socket has failed, which reading tells only where all that came before is read.
    pub(crate) fn fail(&mut self) {
        self.fails_at.get_or_insert_with(|| Instant::now() + GRACE);
        self.outward = Bytes::new();
    }

    /// Whether its tunnel has had the time to deliver what the socket had said.
    pub(crate) fn has_failed(&self) -> bool {
        self.fails_at.is_some_and(|at| at <= Instant::now())
    }

    /// Bytes read of the socket and written to it since the last call.
    pub(crate) fn take_moved(&mut self) -> [u64; 2] {
        if self.moved != [0; 2] {
            self.active = Instant::now();
        }
        core::mem::take(&mut self.moved)
    }

    /// Carries what there is to carry, both ways.
    pub(crate) fn pump(&mut self, side: &mut Carriers, buffer: &mut [u8]) -> Fate {
        if matches!(self.phase, Phase::Dialling(_)) {
            return Fate::Waits;
        }
        for _ in 0..ROUNDS {
            let moved = { self.carry_in(side, buffer) }.and_then(|moved| {
                let out = self.carry_out(side)?;
                Ok(moved || out)
            });
            match moved {
                Err(Broken) => return Fate::Broken,
                Ok(_) if self.read_done && self.write_done => return Fate::Over,
                Ok(false) => return Fate::Waits,
                Ok(true) => {}
            }
        }
        Fate::Goes
    }

    /// From the socket to the tunnel; whether anything moved.
    fn carry_in(&mut self, side: &mut Carriers, buffer: &mut [u8]) -> Result<bool, Broken> {
        if self.read_done {
            return Ok(false);
        }
        if self.inward.is_empty() {
            match self.socket.read(buffer) {
                Ok(0) => {
                    side.finish(self.tunnel)?;
                    self.read_done = true;
                    return Ok(true);
                }
                Ok(read) => {
                    self.moved[0] += read as u64;
                    self.inward = Bytes::copy_from_slice(&buffer[..read]);
                }
                Err(error) if waits(&error) => return Ok(false),
                Err(_) => return Err(Broken),
            }
        }
        Ok(side.write(self.tunnel, &mut self.inward)? > 0 && self.inward.is_empty())
    }

    /// From the tunnel to the socket; whether anything moved.
    fn carry_out(&mut self, side: &mut Carriers) -> Result<bool, Broken> {
        if self.write_done || self.phase != Phase::Open {
            return Ok(false);
        }
        if self.outward.is_empty() && !self.final_seen {
            match side.read(self.tunnel)? {
                Read::Data(data) => self.outward = data,
                Read::Final => self.final_seen = true,
                Read::Blocked => return Ok(false),
            }
        }
        if self.fails_at.is_some() {
            self.outward = Bytes::new();
            if !self.final_seen {
                return Ok(true);
            }
        }
        if self.outward.is_empty() && self.final_seen {
            self.write_done = true;
            // The other end may have closed meanwhile, which reading tells.
            let _ = self.socket.shutdown(Shutdown::Write);
            return Ok(true);
        }
        match self.socket.write(&self.outward) {
            Ok(written) => {
                self.outward.advance(written);
                self.moved[1] += written as u64;
                self.intake.note(written as u64, !self.outward.is_empty());
                Ok(true)
            }
            Err(error) if waits(&error) => {
                self.intake.note(0, true);
                Ok(false)
            }
            // Without this the other end would lose what is on its way.
            Err(_) if self.read_done => {
                self.fail();
                Ok(true)
            }
            Err(_) => Err(Broken),
        }
    }

    /// Closes the socket by a reset.
    pub(crate) fn abort(self) {
        // Without it the kernel would say goodbye as if all had been said.
        let _ = socket::abort_on_close(&self.socket, true);
    }
}

/// The socket or the tunnel was reset.
#[derive(Clone, Copy, Debug)]
struct Broken;

impl From<Closed> for Broken {
    fn from(_: Closed) -> Self {
        Self
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
