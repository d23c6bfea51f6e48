//! Sends whole IP packets that somebody else has made: raw(7).

use crate::socket::{set_mark, set_raw};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

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
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        // The kernel takes the packet to where it is told (FLOWI_FLAG_KNOWN_NH), whatever the header has for its destination.
        let (socket, to): (_, SocketAddr) = match packet.first().map(|first| first >> 4) {
            Some(4) => {
                let octets = packet
                    .get(16..20)
                    .and_then(|to| <[u8; 4]>::try_from(to).ok());
                let to = match way.router {
                    Some(IpAddr::V4(router)) => router,
                    _ => Ipv4Addr::from(octets.ok_or_else(invalid)?),
                };
                (&self.v4, SocketAddrV4::new(to, 0).into())
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
                (socket, SocketAddrV6::new(to, 0, 0, scope).into())
            }
            _ => return Err(invalid()),
        };
        socket.lead(way.interface, way.mark)?;
        match sendto(&socket.socket, packet, SendFlags::empty(), &to) {
            Ok(_) => Ok(()),
            Err(Errno::NOBUFS | Errno::NOMEM) => Err(io::ErrorKind::WouldBlock.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}
