//! TCP sockets of a transparent proxy: listen for and dial from addresses that are not ours, and
//! the socket options that go with it. See ip(7), ipv6(7), socket(7).
//!
//! What is set on a listening socket (mark, buffers, linger, congestion control, pacing, no-delay)
//! is inherited by every connection that it accepts, before the first byte travels.

mod filter;

pub use filter::{drop_all_packets, drop_empty_segments, steer_by_mark, take_all_packets};

use bentpipe_base::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType, ipproto, sockopt,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// IPV6_TRANSPARENT of linux/in6.h, absent from libc.
const IPV6_TRANSPARENT: libc::c_int = 75;

/// How a dial began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dial {
    /// The connection is established already.
    Connected,
    /// The answer is awaited: writable when it is there, then ask [`take_error`].
    Pending,
}

/// The sizes of a socket's buffers, in bytes of payload: half of what the kernel books, for its own
/// overhead is in there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// What may wait to be sent and acknowledged.
    pub send: Bytes,
    /// What may wait to be read.
    pub receive: Bytes,
}

/// A new non-blocking TCP socket of the family of `like`.
pub fn stream(like: SocketAddr) -> io::Result<OwnedFd> {
    let family = if like.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        Some(ipproto::TCP),
    )?)
}

/// Lets the socket bind to, and accept for, addresses that are not the machine's own
/// (CAP_NET_ADMIN). `like` tells the family.
pub fn set_transparent(socket: impl AsFd, like: SocketAddr) -> io::Result<()> {
    if like.is_ipv4() {
        set_u32(socket, libc::SOL_IP, libc::IP_TRANSPARENT, 1)
    } else {
        set_u32(socket, libc::SOL_IPV6, IPV6_TRANSPARENT, 1)
    }
}

/// Marks every packet of the socket, for policy routing and nft (CAP_NET_ADMIN).
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    set_u32(socket, libc::SOL_SOCKET, libc::SO_MARK, mark)
}

/// Has a TCP listener give connections only once their clients have sent something, or have sent nothing
/// for `patience` (whole seconds; about that, see TCP_DEFER_ACCEPT in tcp(7)).
pub fn accept_with_data(listener: impl AsFd, patience: Duration) -> io::Result<()> {
    let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
    set_u32(listener, libc::SOL_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Puts `class` (DSCP in the upper six bits, ECN in the lower two, which TCP keeps to itself) on every
/// packet of the socket. `like` tells the family.
pub fn set_traffic_class(socket: impl AsFd, like: SocketAddr, class: u8) -> io::Result<()> {
    let (level, name) = traffic_class_option(like);
    set_u32(socket, level, name, class.into())
}

fn traffic_class_option(like: SocketAddr) -> (libc::c_int, libc::c_int) {
    if like.is_ipv4() {
        (libc::SOL_IP, libc::IP_TOS)
    } else {
        (libc::SOL_IPV6, libc::IPV6_TCLASS)
    }
}

/// The mark of what the socket sends (SO_MARK).
pub fn mark(socket: impl AsFd) -> io::Result<u32> {
    let mut value = [0; 4];
    get_raw(socket, libc::SOL_SOCKET, libc::SO_MARK, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

/// The traffic class that [`set_traffic_class`] has set, or none (0).
pub fn traffic_class(socket: impl AsFd, like: SocketAddr) -> io::Result<u8> {
    let (level, name) = traffic_class_option(like);
    let mut value = [0; 4];
    get_raw(socket, level, name, &mut value)?;
    Ok(u32::from_ne_bytes(value) as u8)
}

/// Lets the socket's packets be cut into fragments on the way (IPv4): it does not look for the path's MTU.
pub fn allow_fragments(socket: impl AsFd) -> io::Result<()> {
    let never = libc::IP_PMTUDISC_DONT as u32;
    set_u32(socket, libc::SOL_IP, libc::IP_MTU_DISCOVER, never)
}

/// The priority of the socket's packets (SO_PRIORITY).
pub fn priority(socket: impl AsFd) -> io::Result<u32> {
    let mut value = [0; 4];
    get_raw(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

/// Gives the socket's packets that priority; one above 6 needs CAP_NET_ADMIN.
pub fn set_priority(socket: impl AsFd, priority: u32) -> io::Result<()> {
    set_u32(socket, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
}

/// Keeps the SYN of each connection that the listener accepts, for [`saved_syn`].
pub fn save_syns(listener: impl AsFd) -> io::Result<()> {
    set_u32(listener, libc::SOL_TCP, libc::TCP_SAVE_SYN, 1)
}

/// Takes the SYN that began an accepted connection into `buffer`: its headers, from that of IP on, without data that came in it;
/// empty when it was taken before or not saved.
pub fn saved_syn(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<&mut [u8]> {
    let length = get_raw(socket, libc::SOL_TCP, libc::TCP_SAVED_SYN, buffer)?;
    Ok(&mut buffer[..length])
}

/// Allows a bind to an address and port that other connections use.
pub fn set_reuse_address(socket: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseaddr(socket, on)?)
}

/// How often the SYN of a dial, or the answer to a client's SYN, is sent again: `count` + 1 times the
/// waiting doubles, beginning with a second, before the kernel gives up. (TCP_SYNCNT)
pub fn set_syn_retries(socket: impl AsFd, count: u32) -> io::Result<()> {
    set_u32(socket, libc::SOL_TCP, libc::TCP_SYNCNT, count)
}

/// Lets several listeners of this user share one address and port; the kernel spreads the
/// connections over them.
pub fn set_reuse_port(socket: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(socket, on)?)
}

/// With `true`, closing the socket sends RST and throws unsent data away, also when the process
/// dies; with `false`, closing sends what is unsent, then FIN.
pub fn abort_on_close(socket: impl AsFd, abort: bool) -> io::Result<()> {
    let linger = abort.then_some(Duration::ZERO);
    Ok(sockopt::set_socket_linger(socket, linger)?)
}

/// Probes an idle connection at the kernel's own pace (`net.ipv4.tcp_keepalive_time`), so that a
/// vanished peer is found out. See [`crate::tcp::set_keepalive`] for another pace.
pub fn set_keepalive(socket: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(socket, on)?)
}

/// Fixes the send buffer at `size` of payload; the kernel then no longer tunes it. With
/// CAP_NET_ADMIN also beyond `net.core.wmem_max`; without, cut down to that: [`buffers`] tells.
pub fn set_send_buffer(socket: impl AsFd, size: Bytes) -> io::Result<()> {
    let wish = wish(size);
    sockopt::set_socket_send_buffer_size_force(&socket, wish)
        .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, wish))?;
    Ok(())
}

/// Fixes the receive buffer at `size` of payload; the kernel then no longer tunes it. With
/// CAP_NET_ADMIN also beyond `net.core.rmem_max`; without, cut down to that: [`buffers`] tells. Set
/// it before listening or dialling: the window scale is fixed by the handshake.
pub fn set_receive_buffer(socket: impl AsFd, size: Bytes) -> io::Result<()> {
    let wish = wish(size);
    sockopt::set_socket_recv_buffer_size_force(&socket, wish)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, wish))?;
    Ok(())
}

/// What the kernel granted.
pub fn buffers(socket: impl AsFd) -> io::Result<Buffers> {
    Ok(Buffers {
        send: Bytes(sockopt::socket_send_buffer_size(&socket)? as u64 / 2),
        receive: Bytes(sockopt::socket_recv_buffer_size(&socket)? as u64 / 2),
    })
}

/// The size as the kernel takes it: it doubles an i32.
fn wish(size: Bytes) -> usize {
    size.0.min(i32::MAX as u64 / 2) as usize
}

/// What a socket's buffers hold, in bytes, the kernel's overhead included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Received and not read.
    pub received: Bytes,
    /// Written and not acknowledged.
    pub queued: Bytes,
}

/// What waits in the socket's buffers now (SO_MEMINFO of linux/sock_diag.h).
pub fn waiting(socket: impl AsFd) -> io::Result<Waiting> {
    let mut raw = [0; 36];
    let filled = get_raw(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut raw)?;
    let word = |number: usize| {
        let bytes = raw[..filled]
            .get(number * 4..number * 4 + 4)
            .and_then(|bytes| bytes.try_into().ok());
        Bytes(bytes.map_or(0, u32::from_ne_bytes).into())
    };
    Ok(Waiting {
        received: word(0),
        queued: word(5),
    })
}

/// Binds the socket to `address`.
pub fn bind(socket: impl AsFd, address: SocketAddr) -> io::Result<()> {
    Ok(rustix::net::bind(socket, &address)?)
}

/// Begins to take connections, at most `backlog` waiting (the kernel's `somaxconn` caps it).
pub fn listen(socket: impl AsFd, backlog: u32) -> io::Result<()> {
    Ok(rustix::net::listen(
        socket,
        i32::try_from(backlog).unwrap_or(i32::MAX),
    )?)
}

/// Takes one waiting connection, non-blocking, and its peer's address. `WouldBlock` when there is
/// none.
pub fn accept(listener: impl AsFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (socket, peer) = rustix::net::acceptfrom_with(listener, flags)?;
    match peer {
        Some(peer) => Ok((socket, internet(peer)?)),
        // The kernel leaves the address out when the peer has reset meanwhile.
        None => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// Begins a connection to `address`.
pub fn connect(socket: impl AsFd, address: SocketAddr) -> io::Result<Dial> {
    match rustix::net::connect(socket, &address) {
        Ok(()) => Ok(Dial::Connected),
        Err(rustix::io::Errno::INPROGRESS) => Ok(Dial::Pending),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether a connection that was begun is answered. A near end answers before [`connect`] returns.
pub fn is_answered(socket: impl AsFd) -> bool {
    rustix::net::getpeername(socket).is_ok_and(|peer| peer.is_some())
}

/// Ends the wait of whoever accepts at `listener`, for good: it fails with `InvalidInput`.
pub fn stop_listening(listener: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(listener, Shutdown::Both)?)
}

/// Whether the other end of a Unix socket is closed altogether, and not for writing alone.
pub fn has_hung_up(socket: impl AsFd) -> bool {
    let mut asked = [PollFd::new(&socket, PollFlags::empty())];
    let ready = poll(&mut asked, Some(&Timespec::default()));
    ready.is_ok() && asked[0].revents().contains(PollFlags::HUP)
}

/// The user (effective uid) of the process that connected a Unix socket.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    Ok(sockopt::socket_peercred(socket)?.uid.as_raw())
}

/// The user (effective uid) of this process.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Takes the socket's pending error: how a dial ended, why a connection broke.
pub fn take_error(socket: impl AsFd) -> io::Result<()> {
    sockopt::socket_error(socket)??;
    Ok(())
}

/// The socket's own address. On a transparently accepted connection: where its client wanted to go.
pub fn local_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    internet(rustix::net::getsockname(socket)?)
}

/// The address at the other end.
pub fn peer_address(socket: impl AsFd) -> io::Result<SocketAddr> {
    match rustix::net::getpeername(socket)? {
        Some(peer) => internet(peer),
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// Ends the sending direction: FIN after what is unsent. The other direction goes on.
pub fn shutdown_send(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, Shutdown::Write)?)
}

/// Leaves urgent bytes (RFC 9293, 3.8.5; RFC 6093) in the stream, in their place. Without it the kernel
/// takes them out. To be set before the connection is: a listener hands it on.
pub fn set_urgent_inline(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_oobinline(socket, true)?)
}

/// What [`receive_and_rest`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes read; 0 is the end of the stream.
    pub count: usize,
    /// Whether there was nothing more to read a moment after. Where [`crate::tcp::tell_rest`] was not
    /// called, only a read that fails with `WouldBlock` says so. At the end of a stream it is false where a FIN
    /// said that end, and true where an error ended the connection that another call has already taken.
    pub drained: bool,
}

/// Reads what is there; 0 is the end of the stream.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(receive_and_rest(socket, buffer)?.count)
}

/// Reads what is there, at most as much as `buffer` holds. A short count does not say that nothing is
/// left: the kernel also stops before an urgent byte, and at the end of the stream.
pub fn receive_and_rest(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = ControlBuffer([0; 32]);
    // SAFETY: all fields of a msghdr are numbers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    let socket = socket.as_fd().as_raw_fd();
    let count = loop {
        message.msg_controllen = control.0.len() as _;
        // SAFETY: the descriptor is borrowed for the call; the kernel writes into `buffer` and
        // `control` no more than the lengths given, and both outlive the call.
        let count = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) };
        if let Ok(count) = usize::try_from(count) {
            break count;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    Ok(Received {
        count,
        drained: rest(&message) == Some(0),
    })
}

/// Room for the one control message of a TCP socket, aligned as its header.
#[repr(align(8))]
struct ControlBuffer([u8; 32]);

/// What the kernel says is left to read: bytes, or 1 when only the end is.
fn rest(message: &libc::msghdr) -> Option<libc::c_int> {
    // SAFETY: the kernel has filled `msg_control` up to `msg_controllen` with whole headers, within
    // the buffer that the caller still holds.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const *message);
        let is_queue_length = !header.is_null()
            && (*header).cmsg_level == libc::SOL_TCP
            && (*header).cmsg_type == crate::tcp::TCP_INQ;
        is_queue_length.then(|| {
            libc::CMSG_DATA(header)
                .cast::<libc::c_int>()
                .read_unaligned()
        })
    }
}

/// Writes as much of `data` as there is room for; a broken connection is an error, never a signal.
pub fn send(socket: impl AsFd, data: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(rustix::io::retry_on_intr(|| {
        rustix::net::send(&socket, data, flags)
    })?)
}

/// Whether `error` says that descriptors or memory ran out, in this process or the whole system.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)
    )
}

fn internet(address: SocketAddrAny) -> io::Result<SocketAddr> {
    SocketAddr::try_from(address).map_err(|errno| errno.into())
}

pub(crate) fn set_u32(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: u32,
) -> io::Result<()> {
    set_raw(socket, level, name, &value.to_ne_bytes())
}

pub(crate) fn set_raw(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed for the call; the kernel reads `value.len()` bytes of
    // `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Reads an option into `value` and returns how many bytes the kernel filled.
pub(crate) fn get_raw(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call; the kernel writes at most `len` bytes, the
    // length of `value`, and stores how many into `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok((len as usize).min(value.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::net::{TcpListener, TcpStream};

    const LOOPBACK: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

    fn dialled(to: SocketAddr) -> OwnedFd {
        let socket = stream(to).unwrap();
        match connect(&socket, to) {
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
        socket
    }

    #[test]
    fn an_abort_is_seen_as_a_reset_and_an_orderly_close_as_the_end() {
        for address in LOOPBACK {
            let listener = TcpListener::bind(address).unwrap();
            let to = listener.local_addr().unwrap();
            for abort in [true, false] {
                let socket = dialled(to);
                let (mut far, _) = listener.accept().unwrap();
                assert_eq!(send(&socket, b"tail").unwrap(), 4);
                abort_on_close(&socket, abort).unwrap();
                let mut got = Vec::new();
                if abort {
                    drop(socket);
                    let error = far.read_to_end(&mut got).unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                } else {
                    drop(socket);
                    far.read_to_end(&mut got).unwrap();
                    assert_eq!(got, b"tail");
                }
            }
        }
    }

    /// An error is told once. Who reads after another call has taken it sees 0, as at an orderly end.
    #[test]
    fn a_reset_whose_error_was_taken_is_told_from_an_end() {
        for reset in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let socket = dialled(listener.local_addr().unwrap());
            let (far, _) = listener.accept().unwrap();
            crate::tcp::tell_rest(&socket).unwrap();
            abort_on_close(&far, reset).unwrap();
            drop(far);
            let epoll = crate::epoll::Epoll::new().unwrap();
            let closed = crate::epoll::Interest::PEER_CLOSED;
            epoll.add(&socket, 1, closed).unwrap();
            let mut events = crate::epoll::Events::with_capacity(1);
            epoll.wait(&mut events, None).unwrap();
            assert_eq!(take_error(&socket).is_err(), reset);
            let received = receive_and_rest(&socket, &mut [0; 8]).unwrap();
            assert_eq!((received.count, received.drained), (0, reset));
        }
    }

    #[test]
    fn a_listener_hands_its_options_to_what_it_accepts() {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = stream(address).unwrap();
        set_reuse_port(&listener, true).unwrap();
        abort_on_close(&listener, true).unwrap();
        set_send_buffer(&listener, Bytes(300_000)).unwrap();
        set_receive_buffer(&listener, Bytes(100_000)).unwrap();
        bind(&listener, address).unwrap();
        listen(&listener, 16).unwrap();
        let to = local_address(&listener).unwrap();

        let second = stream(address).unwrap();
        set_reuse_port(&second, true).unwrap();
        bind(&second, to).unwrap();

        let mut client = TcpStream::connect(to).unwrap();
        let (accepted, peer) = accept(&listener).unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        assert_eq!(peer_address(&accepted).unwrap(), peer);
        assert_eq!(local_address(&accepted).unwrap(), to);
        let inherited = Buffers {
            send: Bytes(300_000),
            receive: Bytes(100_000),
        };
        assert_eq!(buffers(&accepted).unwrap(), inherited);
        let again = accept(&listener).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::WouldBlock);
        drop(accepted);
        let error = client.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_unix_peer_is_known_and_a_closed_door_ends_the_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("door");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (seated, _) = listener.accept().unwrap();
        assert_eq!(peer_user(&seated).unwrap(), own_user());
        drop(client);
        let outside = listener.try_clone().unwrap();
        let waits = std::thread::spawn(move || listener.accept().unwrap_err().kind());
        std::thread::sleep(Duration::from_millis(20));
        stop_listening(&outside).unwrap();
        assert_eq!(waits.join().unwrap(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_refused_dial_says_so() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = free.local_addr().unwrap();
        drop(free);
        let socket = stream(to).unwrap();
        let error = match connect(&socket, to) {
            Ok(_) => {
                std::thread::sleep(Duration::from_millis(20));
                take_error(&socket).unwrap_err()
            }
            Err(error) => error,
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
