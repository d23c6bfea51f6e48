//! One tunnel: its stream's two directions.

use crate::endpoint::Read;
use bentpipe_connect_tcp::{Broken, Decoder, Framing, Piece};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Most of TCP's bytes in one capsule, and in one frame of HTTP/3.
pub(crate) const PIECE: usize = 1 << 16;

/// Where a tunnel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Near: the answer has not come. Far: the request has not.
    Asking,
    /// Far: the driver dials.
    Dialling,
    /// It carries bytes.
    Open,
    /// Far: the request was refused, and what else comes is dropped.
    Refused,
}

/// One tunnel.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) phase: Phase,
    pub(crate) framing: Framing,
    decoder: Decoder,
    /// What was read and taken apart, for the driver.
    pub(crate) inbox: VecDeque<Read>,
    /// Of UDP: HTTP Datagrams that came in capsules, and those that came before the tunnel stood.
    pub(crate) capsules: Vec<Bytes>,
    pub(crate) early: VecDeque<Bytes>,
    /// The rest of a frame that the stack has not taken yet.
    pub(crate) outbox: VecDeque<Bytes>,
    /// The driver found no room, and wants to be told when there is.
    pub(crate) starved: bool,
    /// The driver writes no more.
    pub(crate) finishing: bool,
    /// Our direction of the stream ends without FINAL_DATA: behind what the driver wrote its socket was reset.
    pub(crate) broken_off: bool,
    /// FINAL_DATA is in the outbox, or further, or there is to be none and the outbox is empty.
    pub(crate) final_sent: bool,
    /// The peer's FIN has come.
    pub(crate) final_seen: bool,
    /// The driver has read it, and all before it: only then does our direction of the stream end, so that its end tells the peer
    /// that nothing is left that the loss of the connection could take.
    pub(crate) final_read: bool,
    /// Near: the peer reads no more of it, and what it says is whole all the same (RFC 9114, section 4.1).
    pub(crate) unheard: bool,
    /// Our direction of the stream has ended.
    pub(crate) closed: bool,
    /// The peer's has.
    pub(crate) ended: bool,
}

impl Stream {
    pub(crate) fn new(phase: Phase, framing: Framing) -> Self {
        Self {
            phase,
            framing,
            decoder: Decoder::new(framing),
            inbox: VecDeque::new(),
            capsules: Vec::new(),
            early: VecDeque::new(),
            outbox: VecDeque::new(),
            starved: false,
            finishing: false,
            broken_off: false,
            final_sent: false,
            final_seen: false,
            final_read: false,
            unheard: false,
            closed: false,
            ended: false,
        }
    }

    /// The request has told how the bytes travel.
    pub(crate) fn frame_by(&mut self, framing: Framing) {
        self.framing = framing;
        self.decoder = Decoder::new(framing);
    }

    /// Bytes of the stream's body.
    pub(crate) fn take_in(&mut self, mut body: Bytes) -> Result<(), Broken> {
        if self.phase == Phase::Refused {
            return Ok(());
        }
        while let Some(piece) = self.decoder.next(&mut body)? {
            match piece {
                Piece::Data(data) => self.inbox.push_back(Read::Data(data)),
                Piece::Datagram(datagram) => self.capsules.push(datagram),
                Piece::Final => self.take_final(),
            }
        }
        Ok(())
    }

    /// The peer's direction of the stream has ended.
    pub(crate) fn take_end(&mut self) -> Result<(), Broken> {
        self.ended = true;
        if self.phase == Phase::Refused {
            return Ok(());
        }
        match self.decoder.end() {
            Ok(true) => self.take_final(),
            Ok(false) => {}
            // What came before is delivered first, as by a TCP that was reset behind it.
            Err(Broken::NoFinal) if self.phase == Phase::Open || !self.inbox.is_empty() => {
                self.inbox.push_back(Read::BrokenOff);
            }
            Err(broken) => return Err(broken),
        }
        Ok(())
    }

    /// The driver's socket was reset: no FINAL_DATA follows what it has said. Whether the end of the stream can tell that.
    pub(crate) fn break_off(&mut self) -> bool {
        let with_capsules = matches!(self.framing, Framing::Capsules(_));
        let tells = with_capsules && !self.finishing && !self.unheard;
        self.broken_off |= tells;
        self.finishing |= tells;
        tells
    }

    /// Whether FINAL_DATA ends what we say.
    pub(crate) fn has_final(&self) -> bool {
        matches!(self.framing, Framing::Capsules(_)) && !self.unheard && !self.broken_off
    }

    /// Whether our direction of the stream is to end now: with FINAL_DATA, once both sides have said that they have no more.
    pub(crate) fn may_close(&self) -> bool {
        let capsules = matches!(self.framing, Framing::Capsules(_)) && !self.broken_off;
        let both = !capsules || self.final_read;
        self.final_sent && both && self.outbox.is_empty() && !self.closed
    }

    fn take_final(&mut self) {
        self.final_seen = true;
        self.inbox.push_back(Read::Final);
    }

    /// Puts a frame of HTTP/3 together, of a capsule and its `data`.
    pub(crate) fn put(&mut self, frame: &[u8], capsule: &[u8], data: Bytes) {
        let mut head = BytesMut::with_capacity(frame.len() + capsule.len());
        head.extend_from_slice(frame);
        head.extend_from_slice(capsule);
        let parts = [head.freeze(), data];
        { &mut self.outbox }.extend(parts.into_iter().filter(|part| !part.is_empty()));
    }

    /// Whether nothing more will happen on it.
    pub(crate) fn is_over(&self) -> bool {
        let read = self.ended && self.inbox.is_empty();
        read && (self.closed || self.phase == Phase::Refused)
    }
}
