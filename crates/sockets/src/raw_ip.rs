//! Sends whole IP packets that somebody else has made: raw(7).

use crate::socket::{set_mark, set_raw};
use crate::udp::msghdr::Name;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};

/// Sockets of the calling thread's namespace (CAP_NET_RAW; CAP_NET_ADMIN for a mark). Packets go the way that is named, through the output and
/// postrouting hooks, with the addresses that they have; the kernel fills in the checksum of an IPv4 header.
#[derive(Debug)]
pub struct RawIp {
    v4: Bound,
    /// None where there is no IPv6.
    v6: Option<Bound>,
}

/// The way that a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The index of the interface by which it leaves.
    pub interface: u32,
    /// The router on that link to which it goes; where there is none, the one that the routing table has there.
    pub router: Option<IpAddr>,
    /// Its mark.
    pub mark: u32,
}

/// A socket, the index of the interface to which it is bound, and its mark; 0: none.
#[derive(Debug)]
struct Bound {
    socket: OwnedFd,
    to: Cell<u32>,
    mark: Cell<u32>,
}

impl Bound {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            to: Cell::new(0),
            mark: Cell::new(0),
        }
    }

    /// Binds it to `interface` (SO_BINDTOIFINDEX, Linux 5.0) and gives it `mark`, if it is not or has another.
    fn lead(&self, interface: u32, mark: u32) -> io::Result<()> {
        if self.mark.get() != mark {
            set_mark(&self.socket, mark)?;
            self.mark.set(mark);
        }
        if self.to.get() != interface {
            set_raw(
                &self.socket,
                libc::SOL_SOCKET,
                SO_BINDTOIFINDEX,
                &interface.to_ne_bytes(),
            )?;
            self.to.set(interface);
        }
        Ok(())
    }
}

/// The most packets of one system call.
const MANY: usize = 64;

/// Which libc does not have (asm-generic/socket.h).
const SO_BINDTOIFINDEX: i32 = 62;

impl RawIp {
    /// Opens the sockets.
    ///
    /// # Errors
    /// Without the right to, or descriptors.
    pub fn open() -> io::Result<Self> {
        let open = |family| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            // IPPROTO_RAW: the header is ours.
            socket_with(family, SocketType::RAW, flags, Some(ipproto::RAW))
        };
        let v6 = match open(AddressFamily::INET6) {
            Ok(socket) => Some(socket),
            Err(rustix::io::Errno::AFNOSUPPORT) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            v4: Bound::new(open(AddressFamily::INET)?),
            v6: v6.map(Bound::new),
        })
    }

    /// Sends `packet`, which begins with its IP header.
    ///
    /// # Errors
    /// What is no IP packet; an interface that is gone; no route; output chains that refuse it. `WouldBlock` where there is no room just now.
    pub fn send(&self, packet: &[u8], way: &Way) -> io::Result<()> {
        let (socket, to) = self.next_hop(packet, way)?;
        socket.lead(way.interface, way.mark)?;
        match sendto(&socket.socket, packet, SendFlags::empty(), &to) {
            Ok(_) => Ok(()),
            Err(errno) => Err(refusal(errno)),
        }
    }

    /// Sends `packets` one after the other, many by one system call (sendmmsg(2)); `refused` hears of each that did not leave, and why,
    /// as [`RawIp::send`] fails.
    pub fn send_all(
        &self,
        mut packets: &[&[u8]],
        way: &Way,
        mut refused: impl FnMut(&[u8], io::Error),
    ) {
        while let Some((first, rest)) = packets.split_first() {
            let Ok((socket, _)) = self.next_hop(first, way) else {
                refused(first, io::ErrorKind::InvalidInput.into());
                packets = rest;
                continue;
            };
            let names: Vec<Name> = { packets.iter().take(MANY) }
                .map_while(|packet| {
                    let (same, to) = self.next_hop(packet, way).ok()?;
                    std::ptr::eq(same, socket).then(|| Name::of(to))
                })
                .collect();
            let sent = socket
                .lead(way.interface, way.mark)
                .and_then(|()| send_many(&socket.socket, packets, &names));
            let done = sent.unwrap_or_else(|error| {
                // That of the first.
                refused(first, error);
                1
            });
            packets = &packets[done..];
        }
    }

    /// The socket that sends `packet`, and to where.
    fn next_hop(&self, packet: &[u8], way: &Way) -> io::Result<(&Bound, SocketAddr)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        // The kernel takes the packet to where it is told (FLOWI_FLAG_KNOWN_NH), whatever the header has for its destination.
        match packet.first().map(|first| first >> 4) {
            Some(4) => {
                let octets = packet
                    .get(16..20)
                    .and_then(|to| <[u8; 4]>::try_from(to).ok());
                let to = match way.router {
                    Some(IpAddr::V4(router)) => router,
                    _ => Ipv4Addr::from(octets.ok_or_else(invalid)?),
                };
                Ok((&self.v4, SocketAddrV4::new(to, 0).into()))
            }
            Some(6) => {
                let octets = packet
                    .get(24..40)
                    .and_then(|to| <[u8; 16]>::try_from(to).ok());
                let to = match way.router {
                    Some(IpAddr::V6(router)) => router,
                    _ => Ipv6Addr::from(octets.ok_or_else(invalid)?),
                };
                let socket = self.v6.as_ref().ok_or_else(invalid)?;
                let link = to.is_unicast_link_local();
                let scope = if link { way.interface } else { 0 };
                Ok((socket, SocketAddrV6::new(to, 0, 0, scope).into()))
            }
            _ => Err(invalid()),
        }
    }
}

/// Whether `error` says that the interface takes no packet so long.
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

fn refusal(errno: Errno) -> io::Error {
    match errno {
        Errno::NOBUFS | Errno::NOMEM => io::ErrorKind::WouldBlock.into(),
        errno => errno.into(),
    }
}

/// Sends the first of `packets`, as many as there are `names`, each to its own; returns how many have left, at least one.
fn send_many(socket: &OwnedFd, packets: &[&[u8]], names: &[Name]) -> io::Result<usize> {
    let mut parts: Vec<libc::iovec> = { packets.iter().zip(names) }
        .map(|(packet, _)| libc::iovec {
            iov_base: packet.as_ptr().cast_mut().cast(),
            iov_len: packet.len(),
        })
        .collect();
    let mut headers: Vec<libc::mmsghdr> = { parts.iter_mut().zip(names) }
        .map(|(part, name)| {
            // SAFETY: all fields of a mmsghdr are numbers and pointers, for which zero is a value.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = (&raw const name.storage).cast_mut().cast();
            header.msg_hdr.msg_namelen = name.len;
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        })
        .collect();
    // SAFETY: the descriptor is borrowed for the call; the kernel reads packets and names, which it does not change, and writes into the
    // headers; all outlive the call.
    let count = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            headers.len() as libc::c_uint,
            0,
        )
    };
    match usize::try_from(count) {
        Ok(count) => Ok(count.max(1)),
        Err(_) => {
            let error = io::Error::last_os_error();
            Err(Errno::from_io_error(&error).map_or(error, refusal))
        }
    }
}
