//! A socket for one peer.

use super::set_fragments;
use crate::borrowed_address::BorrowedAddress;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// A socket that sends to `peer`, from `source` or an address of this machine's, hears it alone, and never blocks. What its path does not take is refused with EMSGSIZE, not sent in
/// fragments; what ICMP says of its datagrams, such as that nothing listens there, is the error of a later call.
///
/// # Errors
/// What the kernel says, such as that there is no way to it.
pub fn connected(peer: SocketAddr, source: Option<BorrowedAddress>) -> io::Result<UdpSocket> {
    let family = match peer {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    set_fragments(&socket, false)?;
    { source.iter() }.try_for_each(|source| source.bind(&socket))?;
    let socket = UdpSocket::from(socket);
    socket.connect(peer)?;
    Ok(socket)
}

/// Whether an error says only that a datagram is longer than its path takes.
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}
