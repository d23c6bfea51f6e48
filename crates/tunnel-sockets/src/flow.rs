//! One TCP connection and its tunnel.

use crate::awaited::AwaitedAnswer;
use crate::carriers::Carriers;
use crate::near_end::Keep;
use crate::stalled::Intake;
use bentpipe_sockets::{socket, tcp};
use bentpipe_tunnel::{Closed, Read, TunnelId};
use bytes::{Buf, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Rounds that a flow has before others have theirs.
const ROUNDS: usize = 16;
/// How long what a failed socket has said is carried before its tunnel is reset, as by the split.
const GRACE: Duration = Duration::from_secs(5);
/// Bytes that are read of a socket at once.
pub(crate) const READ: usize = 64 << 10;
/// Bytes that are gathered of the tunnel for one write, about, and the pieces that these may be: a packet of QUIC holds one.
const WRITE: usize = 64 << 10;
const PIECES: usize = 64;

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

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Socket,
    Tunnel,
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
    outward: VecDeque<Bytes>,
    /// For the tunnel.
    inward: Bytes,
    /// The end that was reset behind what it had said, which the other end has yet to take before it is reset too.
    reset: Option<End>,
    /// The socket's FIN was read, or its reset, and told the tunnel; or the tunnel's reset was read.
    read_done: bool,
    /// The tunnel's FIN was read, and told the socket.
    write_done: bool,
    /// The tunnel's FIN was read, or its reset.
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
            outward: VecDeque::new(),
            inward: Bytes::new(),
            reset: None,
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
        self.read_done && self.final_seen && self.fails_at.is_none()
    }

    /// Whether the far side has yet to answer.
    pub(crate) fn is_dialling(&self) -> bool {
        self.phase != Phase::Open
    }

    /// The socket has failed, which reading tells only where all that came before is read.
    pub(crate) fn fail(&mut self) {
        self.fails_at.get_or_insert_with(|| Instant::now() + GRACE);
        self.outward.clear();
    }

    /// Whether its tunnel has had the time to deliver what the socket had said, or its socket what the tunnel had.
    pub(crate) fn has_failed(&self) -> bool {
        let ends = self.reset == Some(End::Tunnel)
            && (self.is_delivered() || self.active.elapsed() >= GRACE);
        ends || self.fails_at.is_some_and(|at| at <= Instant::now())
    }

    /// Whether the socket has sent all that came, as far as it ever will: closing it by a reset drops the rest.
    fn is_delivered(&self) -> bool {
        let waits = || tcp::unsent(&self.socket).is_ok_and(|unsent| unsent.0 > 0);
        self.outward.is_empty() && (self.fails_at.is_some() || !waits())
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
        // What has nothing to carry once has nothing before something is heard again, and asking the kernel costs.
        let (mut inward, mut outward) = (true, true);
        for _ in 0..ROUNDS {
            match self.carry_both(side, buffer, &mut inward, &mut outward) {
                Err(Broken) => return Fate::Broken,
                // Of one that was reset the peer tells when it has all.
                Ok(_) if self.read_done && self.write_done && self.reset.is_none() => {
                    return Fate::Over;
                }
                Ok(false) => return Fate::Waits,
                Ok(true) => {}
            }
        }
        Fate::Goes
    }

    /// Carries in the directions that have something to carry, and tells which of them moved; whether any has.
    fn carry_both(
        &mut self,
        side: &mut Carriers,
        buffer: &mut [u8],
        inward: &mut bool,
        outward: &mut bool,
    ) -> Result<bool, Broken> {
        *inward = *inward && self.carry_in(side, buffer)?;
        *outward = *outward && self.carry_out(side)?;
        Ok(*inward || *outward)
    }

    /// From the socket to the tunnel; whether anything moved.
    fn carry_in(&mut self, side: &mut Carriers, buffer: &mut [u8]) -> Result<bool, Broken> {
        if self.read_done {
            return Ok(false);
        }
        if self.inward.is_empty() {
            match self.socket.read(buffer) {
                Ok(0) if self.reset.is_none() => {
                    side.finish(self.tunnel)?;
                    self.read_done = true;
                    return Ok(true);
                }
                Ok(read @ 1..) => {
                    self.moved[0] += read as u64;
                    self.inward = Bytes::copy_from_slice(&buffer[..read]);
                }
                Err(error) if waits(&error) => return Ok(false),
                // An error that a write has told is an end to who reads.
                Ok(_) | Err(_) => return self.break_off(side),
            }
        }
        Ok(side.write(self.tunnel, &mut self.inward)? > 0 && self.inward.is_empty())
    }

    /// The socket was reset, and all that it had said is in the tunnel, which ends behind that.
    fn break_off(&mut self, side: &mut Carriers) -> Result<bool, Broken> {
        if !side.break_off(self.tunnel) {
            return Err(Broken);
        }
        self.reset = Some(End::Socket);
        self.read_done = true;
        self.fail();
        Ok(true)
    }

    /// From the tunnel to the socket; whether anything moved.
    fn carry_out(&mut self, side: &mut Carriers) -> Result<bool, Broken> {
        if self.write_done || self.phase != Phase::Open {
            return Ok(false);
        }
        if !self.gather(side)? {
            return Ok(false);
        }
        if self.fails_at.is_some() {
            self.outward.clear();
            if !self.final_seen {
                return Ok(true);
            }
        }
        if self.outward.is_empty() && self.final_seen {
            return self.end_outward();
        }
        match self.write() {
            Ok(written) => {
                self.moved[1] += written as u64;
                self.intake.note(written as u64, !self.outward.is_empty());
                Ok(true)
            }
            Err(error) if waits(&error) => {
                self.intake.note(0, true);
                self.compact();
                Ok(false)
            }
            // Ended at once, the tunnel would lose what is on its way, or not read of the socket yet.
            Err(_) => {
                if !self.read_done {
                    self.reset = Some(End::Socket);
                }
                self.fail();
                Ok(true)
            }
        }
    }

    /// All that came of the tunnel is written.
    fn end_outward(&mut self) -> Result<bool, Broken> {
        if self.reset == Some(End::Tunnel) {
            // Where the kernel has yet to send some of it, that is looked at again by and by.
            return if self.is_delivered() {
                Err(Broken)
            } else {
                Ok(false)
            };
        }
        self.write_done = true;
        // The other end may have closed meanwhile, which reading tells.
        let _ = self.socket.shutdown(Shutdown::Write);
        Ok(true)
    }

    /// Takes what has come off the tunnel, as much as one write is to have; whether there is anything to do for it.
    fn gather(&mut self, side: &mut Carriers) -> Result<bool, Broken> {
        let mut held: usize = self.outward.iter().map(Bytes::len).sum();
        while !self.final_seen && held < WRITE && self.outward.len() < PIECES {
            match side.read(self.tunnel) {
                Ok(Read::Data(data)) => {
                    held += data.len();
                    self.outward.push_back(data);
                }
                Ok(Read::Final) => self.final_seen = true,
                Ok(Read::BrokenOff) => {
                    self.reset = Some(End::Tunnel);
                    (self.final_seen, self.read_done) = (true, true);
                    self.active = Instant::now();
                }
                Ok(Read::Blocked) => break,
                // What came before the reset is written first.
                Err(_) if held > 0 => break,
                Err(closed) => return Err(closed.into()),
            }
        }
        Ok(held > 0 || self.final_seen)
    }

    /// Writes what was gathered, in one call; how much of it the socket has taken.
    fn write(&mut self) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let pieces = { slices.iter_mut().zip(&self.outward) }.map(|(slice, piece)| {
            *slice = IoSlice::new(piece);
        });
        let pieces = pieces.count();
        let written = self.socket.write_vectored(&slices[..pieces])?;
        let mut left = written;
        while let Some(first) = self.outward.front_mut()
            && left > 0
        {
            let taken = left.min(first.len());
            first.advance(taken);
            left -= taken;
            if first.is_empty() {
                self.outward.pop_front();
            }
        }
        Ok(written)
    }

    /// What has to wait, perhaps for long, would hold the whole batches of packets that it came in.
    fn compact(&mut self) {
        if self.outward.len() > 1 {
            let mut all = BytesMut::with_capacity(self.outward.iter().map(Bytes::len).sum());
            self.outward
                .drain(..)
                .for_each(|piece| all.extend_from_slice(&piece));
            self.outward.push_back(all.freeze());
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

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_quic::{ConnectionId, StreamId};
    use std::net::TcpListener;

    /// A flow, and the other end of its socket.
    fn flow() -> (Flow, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        let tunnel = TunnelId {
            connection: ConnectionId::elsewhere(0),
            stream: StreamId(0),
        };
        (Flow::new(socket, tunnel, Phase::Open, None), other)
    }

    #[test]
    fn packets_that_came_together_are_one_write() {
        let (mut flow, mut other) = flow();
        let pieces = (0..46).map(|number| Bytes::from(vec![number; 1_400]));
        flow.outward.extend(pieces);
        assert_eq!(flow.write().unwrap(), 46 * 1_400);
        assert!(flow.outward.is_empty());
        let mut got = vec![0; 46 * 1_400];
        other.read_exact(&mut got).unwrap();
        assert!({ got.iter().enumerate() }.all(|(at, &byte)| usize::from(byte) == at / 1_400));
    }

    /// Behind a reset of the tunnel it goes on while the socket takes what has come, and ends when that is sent.
    #[test]
    fn a_socket_that_takes_nothing_behind_a_reset_is_given_up() {
        let (mut flow, _other) = flow();
        flow.outward.push_back(Bytes::from_static(b"the last"));
        flow.active = Instant::now() - GRACE;
        assert!(!flow.has_failed(), "nothing was reset");
        flow.reset = Some(End::Tunnel);
        assert!(flow.has_failed());
        flow.active = Instant::now();
        assert!(!flow.has_failed());
        flow.write().unwrap();
        assert!(flow.has_failed());
    }

    #[test]
    fn what_waits_keeps_its_order_and_no_batch_of_packets() {
        let (mut flow, _other) = flow();
        let batch = Bytes::from_iter(0..200);
        { &mut flow.outward }.extend([batch.slice(5..7), batch.slice(90..92)]);
        flow.compact();
        assert_eq!(flow.outward, [Bytes::from_static(&[5, 6, 90, 91])]);
        assert!(batch.is_unique());
    }
}
