//! One socket, and the sessions that live on it.

use crate::Error;
use crate::batch::Batch;
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_os::epoll::{Epoll, Events, Interest};
use bentpipe_os::timer;
use bentpipe_os::udp::{RECEIVE, Udp, path_mtu};
use bentpipe_saratoga::sender::Congestion;
use bentpipe_saratoga::{Answer, HoleEnd, Inquiry, receiver, sender};
use bentpipe_wire::saratoga::{Code, Data, Frame, Metadata, Request, Width};
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc;

/// What the way to the peers is like.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// What all sessions together may send, IP headers included.
    pub rate: Rate,
    /// Octets of an IP packet at most; less where the path to a peer takes less.
    pub packet: u32,
    /// Whether the path is shared.
    pub congestion: Congestion,
    /// How long a peer may say nothing.
    pub silence: Duration,
    /// How ends of holes are written.
    pub hole_end: HoleEnd,
}

/// Peer and session Id.
pub(crate) type Key = (IpAddr, u32);

/// What a session does.
pub(crate) enum Work {
    Sending(Box<Outgoing>),
    Receiving(Box<Incoming>),
    Asking(Box<Inquiry>),
    /// A thread prepares what is to be sent.
    Preparing(mpsc::Receiver<Result<Box<Outgoing>, Error>>),
}

pub(crate) struct Session {
    pub(crate) peer: SocketAddr,
    pub(crate) path: String,
    pub(crate) work: Work,
}

/// A session that is over.
pub(crate) struct Ended {
    pub(crate) key: Key,
    pub(crate) path: String,
    /// What arrived in memory.
    pub(crate) result: Result<Vec<u8>, Error>,
}

/// What a turn of the loop brought.
#[derive(Default)]
pub(crate) struct Turn {
    /// Frames of no session of ours.
    pub(crate) strays: Vec<(Frame, SocketAddr)>,
    pub(crate) ended: Vec<Ended>,
}

/// See the file's head.
pub struct Node {
    pub(crate) udp: Udp,
    epoll: Epoll,
    events: Events,
    link: Link,
    pub(crate) sessions: BTreeMap<Key, Session>,
    batch: Batch,
    buffer: Vec<u8>,
}

/// Batches that a turn receives at most, before it answers.
const RECEIVES: usize = 16;
/// Datagrams that a session sends in a turn at most.
const SENDS: usize = 256;
/// Between two looks at threads that work for us, and at streams that grow.
const LOOK: Duration = Duration::from_millis(2);
/// IPv4 and UDP; IPv6 and UDP.
const OVERHEAD: [u32; 2] = [28, 48];

impl Node {
    /// A node on `address`.
    ///
    /// # Errors
    /// An address that cannot be had.
    pub fn bind(address: SocketAddr, link: Link) -> Result<Self, Error> {
        let bound = || {
            let udp = Udp::bind(address)?;
            let epoll = Epoll::new()?;
            epoll.add(&udp, 0, Interest::READ)?;
            Ok((udp, epoll))
        };
        let (udp, epoll) = bound().map_err(Error::socket("open the UDP port"))?;
        Ok(Self {
            udp,
            epoll,
            events: Events::with_capacity(4),
            link,
            sessions: BTreeMap::new(),
            batch: Batch::default(),
            buffer: vec![0; RECEIVE],
        })
    }

    /// Its own address.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.udp
            .local_address()
            .map_err(Error::socket("ask for the port"))
    }

    pub(crate) const fn link(&self) -> &Link {
        &self.link
    }

    /// How to send what `metadata` announces to `peer`, in packets that reach it whole.
    pub(crate) fn sending(
        link: &Link,
        metadata: Metadata,
        request: Option<Request>,
        peer: SocketAddr,
    ) -> sender::Config {
        let overhead = OVERHEAD[usize::from(key(peer, 0).0.is_ipv6())];
        // Type, session, timestamp and offset.
        let header = 24 + metadata.width.octets() as u32;
        // Where there is no way now there may be one later.
        let packet = path_mtu(peer).map_or(link.packet, |most| most.min(link.packet));
        sender::Config {
            metadata,
            request,
            rate: link.rate,
            payload: packet.saturating_sub(overhead + header).max(1),
            overhead: Bytes(overhead.into()),
            congestion: link.congestion,
            silence: link.silence,
        }
    }

    /// How to receive `session`.
    pub(crate) fn receiving(
        link: &Link,
        session: u32,
        request: Option<Request>,
        kept: Option<receiver::Kept>,
    ) -> receiver::Config {
        receiver::Config {
            session,
            request,
            kept,
            unannounced: Bytes(16 << 20),
            hole_end: link.hole_end,
            room: link.packet.saturating_sub(OVERHEAD[1]) as usize,
            silence: link.silence,
            linger: Duration::from_secs(10).min(link.silence),
        }
    }

    pub(crate) fn start(&mut self, key: Key, session: Session) {
        self.sessions.insert(key, session);
        self.share();
    }

    /// Sends `frame` once.
    pub(crate) fn reply(&mut self, frame: &Frame, to: SocketAddr) {
        let mut datagram = Vec::new();
        if frame.emit(&mut datagram).is_ok() {
            // A reply that is lost is asked for again.
            let _ = self.udp.send(&datagram, datagram.len(), to);
        }
    }

    /// What all that send may send is divided evenly.
    fn share(&mut self) {
        let sending = |session: &&mut Session| matches!(session.work, Work::Sending(_));
        let count = self.sessions.values_mut().filter(sending).count().max(1);
        let rate = self.link.rate.scaled(1.0 / count as f64);
        for session in self.sessions.values_mut() {
            if let Work::Sending(outgoing) = &mut session.work {
                outgoing.sender.set_rate(rate);
            }
        }
    }

    /// Takes what has come, sends what is due, and waits for more: until a deadline, or for `limit`.
    pub(crate) fn turn(&mut self, limit: Duration) -> Result<Turn, Error> {
        let mut turn = Turn::default();
        let more = self.receive(&mut turn)?;
        let now = timer::now();
        self.timeouts(now, &mut turn);
        let (sent_all, blocked) = self.transmit(now)?;
        if turn.strays.is_empty() && turn.ended.is_empty() && sent_all && !more {
            self.wait(limit, blocked)?;
        }
        Ok(turn)
    }

    /// Whether there may be more.
    fn receive(&mut self, turn: &mut Turn) -> Result<bool, Error> {
        for _ in 0..RECEIVES {
            let received = self
                .udp
                .receive(&mut self.buffer)
                .map_err(Error::socket("receive"))?;
            let Some(received) = received else {
                return Ok(false);
            };
            let now = timer::now();
            // The session of the datagram before, which nearly always is that of the next too.
            let mut last: Option<(u32, &mut Incoming)> = None;
            for datagram in self.buffer[..received.len].chunks(received.segment) {
                if let Some((data, payload)) = Data::of(datagram) {
                    if last.as_ref().is_none_or(|(id, _)| *id != data.session) {
                        let session = self.sessions.get_mut(&key(received.from, data.session));
                        last = session
                            .and_then(Session::incoming)
                            .map(|to| (data.session, to));
                    }
                    if let Some((_, incoming)) = &mut last {
                        incoming.data(&data, payload, now);
                        continue;
                    }
                }
                last = None;
                let frame = match Frame::parse(datagram) {
                    Ok((frame, _)) => frame,
                    Err(error) => {
                        tracing::debug!(%error, from = %received.from, "a datagram was dropped");
                        continue;
                    }
                };
                let Some(id) = frame.session() else {
                    continue;
                };
                let session = self.sessions.get_mut(&key(received.from, id));
                // A REQUEST from another port is of a peer that began anew.
                let fresh = matches!(frame, Frame::Request(_));
                match session {
                    Some(session) if !fresh || session.peer == received.from => {
                        session.input(frame, now);
                    }
                    _ => turn.strays.push((frame, received.from)),
                }
            }
        }
        Ok(true)
    }

    fn timeouts(&mut self, now: Instant, turn: &mut Turn) {
        for (key, session) in &mut self.sessions {
            if let Some(result) = session.timeout(now) {
                turn.ended.push(Ended {
                    key: *key,
                    path: session.path.clone(),
                    result,
                });
            }
        }
    }

    /// Ends the sessions of `turn`, after their last words.
    pub(crate) fn bury(&mut self, turn: &Turn) -> Result<(), Error> {
        if turn.ended.is_empty() {
            return Ok(());
        }
        self.transmit(timer::now())?;
        for ended in &turn.ended {
            self.sessions.remove(&ended.key);
        }
        self.share();
        Ok(())
    }

    /// Sends what is due: whether that was all, and whether the socket was full.
    fn transmit(&mut self, now: Instant) -> Result<(bool, bool), Error> {
        let full = |sent: std::io::Result<bool>| sent.map_err(Error::socket("send"));
        if !full(self.batch.flush(&self.udp))? {
            return Ok((true, true));
        }
        let mut all = true;
        for session in self.sessions.values_mut() {
            let mut count = 0;
            while count < SENDS && session.transmit(now, self.batch.buffer()) {
                count += 1;
                if !full(self.batch.end(session.peer, &self.udp))? {
                    return Ok((true, true));
                }
            }
            all &= count < SENDS;
        }
        Ok((all, !full(self.batch.flush(&self.udp))?))
    }

    fn wait(&mut self, limit: Duration, blocked: bool) -> Result<(), Error> {
        let now = timer::now();
        let mut wait = limit;
        for session in self.sessions.values() {
            if let Some(at) = session.deadline().filter(|_| !blocked) {
                wait = wait.min(at.since(now));
            }
            if session.wants_a_look() {
                wait = wait.min(LOOK);
            }
        }
        let waited = || {
            if blocked {
                self.epoll
                    .modify(&self.udp, 0, Interest::READ | Interest::WRITE)?;
            }
            self.epoll.wait(&mut self.events, Some(wait))?;
            if blocked {
                self.epoll.modify(&self.udp, 0, Interest::READ)?;
            }
            Ok(())
        };
        let mut waited = waited;
        waited().map_err(Error::socket("wait for datagrams"))
    }
}

/// The key of session `id` with `peer`; an IPv4 peer has one address, however the socket shows it.
pub(crate) fn key(peer: SocketAddr, id: u32) -> Key {
    (peer.ip().to_canonical(), id)
}

impl Session {
    /// Where DATA goes; nowhere when it does not receive.
    fn incoming(&mut self) -> Option<&mut Incoming> {
        match &mut self.work {
            Work::Receiving(incoming) => Some(incoming),
            _ => None,
        }
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
    fn timeout(&mut self, now: Instant) -> Option<Result<Vec<u8>, Error>> {
        match &mut self.work {
            Work::Sending(outgoing) => {
                outgoing.timeout(now);
                outgoing
                    .ended(now)
                    .map(|result| result.map(|()| Vec::new()))
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
                Err(mpsc::TryRecvError::Empty) => None,
                Err(mpsc::TryRecvError::Disconnected) => {
                    let failure = sender::Failure::Own(Code::CANNOT_SEND);
                    Some(Err(Error::session(&self.path, failure)))
                }
            },
        }
    }

    /// Appends the next datagram to `out`; `false` when none is due.
    fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
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

    fn deadline(&self) -> Option<Instant> {
        match &self.work {
            Work::Sending(outgoing) => outgoing.deadline(),
            Work::Receiving(incoming) => incoming.receiver.deadline(),
            Work::Asking(inquiry) => inquiry.deadline(),
            Work::Preparing(_) => None,
        }
    }

    fn wants_a_look(&self) -> bool {
        match &self.work {
            Work::Sending(outgoing) => outgoing.waits(),
            Work::Receiving(incoming) => incoming.verifies(),
            Work::Asking(_) => false,
            Work::Preparing(_) => true,
        }
    }
}

/// The widest descriptor that this side uses.
pub(crate) const WIDEST: Width = Width::Bits64;
