//! What only a near end does: it asks.

use crate::awaited::{Awaited, AwaitedAnswer};
use crate::driver::{Driver, Part};
use crate::fall_back::FallBack;
use crate::far_end_limit::{Admission, FarEndLimit};
use crate::first_flight::FirstFlight;
use crate::flow::Phase;
use crate::ticket::Ticket;
use bentpipe_base::Instant;
use bentpipe_connect_tcp::{DialError, Target};
use bentpipe_quic::ConnectionId;
use bentpipe_sockets::epoll::Waker;
use bentpipe_sockets::socket;
use bentpipe_tunnel::{OpenError, TunnelId};
use core::fmt;
use core::time::Duration;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use thiserror::Error;

/// Requests that may wait for the far end to allow more tunnels.
const WAITING: usize = 1024;
/// How long one waits at most. New ones are not taken meanwhile.
const WAIT: Duration = Duration::from_secs(5);
/// Between two tries to connect, at first and at most.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MOST: Duration = Duration::from_secs(30);
/// How long one may take before the next: a handshake of two round trips, and three repetitions of what is lost.
const TRY: Duration = Duration::from_secs(5);

/// What a flow holds until it ends, such as its place in a count.
pub type Keep = Box<dyn Any + Send>;

/// There is no tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoTunnel {
    /// No connection to the far end stands, or it takes no more.
    #[error("the far end is not reached")]
    Down,
    /// The far end's dial failed.
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// Is told once what became of a request.
type Answer = Box<dyn FnOnce(Result<(), NoTunnel>) + Send>;

/// What other threads hand in.
pub(crate) enum Hand {
    Carry(TcpStream, (Target, Option<SocketAddr>), Keep, AwaitedAnswer),
    Ask(u64, (Target, SocketAddr), Answer, AwaitedAnswer),
    Join(u64, TcpStream, Keep),
    Forget(u64),
}

impl Hand {
    /// There is no tunnel for it.
    fn refuse(self, why: NoTunnel) {
        match self {
            Self::Carry(socket, ..) | Self::Join(_, socket, _) => {
                // Without it the kernel would say goodbye as if all had been said.
                let _ = socket::abort_on_close(&socket, true);
            }
            Self::Ask(_, _, answer, _) => answer(Err(why)),
            Self::Forget(_) => {}
        }
    }
}

/// Hands connections to a near driver.
#[derive(Clone, Debug)]
pub struct Near {
    hands: Sender<Hand>,
    waker: Arc<Waker>,
    up: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
    admission: Arc<Admission>,
    next: Arc<AtomicU64>,
    awaited: Arc<Awaited>,
}

impl Near {
    /// Whether tunnels may be opened at present, if only in a first flight.
    pub fn is_up(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(&self.up) && !is_set(&self.full) && self.admission.is_open()
    }

    /// Whether a new connection may have a tunnel. It is asked once for each: there may be one that is to try for all.
    pub fn admits(&self) -> bool {
        if !self.is_up() {
            return false;
        }
        let (admits, tries) = self.admission.admit();
        if tries {
            self.waker.wake();
        }
        admits
    }

    /// Carries a client's connection to `target`; it is reset where that fails. What the client has said leaves with the request.
    pub fn carry(&self, socket: TcpStream, target: Target, keep: Keep) {
        let client = socket.peer_addr().ok();
        let awaited = self.awaited.begin(client.map(|address| address.ip()));
        self.hand(Hand::Carry(socket, (target, client), keep, awaited));
    }

    /// How many tunnels were asked for that have no answer yet, and how many of these carry connections of `client`.
    pub fn awaited(&self, client: IpAddr) -> (usize, usize) {
        self.awaited.count(client)
    }

    /// Asks for a tunnel to `target` for `client`; `answer` is called in the driver's thread, unless the ticket was dropped before.
    pub fn ask(
        &self,
        target: Target,
        client: SocketAddr,
        answer: impl FnOnce(Result<(), NoTunnel>) + Send + 'static,
    ) -> Ticket {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let awaited = self.awaited.begin(None);
        self.hand(Hand::Ask(
            number,
            (target, client),
            Box::new(answer),
            awaited,
        ));
        Ticket {
            number: Some(number),
            near: self.clone(),
        }
    }

    pub(crate) fn hand(&self, hand: Hand) {
        if let Err(refused) = self.hands.send(hand) {
            refused.0.refuse(NoTunnel::Down);
        }
        self.waker.wake();
    }
}

/// A tunnel without a socket yet.
struct Reserved {
    number: u64,
    /// Called when the far end answers.
    answer: Option<(Answer, AwaitedAnswer)>,
}

/// The state of a near end.
pub(crate) struct Asking {
    peer: SocketAddr,
    hands: Receiver<Hand>,
    /// Requests, and since when they wait.
    waiting: VecDeque<(Instant, Hand)>,
    pub(crate) connection: Option<ConnectionId>,
    up: Arc<AtomicBool>,
    /// The connection has no room for more tunnels.
    full: Arc<AtomicBool>,
    /// The far end admits no more tunnels.
    pub(crate) limit: FarEndLimit,
    /// The second carrier.
    pub(crate) fall_back: FallBack,
    /// The far end is told for whom a tunnel is asked for.
    pub(crate) tells_clients: bool,
    /// What is asked for before a connection stands.
    pub(crate) first_flight: FirstFlight,
    /// The far end takes tunnels on QUIC; and perhaps it is not there any more.
    ready: bool,
    doubted: bool,
    /// When to connect, where there is no connection.
    again: Instant,
    pause: Duration,
    /// Until when the connection that is being made may take.
    until: Option<Instant>,
    reserved: BTreeMap<TunnelId, Reserved>,
    tickets: BTreeMap<u64, TunnelId>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asking").field(&self.peer).finish()
    }
}

impl Asking {
    pub(crate) fn new(peer: SocketAddr, waker: Arc<Waker>) -> (Self, Near) {
        let (sender, hands) = channel();
        let [up, full] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let limit = FarEndLimit::default();
        let near = Near {
            hands: sender,
            waker,
            up: Arc::clone(&up),
            full: Arc::clone(&full),
            admission: Arc::clone(&limit.admission),
            next: Arc::default(),
            awaited: Arc::default(),
        };
        let asking = Self {
            peer,
            hands,
            waiting: VecDeque::new(),
            connection: None,
            up,
            full,
            limit,
            fall_back: FallBack::default(),
            tells_clients: false,
            first_flight: FirstFlight::default(),
            ready: false,
            doubted: false,
            again: Instant::ZERO,
            pause: RETRY,
            until: None,
            reserved: BTreeMap::new(),
            tickets: BTreeMap::new(),
        };
        (asking, near)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection over QUIC, where it takes tunnels.
    pub(crate) fn quic(&self) -> Option<ConnectionId> {
        self.connection.filter(|_| self.ready)
    }

    /// The connection on which new tunnels are asked for.
    fn carrier(&self) -> Option<ConnectionId> {
        let early = self.connection.filter(|_| self.first_flight.opens());
        self.standing().or(early)
    }

    /// That connection, where it stands.
    pub(crate) fn standing(&self) -> Option<ConnectionId> {
        let fall_back = self.fall_back.stands();
        let quic = self.quic().filter(|_| !self.doubted);
        match quic {
            Some(_) if !self.fall_back.is_preferred() => quic,
            _ => fall_back.or(quic),
        }
    }

    /// Whether it is one of those that new tunnels may take.
    pub(crate) fn has_connection(&self, id: ConnectionId) -> bool {
        self.connection == Some(id)
    }

    /// QUIC is connected anew, where the far end wants no more tunnels on the connection that there is. What that carries goes on.
    pub(crate) fn try_quic_again(&mut self, now: Instant) {
        self.fall_back.quic_stands();
        if !self.ready && !self.first_flight.is_made() {
            (self.connection, self.until) = (None, None);
            (self.again, self.pause) = (now, RETRY);
        }
    }

    /// When it has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.connection {
            None => Some(self.again),
            Some(_) => [
                self.until,
                self.first_flight.heard_by(),
                self.limit.deadline(),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    /// A connection is being made, or could not be begun.
    pub(crate) fn connect(&mut self, begun: Option<ConnectionId>, now: Instant) {
        self.connection = begun;
        self.until = begun.map(|_| now + TRY);
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(RETRY_MOST);
    }

    /// Tunnels without a socket yet.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved.len()
    }

    /// Whether somebody waits for a tunnel.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells whether tunnels may be opened. Who waits is refused where they may not.
    pub(crate) fn tell(&mut self) {
        let up = self.carrier().is_some() || self.first_flight.may_carry();
        self.up.store(up, Ordering::Relaxed);
        if !up {
            { self.waiting.drain(..) }.for_each(|(_, hand)| hand.refuse(NoTunnel::Down));
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.ready = false;
        self.fall_back.ready = false;
        self.first_flight.end();
        self.tell();
        { self.hands.try_iter() }.for_each(|hand| hand.refuse(NoTunnel::Down));
        for reserved in core::mem::take(&mut self.reserved).into_values() {
            reserved
                .answer
                .into_iter()
                .for_each(|(answer, _)| answer(Err(NoTunnel::Down)));
        }
    }
}

impl Driver {
    /// Near: the far end is told for which clients tunnels are asked for, by their address and port.
    #[must_use]
    pub fn telling_clients(mut self) -> Self {
        if let Part::Near(asking) = &mut self.part {
            asking.tells_clients = true;
        }
        self
    }

    /// Near: connects where there is no connection, and takes what is handed in.
    pub(crate) fn ask_all(&mut self, now: Instant) {
        self.attend_clients();
        self.leave_who_is_late(now);
        self.leave_who_shuts_down(now);
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if asking.connection.is_none() && asking.again <= now {
            let quic = self.side.quic_mut();
            let begun = quic.connect_without_ticket(asking.peer, now).ok();
            asking.connect(begun, now);
        }
        let handed: Vec<_> = asking.hands.try_iter().collect();
        for hand in handed {
            self.take(hand);
        }
        self.open_waiting();
        self.stake(now);
    }

    /// Near: a far end that does not answer may do so another time.
    fn leave_who_is_late(&mut self, now: Instant) {
        let Part::Near(asking) = &self.part else {
            return;
        };
        let Some(late) = asking.connection else {
            return;
        };
        let expired = asking.until.is_some_and(|until| until <= now);
        if !self.is_silent(late, now) && !expired {
            return;
        }
        let reason = "the far end does not answer";
        tracing::debug!("{reason}");
        self.side.close(late, "no answer", now);
        self.note_blocked();
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if asking.first_flight.is_made() {
            (asking.again, asking.pause) = (now, RETRY);
            self.lost(late, None, reason);
        } else {
            (asking.connection, asking.until) = (None, None);
            reason.clone_into(&mut self.last_loss);
        }
    }

    /// Near: a far end that takes no more tunnels may never close the connection, so that this side does after the last of them.
    fn leave_who_shuts_down(&mut self, now: Instant) {
        let Part::Near(asking) = &self.part else {
            return;
        };
        // One that has yet to take tunnels has a time by which it must.
        let left = { asking.connection }.filter(|_| !asking.ready && asking.until.is_none());
        let Some(left) = left.filter(|&left| self.side.tunnels(left) == 0) else {
            return;
        };
        if !self.lingering.keys().any(|it| it.connection == left) {
            let reason = "the far end takes no more tunnels";
            self.side.close(left, reason, now);
            self.lost(left, None, reason);
        }
    }

    /// Near: the far end takes tunnels, or no more.
    pub(crate) fn set_ready(&mut self, connection: ConnectionId, ready: bool) {
        let now = self.now();
        if let Part::Near(asking) = &mut self.part {
            asking.full.store(false, Ordering::Relaxed);
            asking.limit.forget();
            if connection.is_elsewhere() {
                asking.fall_back.set_ready(ready);
            } else if asking.connection == Some(connection) {
                asking.ready = ready;
                asking.first_flight.end();
                if ready {
                    (asking.pause, asking.until) = (RETRY, None);
                    asking.fall_back.quic_stands();
                } else {
                    asking.fall_back.declined(now);
                    self.counters.fall_backs += u64::from(asking.fall_back.is_policed());
                }
            }
            asking.tell();
        }
        self.attend_clients();
    }

    /// Near: it may be that the far end is not there any more. Tunnels are opened again when it is heard.
    pub(crate) fn doubt(&mut self, doubted: bool) {
        if let Part::Near(asking) = &mut self.part
            && asking.doubted != doubted
        {
            asking.doubted = doubted;
            asking.tell();
        }
    }

    fn take(&mut self, hand: Hand) {
        let now = self.now();
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        match hand {
            Hand::Join(number, socket, keep) => {
                let Some(tunnel) = asking.tickets.remove(&number) else {
                    // It was reset meanwhile.
                    return Hand::Join(number, socket, keep).refuse(NoTunnel::Down);
                };
                asking.reserved.remove(&tunnel);
                self.begin(socket, tunnel, Phase::Open, keep);
            }
            Hand::Forget(number) => {
                asking
                    .waiting
                    .retain(|(_, hand)| !matches!(hand, Hand::Ask(asked, ..) if *asked == number));
                if let Some(tunnel) = asking.tickets.remove(&number) {
                    asking.reserved.remove(&tunnel);
                    self.side.reset(tunnel);
                }
            }
            hand if asking.is_up() && asking.waiting.len() < WAITING => {
                asking.waiting.push_back((now, hand));
            }
            hand => hand.refuse(NoTunnel::Down),
        }
    }

    /// Near: the far end allows more tunnels than before.
    pub(crate) fn has_room(&mut self) {
        if let Part::Near(asking) = &mut self.part {
            asking.full.store(false, Ordering::Relaxed);
        }
    }

    /// Near: refuses those who have waited for too long.
    pub(crate) fn end_waiting(&mut self, now: Instant) {
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        while { asking.waiting.front() }.is_some_and(|(since, _)| now.since(*since) >= WAIT)
            && let Some((_, hand)) = asking.waiting.pop_front()
        {
            hand.refuse(NoTunnel::Down);
        }
    }

    /// Near: asks for a tunnel for each that waits.
    pub(crate) fn open_waiting(&mut self) {
        let now = self.now();
        while let Part::Near(asking) = &mut self.part
            && asking.is_up()
            && let Some(connection) = asking.carrier()
            && let Some((since, hand)) = asking.waiting.pop_front()
        {
            let (target, client) = match &hand {
                Hand::Carry(_, (target, client), ..) => (target, *client),
                Hand::Ask(_, (target, client), ..) => (target, Some(*client)),
                Hand::Join(..) | Hand::Forget(_) => continue,
            };
            let client = client.filter(|_| asking.tells_clients);
            match self.side.open(connection, target, client) {
                Ok(tunnel) => {
                    asking.limit.asked(tunnel, now);
                    self.counters.asked += 1;
                    self.counters.early += u64::from(asking.standing().is_none());
                    match hand {
                        Hand::Carry(socket, _, keep, awaited) => {
                            self.begin(socket, tunnel, Phase::Asking, keep);
                            if let Some(flow) = self.flow(tunnel) {
                                flow.awaited = Some(awaited);
                            }
                        }
                        Hand::Ask(number, _, answer, awaited) => {
                            let answer = Some((answer, awaited));
                            asking.tickets.insert(number, tunnel);
                            asking.reserved.insert(tunnel, Reserved { number, answer });
                        }
                        Hand::Join(..) | Hand::Forget(_) => {}
                    }
                }
                Err(OpenError::Limited) => {
                    asking.waiting.push_front((since, hand));
                    asking.full.store(true, Ordering::Relaxed);
                    return;
                }
                Err(OpenError::NotReady | OpenError::GoingAway) => hand.refuse(NoTunnel::Down),
            }
        }
    }

    fn begin(&mut self, socket: TcpStream, tunnel: TunnelId, phase: Phase, keep: Keep) {
        if self.admit(socket, tunnel, phase, Some(keep)).is_err() {
            self.side.reset(tunnel);
        }
    }

    /// Near: the far end has answered; whether somebody waited for that without a socket.
    pub(crate) fn answered_reserved(
        &mut self,
        tunnel: TunnelId,
        result: Result<(), NoTunnel>,
    ) -> bool {
        if let (Err(NoTunnel::Dial(_)), Some(clients)) = (result, &mut self.udp_flows.clients) {
            clients.refused(tunnel);
        }
        let Part::Near(asking) = &mut self.part else {
            return false;
        };
        let Some(reserved) = asking.reserved.get_mut(&tunnel) else {
            return false;
        };
        let answer = reserved.answer.take();
        if result.is_err() {
            asking.tickets.remove(&reserved.number);
            asking.reserved.remove(&tunnel);
        }
        if let Some((answer, _)) = answer {
            answer(result);
        }
        true
    }

    /// Near: a connection is gone, which may be that to the far end.
    pub(crate) fn disconnected(&mut self, lost: ConnectionId) {
        let now = self.now();
        let Part::Near(asking) = &mut self.part else {
            return;
        };
        if asking.fall_back.connection == Some(lost) {
            asking.fall_back.disconnected(now);
            if asking.fall_back.is_policed() {
                asking.try_quic_again(now);
            }
            asking.tell();
        }
        if asking.connection == Some(lost) {
            asking.connection = None;
            asking.until = None;
            asking.doubted = false;
            asking.ready = false;
            asking.first_flight.end();
            asking.fall_back.suspects = false;
            asking.tell();
        }
        let gone: Vec<_> = { asking.reserved.keys().copied() }
            .filter(|tunnel| tunnel.connection == lost)
            .collect();
        for tunnel in gone {
            self.answered_reserved(tunnel, Err(NoTunnel::Down));
        }
    }
}
