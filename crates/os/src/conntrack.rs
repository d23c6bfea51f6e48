//! What the kernel's connection tracking remembers of a connection, taken from it
//! (linux/netfilter/nfnetlink_conntrack.h).

use crate::message::{nest, put};
use crate::netfilter::{self, CHANGE, NESTED};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// NFNL_SUBSYS_CTNETLINK with IPCTNL_MSG_CT_DELETE.
const DELETE: u16 = 1 << 8 | 2;
/// CTA_TUPLE_ORIG, and within it CTA_TUPLE_IP and CTA_TUPLE_PROTO.
const ORIGINAL: u16 = 1;
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT.
const NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
const TCP: u8 = 6;

/// Speaks to the connection tracking of the namespace it was opened in, from any thread.
#[derive(Debug)]
pub struct Conntrack {
    socket: OwnedFd,
}

impl Conntrack {
    /// Opens it for the namespace of the calling thread (CAP_NET_ADMIN).
    ///
    /// # Errors
    /// Without descriptors.
    pub fn open() -> io::Result<Self> {
        let socket = netfilter::open()?;
        Ok(Self { socket })
    }

    /// Has the TCP connection that `from` began to `to`, by their addresses before any translation, forgotten:
    /// the next packet between them begins a new one.
    ///
    /// # Errors
    /// `NotFound` where it is not tracked; the kernel may have no conntrack that can be asked.
    pub fn forget(&self, from: SocketAddr, to: SocketAddr) -> io::Result<()> {
        netfilter::request(&self.socket, &deletion(from, to))
    }
}

fn deletion(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    // NFPROTO_IPV4, NFPROTO_IPV6; CTA_IP_V4_SRC, CTA_IP_V6_SRC, of which the next is the destination.
    let (family, source): (u8, u16) = match from {
        SocketAddr::V4(_) => (2, 1),
        SocketAddr::V6(_) => (10, 3),
    };
    let mut message = Vec::new();
    netfilter::put(&mut message, (DELETE, CHANGE), (family, 0), |bytes| {
        nest(bytes, ORIGINAL | NESTED, |tuple| {
            nest(tuple, ADDRESSES | NESTED, |ip| {
                address(ip, source, from.ip());
                address(ip, source + 1, to.ip());
            });
            nest(tuple, PROTOCOL | NESTED, |ports| {
                put(ports, NUMBER, &[TCP]);
                put(ports, SOURCE_PORT, &from.port().to_be_bytes());
                put(ports, DESTINATION_PORT, &to.port().to_be_bytes());
            });
        });
    });
    message
}

fn address(bytes: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => put(bytes, kind, &address.octets()),
        IpAddr::V6(address) => put(bytes, kind, &address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::{need, nft};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_forgotten_once() {
        need!(Root, Nft);
        let netns = Netns::create("forget").unwrap();
        let work = || {
            nft::apply(
                "table inet t { chain c { type filter hook output priority 0; ct state new counter; }; }",
            )
            .unwrap();
            let conntrack = Conntrack::open().unwrap();
            for host in ["127.0.0.1:0", "[::1]:0"] {
                let listener = TcpListener::bind(host).unwrap();
                let to = listener.local_addr().unwrap();
                let client = TcpStream::connect(to).unwrap();
                let from = client.local_addr().unwrap();
                let other = SocketAddr::new(from.ip(), from.port() ^ 1);
                let missing = conntrack.forget(other, to).unwrap_err();
                assert_eq!(missing.kind(), io::ErrorKind::NotFound);
                conntrack.forget(from, to).unwrap();
                let again = conntrack.forget(from, to).unwrap_err();
                assert_eq!(again.kind(), io::ErrorKind::NotFound, "{host}");
            }
        };
        netns.run(work).unwrap();
    }
}
