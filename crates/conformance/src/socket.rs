//! What the socket interface adds to a connection: descriptors, errors that wait to be told, and halves that are shut.

use crate::errno::{Answer, Errno, Progress};
use crate::options::Options;
use crate::stack::State;
use bentpipe_host::{ConnectError, ConnectionId, ListenerId};
use bentpipe_tcp::{Cause, Connection, Event, State as Tcp};
use core::ffi::c_int;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// What is behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Neither listening nor connected.
    Idle,
    Listener(ListenerId),
    /// Connected, or about to be, or no longer.
    Connection(ConnectionId),
}

/// How often something became possible, for edge-triggered epoll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edges {
    pub(crate) read: u64,
    pub(crate) write: u64,
}

/// One socket.
#[derive(Clone, Debug)]
pub(crate) struct Socket {
    pub(crate) kind: Kind,
    ipv6: bool,
    local: Option<SocketAddr>,
    /// It comes from `accept`: before its handshake is complete it may be written to (TCP Fast Open).
    accepted: bool,
    pub(crate) blocks: bool,
    pub(crate) options: Options,
    /// `SO_ERROR`: told once.
    pub(crate) error: Option<Errno>,
    pub(crate) read_shut: bool,
    pub(crate) write_shut: bool,
    /// The peer will send no more.
    pub(crate) peer_closed: bool,
    pub(crate) edges: Edges,
}

impl Socket {
    fn new(ipv6: bool, blocks: bool, kind: Kind, options: Options) -> Self {
        Self {
            kind,
            ipv6,
            local: None,
            accepted: false,
            blocks,
            options,
            error: None,
            read_shut: false,
            write_shut: false,
            peer_closed: false,
            edges: Edges::default(),
        }
    }

    pub(crate) fn on_event(&mut self, event: Event) {
        let reads = match event {
            Event::Connected | Event::Writable | Event::Drained => false,
            Event::Readable => true,
            Event::PeerClosed | Event::Closed => {
                self.peer_closed = true;
                true
            }
            Event::Aborted(cause) => {
                self.error = match cause {
                    // Linux `tcp_reset`.
                    Cause::Reset if self.peer_closed => Some(Errno(libc::EPIPE)),
                    Cause::Reset => Some(Errno(libc::ECONNRESET)),
                    Cause::Refused => Some(Errno(libc::ECONNREFUSED)),
                    Cause::Unreachable => Some(Errno(libc::EHOSTUNREACH)),
                    Cause::TimedOut => Some(Errno(libc::ETIMEDOUT)),
                    Cause::Local => self.error,
                };
                self.peer_closed = true;
                self.edges.write += 1;
                true
            }
        };
        if reads {
            self.edges.read += 1
        } else {
            self.edges.write += 1
        }
    }
}

fn wildcard(ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

impl State {
    pub(crate) fn make_socket(&mut self, domain: c_int, kind: c_int) -> Answer<c_int> {
        let ipv6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(Errno(libc::EAFNOSUPPORT)),
        };
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        if kind & !flags != libc::SOCK_STREAM {
            return Err(Errno(libc::EPROTONOSUPPORT));
        }
        let blocks = kind & libc::SOCK_NONBLOCK == 0;
        self.open(Socket::new(ipv6, blocks, Kind::Idle, Options::default()))
    }

    pub(crate) fn bind(&mut self, fd: c_int, to: SocketAddr) -> Answer<()> {
        if !to.ip().is_unspecified() {
            // The script says which addresses this host has.
            self.host.add_address(to.ip());
        }
        let socket = self.socket_mut(fd)?;
        if socket.kind != Kind::Idle || socket.local.is_some() {
            return Err(Errno(libc::EINVAL));
        }
        socket.local = Some(to);
        Ok(())
    }

    pub(crate) fn listen(&mut self, fd: c_int, backlog: c_int) -> Answer<()> {
        let socket = self.socket(fd)?;
        match socket.kind {
            Kind::Listener(_) => return Ok(()),
            Kind::Connection(_) => return Err(Errno(libc::EINVAL)),
            Kind::Idle => {}
        }
        let at = socket
            .local
            .unwrap_or(SocketAddr::new(wildcard(socket.ipv6), 0));
        let config = self.configured(&socket.options);
        let fast_open = socket.options.fast_open;
        // Linux lets one more wait than was asked for.
        let backlog = usize::try_from(backlog).unwrap_or(0) + 1;
        let listening = self.host.listen(at, &config, backlog);
        let listener = listening.map_err(|_| Errno(libc::EADDRINUSE))?;
        self.set_fast_open(listener, fast_open);
        self.socket_mut(fd)?.kind = Kind::Listener(listener);
        Ok(())
    }

    /// The new descriptor and the peer.
    pub(crate) fn accept(&mut self, fd: c_int) -> Progress<(c_int, SocketAddr)> {
        let (listener, ipv6, options) = match self.socket(fd) {
            Ok(socket) => match socket.kind {
                Kind::Listener(listener) => (listener, socket.ipv6, socket.options),
                _ => return Progress::error(libc::EINVAL),
            },
            Err(errno) => return Progress::Done(Err(errno)),
        };
        let Some((id, tuple)) = self.host.accept(listener) else {
            return Progress::Pending;
        };
        let mut socket = Socket::new(ipv6, true, Kind::Connection(id), options);
        socket.accepted = true;
        if let Some(connection) = self.host.connection(id) {
            socket.peer_closed = peer_has_closed(connection.state());
            if connection.state() == Tcp::Closed {
                socket.error = Some(Errno(libc::ECONNRESET));
            }
        }
        self.open(socket).map(|fd| (fd, tuple.remote)).into()
    }

    /// Begins to connect, or goes on with it. Where it is not over, it is under way.
    pub(crate) fn connect(&mut self, fd: c_int, to: SocketAddr, again: bool) -> Progress<()> {
        let socket = match self.socket(fd) {
            Ok(socket) => socket,
            Err(errno) => return Progress::Done(Err(errno)),
        };
        match socket.kind {
            Kind::Listener(_) => return Progress::error(libc::EISCONN),
            Kind::Connection(id) => return self.connecting(fd, id, again),
            Kind::Idle => {}
        }
        match self.open_connection(fd, to, false) {
            Ok(_) => Progress::Pending,
            Err(errno) => Progress::Done(Err(errno)),
        }
    }

    /// Has the host connect a socket that is not connected; `fast_open`: by TCP Fast Open.
    pub(crate) fn open_connection(
        &mut self,
        fd: c_int,
        to: SocketAddr,
        fast_open: bool,
    ) -> Answer<ConnectionId> {
        let socket = self.socket(fd)?;
        let from = socket
            .local
            .unwrap_or(SocketAddr::new(wildcard(socket.ipv6), 0));
        let mut config = self.configured(&socket.options);
        Arc::make_mut(&mut config).fast_open = fast_open;
        let opened = self.host.connect(from, to, &config, self.now);
        let id = opened.map_err(|error| match error {
            ConnectError::NoHost(_) => Errno(libc::ENETUNREACH),
            _ => Errno(libc::EADDRNOTAVAIL),
        })?;
        self.hold(id, fd);
        self.socket_mut(fd)?.kind = Kind::Connection(id);
        Ok(id)
    }

    /// `again`: the caller has begun to connect and waits for the end.
    fn connecting(&mut self, fd: c_int, id: ConnectionId, again: bool) -> Progress<()> {
        if let Some(Errno(errno)) = self.take_error(fd) {
            self.disconnect(fd, id);
            return Progress::error(errno);
        }
        match self.host.connection(id).map(Connection::state) {
            Some(Tcp::SynSent | Tcp::SynReceived) if again => Progress::Pending,
            Some(Tcp::SynSent | Tcp::SynReceived) => Progress::error(libc::EALREADY),
            Some(Tcp::Closed) | None => {
                self.disconnect(fd, id);
                Progress::error(libc::ECONNABORTED)
            }
            Some(_) if again => Progress::value(()),
            Some(_) => Progress::error(libc::EISCONN),
        }
    }

    /// The socket may connect anew.
    fn disconnect(&mut self, fd: c_int, id: ConnectionId) {
        let now = self.now;
        self.host.release(id, now);
        self.let_go(id);
        if let Ok(socket) = self.socket_mut(fd) {
            socket.kind = Kind::Idle;
            (socket.read_shut, socket.write_shut, socket.peer_closed) = (false, false, false);
        }
    }

    pub(crate) fn take_error(&mut self, fd: c_int) -> Option<Errno> {
        self.sockets.get_mut(&fd)?.error.take()
    }

    /// The connection of `fd`; `none`: what calls on others come to.
    fn connected(&self, fd: c_int, none: c_int) -> Answer<ConnectionId> {
        match self.socket(fd)?.kind {
            Kind::Connection(id) => Ok(id),
            _ => Err(Errno(none)),
        }
    }

    pub(crate) fn read(&mut self, fd: c_int, out: &mut [u8]) -> Progress<usize> {
        let id = match self.connected(fd, libc::ENOTCONN) {
            Ok(id) => id,
            Err(errno) => return Progress::Done(Err(errno)),
        };
        let ready = self.host.connection(id).map_or(0, Connection::readable);
        if ready > 0 || out.is_empty() {
            let connection = self.host.connection_mut(id);
            return Progress::value(connection.map_or(0, |connection| connection.read(out)));
        }
        if let Some(Errno(errno)) = self.take_error(fd) {
            return Progress::error(errno);
        }
        let over = match self.socket(fd) {
            Ok(socket) => socket.read_shut || socket.peer_closed,
            Err(errno) => return Progress::Done(Err(errno)),
        };
        let state = self.host.connection(id).map(Connection::state);
        let ended = state.is_none_or(peer_has_closed);
        if over || ended {
            Progress::value(0)
        } else {
            Progress::Pending
        }
    }

    /// Writes what there is room for; `more`: the last segment waits for what follows (`MSG_MORE`).
    pub(crate) fn write(&mut self, fd: c_int, bytes: &[u8], more: bool) -> Progress<usize> {
        let id = match self.connected(fd, libc::EPIPE) {
            Ok(id) => id,
            Err(errno) => return Progress::Done(Err(errno)),
        };
        if let Some(Errno(errno)) = self.take_error(fd) {
            return Progress::error(errno);
        }
        let (accepted, shut, cork, buffer) = match self.socket(fd) {
            Ok(socket) => (
                socket.accepted,
                socket.write_shut,
                socket.options.cork,
                socket.options.send_buffer,
            ),
            Err(errno) => return Progress::Done(Err(errno)),
        };
        let Some(connection) = self.host.connection_mut(id) else {
            return Progress::error(libc::EPIPE);
        };
        match connection.state() {
            _ if shut => return Progress::error(libc::EPIPE),
            Tcp::SynReceived if accepted => {}
            Tcp::SynSent | Tcp::SynReceived => return Progress::Pending,
            Tcp::Established | Tcp::CloseWait => {}
            _ => return Progress::error(libc::EPIPE),
        }
        let room = (buffer as u64).saturating_sub(connection.unacknowledged());
        let fits = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        if fits == 0 && !bytes.is_empty() {
            return Progress::Pending;
        }
        connection.set_corked(cork || more);
        Progress::value(connection.write(&bytes[..fits]))
    }

    pub(crate) fn shutdown(&mut self, fd: c_int, how: c_int) -> Answer<()> {
        let (reads, writes) = match how {
            libc::SHUT_RD => (true, false),
            libc::SHUT_WR => (false, true),
            libc::SHUT_RDWR => (true, true),
            _ => return Err(Errno(libc::EINVAL)),
        };
        let now = self.now;
        let id = match self.socket(fd)?.kind {
            Kind::Idle => return Err(Errno(libc::ENOTCONN)),
            Kind::Listener(listener) => {
                if reads {
                    self.host.close_listener(listener, now);
                    self.socket_mut(fd)?.kind = Kind::Idle;
                }
                return Ok(());
            }
            Kind::Connection(id) => id,
        };
        let state = self.host.connection(id).map(Connection::state);
        match state {
            None | Some(Tcp::Closed | Tcp::TimeWait) => return Err(Errno(libc::ENOTCONN)),
            Some(Tcp::SynSent) => {
                self.disconnect(fd, id);
                return Ok(());
            }
            Some(_) => {}
        }
        let socket = self.socket_mut(fd)?;
        socket.read_shut |= reads;
        socket.write_shut |= writes;
        socket.edges.read += 1;
        if reads && let Some(connection) = self.host.connection_mut(id) {
            connection.shut_read();
        }
        if writes && let Some(connection) = self.host.connection_mut(id) {
            connection.set_corked(false);
            connection.close(now);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, fd: c_int) -> Answer<()> {
        let now = self.now;
        if let Some(socket) = self.sockets.remove(&fd) {
            match socket.kind {
                Kind::Idle => {}
                Kind::Listener(listener) => self.host.close_listener(listener, now),
                Kind::Connection(id) => {
                    if let Some(connection) = self.host.connection_mut(id) {
                        connection.set_corked(false);
                        if socket.options.linger == Some(0) {
                            connection.abort(now);
                        }
                    }
                    self.host.release(id, now);
                    self.let_go(id);
                }
            }
            for epoll in self.epolls.values_mut() {
                epoll.forget(fd);
            }
        } else if self.epolls.remove(&fd).is_none() {
            return Err(Errno(libc::EBADF));
        }
        // SAFETY: the descriptor is ours, made by `descriptor`, and nothing uses it any more.
        unsafe { libc::close(fd) };
        Ok(())
    }

    /// `SIOCINQ`, `SIOCOUTQ` and `SIOCOUTQNSD` of linux/sockios.h.
    pub(crate) fn queue_length(&self, fd: c_int, request: u64) -> Answer<c_int> {
        const UNSENT: u64 = 0x894b;
        let id = match self.socket(fd)?.kind {
            Kind::Listener(_) => return Err(Errno(libc::EINVAL)),
            Kind::Idle => return Ok(0),
            Kind::Connection(id) => id,
        };
        let connection = self.host.connection(id);
        let length = match request {
            libc::FIONREAD => connection.map_or(0, Connection::readable),
            libc::TIOCOUTQ => connection.map_or(0, Connection::unacknowledged),
            UNSENT => connection.map_or(0, |connection| connection.gauges().unsent),
            _ => return Err(Errno(libc::ENOTTY)),
        };
        Ok(c_int::try_from(length).unwrap_or(c_int::MAX))
    }

    pub(crate) fn set_option(
        &mut self,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: &[c_int],
    ) -> Answer<()> {
        let socket = self.socket_mut(fd)?;
        socket.options.set(level, name, value)?;
        let (kind, options) = (socket.kind, socket.options);
        match kind {
            Kind::Connection(id) => {
                if let Some(connection) = self.host.connection_mut(id) {
                    connection.set_nagle(!options.no_delay);
                    connection.set_corked(options.cork);
                    connection.set_user_timeout(options.user_timeout());
                }
            }
            Kind::Listener(id) => {
                let config = self.configured(&options);
                self.host.reconfigure(id, &config);
                self.set_fast_open(id, options.fast_open);
            }
            Kind::Idle => {}
        }
        Ok(())
    }

    pub(crate) fn option(&mut self, fd: c_int, level: c_int, name: c_int) -> Answer<Vec<c_int>> {
        if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
            self.socket(fd)?;
            let error = self.take_error(fd);
            return Ok(vec![error.map_or(0, |Errno(errno)| errno)]);
        }
        let socket = self.socket(fd)?;
        match ((level, name), socket.kind) {
            ((libc::SOL_SOCKET, libc::SO_ACCEPTCONN), kind) => {
                Ok(vec![c_int::from(matches!(kind, Kind::Listener(_)))])
            }
            ((libc::IPPROTO_TCP, libc::TCP_MAXSEG), Kind::Connection(id)) => {
                let size = self
                    .host
                    .connection(id)
                    .map_or(536, Connection::segment_size);
                Ok(vec![c_int::try_from(size).unwrap_or(c_int::MAX)])
            }
            _ => socket.options.get(level, name),
        }
    }
}

/// Whether the peer's stream has ended in `state`.
pub(crate) const fn peer_has_closed(state: Tcp) -> bool {
    matches!(
        state,
        Tcp::CloseWait | Tcp::LastAck | Tcp::Closing | Tcp::TimeWait | Tcp::Closed
    )
}
