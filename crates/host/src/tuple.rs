use bentpipe_wire::Ip;
use core::net::{IpAddr, SocketAddr};

/// The four numbers of a connection, as this host sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
}

impl Tuple {
    /// Appends address and port of both ends to `out`.
    pub(crate) fn octets(&self, out: &mut Vec<u8>) {
        for end in [self.local, self.remote] {
            address(end.ip(), out);
            out.extend_from_slice(&end.port().to_be_bytes());
        }
    }

    /// The header of its packets to the peer. Both addresses are of one family: they came in one header, or the host
    /// chose its own by the peer's.
    pub(crate) fn header(&self) -> Ip {
        let (local, remote) = (self.local.ip(), self.remote.ip());
        Ip::between(local, remote).expect("both ends of a connection are of one family")
    }

    /// Bytes of the bare IP header of its packets.
    pub(crate) const fn ip_header(&self) -> u16 {
        match self.remote {
            SocketAddr::V4(_) => 20,
            SocketAddr::V6(_) => 40,
        }
    }
}

/// Appends `address` to `out`.
pub(crate) fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}
