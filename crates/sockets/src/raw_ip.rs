//! Sends whole IP packets that somebody else has made: raw(7).

use crate::socket::set_raw;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

/// Sockets of the calling thread's namespace (CAP_NET_RAW). Packets go by the interface that is named, to the next hop that the
/// routing table has there, through the output and postrouting hooks, with the addresses that they have; the kernel fills
/// in the checksum of an IPv4 header.
#[derive(Debug)]
pub struct RawIp {
    v4: Bound,
    /// None where there is no IPv6.
    v6: Option<Bound>,
}

/// A socket, and the index of the interface to which it is bound; 0: to none.
#[derive(Debug)]
struct Bound {
    socket: OwnedFd,
    to: Cell<u32>,
}

impl Bound {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            to: Cell::new(0),
        }
    }

    /// Binds it to `interface` (SO_BINDTOIFINDEX, Linux 5.0), if it is not.
    fn bind(&self, interface: u32) -> io::Result<()> {
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

    /// Sends `packet`, which begins with its IP header, by the interface with index `interface`.
    ///
    /// # Errors
    /// What is no IP packet; an interface that is gone; no route; a full queue.
    pub fn send(&self, packet: &[u8], interface: u32) -> io::Result<()> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let (socket, to): (_, SocketAddr) = match packet.first().map(|first| first >> 4) {
            Some(4) => {
                let to = packet
                    .get(16..20)
                    .and_then(|to| <[u8; 4]>::try_from(to).ok());
                let to = Ipv4Addr::from(to.ok_or_else(invalid)?);
                (&self.v4, SocketAddrV4::new(to, 0).into())
            }
            Some(6) => {
                let to = packet
                    .get(24..40)
                    .and_then(|to| <[u8; 16]>::try_from(to).ok());
                let to = Ipv6Addr::from(to.ok_or_else(invalid)?);
                let socket = self.v6.as_ref().ok_or_else(invalid)?;
                (socket, SocketAddrV6::new(to, 0, 0, 0).into())
            }
            _ => return Err(invalid()),
        };
        socket.bind(interface)?;
        sendto(&socket.socket, packet, SendFlags::empty(), &to)?;
        Ok(())
    }
}
