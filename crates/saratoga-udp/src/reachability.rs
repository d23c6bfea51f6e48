//! What the network tells of peers: at which address of this host each was heard, and ICMP errors; and which errors of a
//! socket pass.

use crate::endpoint::key;
use bentpipe_base::Instant;
use bentpipe_sockets::timer;
use bentpipe_sockets::udp::Received;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Peers that are told apart at most; what goes to others leaves from the address that the route chooses.
const MOST: usize = 4096;

/// At which address of this host each peer was heard last: answers come from it. Both are IPv4 where the packets are, though a
/// socket of IPv6 shows them otherwise.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses(BTreeMap<SocketAddr, IpAddr>);

impl LocalAddresses {
    /// `peer` was heard at `at`, where that is known.
    pub(crate) fn note(&mut self, peer: SocketAddr, at: Option<IpAddr>) {
        let Some(at) = at.map(|at| at.to_canonical()) else {
            return;
        };
        let (peer, _) = key(peer, 0);
        if self.0.insert(peer, at).is_none() && self.0.len() > MOST {
            // Any peer but this one makes room.
            let other = self.0.keys().find(|other| **other != peer).copied();
            other.map(|other| self.0.remove(&other));
        }
    }

    /// Where what goes to `peer` should come from.
    pub(crate) fn to(&self, peer: SocketAddr) -> Option<IpAddr> {
        self.0.get(&key(peer, 0).0).copied()
    }
}

/// What the server's host has said of its port being closed (ICMP, which the kernel checks against what was
/// sent). A server that is just being started is no reason to give up: a second refusal somewhat later is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    first: Option<Instant>,
    believed: bool,
    /// When the log was told that the kernel had no memory.
    told: Option<Instant>,
}

/// Between the two.
const LATER: Duration = Duration::from_millis(500);
/// How long a socket is left alone for which the kernel has no memory.
const MOMENT: Duration = Duration::from_millis(10);
/// The least time between two log lines about that.
const TOLD: Duration = Duration::from_secs(60);

impl Refusals {
    /// What was received, as of [`Self::or_else`]. While the kernel has no memory for it, that is nothing, after a moment:
    /// what is in the socket stays there.
    pub(crate) fn received(
        &mut self,
        result: io::Result<Option<Received>>,
    ) -> io::Result<Option<Received>> {
        if let Err(error) = &result
            && is_want_of_memory(error)
        {
            let now = timer::now();
            if self.told.is_none_or(|told| now.since(told) >= TOLD) {
                self.told = Some(now);
                tracing::warn!(%error, "nothing can be received just now");
            }
            std::thread::sleep(MOMENT);
        }
        Ok(self.or_else(result)?.flatten())
    }

    /// Takes note of `result` where it is such a refusal, and passes over what passes: what else hosts and routers have
    /// said of what was sent before, and that the kernel has no memory just now. It then gives nothing. What is left are
    /// errors of the socket itself, which do not pass.
    pub(crate) fn or_else<T>(&mut self, result: io::Result<T>) -> io::Result<Option<T>> {
        match result {
            Err(error) if is_want_of_memory(&error) => {
                tracing::debug!(%error, "no memory");
                Ok(None)
            }
            Err(error) if is_of_the_way(&error) => {
                tracing::debug!(%error, "a host on the way");
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let now = timer::now();
                let first = *self.first.get_or_insert(now);
                self.believed |= now.since(first) >= LATER;
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    pub(crate) const fn are_believed(self) -> bool {
        self.believed
    }
}

/// Whether `error` is an ICMP message, which the kernel tells a connected socket at whatever it does next: that a
/// packet was too long for a link (those to come are not), or that there is no way just now. Only silence ends a
/// transfer, for ways come again.
fn is_of_the_way(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::MSGSIZE
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::PROTO
                | Errno::ACCESS
        )
    )
}

fn is_want_of_memory(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOMEM | Errno::NOBUFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn want_of_memory_ends_nothing() {
        let mut refusals = Refusals::default();
        for errno in [Errno::NOMEM, Errno::NOBUFS] {
            assert!(matches!(refusals.received(Err(errno.into())), Ok(None)));
            assert!(matches!(
                refusals.or_else::<()>(Err(errno.into())),
                Ok(None)
            ));
        }
        assert!(refusals.received(Err(Errno::BADF.into())).is_err());
    }

    #[test]
    fn what_is_said_of_the_way_ends_nothing_and_a_broken_socket_does() {
        let mut refusals = Refusals::default();
        let mut tell = |errno: Errno| refusals.or_else::<()>(Err(errno.into()));
        for errno in [Errno::MSGSIZE, Errno::HOSTUNREACH, Errno::ACCESS] {
            assert!(matches!(tell(errno), Ok(None)), "{errno}");
        }
        assert!(tell(Errno::BADF).is_err());
        assert!(tell(Errno::WOULDBLOCK).is_err());
        assert!(!refusals.are_believed());
    }

    #[test]
    fn the_last_address_counts_and_a_flood_takes_no_more_room() {
        let mut local_addresses = LocalAddresses::default();
        let peer = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let at = |last| Some(IpAddr::from([10, 0, 0, last]));
        local_addresses.note(peer(1), at(7));
        local_addresses.note(peer(1), at(8));
        local_addresses.note(peer(1), None);
        assert_eq!(
            (local_addresses.to(peer(1)), local_addresses.to(peer(2))),
            (at(8), None)
        );
        for port in 2..10_000 {
            local_addresses.note(peer(port), at(9));
            assert_eq!(local_addresses.to(peer(port)), at(9));
        }
        assert_eq!(local_addresses.0.len(), MOST);
    }
}
