//! One UDP socket and all sessions on it, driven by one loop: receive, time out, send, wait for the next deadline.

use crate::Error;
use crate::answers::Answers;
use crate::batch::Batch;
use crate::capacity;
use crate::seal::{SEAL, Seal};
use crate::session::{Session, Work};
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_saratoga::sender::Congestion;
use bentpipe_saratoga::{HoleEnd, receiver, sender};
use bentpipe_saratoga_files::network;
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::timer;
use bentpipe_sockets::udp::{RECEIVE, Udp, path_mtu};
use bentpipe_wire::saratoga::{Frame, Metadata, Request, Width};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The properties of the path to the peers.
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
    /// Whether DATA has timestamps. Without them nobody can show that it hears us, and a server sends whatever is
    /// asked for to whatever address asks: for peers that cannot read them, in networks that nobody forges in.
    pub timestamps: bool,
    /// Peers are heard and answered as if they sent from this port, and a client sends from it: for those that
    /// listen at one port and send from another.
    pub peer_port: Option<u16>,
}

impl Link {
    /// Sessions that the rate is enough for: each has a packet in two thirds of `silence`, or its peer takes it for gone.
    pub(crate) fn most_sessions(&self) -> usize {
        let octets = self.rate.over(self.silence * 2 / 3).0;
        usize::try_from(octets / u64::from(self.packet)).map_or(usize::MAX, |most| most.max(1))
    }
}

/// Peer and session Id. Who asks from another port is another peer: a NAT has many behind one address.
pub(crate) type Key = (SocketAddr, u32);

/// A session that is over.
pub(crate) struct Ended {
    pub(crate) key: Key,
    pub(crate) path: String,
    /// What arrived in memory.
    pub(crate) result: Result<Vec<u8>, Error>,
}

/// A datagram of no session, or that its owner is to look at.
pub(crate) struct Stray {
    pub(crate) key: Key,
    /// To which address of this host it came, where that is known.
    local_address: Option<IpAddr>,
    pub(crate) datagram: Vec<u8>,
}

/// What a turn of the loop brought.
#[derive(Default)]
pub(crate) struct Turn {
    /// Datagrams of no session of ours, and those that its owner is to look at.
    pub(crate) strays: Vec<Stray>,
    pub(crate) ended: Vec<Ended>,
    /// Something that was received has been verified, which its owner may have waited for.
    verified: bool,
}

/// Sessions with a peer: those in which it was heard, and those in which it is quiet.
#[derive(Default)]
struct Sessions {
    sending: [u32; 2],
    /// Those of them that need the line now.
    busy: [u32; 2],
    receiving: [u32; 2],
}

/// See the file's head.
pub struct Endpoint {
    pub(crate) udp: Udp,
    /// The address that it is bound to.
    own: SocketAddr,
    epoll: Epoll,
    events: Events,
    link: Link,
    pub(crate) sessions: BTreeMap<Key, Session>,
    /// The peer whose datagram is being handled, and to which address of this host that came. Of peers without a session
    /// nothing else is kept: anybody can send from many ports.
    handled: Option<(SocketAddr, IpAddr)>,
    answers: Answers,
    batch: Batch,
    buffer: Vec<u8>,
    /// Stretches that all sessions together keep at most, about.
    stretches: usize,
    /// Whether any datagram was received.
    heard: bool,
}

/// Batches that a turn receives at most, before it answers.
const RECEIVES: usize = 16;
/// Datagrams that a session sends in a turn at most.
const SENDS: usize = 256;
/// The part of the rate for all sessions with silent peers together, while others send.
const FOR_THE_QUIET: f64 = 1.0 / 16.0;
/// The part of a peer's share that is for what it is sent, however much it is answered.
const FOR_CONTENT: f64 = 1.0 / 16.0;
/// Stretches that a session may keep whatever others do.
const FEW_STRETCHES: usize = 64;
/// Between two looks at threads that work for us, and at streams that grow.
const LOOK: Duration = Duration::from_millis(2);
/// IPv4 and UDP; IPv6 and UDP.
const OVERHEAD: [u32; 2] = [28, 48];
/// Octets of an IP packet with a STATUS at most: no probe finds out what the way back carries (RFC 8899's BASE_PLPMTU).
const STATUS_PACKET: u32 = 1200;

impl Endpoint {
    /// A node that speaks by the socket `udp`.
    ///
    /// # Errors
    /// A socket that could not be had.
    pub(crate) fn on(udp: io::Result<Udp>, link: Link) -> Result<Self, Error> {
        let bound = || {
            let udp = udp?;
            let own = udp.local_address()?;
            let epoll = Epoll::new()?;
            epoll.add(&udp, 0, Interest::READ)?;
            Ok((udp, own, epoll))
        };
        let (udp, own, epoll) = bound().map_err(Error::socket("open the UDP port"))?;
        Ok(Self {
            udp,
            own,
            epoll,
            events: Events::with_capacity(4),
            link,
            sessions: BTreeMap::new(),
            handled: None,
            answers: Answers::default(),
            batch: Batch::default(),
            buffer: vec![0; RECEIVE],
            stretches: capacity::stretches(),
            heard: false,
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

    /// Whether nothing listens at the one peer to which the socket is connected.
    pub(crate) const fn is_refused(&self) -> bool {
        !self.heard && self.batch.refusals.are_believed()
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
        sealed: bool,
    ) -> sender::Config {
        let (most, overhead) = content(link, &metadata, peer, sealed);
        sender::Config {
            metadata,
            request,
            rate: link.rate,
            payload: most,
            overhead: Bytes(overhead.into()),
            congestion: link.congestion,
            silence: link.silence,
            late_checksum: false,
            nonce: link.timestamps.then(nonce),
            blind: false,
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
            width: Width::Bits16,
            kept,
            unannounced: Bytes(16 << 20),
            hole_end: link.hole_end,
            room: link.packet.min(STATUS_PACKET) as usize - OVERHEAD[1] as usize - SEAL,
            silence: link.silence,
            linger: Duration::from_secs(10).min(link.silence),
        }
    }

    /// What is said to the peer of `stray`, and what it begins, is of the address to which that came, until the next is
    /// handled.
    pub(crate) fn handle(&mut self, stray: &Stray) {
        self.handled = stray.local_address.map(|at| (stray.key.0, at));
    }

    /// At which address of this host `peer` was heard, as far as that is known: now, or in a session.
    fn local_address(&self, peer: SocketAddr) -> Option<IpAddr> {
        let (peer, _) = key(peer, 0);
        let handled = self.handled.filter(|(other, _)| *other == peer);
        let sessions = self.sessions.range((peer, 0)..=(peer, u32::MAX));
        let mut known = sessions.filter_map(|(_, session)| session.local_address);
        handled.map(|(_, at)| at).or_else(|| known.next())
    }

    pub(crate) fn start(&mut self, key: Key, mut session: Session) {
        session.local_address = self.local_address(key.0);
        self.sessions.insert(key, session);
    }

    /// Sends `frame` once.
    pub(crate) fn reply(&mut self, frame: &Frame, to: SocketAddr, seal: Option<&Seal>) {
        let mut datagram = Vec::new();
        if frame.emit(&mut datagram).is_ok() {
            if let Some(seal) = seal {
                seal.close(&mut datagram, 0);
            }
            // A reply that is lost is asked for again.
            let from = self.local_address(to);
            let _ = self.udp.send_from(&datagram, datagram.len(), to, from);
        }
    }

    /// What receivers say counts against the rate from now on.
    pub(crate) const fn bound_answers(&mut self) {
        self.answers.bound();
    }

    /// Divides the rate evenly among the peers that are sent to or answered, and the part of each among those of its
    /// sessions that need the line now: who asks for much at once takes nothing from others, and a session that waits
    /// for an answer takes nothing from those of the same peer. What is said to a peer is of its own part; what that
    /// leaves of peers that are sent nothing is for the others. Sessions whose peer is silent, perhaps for ever, get a
    /// small part together, as long as others can use the rest.
    fn share(&mut self, now: Instant) {
        let mut peers: BTreeMap<IpAddr, Sessions> = BTreeMap::new();
        for (key, session) in &self.sessions {
            let own = peers.entry(network(key.0)).or_default();
            let quiet = usize::from(session.is_quiet(now));
            match &session.work {
                Work::Sending(_) => {
                    own.sending[quiet] += 1;
                    own.busy[quiet] += u32::from(session.needs_line(now));
                }
                Work::Receiving(_) => own.receiving[quiet] += 1,
                Work::Asking(_) | Work::Preparing(_) => {}
            }
        }
        let heard = |own: &&Sessions| own.sending[0] + own.receiving[0] > 0;
        let heard = peers.values().filter(heard).count().max(1);
        let answered = peers.iter().filter(|(_, own)| own.receiving != [0, 0]);
        let each = self.link.rate.scaled(1.0 / heard as f64);
        let answered = answered.map(|(peer, _)| *peer);
        self.answers.share(answered, each, now);

        let others = peers.iter().filter(|(_, own)| own.sending[0] == 0);
        let said = others.map(|(peer, _)| self.answers.rate(*peer, now).bits_per_sec());
        let left = self.link.rate.bits_per_sec().saturating_sub(said.sum());
        let sent_to =
            [0, 1].map(|quiet| peers.values().filter(|own| own.sending[quiet] > 0).count());
        let parts = match sent_to {
            [_, 0] => [1.0, 0.0],
            [0, _] => [0.0, 1.0],
            _ => [1.0 - FOR_THE_QUIET, FOR_THE_QUIET],
        };
        for (key, session) in &mut self.sessions {
            let (quiet, peer) = (usize::from(session.is_quiet(now)), network(key.0));
            let busy = session.needs_line(now);
            if let Work::Sending(outgoing) = &mut session.work
                && let Some(own) = peers.get(&peer)
            {
                let part = left as f64 * parts[quiet] / sent_to[quiet] as f64;
                let said = self.answers.rate(peer, now).bits_per_sec() as f64;
                let rest = (part - said).max(part * FOR_CONTENT);
                // A question is sent at an even part, also where many are due at once.
                let sharers = if busy { own.busy } else { own.sending };
                let rate = Rate::from_bits_per_sec((rest / f64::from(sharers[quiet])) as u64);
                outgoing.sender.set_rate(rate, now);
            }
        }
    }

    /// Peers choose how many stretches a session has to keep. Half of all that are kept is divided evenly, and the other half is
    /// had by who needs it first: many sessions take little more memory than a few.
    fn share_stretches(&mut self) {
        let count = self.sessions.len().max(1);
        let kept: usize = self.sessions.values().map(Session::stretches).sum();
        let even = (self.stretches / 2 / count).max(FEW_STRETCHES);
        let free = (self.stretches / 2).saturating_sub(kept) / count;
        for session in self.sessions.values_mut() {
            let most = even.max(session.stretches() + free);
            session.limit_stretches(most);
        }
    }

    /// Takes what has come, sends what is due, and waits for more: until a deadline, or for `limit`.
    pub(crate) fn turn(&mut self, limit: Duration) -> Result<Turn, Error> {
        let mut turn = Turn::default();
        self.handled = None;
        let more = self.receive(&mut turn)?;
        let now = timer::now();
        self.timeouts(now, &mut turn);
        self.share(now);
        self.share_stretches();
        let (sent_all, blocked) = self.transmit(now)?;
        let idle = turn.strays.is_empty() && turn.ended.is_empty() && !turn.verified;
        if idle && sent_all && !more {
            self.wait(limit, blocked)?;
        }
        Ok(turn)
    }

    /// Whether there may be more.
    fn receive(&mut self, turn: &mut Turn) -> Result<bool, Error> {
        for _ in 0..RECEIVES {
            let received = self.udp.receive(&mut self.buffer);
            let received = self.batch.refusals.received(received);
            let Some(received) = received.map_err(Error::socket("receive"))? else {
                return Ok(false);
            };
            self.heard = true;
            let mut from = received.from;
            from.set_port(self.link.peer_port.unwrap_or(from.port()));
            let local_address = received.at.map(|at| at.to_canonical());
            // The kernel takes forged ones over IPv6. What is said to that would come back, and look as if somebody heard it.
            let own = SocketAddr::new(local_address.unwrap_or(self.own.ip()), self.own.port());
            if is_same(from, own) {
                continue;
            }
            let now = timer::now();
            // The session of the previous datagram is looked up first, because it is nearly always that of the next one
            // too.
            let mut last: Option<(u32, &mut Session)> = None;
            for datagram in self.buffer[..received.len].chunks(received.segment) {
                let Some(id) = session_of(datagram) else {
                    continue;
                };
                let key = key(from, id);
                if last.as_ref().is_none_or(|(known, _)| *known != id) {
                    last = self.sessions.get_mut(&key).map(|session| (id, session));
                }
                let settled = match &mut last {
                    Some((_, session)) => {
                        session.local_address = local_address.or(session.local_address);
                        session.take(datagram, now)
                    }
                    None => false,
                };
                if !settled {
                    turn.strays.push(Stray {
                        key,
                        local_address,
                        datagram: datagram.to_vec(),
                    });
                }
            }
        }
        Ok(true)
    }

    fn timeouts(&mut self, now: Instant, turn: &mut Turn) {
        for (key, session) in &mut self.sessions {
            let verified = session.is_verified();
            let ended = session.timeout(now);
            turn.verified |= session.is_verified() != verified;
            if let Some(result) = ended {
                turn.ended.push(Ended {
                    key: *key,
                    path: session.path.clone(),
                    result,
                });
            }
        }
    }

    /// Ends the sessions of `turn`, after their last words.
    pub(crate) fn remove_ended(&mut self, turn: &Turn) -> Result<(), Error> {
        if turn.ended.is_empty() {
            return Ok(());
        }
        self.transmit(timer::now())?;
        for ended in &turn.ended {
            self.sessions.remove(&ended.key);
        }
        Ok(())
    }

    /// Sends what is due: whether that was all, and whether the socket was full.
    fn transmit(&mut self, now: Instant) -> Result<(bool, bool), Error> {
        let full = |sent: std::io::Result<bool>| sent.map_err(Error::socket("send"));
        if !full(self.batch.flush(&self.udp))? {
            return Ok((true, true));
        }
        if !full(self.answer(now))? {
            return Ok((true, true));
        }
        let mut all = true;
        for session in self.sessions.values_mut() {
            if let Work::Receiving(_) = session.work {
                continue;
            }
            let mut count = 0;
            while count < SENDS && session.transmit(now, self.batch.buffer()) {
                count += 1;
                if !full(self.batch.end(session.way(), &self.udp))? {
                    return Ok((true, true));
                }
            }
            all &= count < SENDS;
        }
        let blocked = !full(self.batch.flush(&self.udp))?;
        if self.udp.was_too_long() {
            self.limit();
        }
        Ok((all, blocked))
    }

    /// Sends what receivers have to say, as far as their peers may have it: a frame of each in turn, and first of who
    /// was quiet for longest. Last words do not wait. Returns whether the socket had room.
    fn answer(&mut self, now: Instant) -> io::Result<bool> {
        let receiving = |session: &Session| matches!(session.work, Work::Receiving(_));
        let sessions = self
            .sessions
            .iter()
            .filter(|(_, session)| receiving(session));
        let mut order: Vec<(Instant, Key)> = sessions
            .map(|(key, session)| (session.said_at, *key))
            .collect();
        order.sort_unstable();
        let mut turns: VecDeque<Key> = order.into_iter().map(|(_, key)| key).collect();
        while let Some(key) = turns.pop_front() {
            let peer = network(key.0);
            let may_say = self.answers.may_say(peer, now);
            let session = self.sessions.get_mut(&key);
            let Some(session) = session.filter(|session| may_say || session.is_over()) else {
                continue;
            };
            let out = self.batch.buffer();
            let before = out.len();
            if session.transmit(now, out) {
                session.said_at = now;
                let headers = OVERHEAD[usize::from(key.0.is_ipv6())];
                let size = (out.len() - before) as u64 + u64::from(headers);
                self.answers.said(peer, Bytes(size), now);
                if !self.batch.end(session.way(), &self.udp)? {
                    return Ok(false);
                }
                turns.push_back(key);
            }
        }
        Ok(true)
    }

    /// No packet is longer from now on than what the kernel knows of the path to its peer.
    fn limit(&mut self) {
        for session in self.sessions.values_mut() {
            let sealed = session.seal().is_some();
            if let Work::Sending(outgoing) = &mut session.work {
                let sender = &mut outgoing.sender;
                let (most, _) = content(&self.link, sender.metadata(), session.peer, sealed);
                sender.limit(most);
            }
        }
    }

    fn wait(&mut self, limit: Duration, blocked: bool) -> Result<(), Error> {
        let now = timer::now();
        let mut wait = limit;
        if let Some(at) = self.answers.deadline(now).filter(|_| !blocked) {
            wait = wait.min(at.since(now));
        }
        for session in self.sessions.values() {
            if let Some(at) = session.deadline().filter(|_| !blocked) {
                wait = wait.min(at.since(now));
            }
            // Others have its part then.
            if let Some(at) = session.line_free_at().filter(|at| *at > now) {
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

/// Octets of content in a DATA frame to `peer` at most, as far as the kernel knows the path, and octets that IP, UDP and a seal
/// add to each frame.
fn content(link: &Link, metadata: &Metadata, peer: SocketAddr, sealed: bool) -> (u32, u32) {
    let overhead = OVERHEAD[usize::from(key(peer, 0).0.is_ipv6())];
    let seal = if sealed { SEAL as u32 } else { 0 };
    // Type, session, timestamp and offset.
    let header = 24 + metadata.width.octets() as u32;
    // Where there is no way now there may be one later.
    let packet = path_mtu(peer).map_or(link.packet, |most| most.min(link.packet));
    let most = packet.saturating_sub(overhead + header + seal).max(1);
    (most, overhead + seal)
}

/// A secret for the timestamps of a session, and for the Ids of a client's.
pub(crate) fn nonce() -> u32 {
    // Without random numbers a server does not start; a client has chosen its peer.
    getrandom::u32().unwrap_or_default()
}

/// The key of session `id` with `peer`; an IPv4 peer has one address, however the socket shows it.
pub(crate) fn key(peer: SocketAddr, id: u32) -> Key {
    match peer {
        SocketAddr::V6(own) => match own.ip().to_ipv4_mapped() {
            Some(ip) => ((ip, own.port()).into(), id),
            None => (peer, id),
        },
        SocketAddr::V4(_) => (peer, id),
    }
}

/// Whether both are one address and port of this host, by whatever interface.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    let place = |address: SocketAddr| (address.ip().to_canonical(), address.port());
    place(one) == place(other)
}

/// The Id of the session that `datagram` is of: `None` for beacons and what is not version 1.
fn session_of(datagram: &[u8]) -> Option<u32> {
    let (head, rest) = datagram.split_first_chunk::<4>()?;
    let (id, _) = rest.split_first_chunk()?;
    matches!(head[0], 0x21..=0x24).then(|| u32::from_be_bytes(*id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_by_any_interface_and_family() {
        for (one, other, same) in [
            ("[fe80::1%2]:1", "[fe80::1]:1", true),
            ("[::ffff:10.0.0.1]:1", "10.0.0.1:1", true),
            ("[fe80::1%2]:1", "[fe80::1%2]:2", false),
            ("[fe80::1%2]:1", "[fe80::2%2]:1", false),
        ] {
            let [one, other] = [one, other].map(|address| address.parse().unwrap());
            assert_eq!(is_same(one, other), same, "{one} {other}");
        }
    }
}
