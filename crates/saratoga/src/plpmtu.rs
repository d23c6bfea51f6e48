//! The longest packet that the path carries: Packetization Layer Path MTU Discovery for Datagram Transports
//! (DPLPMTUD, RFC 8899).
//!
//! A session begins with packets of BASE_PLPMTU, which nearly every path carries, and sends one longer packet as a
//! probe, whose length [`PlpmtuSearch`] chooses: that of the configured length first. Where reports say that it arrived,
//! packets have its length from then on. A probe carries content, so that one that arrives has cost nothing, and one that is
//! lost is repaired as any other hole.
//!
//! Deviation: the first probe goes out with the first packets, not after a confirmation of the base, for a session begins
//! with an exchange of short frames anyway.

use crate::repair::Horizon;
use bentpipe_base::Instant;
use bentpipe_wire::{PlpmtuBounds, PlpmtuSearch};
use core::time::Duration;

/// BASE_PLPMTU (section 5.1.2), in octets of an IP packet.
const BASE: u32 = 1200;
/// What Ethernet carries: the likeliest length where a longer one does not pass.
const ETHERNET: u32 = 1500;
/// Octets of content in the shortest DATA that is tried: with its headers and those of IP and UDP about 576, which every host
/// takes in (RFC 791).
const LEAST: u32 = 500;
/// After so long the longest is tried again (PMTU_RAISE_TIMER of section 5.1.1).
const RAISE: Duration = Duration::from_secs(600);

/// A probe whose fate is open.
#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    at: Instant,
    from: u64,
    to: u64,
}

/// See the file's head. All lengths are octets of content in a DATA frame.
#[derive(Clone, Debug)]
pub(crate) struct Plpmtu {
    search: PlpmtuSearch,
    probe: Option<Probe>,
}

impl Plpmtu {
    /// The search for packets with `most` octets of content at most, to which headers add `headers`.
    pub(crate) fn new(most: u32, headers: u32) -> Self {
        let content = |packet: u32| packet.saturating_sub(headers).max(LEAST);
        let bounds = PlpmtuBounds {
            base: content(BASE),
            likely: content(ETHERNET),
            least: LEAST,
            most,
            raise_after: RAISE,
        };
        Self {
            search: PlpmtuSearch::new(bounds, bounds.base),
            probe: None,
        }
    }

    /// The length in use.
    pub(crate) const fn content(&self) -> u32 {
        self.search.length()
    }

    /// No packet is to be longer from now on.
    pub(crate) fn limit(&mut self, most: u32) {
        if self.search.limit(most) {
            self.probe = None;
        }
    }

    /// The length of a probe that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u32> {
        match self.probe {
            None => self.search.due(now),
            Some(_) => None,
        }
    }

    /// The content `[from, to)` left as the probe that was due, in packet `number`.
    pub(crate) const fn sent(&mut self, number: u64, from: u64, to: u64, now: Instant) {
        self.probe = Some(Probe {
            number,
            at: now,
            from,
            to,
        });
    }

    /// A report tells the fate of what was sent before `horizon`: all of `holes` is missing, and all else below `end`
    /// has arrived, where that is known. Returns the octets of a probe that is lost, which no congestion explains.
    pub(crate) fn on_report(
        &mut self,
        holes: &[(u64, u64)],
        end: Option<u64>,
        horizon: Horizon,
        now: Instant,
    ) -> Option<(u64, u64)> {
        let is_reported = |probe: &Probe| match horizon {
            Horizon::Packet(number) => probe.number < number,
            Horizon::Time(at) => probe.at < at,
        };
        let probe = self.probe.filter(is_reported)?;
        let missing = |&(from, to): &(u64, u64)| from < probe.to && probe.from < to;
        if holes.iter().any(missing) {
            self.probe = None;
            self.search.lost(now);
            return Some((probe.from, probe.to));
        }
        if end.is_some_and(|end| end >= probe.to) {
            self.probe = None;
            self.search.arrived();
        }
        None
    }

    /// Packets of the length in use vanish.
    pub(crate) fn black_hole(&mut self, now: Instant) {
        self.probe = None;
        self.search.black_hole(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: u32 = 56;

    /// Probes a path that carries packets of `path` octets, and all probes but the first `bad`: what is in use in the end, and
    /// how many probes that took.
    fn search(most: u32, path: u32, mut bad: u32) -> (u32, u64) {
        let mut plpmtu = Plpmtu::new(most - HEADERS, HEADERS);
        let mut number = 0;
        while let Some(len) = plpmtu.due(Instant::ZERO) {
            number += 1;
            let (from, to) = (0, len.into());
            plpmtu.sent(number, from, to, Instant::ZERO);
            assert_eq!(plpmtu.due(Instant::ZERO), None, "one at a time");
            let passes = len + HEADERS <= path && bad == 0;
            bad = bad.saturating_sub(1);
            let holes = if passes { vec![] } else { vec![(from, to)] };
            let horizon = Horizon::Packet(number);
            assert_eq!(
                plpmtu.on_report(&holes, Some(to), horizon, Instant::ZERO),
                None
            );
            let horizon = Horizon::Packet(number + 1);
            let lost = plpmtu.on_report(&holes, Some(to), horizon, Instant::ZERO);
            assert_eq!(lost, (!passes).then_some((from, to)));
        }
        (plpmtu.content() + HEADERS, number)
    }

    #[test]
    fn what_passes_is_found_and_a_lost_probe_is_sent_again() {
        assert_eq!(search(1500, 1500, 0), (1500, 1));
        assert_eq!(search(1500, 9000, 2), (1500, 3));
        assert_eq!(search(9000, 1500, 0).0, 1500);
        assert_eq!(search(1000, 1500, 0), (1000, 0));
        for path in [1200, 1280, 1400, 1492, 1499] {
            let (found, probes) = search(1500, path, 0);
            assert!(found <= path && found + 16 >= path, "{path}: {found}");
            assert!(probes < 20, "{path}: {probes}");
        }
    }

    #[test]
    fn what_the_kernel_knows_is_a_limit() {
        let mut plpmtu = Plpmtu::new(1444, HEADERS);
        plpmtu.limit(1244);
        assert_eq!(
            (plpmtu.content(), plpmtu.due(Instant::ZERO)),
            (1144, Some(1244))
        );
        plpmtu.limit(1000);
        assert_eq!((plpmtu.content(), plpmtu.due(Instant::ZERO)), (1000, None));
        plpmtu.limit(1444);
        assert_eq!(plpmtu.content(), 1000);
    }

    #[test]
    fn a_list_that_is_not_whole_tells_only_of_what_is_missing() {
        let mut plpmtu = Plpmtu::new(1444, HEADERS);
        let after = Horizon::Packet(2);
        plpmtu.sent(1, 0, 1444, Instant::ZERO);
        assert_eq!(plpmtu.on_report(&[], None, after, Instant::ZERO), None);
        assert_eq!((plpmtu.content(), plpmtu.due(Instant::ZERO)), (1144, None));
        assert_eq!(
            plpmtu.on_report(&[(5000, 6000), (1443, 1500)], None, after, Instant::ZERO),
            Some((0, 1444))
        );
    }
}
