//! The addresses of the listeners to which intercepted connections are delivered.

use std::net::SocketAddr;

/// Where interception delivers connections that came in by one leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenAddresses {
    /// On 127.0.0.1.
    pub v4: SocketAddr,
    /// On ::1; `None` where this machine has no IPv6.
    pub v6: Option<SocketAddr>,
}

/// nft's words for a family, its own and in a rule on `tproxy`, and a listener of it.
pub(crate) type Listening = (&'static str, &'static str, SocketAddr);

impl ListenAddresses {
    /// Each of them, as nft speaks of it.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = Listening> {
        let v6 = self.v6.map(|address| ("ipv6", "ip6", address));
        [Some(("ipv4", "ip", self.v4)), v6].into_iter().flatten()
    }
}
