//! The longest packet that the path carries: Packetization Layer Path MTU Discovery for Datagram Transports
//! (DPLPMTUD, RFC 8899).
//!
//! A session begins with packets of BASE_PLPMTU, which nearly every path carries, and sends one longer packet as a
//! probe: that of the configured length first. Where reports say that it arrived, packets have its length from then
//! on; where [`MAX_PROBES`] are lost, a length between is tried, until what passes and what does not lie
//! [`STEP`] octets apart. A probe carries content, so that one that arrives has cost nothing, and one that is lost is
//! repaired as any other hole. Where packets of a length that was confirmed vanish (section 4.3) the base comes into use again.
//!
//! Deviations: the first probe goes out with the first packets, not after a confirmation of the base, for a session begins
//! with an exchange of short frames anyway. What was in use when packets began to vanish must be confirmed by several
//! probes, the more the oftener that happened: on some paths one long packet in many arrives.

use crate::repair::Horizon;
use bentpipe_base::Instant;
use core::time::Duration;

/// BASE_PLPMTU (section 5.1.2), in octets of an IP packet.
const BASE: u32 = 1200;
/// What Ethernet carries: the likeliest length where a longer one does not pass.
const ETHERNET: u32 = 1500;
/// Octets of content in the shortest DATA that is tried: with its headers and those of IP and UDP about 576, which every host
/// takes in (RFC 791).
const LEAST: u32 = 500;
/// Probes of one length that are lost before it is given up (MAX_PROBES of section 5.1.2).
const MAX_PROBES: u32 = 3;
/// The search ends when lengths that pass and that do not are so close.
const STEP: u32 = 16;
/// Probes that must arrive at most.
const MOST_NEEDED: u32 = 8;
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
    base: u32,
    ethernet: u32,
    most: u32,
    /// In use: it passes, as far as is known.
    confirmed: u32,
    /// The shortest that does not pass.
    failed: Option<u32>,
    probe: Option<Probe>,
    /// Probes of the length that is being tried.
    arrived: u32,
    lost: u32,
    /// How many must arrive.
    needed: u32,
    /// When the longest is tried again.
    raise_at: Instant,
}

impl Plpmtu {
    /// The search for packets with `most` octets of content at most, to which headers add `headers`.
    pub(crate) fn new(most: u32, headers: u32) -> Self {
        let content = |packet: u32| packet.saturating_sub(headers).max(LEAST);
        let base = content(BASE).min(most);
        Self {
            base,
            ethernet: content(ETHERNET),
            most,
            confirmed: base,
            failed: None,
            probe: None,
            arrived: 0,
            lost: 0,
            needed: 1,
            raise_at: Instant::MAX,
        }
    }

    /// The length in use.
    pub(crate) const fn content(&self) -> u32 {
        self.confirmed
    }

    /// No packet is to be longer from now on.
    pub(crate) fn limit(&mut self, most: u32) {
        if most < self.most {
            self.most = most;
            self.base = self.base.min(most);
            self.confirmed = self.confirmed.min(most);
            self.failed = self.failed.filter(|&failed| failed <= most);
            self.restart();
        }
    }

    /// The length of a probe that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u32> {
        if self.probe.is_some() {
            return None;
        }
        if self.raise_at <= now {
            (self.failed, self.raise_at) = (None, Instant::MAX);
        }
        self.candidate()
    }

    /// The length that is being tried.
    const fn candidate(&self) -> Option<u32> {
        let (low, ethernet) = (self.confirmed, self.ethernet);
        match self.failed {
            None if low < self.most => Some(self.most),
            None => None,
            Some(high) if high.saturating_sub(low) <= STEP => None,
            Some(high) if low < ethernet && ethernet < high => Some(ethernet),
            Some(high) => Some(u32::midpoint(low, high)),
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
    /// has arrived, where that is known. Returns how many octets a probe lost, which no congestion explains.
    pub(crate) fn on_report(
        &mut self,
        holes: &[(u64, u64)],
        end: Option<u64>,
        horizon: Horizon,
        now: Instant,
    ) -> u64 {
        let is_reported = |probe: &Probe| match horizon {
            Horizon::Packet(number) => probe.number < number,
            Horizon::Time(at) => probe.at < at,
        };
        let Some(probe) = self.probe.filter(is_reported) else {
            return 0;
        };
        let missing = |&(from, to): &(u64, u64)| from < probe.to && probe.from < to;
        if holes.iter().any(missing) {
            self.probe = None;
            self.lost += 1;
            if self.lost >= MAX_PROBES {
                self.failed = self.candidate();
                self.raise_at = now + RAISE;
                self.restart();
            }
            return probe.to - probe.from;
        }
        if end.is_some_and(|end| end >= probe.to) {
            self.probe = None;
            self.arrived += 1;
            if self.arrived >= self.needed {
                self.confirmed = self.candidate().unwrap_or(self.confirmed);
                self.restart();
            }
        }
        0
    }

    /// Packets of the length in use vanish.
    pub(crate) fn black_hole(&mut self, now: Instant) {
        self.restart();
        if self.confirmed > self.base {
            self.confirmed = self.base;
            self.needed = (self.needed + 1).min(MOST_NEEDED);
        } else if self.confirmed > LEAST {
            self.failed = Some(self.confirmed);
            self.confirmed = (self.confirmed / 2).max(LEAST);
            self.raise_at = now + RAISE;
        }
    }

    /// Another length is tried.
    const fn restart(&mut self) {
        (self.probe, self.arrived, self.lost) = (None, 0, 0);
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
                0
            );
            let horizon = Horizon::Packet(number + 1);
            let lost = plpmtu.on_report(&holes, Some(to), horizon, Instant::ZERO);
            assert_eq!(lost, if passes { 0 } else { to });
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
            assert!(found <= path && found + STEP >= path, "{path}: {found}");
            assert!(probes < 20, "{path}: {probes}");
        }
    }

    #[test]
    fn what_vanished_must_arrive_more_than_once() {
        let now = Instant::ZERO;
        let mut plpmtu = Plpmtu::new(1444, HEADERS);
        let mut number = 0;
        let mut probe = |plpmtu: &mut Plpmtu, arrives: bool| {
            let len = u64::from(plpmtu.due(now).unwrap());
            number += 2;
            plpmtu.sent(number, 0, len, now);
            let holes = if arrives { vec![] } else { vec![(0, len)] };
            plpmtu.on_report(&holes, Some(len), Horizon::Packet(number + 1), now);
        };
        probe(&mut plpmtu, true);
        assert_eq!(plpmtu.content(), 1444);
        plpmtu.black_hole(now);
        assert_eq!(plpmtu.content(), 1144);
        probe(&mut plpmtu, true);
        assert_eq!(plpmtu.content(), 1144);
        probe(&mut plpmtu, true);
        assert_eq!(plpmtu.content(), 1444);
        // Below the base what vanished is not tried again for minutes.
        plpmtu.black_hole(now);
        plpmtu.black_hole(now);
        assert_eq!(plpmtu.content(), 572);
        assert_eq!(plpmtu.due(now), Some(858));
        plpmtu.black_hole(now);
        plpmtu.black_hole(now);
        assert_eq!((plpmtu.content(), plpmtu.due(now)), (500, Some(536)));
        assert_eq!(plpmtu.due(now + RAISE), Some(1444));
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
        assert_eq!(plpmtu.on_report(&[], None, after, Instant::ZERO), 0);
        assert_eq!((plpmtu.content(), plpmtu.due(Instant::ZERO)), (1144, None));
        assert_eq!(
            plpmtu.on_report(&[(5000, 6000), (1443, 1500)], None, after, Instant::ZERO),
            1444
        );
    }
}
