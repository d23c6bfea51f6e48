//! One session: its peer, what is done in it, and what may be sent in it.

use crate::Error;
use crate::aside::Task;
use crate::authenticate::Key;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::seal::{Seal, Side, is_sealed};
use bentpipe_base::{Instant, Machine};
use bentpipe_saratoga::{Answer, Inquiry, sender};
use bentpipe_wire::saratoga::{Code, Data, Frame, Request};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::mpsc::TryRecvError;

/// How many times what came in may be sent to a peer that has not shown that it hears us.
const AMPLIFICATION: u64 = 10;
/// Octets that an IP and a UDP header have at least.
const HEADERS: u64 = 28;
/// Octets beyond that for a peer that is known, until it answers in this session: a line of 14 Mbit/s is full
/// for 600 ms.
const CREDIT: u64 = 1 << 20;
/// A peer that has said nothing for so long has no claim on a share of the rate.
const QUIET: Duration = Duration::from_millis(2500);

/// What a session does.
pub(crate) enum Work {
    Sending(Box<Outgoing>),
    Receiving(Box<Incoming>),
    Asking(Box<Inquiry>),
    /// A thread prepares what is to be sent.
    Preparing(Task<Result<Box<Outgoing>, Error>>),
}

/// What the peer has shown of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Unproven,
    /// In another session, not long ago: that it hears us.
    Known,
    /// In this one; or this side has chosen it.
    Proven,
}

/// How frames of a session are sealed.
struct Seals {
    session: Seal,
    /// Of a server that does not know the session.
    stranger: Option<Seal>,
    /// Nothing was opened yet: a server with another key can only say so without a seal.
    unheard: bool,
}

/// See the file's head.
pub(crate) struct Session {
    pub(crate) peer: SocketAddr,
    pub(crate) path: String,
    pub(crate) work: Work,
    /// The REQUEST that began it.
    request: Option<Request>,
    seals: Option<Seals>,
    standing: Standing,
    /// Octets in and out, with their headers.
    received: u64,
    sent: u64,
}

impl Session {
    /// Of who asks, by `request`.
    pub(crate) fn asking(
        peer: SocketAddr,
        path: String,
        work: Work,
        request: Request,
        key: Option<&Key>,
    ) -> Self {
        let seals = key.map(|key| Seals {
            session: Seal::of_session(key, &request.authentication, Side::Client),
            stranger: Some(Seal::of_stranger(key, request.session, Side::Client)),
            unheard: true,
        });
        Self {
            peer,
            path,
            work,
            request: Some(request),
            seals,
            standing: Standing::Proven,
            received: 0,
            sent: 0,
        }
    }

    /// Of who is asked, by `request` unless the peer began blindly.
    pub(crate) fn serving(
        peer: SocketAddr,
        path: String,
        work: Work,
        request: Option<Request>,
        seal: Option<Seal>,
        standing: Standing,
    ) -> Self {
        let seals = seal.map(|session| Seals {
            session,
            stranger: None,
            unheard: false,
        });
        Self {
            peer,
            path,
            work,
            request,
            seals,
            standing,
            // What made it begin.
            received: HEADERS,
            sent: 0,
        }
    }

    /// What seals its frames.
    pub(crate) fn seal(&self) -> Option<&Seal> {
        self.seals.as_ref().map(|seals| &seals.session)
    }

    /// Whether `request` is the one that this session serves.
    pub(crate) fn serves(&self, request: &Request) -> bool {
        self.request.as_ref().is_some_and(|own| {
            own.kind == request.kind
                && own.path == request.path
                && own.authentication == request.authentication
        })
    }

    /// Whether the peer has shown that it hears us, here or elsewhere.
    pub(crate) fn is_proven(&self) -> bool {
        self.standing != Standing::Unproven
    }

    /// The peer has shown it.
    pub(crate) fn prove(&mut self) {
        self.standing = Standing::Proven;
    }

    /// When the peer was last heard, as far as that matters to what is done.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        match &self.work {
            Work::Sending(outgoing) => Some(outgoing.sender.heard_at()),
            Work::Receiving(incoming) => Some(incoming.receiver.heard_at()),
            Work::Asking(_) | Work::Preparing(_) => None,
        }
    }

    /// Whether nothing was heard of the peer for some time.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        self.heard_at().is_some_and(|at| now.since(at) >= QUIET)
    }

    /// A datagram of this session's peer and Id; whether it is settled, or its owner is to look at it too.
    pub(crate) fn take(&mut self, datagram: &[u8], now: Instant) -> bool {
        let Some(octets) = self.open(datagram) else {
            tracing::debug!(from = %self.peer, "a datagram without a right seal was dropped");
            return true;
        };
        self.received += datagram.len() as u64 + HEADERS;
        if let Some((data, payload)) = Data::of(octets)
            && let Work::Receiving(incoming) = &mut self.work
        {
            incoming.data(&data, payload, now);
            return true;
        }
        let frame = match Frame::parse(octets) {
            Ok((frame, _)) => frame,
            Err(error) => {
                tracing::debug!(%error, from = %self.peer, "a datagram was dropped");
                return true;
            }
        };
        let settled = match &frame {
            // Another is of a peer that began anew.
            Frame::Request(request) if !self.serves(request) => return false,
            // It may be the proof that was asked for.
            Frame::Status(status) => self.is_proven() || status.timestamp.is_none(),
            _ => true,
        };
        self.input(frame, now);
        settled
    }

    /// What is under the seal, where one is wanted; `None` for what is not the peer's.
    fn open<'a>(&mut self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let Some(seals) = &mut self.seals else {
            return Some(datagram);
        };
        if let Some(octets) = seals.session.open(datagram) {
            seals.unheard = false;
            return Some(octets);
        }
        let refusal = |octets| match Frame::parse(octets) {
            Ok((Frame::Status(status), _)) => status.code != Code::OK,
            _ => false,
        };
        if let Some(stranger) = &seals.stranger
            && let Some(octets) = stranger.open(datagram)
        {
            return refusal(octets).then_some(octets);
        }
        // A REQUEST is authenticated by itself.
        let request = matches!(Frame::parse(datagram), Ok((Frame::Request(_), _)));
        let plain = !is_sealed(datagram) && (request || seals.unheard && refusal(datagram));
        plain.then_some(datagram)
    }

    /// A frame that is not DATA, or for which there is no use.
    fn input(&mut self, frame: Frame, now: Instant) {
        match &mut self.work {
            Work::Sending(outgoing) => outgoing.input(frame, now),
            Work::Receiving(incoming) => incoming.input(frame, now),
            Work::Asking(inquiry) => inquiry.input((), frame, now),
            // It will hear of it in time.
            Work::Preparing(_) => {}
        }
    }

    /// The end, if it has come.
    pub(crate) fn timeout(&mut self, now: Instant) -> Option<Result<Vec<u8>, Error>> {
        match &mut self.work {
            Work::Sending(outgoing) => {
                outgoing.timeout(now);
                let ended = outgoing.ended(now);
                ended.map(|result| result.map(|()| Vec::new()))
            }
            Work::Receiving(incoming) => {
                incoming.timeout(now);
                incoming.ended()
            }
            Work::Asking(inquiry) => {
                inquiry.timeout(now);
                Some(match inquiry.event()? {
                    Answer::Said(Code::OK) => Ok(Vec::new()),
                    Answer::Said(code) => {
                        Err(Error::session(&self.path, sender::Failure::Peer(code)))
                    }
                    Answer::Silence => Err(Error::session(&self.path, sender::Failure::Silence)),
                })
            }
            Work::Preparing(prepared) => match prepared.try_recv() {
                Ok(Ok(outgoing)) => {
                    self.work = Work::Sending(outgoing);
                    None
                }
                Ok(Err(error)) => Some(Err(error)),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => {
                    let failure = sender::Failure::Own(Code::CANNOT_SEND);
                    Some(Err(Error::session(&self.path, failure)))
                }
            },
        }
    }

    /// Octets that may still be sent to this peer.
    fn allowance(&self) -> u64 {
        let answered = matches!(&self.work, Work::Sending(outgoing) if outgoing.sender.is_proven());
        let credit = match self.standing {
            _ if answered => return u64::MAX,
            Standing::Proven => return u64::MAX,
            Standing::Known => CREDIT,
            Standing::Unproven => 0,
        };
        let all = credit.saturating_add(AMPLIFICATION.saturating_mul(self.received));
        all.saturating_sub(self.sent)
    }

    /// Whether it must hear the peer before more is sent.
    fn is_held(&self) -> bool {
        let Work::Sending(outgoing) = &self.work else {
            return false;
        };
        self.allowance() < outgoing.sender.packet().0
    }

    /// Appends the next datagram to `out`; `false` when none is due.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.is_held() {
            return false;
        }
        let start = out.len();
        while self.emit(now, out) {
            if let Some(seals) = &self.seals {
                seals.session.close(out, start);
            }
            let len = (out.len() - start) as u64 + HEADERS;
            if len <= self.allowance() {
                self.sent += len;
                return true;
            }
            // As if it were lost.
            out.truncate(start);
        }
        false
    }

    fn emit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let frame = match &mut self.work {
            Work::Sending(outgoing) => return outgoing.transmit(now, out),
            Work::Receiving(incoming) => incoming.receiver.transmit(now),
            Work::Asking(inquiry) => inquiry.transmit(now),
            Work::Preparing(_) => None,
        };
        let start = out.len();
        let written = frame.is_some_and(|((), frame)| frame.emit(out).is_ok());
        if !written {
            out.truncate(start);
        }
        written
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.work {
            // What ends a session that is held is the silence, for which a look now and then will do.
            Work::Sending(_) if self.is_held() => None,
            Work::Sending(outgoing) => outgoing.deadline(),
            Work::Receiving(incoming) => incoming.receiver.deadline(),
            Work::Asking(inquiry) => inquiry.deadline(),
            Work::Preparing(_) => None,
        }
    }

    pub(crate) fn wants_a_look(&self) -> bool {
        match &self.work {
            Work::Sending(outgoing) => outgoing.waits(),
            Work::Receiving(incoming) => incoming.verifies(),
            Work::Asking(_) => false,
            Work::Preparing(_) => true,
        }
    }
}
