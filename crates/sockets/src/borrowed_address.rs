//! Sockets that send from another machine's address.

use crate::socket::{bind, set_mark, set_reuse_address, set_transparent};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

/// Another machine's address, from which a socket sends, and the mark by which this machine leads what comes back to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorrowedAddress {
    /// The address and port.
    pub address: SocketAddr,
    /// The mark of the socket.
    pub mark: u32,
}

impl BorrowedAddress {
    /// Binds a socket to it (CAP_NET_ADMIN).
    ///
    /// # Errors
    /// What the kernel says, such as that the address is in use.
    pub fn bind(self, socket: impl AsFd) -> io::Result<()> {
        set_transparent(&socket, self.address)?;
        set_mark(&socket, self.mark)?;
        set_reuse_address(&socket, true)?;
        bind(socket, self.address)
    }
}
