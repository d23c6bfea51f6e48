//! What is known of the paths to other hosts: the largest packet that gets through (RFC 1191, RFC 8201), told by ICMP
//! or found out where routers swallow in silence, and searched for again from there upwards (RFC 8899).
//!
//! A probe repeats bytes that are in flight in a segment as long as is tried ([`bentpipe_tcp::Connection::path_probe`]). That it
//! arrived is told by the D-SACK (RFC 2883) that names these very bytes: no other segment is so long.

use crate::table::ConnectionId;
use bentpipe_base::{Bytes, Instant};
use bentpipe_wire::{
    PlpmtuBounds, PlpmtuSearch, SackBlock, SackBlocks, Segment, least_path_mtu, told_path_mtu,
};
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
    paths: HashMap<IpAddr, Path>,
    keep: Duration,
    /// How often something was learnt.
    changes: u64,
}

#[derive(Clone, Debug)]
struct Path {
    search: PlpmtuSearch,
    /// When the length in use was learnt.
    since: Instant,
    probe: Option<Probe>,
}

/// A probe whose fate is open.
#[derive(Clone, Copy, Debug)]
struct Probe {
    id: ConnectionId,
    /// The bytes that it repeated.
    bytes: SackBlock,
    /// It is taken for lost then (PROBE_TIMER of RFC 8899, section 5.1.1).
    until: Instant,
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

    /// The largest packet to `remote`, where that was learnt lately.
    pub(crate) fn known(&self, remote: IpAddr, now: Instant) -> Option<u16> {
        let path = self.paths.get(&remote)?;
        (now.since(path.since) < self.keep).then(|| path.mtu())
    }

    /// The largest packet to `remote`, of an interface that takes `mtu`.
    pub(crate) fn get(&self, remote: IpAddr, mtu: u16, now: Instant) -> u16 {
        self.known(remote, now).map_or(mtu, |path| path.min(mtu))
    }

    /// A packet of `length` bytes is too large for the path, whose next hop takes `next_hop_mtu` (RFC 1191, section 4; 0:
    /// unknown), though both ends and the interface would have `mtu`. Returns what the path is taken for, where that is less
    /// than it was.
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
        if told >= before && !self.paths.contains_key(&remote) {
            return None;
        }
        let path = self.path(remote, before, mtu, now);
        path.search.told(told.into(), now);
        // Of a probe that was too long it is no news.
        if path.mtu() < before {
            self.learnt(remote, now)
        } else {
            None
        }
    }

    /// Lowers the estimate because full-sized packets are lost in silence.
    pub(crate) fn black_hole(&mut self, remote: IpAddr, mtu: u16, now: Instant) -> Option<u16> {
        let before = self.get(remote, mtu, now);
        let path = self.path(remote, before, mtu, now);
        if u32::from(before) > path.search.length() {
            // What was known is too old, and was not heeded.
            path.search = PlpmtuSearch::new(path.search.bounds(), before.into());
        }
        path.search.black_hole(now);
        if path.mtu() < before {
            self.learnt(remote, now)
        } else {
            None
        }
    }

    /// The length of a probe of the path to `remote` that is due.
    pub(crate) fn probe_due(&mut self, remote: IpAddr, now: Instant) -> Option<u16> {
        if self.paths.is_empty() {
            return None;
        }
        let path = self.paths.get_mut(&remote)?;
        if path.probe.is_some() {
            return None;
        }
        let length = path.search.due(now)?;
        u16::try_from(length).ok()
    }

    /// The connection `id` has sent the probe that was due, with `bytes`; it is lost if nothing tells of it `until` then.
    pub(crate) fn probed(
        &mut self,
        remote: IpAddr,
        id: ConnectionId,
        bytes: SackBlock,
        until: Instant,
    ) {
        if let Some(path) = self.paths.get_mut(&remote) {
            path.probe = Some(Probe { id, bytes, until });
        }
    }

    /// A segment came in for the connection `id`. The D-SACK that tells of a probe is taken out of it, for it tells of no
    /// retransmission.
    pub(crate) fn heard(
        &mut self,
        remote: IpAddr,
        id: ConnectionId,
        segment: &mut Segment,
        now: Instant,
    ) {
        if self.paths.is_empty() {
            return;
        }
        let Some(path) = self.paths.get_mut(&remote) else {
            return;
        };
        let Some(probe) = path.probe else {
            return;
        };
        if probe.id == id && take_first(segment, probe.bytes) {
            path.probe = None;
            let before = path.mtu();
            path.search.arrived();
            if path.mtu() > before {
                self.learnt(remote, now);
            }
        } else if probe.until <= now {
            path.probe = None;
            path.search.lost(now);
        }
    }

    /// What is known of the path to `remote`, which was taken for `before`; room is made for it where it is new.
    fn path(&mut self, remote: IpAddr, before: u16, mtu: u16, now: Instant) -> &mut Path {
        if !self.paths.contains_key(&remote) {
            self.make_room(now);
        }
        let bounds = PlpmtuBounds {
            base: base(remote).into(),
            likely: 1_500,
            least: least_path_mtu(remote).into(),
            most: mtu.into(),
            raise_after: self.keep,
        };
        let path = self.paths.entry(remote).or_insert_with(|| Path {
            search: PlpmtuSearch::new(bounds, before.into()),
            since: now,
            probe: None,
        });
        path.probe = None;
        path
    }

    fn make_room(&mut self, now: Instant) {
        if self.paths.len() >= PATHS {
            let keep = self.keep;
            self.paths.retain(|_, path| now.since(path.since) < keep);
        }
        if self.paths.len() >= PATHS {
            // The oldest knowledge gives way.
            let oldest = self
                .paths
                .iter()
                .min_by_key(|(ip, path)| (path.since, **ip))
                .map(|(ip, _)| *ip);
            oldest.and_then(|oldest| self.paths.remove(&oldest));
        }
    }

    /// The path to `remote` is taken for something else from `now` on, which is returned.
    fn learnt(&mut self, remote: IpAddr, now: Instant) -> Option<u16> {
        let path = self.paths.get_mut(&remote)?;
        path.since = now;
        self.changes += 1;
        Some(path.mtu())
    }
}

impl Path {
    fn mtu(&self) -> u16 {
        u16::try_from(self.search.length()).unwrap_or(u16::MAX)
    }
}

/// Takes `block` out of the SACK option of `segment` where it is the first there; returns whether it was.
fn take_first(segment: &mut Segment, block: SackBlock) -> bool {
    let Some(options) = &mut segment.options else {
        return false;
    };
    let first = options.sack.first() == Some(&block);
    if first {
        options.sack = options.sack.iter().copied().skip(1).collect::<SackBlocks>();
    }
    first
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
    fn a_probe_that_is_too_long_is_told_by_a_router_too() {
        let now = Instant::ZERO;
        let mut paths = PathMtus::new(Duration::from_secs(600));
        assert_eq!(paths.black_hole(REMOTE, 1_500, now), Some(1_200));
        assert_eq!(paths.probe_due(REMOTE, now), Some(1_500));
        assert_eq!(paths.too_big(REMOTE, 1_400, 1_500, 1_500, now), None);
        assert_eq!(paths.known(REMOTE, now), Some(1_200));
        assert_eq!(paths.probe_due(REMOTE, now), Some(1_300));
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
