//! From which clients' own addresses a far end dials, so that servers see who asks.

use bentpipe_base::Prefix;
use bentpipe_quic::PublicKey;
use bentpipe_sockets::borrowed_address::BorrowedAddress;
use std::net::{IpAddr, SocketAddr};

/// The networks of near ends' clients in whose names servers are dialled. This host leads the servers' answers to the sockets by their
/// mark; it has to be on these answers' way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientAddresses {
    /// Networks, each with the key of the near end that may speak for it: nobody else can borrow an address of it.
    pub networks: Vec<(PublicKey, Prefix)>,
    /// The mark of such sockets.
    pub mark: u32,
}

impl ClientAddresses {
    /// From where `server` is dialled, where the near end with `key` says that it asks for `client`; `None`: from this host's own address.
    /// What this host itself would answer finds no way from a client's address to it: `is_own` tells of an address whether it is its own.
    pub(crate) fn source(
        &self,
        key: &PublicKey,
        client: SocketAddr,
        server: SocketAddr,
        is_own: impl Fn(IpAddr) -> bool,
    ) -> Option<BorrowedAddress> {
        let host = Prefix::host(client.ip());
        let may = { self.networks.iter() }.any(|(of, network)| of == key && network.holds(&host));
        let fits = client.is_ipv4() == server.is_ipv4() && client.port() > 0;
        let source = BorrowedAddress {
            address: client,
            mark: self.mark,
        };
        (may && fits && !is_own(server.ip()) && !is_own(client.ip())).then_some(source)
    }
}
