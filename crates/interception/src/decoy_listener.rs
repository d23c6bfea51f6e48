//! The decoy listener, to which nothing connects: with it a SYN that meets one of our sockets in TIME_WAIT is forwarded.

use crate::listen_addresses::ListenAddresses;
use bentpipe_sockets::socket;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// A listener that nobody is let in to. A SYN whose four numbers wait out a TIME_WAIT at us would not be forwarded:
/// before the kernel forwards a packet it looks for a socket of those numbers. nft's `tproxy` ends such a wait for
/// a SYN where there is a listener, and then refuses this one, which is not transparent. So the SYN goes its
/// ordinary way.
#[derive(Debug)]
pub struct DecoyListener {
    _sockets: Vec<OwnedFd>,
    /// Where it listens.
    pub addresses: ListenAddresses,
}

impl DecoyListener {
    /// Opens it in the calling thread's namespace, on loopback.
    ///
    /// # Errors
    /// When there is no socket for IPv4; without IPv6 it does without.
    pub fn open() -> io::Result<Self> {
        let mut sockets = Vec::new();
        let mut open = |address: SocketAddr| -> io::Result<SocketAddr> {
            let socket = socket::stream(address)?;
            socket::deafen(&socket)?;
            socket::bind(&socket, address)?;
            socket::listen(&socket, 1)?;
            let address = socket::local_address(&socket);
            sockets.push(socket);
            address
        };
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let addresses = ListenAddresses {
            v4: open(v4)?,
            v6: open(v6).ok(),
        };
        Ok(Self {
            _sockets: sockets,
            addresses,
        })
    }
}
