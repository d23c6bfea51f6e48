//! Sends whole IP packets that somebody else has made: raw(7).

use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with,
};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

/// Sockets of the calling thread's namespace (CAP_NET_RAW). Packets go the way of the routing table, through the output and
/// postrouting hooks, with the addresses that they have; the kernel fills in the checksum of an IPv4 header.
#[derive(Debug)]
pub struct RawIp {
    v4: OwnedFd,
    /// None where there is no IPv6.
    v6: Option<OwnedFd>,
}

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
            v4: open(AddressFamily::INET)?,
            v6,
        })
    }

    /// Sends `packet`, which begins with its IP header.
    ///
    /// # Errors
    /// What is no IP packet; no route; a full queue.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
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
        sendto(socket, packet, SendFlags::empty(), &to)?;
        Ok(())
    }
}
