//! All TCP connections of a namespace, whoever holds them, and those that nobody holds any more:
//! sock_diag(7), asked over netlink.

use bentpipe_base::Bytes;
use bentpipe_sockets::netlink_message::{
    self, HEADER, NLMSG_ERROR, attributes, message, refusal, u32_at,
};
use bentpipe_sockets::tcp::Info;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, netlink, recv, send};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::BitOr;
use std::os::fd::OwnedFd;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
/// NLM_F_REQUEST | NLM_F_ACK.
const REQUEST_ACK: u16 = 5;
/// NLM_F_REQUEST | NLM_F_DUMP.
const REQUEST_DUMP: u16 = 0x301;
const IPPROTO_TCP: u8 = 6;
/// INET_DIAG_INFO, `struct tcp_info`, and INET_DIAG_MARK, of linux/inet_diag.h.
const INFO: u16 = 2;
const MARK: u16 = 15;
/// INET_DIAG_MEMINFO, `struct inet_diag_meminfo`.
const MEMORY: u16 = 1;
/// The lengths of `struct inet_diag_req_v2` and `inet_diag_msg`.
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// Where `struct inet_diag_sockid` is in a message, and how long it is.
const ID: usize = 4;
const ID_LENGTH: usize = 48;
/// How many connections are ended by one send, so that the acknowledgements fit into the socket's buffer.
const AT_A_TIME: usize = 64;

/// States of a connection, by the numbers of linux/tcp_states.h. Combine with `|`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(u32);

impl States {
    /// ESTABLISHED.
    pub const ESTABLISHED: Self = Self(1 << 1);
    /// A dial that waits for its answer: SYN_SENT.
    pub const DIALLING: Self = Self(1 << 2);
    /// A handshake that the client began and has not finished: SYN_RECV.
    pub const HANDSHAKE: Self = Self(1 << 3);
    /// LISTEN.
    pub const LISTENING: Self = Self(1 << 10);
    /// What is left when the process that had the sockets has ended: ESTABLISHED to CLOSING, TIME_WAIT included.
    const LEFT: Self = Self(Self::CARRYING.0 | Self::DIALLING.0 | 1 << 6);
    /// FIN sent and not acknowledged, or still behind data: FIN_WAIT1, LAST_ACK, CLOSING.
    pub const FIN_PENDING: Self = Self(1 << 4 | 1 << 9 | 1 << 11);
    /// All with data to send or receive: ESTABLISHED, FIN_WAIT2, CLOSE_WAIT and
    /// [`States::FIN_PENDING`].
    pub const CARRYING: Self = Self(1 << 1 | 1 << 5 | 1 << 8 | Self::FIN_PENDING.0);
}

impl BitOr for States {
    type Output = Self;
    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

/// One connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// The mark of the socket; 0 when there is none, and without CAP_NET_ADMIN.
    pub mark: u32,
    /// Payload and FIN that the peer has not acknowledged.
    pub unacknowledged: Bytes,
    /// The memory of the kernel in its buffers: payload and what the kernel books for it, received and to be
    /// sent.
    pub buffered: Bytes,
    /// Whether a process has a descriptor of it.
    pub held: bool,
    /// What TCP tells about it.
    pub info: Info,
}

/// A way to ask for the connections of one namespace.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens it for the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            socket: netlink_message::open(Some(netlink::SOCK_DIAG), 0)?,
            buffer: vec![0; 64 * 1024],
        })
    }

    /// The connections, IPv4 and IPv6, that are in one of `states`.
    pub fn connections(&mut self, states: States) -> io::Result<Vec<Connection>> {
        let mut found = Vec::new();
        self.dump(states, &[INFO, MEMORY], |body| {
            found.extend(connection(body))
        })?;
        Ok(found)
    }

    /// The memory of the kernel in the buffers of the connections in one of `states` whose mark is one
    /// of `ours`: payload and what the kernel books for it, received and to be sent.
    pub fn buffered(&mut self, states: States, ours: impl Fn(u32) -> bool) -> io::Result<Bytes> {
        let mut sum = 0;
        self.dump(states, &[MEMORY], |body| {
            sum += buffers(body, &ours).unwrap_or(0)
        })?;
        Ok(Bytes(sum))
    }

    /// Ends the connections that no process holds and whose mark and own address are among `ours` (CAP_NET_ADMIN): what waits in
    /// TIME_WAIT is forgotten, others are reset. Says how many.
    ///
    /// # Errors
    /// The kernel may not be able to (CONFIG_INET_DIAG_DESTROY).
    pub fn end_orphans(&mut self, ours: impl Fn(u32, IpAddr) -> bool) -> io::Result<usize> {
        let mut found = Vec::new();
        self.dump(States::LEFT, &[], |body| found.extend(orphan(body, &ours)))?;
        let mut ended = 0;
        for some in found.chunks(AT_A_TIME) {
            ended += self.end(&some.concat(), some.len())?;
        }
        Ok(ended)
    }

    /// Sends `count` messages that each end a connection.
    fn end(&mut self, messages: &[u8], count: usize) -> io::Result<usize> {
        send(&self.socket, messages, SendFlags::empty())?;
        let (mut answers, mut ended, mut refused) = (0, 0, None);
        while answers < count {
            let length = match recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let mut rest = &self.buffer[..length];
            while let Some((kind, body, next)) = message(rest) {
                answers += usize::from(kind == NLMSG_ERROR);
                match refusal(body) {
                    None => ended += 1,
                    // The connection has ended by itself.
                    Some(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Some(error) => refused = Some(error),
                }
                rest = next;
            }
        }
        refused.map_or(Ok(ended), Err)
    }

    /// Hands every connection to `each`, with the attributes `wanted`.
    fn dump(
        &mut self,
        states: States,
        wanted: &[u16],
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let request = request(family, states, wanted);
            netlink_message::dump(&self.socket, &request, &mut self.buffer, |kind, body| {
                if kind == SOCK_DIAG_BY_FAMILY {
                    each(body);
                }
            })?;
        }
        Ok(())
    }
}

/// `struct inet_diag_req_v2` behind its header.
fn request(family: AddressFamily, states: States, wanted: &[u16]) -> [u8; HEADER + REQUEST] {
    let mut request = [0; HEADER + REQUEST];
    request[..HEADER].copy_from_slice(&netlink_message::header(
        HEADER + REQUEST,
        SOCK_DIAG_BY_FAMILY,
        REQUEST_DUMP,
    ));
    request[16] = family.as_raw() as u8;
    request[17] = IPPROTO_TCP;
    request[18] = wanted.iter().fold(0, |bits, one| bits | 1 << (one - 1));
    request[20..24].copy_from_slice(&states.0.to_ne_bytes());
    request
}

/// What ends a connection, if no process holds it and its mark and own address are among `ours`.
fn orphan(body: &[u8], ours: impl Fn(u32, IpAddr) -> bool) -> Option<[u8; HEADER + REQUEST]> {
    let one = connection(body)?;
    if one.held || !ours(one.mark, one.local.ip()) {
        return None;
    }
    let mut message = [0; HEADER + REQUEST];
    let header = netlink_message::header(message.len(), SOCK_DESTROY, REQUEST_ACK);
    message[..HEADER].copy_from_slice(&header);
    message[16] = *body.first()?;
    message[17] = IPPROTO_TCP;
    message[HEADER + REQUEST - ID_LENGTH..].copy_from_slice(body.get(ID..ID + ID_LENGTH)?);
    Some(message)
}

/// The bytes in the buffers of a connection, if its mark is one of `ours`.
pub(crate) fn buffers(body: &[u8], ours: impl Fn(u32) -> bool) -> Option<u64> {
    let (mut mark, mut held) = (0, 0);
    for (kind, value) in attributes(body.get(MESSAGE..)?) {
        match kind {
            MARK => mark = u32_at(value, 0)?,
            MEMORY => held = memory(value)?,
            _ => {}
        }
    }
    ours(mark).then_some(held)
}

/// What `struct inet_diag_meminfo` says of both buffers: received and not read, queued to be sent or
/// acknowledged.
fn memory(value: &[u8]) -> Option<u64> {
    Some(u64::from(u32_at(value, 0)?) + u64::from(u32_at(value, 4)?))
}

pub(crate) fn connection(body: &[u8]) -> Option<Connection> {
    let v6 = u16::from(*body.first()?) == AddressFamily::INET6.as_raw();
    let address = |at: usize| -> Option<IpAddr> {
        if v6 {
            let bytes: [u8; 16] = body.get(at..at + 16)?.try_into().ok()?;
            return Some(bytes.into());
        }
        let bytes: [u8; 4] = body.get(at..at + 4)?.try_into().ok()?;
        Some(bytes.into())
    };
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let mut connection = Connection {
        local: SocketAddr::new(address(8)?, port(4)?),
        peer: SocketAddr::new(address(24)?, port(6)?),
        mark: 0,
        unacknowledged: Bytes(u32_at(body, 60)?.into()),
        buffered: Bytes(0),
        // A socket has no inode once its last descriptor is closed.
        held: u32_at(body, 68)? != 0,
        info: Info::default(),
    };
    for (kind, value) in attributes(body.get(MESSAGE..)?) {
        match kind {
            INFO => connection.info = Info::parse(value),
            MARK => connection.mark = u32_at(value, 0)?,
            MEMORY => connection.buffered = Bytes(memory(value)?),
            _ => {}
        }
    }
    // Without `tcp_info`, as for a connection that only waits for its last acknowledgement.
    connection.info.state = connection.info.state.max(*body.get(1)?);
    Some(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn find(states: States, local: SocketAddr) -> Option<Connection> {
        let found = Diag::open().unwrap().connections(states).unwrap();
        found.into_iter().find(|seen| seen.local == local)
    }

    #[test]
    fn a_connection_is_seen_from_outside_as_from_inside() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(&[7; 50_000]).unwrap();
            far.read_exact(&mut [0; 50_000]).unwrap();
            far.write_all(b"x").unwrap();
            near.read_exact(&mut [0; 1]).unwrap();
            let local = near.local_addr().unwrap();
            let seen = find(States::CARRYING, local).unwrap();
            let inside = bentpipe_sockets::tcp::info(&near).unwrap();
            assert_eq!(seen.peer, listener.local_addr().unwrap());
            assert_eq!(seen.info.bytes_sent, Bytes(50_000));
            assert_eq!(seen.info.cwnd, inside.cwnd);
            assert_eq!((seen.info.state, seen.unacknowledged), (1, Bytes(0)));
            assert!(seen.held);
            assert!(find(States::FIN_PENDING, local).is_none());
        }
    }

    #[test]
    fn what_nobody_holds_any_more_is_seen_until_it_is_delivered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let local = near.local_addr().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 65_536]).is_ok() {}
        drop(near);
        let seen = find(States::FIN_PENDING, local).unwrap();
        assert!(seen.unacknowledged > Bytes(0) && !seen.held, "{seen:?}");
        std::io::copy(&mut far, &mut std::io::sink()).unwrap();
        drop(far);
        assert!(find(States::FIN_PENDING, local).is_none());
    }

    #[test]
    fn buffers_are_summed_by_mark() {
        crate::need!(Root);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let mark = 0x0bad_0000 + std::process::id();
        for end in [&near, &far] {
            bentpipe_sockets::socket::set_mark(end, mark).unwrap();
        }
        let held = || {
            let mut diag = Diag::open().unwrap();
            let held = diag.buffered(States::CARRYING, |other| other == mark);
            held.unwrap()
        };
        assert_eq!(held(), Bytes(0));
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[7; 65_536]) {
            written += count as u64;
        }
        assert!(held() >= Bytes(written), "{:?} of {written}", held());
        drop((near, far));
        assert_eq!(held(), Bytes(0));
    }

    #[test]
    fn of_orphans_those_with_a_mark_are_ended() {
        crate::need!(Root);
        let mark = 0x0bae_0000 + std::process::id();
        let in_time_wait = States(1 << 6);
        let netns = crate::netns::Netns::create("orphans").unwrap();
        let work = || {
            for (host, marked) in [("127.0.0.1:0", true), ("[::1]:0", true), ("[::1]:0", false)] {
                let listener = TcpListener::bind(host).unwrap();
                let connect = || {
                    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    let far = listener.accept().unwrap().0;
                    if marked {
                        bentpipe_sockets::socket::set_mark(&near, mark).unwrap();
                    }
                    (near.local_addr().unwrap(), near, far)
                };
                let (held, _near, _far) = connect();
                let (waits, near, mut far) = connect();
                near.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
                drop((near, far));
                // On a busy host the last end is read a moment later.
                let deadline = Instant::now() + Duration::from_secs(5);
                while find(in_time_wait, waits).is_none() {
                    assert!(Instant::now() < deadline, "no TIME-WAIT");
                    std::thread::sleep(Duration::from_millis(1));
                }
                // Its last bytes find a closed window.
                let (stuck, mut near, mut far) = connect();
                near.set_nonblocking(true).unwrap();
                while near.write(&[7; 65_536]).is_ok() {}
                drop(near);
                let ended = Diag::open().unwrap().end_orphans(|other, _| other == mark);
                assert_eq!(ended.unwrap(), if marked { 2 } else { 0 }, "{host}");
                assert!(find(States::CARRYING, held).is_some());
                assert_eq!(find(in_time_wait, waits).is_none(), marked);
                assert_eq!(find(States::FIN_PENDING, stuck).is_none(), marked);
                let copied = std::io::copy(&mut far, &mut std::io::sink());
                assert_eq!(copied.is_err(), marked, "a reset");
            }
        };
        netns.run(work).unwrap();
    }

    #[test]
    fn truncated_answers_are_left_out() {
        assert!(connection(&[2; 40]).is_none());
        assert!(connection(&[]).is_none());
        assert!(buffers(&[2; 40], |_| true).is_none());
        assert!(orphan(&[2; 40], |_, _| true).is_none());
    }
}
