//! What is known of the paths to other hosts: the largest packet that gets through (RFC 1191, RFC 8201), told by ICMP
//! or found out where routers swallow in silence (RFC 8899).

use bentpipe_base::{Bytes, Instant};
use bentpipe_wire::{least_path_mtu, told_path_mtu};
use core::net::IpAddr;
use std::collections::HashMap;
use std::time::Duration;

/// Paths that are remembered at most.
const PATHS: usize = 4_096;

/// What a path is taken for that swallows larger packets in silence: as [`least_path_mtu`], of IPv4 what tunnels leave (RFC
/// 8899, section 5.1.2, BASE_PLPMTU, less in doubt).
pub(crate) const fn base(remote: IpAddr) -> u16 {
    match remote {
        IpAddr::V4(_) => 1_200,
        IpAddr::V6(_) => 1_280,
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PathMtus {
    paths: HashMap<IpAddr, (u16, Instant)>,
    keep: Duration,
    /// How often something was learnt.
    changes: u64,
}

impl PathMtus {
    pub(crate) fn new(keep: Duration) -> Self {
        Self {
            paths: HashMap::new(),
            keep,
            changes: 0,
        }
    }

    /// How often something was learnt: who has seen as much knows all.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The largest packet to `remote`, of an interface that takes `mtu`.
    pub(crate) fn get(&self, remote: IpAddr, mtu: u16, now: Instant) -> u16 {
        match self.paths.get(&remote) {
            Some((path, since)) if now.since(*since) < self.keep => mtu.min(*path),
            _ => mtu,
        }
    }

    /// A packet of `length` bytes is too large for the path, whose next hop takes `next_hop_mtu` (RFC 1191, section 4; 0:
    /// unknown). Returns what the path is taken for, where that is less than it was.
    pub(crate) fn too_big(
        &mut self,
        remote: IpAddr,
        next_hop_mtu: u64,
        length: u64,
        mtu: u16,
        now: Instant,
    ) -> Option<u16> {
        let before = self.get(remote, mtu, now);
        let told = told_path_mtu(remote, Bytes(next_hop_mtu), Bytes(length))?;
        self.lower(remote, told, before, now)
    }

    /// Lowers the estimate because full-sized packets are lost in silence.
    pub(crate) fn black_hole(&mut self, remote: IpAddr, mtu: u16, now: Instant) -> Option<u16> {
        let before = self.get(remote, mtu, now);
        let base = base(remote);
        let next = if before > base {
            base
        } else {
            least_path_mtu(remote)
        };
        self.lower(remote, next, before, now)
    }

    fn lower(&mut self, remote: IpAddr, to: u16, before: u16, now: Instant) -> Option<u16> {
        if to >= before {
            return None;
        }
        if self.paths.len() >= PATHS {
            let keep = self.keep;
            self.paths.retain(|_, (_, since)| now.since(*since) < keep);
        }
        if self.paths.len() >= PATHS {
            // The oldest knowledge gives way.
            let oldest = self
                .paths
                .iter()
                .min_by_key(|(ip, (_, at))| (*at, **ip))
                .map(|(ip, _)| *ip);
            oldest.and_then(|oldest| self.paths.remove(&oldest));
        }
        self.paths.insert(remote, (to, now));
        self.changes += 1;
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn what_is_told_is_kept_for_its_time() {
        let mut paths = PathMtus::new(Duration::from_secs(600));
        let now = Instant::ZERO;
        assert_eq!(paths.too_big(REMOTE, 1_400, 1_500, 1_500, now), Some(1_400));
        assert_eq!(paths.get(REMOTE, 1_500, now), 1_400);
        // What is no less tells nothing.
        assert_eq!(paths.too_big(REMOTE, 1_450, 1_500, 1_500, now), None);
        let later = now + Duration::from_secs(600);
        assert_eq!(paths.get(REMOTE, 1_500, later), 1_500);
    }

    #[test]
    fn absurdly_small_sizes_are_not_believed() {
        let mut paths = PathMtus::new(Duration::from_secs(600));
        assert_eq!(
            paths.too_big(REMOTE, 68, 1_500, 1_500, Instant::ZERO),
            Some(552)
        );
        let remote = IpAddr::V6(core::net::Ipv6Addr::LOCALHOST);
        assert_eq!(
            paths.too_big(remote, 500, 1_500, 1_500, Instant::ZERO),
            Some(1_280)
        );
    }

    #[test]
    fn a_router_that_does_not_say_is_answered_by_the_next_plateau() {
        let mut paths = PathMtus::new(Duration::from_secs(600));
        let mut unknown = |length| paths.too_big(REMOTE, 0, length, 1_500, Instant::ZERO);
        assert_eq!(unknown(1_500), Some(1_492));
        // The others of the same burst say nothing new.
        assert_eq!(unknown(1_500), None);
        assert_eq!(unknown(1_492), Some(1_006));
    }

    #[test]
    fn a_packet_that_fits_was_not_too_large() {
        let mut paths = PathMtus::new(Duration::from_secs(600));
        assert_eq!(paths.too_big(REMOTE, 1_400, 60, 1_500, Instant::ZERO), None);
    }

    #[test]
    fn no_more_paths_are_remembered_than_the_bound() {
        let mut paths = PathMtus::new(Duration::from_secs(600));
        for host in 0..10_000u32 {
            let remote = IpAddr::V4((0x0a00_0000 + host).into());
            paths.too_big(
                remote,
                1_400,
                1_500,
                1_500,
                Instant::from_nanos(host.into()),
            );
        }
        assert_eq!(paths.paths.len(), PATHS);
    }
}
