//! Ports of connections that this host opens (RFC 6056, section 3.3.4, algorithm 4: "double-hash port selection"):
//! towards one destination they follow each other, so that each is used again as late as can be; where they begin,
//! and how fast they go on, an outsider cannot tell.

use crate::secret::{Purpose, Secret};
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

/// Counters that the destinations share (RFC 6056 proposes 10; more of them tell less of each other).
const COUNTERS: usize = 256;

/// Chooses ports.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    counters: Box<[u32; COUNTERS]>,
}

impl Ports {
    pub(crate) fn new() -> Self {
        Self {
            counters: Box::new([0; COUNTERS]),
        }
    }

    /// A port in `range` for a connection from `local` to `remote` that is `free`; `None` where none is.
    pub(crate) fn choose(
        &mut self,
        secret: &Secret,
        range: &RangeInclusive<u16>,
        local: IpAddr,
        remote: SocketAddr,
        free: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        let count = (last + 1).checked_sub(first).filter(|count| *count > 0)?;
        let offset = secret.of_ends(Purpose::PortOffset, local, remote) as u32;
        let index = secret.of_ends(Purpose::PortIndex, local, remote) as usize % COUNTERS;
        let counter = &mut self.counters[index];
        for _ in 0..count {
            let port = first + offset.wrapping_add(*counter) % count;
            *counter = counter.wrapping_add(1);
            // Both ends of the range are ports.
            let port = port as u16;
            if free(port) {
                return Some(port);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const RANGE: RangeInclusive<u16> = 40_000..=40_099;

    fn ends() -> (IpAddr, SocketAddr) {
        ([10, 0, 0, 1].into(), ([10, 0, 0, 2], 80).into())
    }

    #[test]
    fn all_ports_come_before_one_comes_again() {
        let (local, remote) = ends();
        let (secret, mut ports) = (Secret::new([1; 16]), Ports::new());
        let chosen: HashSet<_> = (0..100)
            .filter_map(|_| ports.choose(&secret, &RANGE, local, remote, |_| true))
            .collect();
        assert_eq!(chosen.len(), 100);
        assert!(chosen.iter().all(|port| RANGE.contains(port)));
    }

    #[test]
    fn ports_in_use_are_left_out_and_none_is_told() {
        let (local, remote) = ends();
        let (secret, mut ports) = (Secret::new([1; 16]), Ports::new());
        let one = ports.choose(&secret, &RANGE, local, remote, |port| port == 40_017);
        assert_eq!(one, Some(40_017));
        let none = ports.choose(&secret, &RANGE, local, remote, |_| false);
        assert_eq!(none, None);
    }

    #[test]
    fn where_they_begin_differs_by_destination_and_key() {
        let (local, remote) = ends();
        let first = |key, port| {
            let remote = SocketAddr::new(remote.ip(), port);
            Ports::new().choose(&Secret::new([key; 16]), &RANGE, local, remote, |_| true)
        };
        let seen: HashSet<_> = (0..20).map(|port| first(1, port)).collect();
        assert!(seen.len() > 10, "{seen:?}");
        let seen: HashSet<_> = (0..20).map(|key| first(key, 80)).collect();
        assert!(seen.len() > 10, "{seen:?}");
    }
}
