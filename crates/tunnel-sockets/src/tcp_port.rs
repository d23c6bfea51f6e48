//! The TCP sockets of connections of HTTP/2: those that a far end accepts on the port of its UDP, and the one that a near end keeps.

use crate::client_udp::counted;
use crate::driver::{Driver, DriverError, TCP, kernel};
use crate::policing::{Policing, Sent, Verdict};
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_bpf::{is_ours, kernel_name};
use bentpipe_quic::ConnectionId;
use bentpipe_sockets::epoll::Interest;
use bentpipe_sockets::socket::{self, Dial};
use bentpipe_sockets::tcp;
use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// Reads of a socket before others have their turn: what one says may cost far more time than its bytes.
const ROUNDS: usize = 16;
/// How long a TCP connection and its handshakes may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections whose handshakes are not through. For one more the oldest gives way, of the host that has most.
const HALF_OPEN: usize = 256;
/// A peer that acknowledges nothing for so long is gone, as with QUIC.
const SILENT: Duration = Duration::from_secs(30);
/// After so long without a byte the kernel asks whether the peer is there still, and again three times in [`SILENT`]: a near end asks
/// more often, and one that lost its power says nothing, while its key may have a few connections only.
const PROBE: Duration = Duration::from_secs(90);
const PROBES: u32 = 3;
/// Bytes that a socket takes before they can leave, at least and at most, and how long the link has with them at its best: more would be
/// a queue that no flow gets by, and the link may have far less than its best.
const UNSENT: [Bytes; 2] = [Bytes(16 << 10), Bytes(128 << 10)];
const UNSENT_FOR: Duration = Duration::from_millis(50);
/// Between two looks for policers.
const LOOK: Duration = Duration::from_millis(250);
/// Of the kernel's own controls, the one that goes on where packets are lost at random.
const CONTROL: &str = "bbr";

/// How the TCP beside QUIC is carried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpSettings {
    /// What the socket is paced at most, of payload, by a control that does not know the link; `None`: as it likes.
    pub rate: Option<Rate>,
    /// The socket's mark, by which a control of ours knows the link; 0: none.
    pub mark: u32,
    /// The congestion control, as users call it; `None`: the best of the kernel's own.
    pub control: Option<String>,
    /// Why the control that was wanted is not to be had.
    pub lack: Option<String>,
}

struct Carrying {
    socket: TcpStream,
    token: u64,
    host: IpAddr,
    /// Until when its handshakes may take.
    until: Option<Instant>,
    /// Where its congestion control goes on whatever is lost: what looks for policers, and when it last did.
    policing: Option<Policing>,
    looked: Instant,
}

struct Dialling {
    socket: TcpStream,
    token: u64,
    peer: SocketAddr,
    until: Instant,
    /// Something has happened to it.
    noted: bool,
}

/// All of a driver.
#[derive(Default)]
pub(crate) struct TcpPort {
    settings: Option<TcpSettings>,
    listener: Option<TcpListener>,
    /// There may be somebody to accept.
    noted: bool,
    most: usize,
    sockets: BTreeMap<ConnectionId, Carrying>,
    tokens: BTreeMap<u64, ConnectionId>,
    ready: BTreeSet<ConnectionId>,
    dialling: Option<Dialling>,
}

/// What became of a near end's dial.
pub(crate) enum Dialled {
    Waits,
    Stands(ConnectionId),
    Failed(String),
}

impl TcpPort {
    pub(crate) const fn is_wanted(&self) -> bool {
        self.settings.is_some()
    }

    pub(crate) fn has_token(&self, token: u64) -> bool {
        let dials = self.dialling.as_ref().is_some_and(|it| it.token == token);
        token == TCP || dials || self.tokens.contains_key(&token)
    }

    /// Something has happened to a descriptor.
    pub(crate) fn note(&mut self, token: u64) {
        if token == TCP {
            self.noted = true;
        } else if let Some(dialling) = self.dialling.as_mut().filter(|it| it.token == token) {
            dialling.noted = true;
        } else if let Some(&connection) = self.tokens.get(&token) {
            self.ready.insert(connection);
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// When a handshake has taken too long.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let dialling = self.dialling.as_ref().map(|it| it.until);
        let handshakes = self.sockets.values().filter_map(|it| it.until);
        handshakes.chain(dialling).min()
    }

    fn unsent(&self) -> Bytes {
        let [least, most] = UNSENT;
        let rate = { self.settings.as_ref() }.and_then(|settings| settings.rate);
        rate.map_or(most, |rate| rate.over(UNSENT_FOR).clamp(least, most))
    }

    /// The socket of a connection.
    pub(crate) fn socket(&self, connection: ConnectionId) -> Option<&TcpStream> {
        self.sockets.get(&connection).map(|it| &it.socket)
    }

    /// Whether this machine does not have a connection's own address any more. In a VRF it always looks so.
    pub(crate) fn is_homeless(&self, connection: ConnectionId) -> bool {
        let own = { self.socket(connection) }.and_then(|socket| socket.local_addr().ok());
        own.is_some_and(|mut own| {
            own.set_port(0);
            let bound = UdpSocket::bind(own);
            bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
        })
    }

    /// Connections whose handshakes are through.
    fn standing(&self) -> usize {
        { self.sockets.values() }
            .filter(|it| it.until.is_none())
            .count()
    }

    /// Whose handshake gives way to one more.
    fn gives_way(&self) -> Option<ConnectionId> {
        let half_open = { self.sockets.iter() }
            .filter_map(|(&connection, it)| Some((it.host, it.until?, connection)));
        oldest_of_most(half_open.collect())
    }

    fn forget(&mut self, connection: ConnectionId) {
        if let Some(carrying) = self.sockets.remove(&connection) {
            self.tokens.remove(&carrying.token);
        }
    }

    /// Whether the socket has a congestion control of ours then.
    fn set_up(&self, socket: &TcpStream) -> io::Result<bool> {
        socket.set_nonblocking(true)?;
        tcp::set_no_delay(socket, true)?;
        tcp::set_user_timeout(socket, SILENT)?;
        tcp::set_keepalive(socket, PROBE, SILENT / PROBES, PROBES)?;
        tcp::set_notsent_lowat(socket, self.unsent())?;
        let Some(settings) = &self.settings else {
            return Ok(false);
        };
        if settings.mark != 0 {
            socket::set_mark(socket, settings.mark)?;
        }
        let wanted = settings.control.as_deref().filter(|name| {
            let set = tcp::set_congestion(socket, kernel_name(name));
            set.is_ok()
        });
        if wanted.is_none() {
            // Without it the kernel's usual one does.
            let _ = tcp::set_congestion(socket, CONTROL);
        }
        let is_ours = wanted.is_some_and(is_ours);
        if let Some(rate) = settings.rate.filter(|_| !is_ours) {
            tcp::set_max_pacing_rate(socket, rate)?;
        }
        Ok(is_ours)
    }

    /// A socket's packets are policed: it has a control that knows policers.
    fn give_way(&self, socket: &TcpStream) {
        // Where the kernel has it not, all stays as it is.
        let given = tcp::set_congestion(socket, CONTROL);
        if let Some(rate) = { self.settings.as_ref() }.and_then(|it| it.rate)
            && given.is_ok()
        {
            let _ = tcp::set_max_pacing_rate(socket, rate);
        }
    }
}

/// Of as many handshakes as may be the one that ends first, of the host that has most.
fn oldest_of_most(half_open: Vec<(IpAddr, Instant, ConnectionId)>) -> Option<ConnectionId> {
    if half_open.len() < HALF_OPEN {
        return None;
    }
    let mut of_hosts: BTreeMap<IpAddr, BTreeSet<(Instant, ConnectionId)>> = BTreeMap::new();
    for (host, until, connection) in half_open {
        of_hosts
            .entry(host)
            .or_default()
            .insert((until, connection));
    }
    let oldest = |of_host: &BTreeSet<_>| of_host.first().copied();
    { of_hosts.values() }
        .max_by_key(|of_host| (of_host.len(), Reverse(oldest(of_host))))
        .and_then(oldest)
        .map(|(_, connection)| connection)
}

impl Driver {
    /// Carries tunnels on HTTP/2 over TCP as well. A far end listens on the TCP port of its UDP port's number, for at most `most`
    /// connections; a near end keeps one connection, for when UDP does not get through.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn with_http2(mut self, settings: TcpSettings, most: usize) -> Result<Self, DriverError> {
        if !self.is_near() {
            let address = self.address().map_err(kernel("ask for the UDP address"))?;
            let listening = TcpListener::bind(address).and_then(|listener| {
                listener.set_nonblocking(true)?;
                // Where there are no descriptors left, who waits is taken with the next: the set is not woken by it for ever.
                self.epoll
                    .add(&listener, TCP, Interest::READ | Interest::EDGE)?;
                Ok(listener)
            });
            let failed = kernel("listen on the TCP port of the same number");
            self.tcp.listener = Some(listening.map_err(failed)?);
        }
        self.tcp.settings = Some(settings);
        self.tcp.most = most;
        Ok(self)
    }

    /// A TCP connection stands.
    fn take_tcp(
        &mut self,
        socket: TcpStream,
        peer: SocketAddr,
        now: Instant,
    ) -> io::Result<ConnectionId> {
        let is_ours = self.tcp.set_up(&socket)?;
        let token = self.new_token();
        let interest = Interest::READ | Interest::WRITE | Interest::PEER_CLOSED | Interest::EDGE;
        self.epoll.add(&socket, token, interest)?;
        let connection = self.side.http2.begin(peer)?;
        let carrying = Carrying {
            socket,
            token,
            host: counted(peer),
            until: Some(now + HANDSHAKE),
            policing: self.policing.clone().filter(|_| is_ours),
            looked: now,
        };
        self.tcp.sockets.insert(connection, carrying);
        self.tcp.tokens.insert(token, connection);
        self.tcp.ready.insert(connection);
        Ok(connection)
    }

    /// Far: takes those who have connected. Ends what has not shaken hands in time.
    pub(crate) fn accept_all(&mut self, now: Instant) {
        while self.tcp.noted
            && let Some(listener) = &self.tcp.listener
        {
            match socket::accept(listener) {
                Ok((socket, peer)) => {
                    if let Some(oldest) = self.tcp.gives_way() {
                        self.side.http2.fail(oldest, "others shake hands too");
                        self.tcp.forget(oldest);
                    }
                    // One that fails at once is closed by that.
                    let _ = self.take_tcp(TcpStream::from(socket), peer, now);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => self.tcp.noted = false,
            }
        }
        let mut standing = self.tcp.standing();
        let mut ends = Vec::new();
        for (&connection, carrying) in &mut self.tcp.sockets {
            let Some(until) = carrying.until else {
                continue;
            };
            if self.side.http2.stands(connection) {
                carrying.until = None;
                standing += 1;
                if standing > self.tcp.most {
                    ends.push((connection, "there are as many connections as may be"));
                }
            } else if until <= now {
                ends.push((connection, "no handshake in time"));
            }
        }
        for (connection, why) in ends {
            self.side.http2.fail(connection, why);
        }
    }

    /// Near: begins to connect to the far end.
    pub(crate) fn dial_http2(&mut self, peer: SocketAddr, now: Instant) -> io::Result<()> {
        let descriptor = socket::stream(peer)?;
        let (Dial::Pending | Dial::Connected) = socket::connect(&descriptor, peer)?;
        let socket = TcpStream::from(descriptor);
        let token = self.new_token();
        self.epoll
            .add(&socket, token, Interest::WRITE | Interest::EDGE)?;
        self.tcp.dialling = Some(Dialling {
            socket,
            token,
            peer,
            until: now + HANDSHAKE,
            noted: false,
        });
        Ok(())
    }

    /// Near: what became of it.
    pub(crate) fn dialled_http2(&mut self, now: Instant) -> Dialled {
        let Some(dialling) = self.tcp.dialling.take() else {
            return Dialled::Failed("it was not begun".to_owned());
        };
        let late = dialling.until <= now;
        if dialling.noted {
            if let Err(error) = socket::take_error(&dialling.socket) {
                return Dialled::Failed(error.to_string());
            }
            if socket::peer_address(&dialling.socket).is_ok() {
                // It is added anew, with another interest.
                let _ = self.epoll.remove(&dialling.socket);
                return match self.take_tcp(dialling.socket, dialling.peer, now) {
                    Ok(connection) => Dialled::Stands(connection),
                    Err(error) => Dialled::Failed(error.to_string()),
                };
            }
        }
        if late {
            return Dialled::Failed("no answer".to_owned());
        }
        self.tcp.dialling = Some(dialling);
        Dialled::Waits
    }

    /// Near: whether it is under way.
    pub(crate) const fn dials_http2(&self) -> bool {
        self.tcp.dialling.is_some()
    }

    /// When to look for policers on TCP next.
    pub(crate) fn tcp_look_at(&self) -> Option<Instant> {
        let carry = { self.tcp.sockets.iter() }
            .filter(|(id, it)| it.policing.is_some() && self.side.tunnels(**id) > 0);
        carry.map(|(_, it)| it.looked + LOOK).min()
    }

    /// Looks for policers on TCP, where it is time to. Behind one the kernel's own control does better than ours.
    pub(crate) fn look_at_tcp(&mut self, now: Instant) {
        let mut policed = Vec::new();
        for (&id, carrying) in &mut self.tcp.sockets {
            let due = carrying.looked + LOOK <= now && self.side.tunnels(id) > 0;
            let Some(policing) = carrying.policing.as_mut().filter(|_| due) else {
                continue;
            };
            carrying.looked = now;
            let Ok(info) = tcp::info(&carrying.socket) else {
                continue;
            };
            let sent = Sent {
                packets: info.data_segs_out.into(),
                bytes: info.bytes_sent,
                lost: info.total_retrans.into(),
                srtt: info.rtt,
            };
            if let Some(Verdict::Policed(_)) = policing.look(sent, now) {
                carrying.policing = None;
                policed.push(id);
            }
        }
        for socket in policed.iter().filter_map(|&id| self.tcp.socket(id)) {
            tracing::warn!("TCP is policed on the way too: HTTP/2 goes by the kernel's {CONTROL}");
            self.tcp.give_way(socket);
        }
    }

    /// Reads what has come by TCP, does what follows, and writes what there is to write.
    pub(crate) fn exchange_all(&mut self) {
        for connection in core::mem::take(&mut self.tcp.ready) {
            let Some(carrying) = self.tcp.sockets.get_mut(&connection) else {
                continue;
            };
            let rounds = (0..ROUNDS)
                .take_while(|_| self.side.http2.receive(connection, &mut carrying.socket));
            if rounds.count() == ROUNDS {
                self.tcp.ready.insert(connection);
            }
        }
        for connection in self.side.http2.work() {
            if let Some(carrying) = self.tcp.sockets.get_mut(&connection)
                && let Err(error) = self.side.http2.send(connection, &mut carrying.socket)
            {
                self.side.http2.fail(connection, &error.to_string());
            }
        }
        let goes_on = { self.tcp.sockets.keys() }.filter(|it| self.side.http2.has_more(**it));
        self.tcp.ready.extend(goes_on);
        let (http2, tokens) = (&self.side.http2, &mut self.tcp.tokens);
        self.tcp.sockets.retain(|&connection, carrying| {
            let stays = http2.has_connection(connection);
            if !stays {
                tokens.remove(&carrying.token);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use super::*;

    #[test]
    fn a_peer_that_is_gone_is_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        TcpPort::default().set_up(&socket).unwrap();
        assert!(rustix::net::sockopt::socket_keepalive(&socket).unwrap());
        let idle = rustix::net::sockopt::tcp_keepidle(&socket).unwrap();
        let (again, probes) = tcp::keepalive_repetition(&socket).unwrap();
        assert!(idle + again * probes <= Duration::from_secs(120));
    }

    #[test]
    fn who_has_most_handshakes_gives_way() {
        let host = |name: &str| -> IpAddr { name.parse().unwrap() };
        let (many, one) = (host("192.0.2.1"), host("192.0.2.2"));
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut half_open = vec![(one, at(0), ConnectionId::elsewhere(0))];
        for number in 1..HALF_OPEN as u64 {
            assert_eq!(oldest_of_most(half_open.clone()), None);
            half_open.push((many, at(number), ConnectionId::elsewhere(number)));
        }
        let first = oldest_of_most(half_open);
        assert_eq!(first, Some(ConnectionId::elsewhere(1)));
        // Where all have as many it is the oldest of all.
        let each = (0..HALF_OPEN as u64).map(|number| {
            let host = IpAddr::from([192, 0, 2, number as u8]);
            let age = at(1000 - number);
            (host, age, ConnectionId::elsewhere(number))
        });
        let last = ConnectionId::elsewhere(HALF_OPEN as u64 - 1);
        assert_eq!(oldest_of_most(each.collect()), Some(last));
    }
}
