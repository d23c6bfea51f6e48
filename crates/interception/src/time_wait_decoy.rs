//! The decoy listener, to which nothing connects: with it a SYN that meets one of our sockets in TIME_WAIT is forwarded.

use crate::listen_addresses::ListenAddresses;
use bentpipe_sockets::socket;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// A listener to which nothing is delivered. A SYN whose four numbers are those of one of our sockets in TIME_WAIT would
/// not be forwarded, because the kernel looks for such a socket first. Where nft's `tproxy` finds a listener it ends the
/// TIME_WAIT, and then refuses to deliver to this one, which is not transparent. So the SYN is forwarded.
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
            socket::drop_all_packets(&socket)?;
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
