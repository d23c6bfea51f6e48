//! A socket for one peer.

use super::set_fragments;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// A socket that sends to `peer`, hears it alone, and never blocks. What its path does not take is refused with EMSGSIZE, not sent in
/// fragments; what ICMP says of its datagrams, such as that nothing listens there, is the error of a later call.
///
/// # Errors
/// What the kernel says, such as that there is no way to it.
pub fn connected(peer: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    let socket = OwnedFd::from(socket);
    set_fragments(&socket, false)?;
    let socket = UdpSocket::from(socket);
    socket.connect(peer)?;
    Ok(socket)
}

/// Whether an error says only that a datagram is longer than its path takes.
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}
