//! The search for the longest packet that a path carries (Packetization Layer Path MTU Discovery for Datagram Transports,
//! RFC 8899, section 5.3): which length is tried next, and what its probes tell.
//!
//! The longest length of all is tried first. Where [`MAX_PROBES`] of one length are lost, a length between is tried, until
//! what passes and what does not lie [`STEP`] bytes apart. Where packets of a length that was confirmed vanish (section 4.3)
//! the base comes into use again, and below it half of what is in use.
//!
//! Deviation: what was in use when packets began to vanish must be confirmed by several probes, the more the oftener that
//! happened, for on some paths one long packet in many arrives.

use bentpipe_base::Instant;
use core::time::Duration;

/// Probes of one length that are lost before it is given up (MAX_PROBES of section 5.1.2).
const MAX_PROBES: u32 = 3;
/// The search ends when lengths that pass and that do not are so close.
const STEP: u32 = 16;
/// Probes that must arrive at most.
const MOST_NEEDED: u32 = 8;

/// Between what lengths is searched. In bytes of whatever the caller counts: whole packets, or their content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlpmtuBounds {
    /// What nearly every path carries (BASE_PLPMTU of section 5.1.2).
    pub base: u32,
    /// The likeliest length where the longest does not pass.
    pub likely: u32,
    /// No shorter length is used (MIN_PLPMTU).
    pub least: u32,
    /// The longest (MAX_PLPMTU).
    pub most: u32,
    /// After so long the longest is tried again (PMTU_RAISE_TIMER of section 5.1.1).
    pub raise_after: Duration,
}

/// See the file's head. The caller sends the probes, one at a time, and finds out what becomes of them.
#[derive(Clone, Debug)]
pub struct PlpmtuSearch {
    bounds: PlpmtuBounds,
    /// In use: it passes, as far as is known.
    confirmed: u32,
    /// The shortest that does not pass.
    failed: Option<u32>,
    /// Probes of the length that is being tried.
    arrived: u32,
    lost: u32,
    /// How many must arrive.
    needed: u32,
    /// When the longest is tried again.
    raise_at: Instant,
}

impl PlpmtuSearch {
    /// A search of which `confirmed` is taken to pass; the base and the longest are no longer than the bounds' `most`.
    pub fn new(bounds: PlpmtuBounds, confirmed: u32) -> Self {
        let base = bounds.base.min(bounds.most);
        Self {
            bounds: PlpmtuBounds { base, ..bounds },
            confirmed: confirmed.min(bounds.most),
            failed: None,
            arrived: 0,
            lost: 0,
            needed: 1,
            raise_at: Instant::MAX,
        }
    }

    /// Between what lengths it searches.
    pub const fn bounds(&self) -> PlpmtuBounds {
        self.bounds
    }

    /// The length in use.
    pub const fn length(&self) -> u32 {
        self.confirmed
    }

    /// No packet is to be longer from now on. Returns whether that is news, so that a probe under way tells nothing any more.
    pub fn limit(&mut self, most: u32) -> bool {
        let news = most < self.bounds.most;
        if news {
            self.bounds.most = most;
            self.bounds.base = self.bounds.base.min(most);
            self.confirmed = self.confirmed.min(most);
            self.failed = self.failed.filter(|&failed| failed <= most);
            self.restart();
        }
        news
    }

    /// A router says that nothing longer than `length` passes it.
    pub fn told(&mut self, length: u32, now: Instant) {
        self.confirmed = self.confirmed.min(length);
        let longer = length.saturating_add(1);
        self.fails(self.failed.map_or(longer, |failed| failed.min(longer)), now);
    }

    /// The length of a probe that is due, if none is under way.
    pub fn due(&mut self, now: Instant) -> Option<u32> {
        if self.raise_at <= now {
            (self.failed, self.raise_at) = (None, Instant::MAX);
        }
        self.candidate()
    }

    /// The length that is being tried.
    const fn candidate(&self) -> Option<u32> {
        let (low, likely) = (self.confirmed, self.bounds.likely);
        match self.failed {
            None if low < self.bounds.most => Some(self.bounds.most),
            None => None,
            Some(high) if high.saturating_sub(low) <= STEP => None,
            Some(high) if low < likely && likely < high => Some(likely),
            Some(high) => Some(u32::midpoint(low, high)),
        }
    }

    /// A probe has arrived.
    pub fn arrived(&mut self) {
        self.arrived += 1;
        if self.arrived >= self.needed {
            self.confirmed = self.candidate().unwrap_or(self.confirmed);
            self.restart();
        }
    }

    /// A probe was lost.
    pub fn lost(&mut self, now: Instant) {
        self.lost += 1;
        if self.lost >= MAX_PROBES
            && let Some(length) = self.candidate()
        {
            self.fails(length, now);
        }
    }

    /// Packets of the length in use vanish.
    pub fn black_hole(&mut self, now: Instant) {
        let PlpmtuBounds { base, least, .. } = self.bounds;
        self.restart();
        if self.confirmed > base {
            self.confirmed = base;
            self.needed = (self.needed + 1).min(MOST_NEEDED);
        } else if self.confirmed > least {
            self.fails(self.confirmed, now);
            self.confirmed = (self.confirmed / 2).max(least);
        }
    }

    /// Packets of `length` do not pass.
    fn fails(&mut self, length: u32, now: Instant) {
        self.failed = Some(length);
        self.raise_at = now + self.bounds.raise_after;
        self.restart();
    }

    /// Another length is tried.
    const fn restart(&mut self) {
        (self.arrived, self.lost) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAISE: Duration = Duration::from_secs(600);

    fn bounds(most: u32) -> PlpmtuBounds {
        PlpmtuBounds {
            base: 1200,
            likely: 1500,
            least: 556,
            most,
            raise_after: RAISE,
        }
    }

    /// Probes a path that carries packets of `path` bytes, and all probes but the first `bad`: what is in use in the end, and how
    /// many probes that took.
    fn search(most: u32, path: u32, mut bad: u32) -> (u32, u64) {
        let mut search = PlpmtuSearch::new(bounds(most), 1200);
        let mut probes = 0;
        while let Some(length) = search.due(Instant::ZERO) {
            probes += 1;
            if length <= path && bad == 0 {
                search.arrived();
            } else {
                search.lost(Instant::ZERO);
            }
            bad = bad.saturating_sub(1);
        }
        (search.length(), probes)
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
        let mut search = PlpmtuSearch::new(bounds(1500), 1200);
        search.arrived();
        assert_eq!(search.length(), 1500);
        search.black_hole(now);
        assert_eq!(search.length(), 1200);
        search.arrived();
        assert_eq!(search.length(), 1200);
        search.arrived();
        assert_eq!(search.length(), 1500);
        // Below the base what vanished is not tried again for minutes.
        search.black_hole(now);
        search.black_hole(now);
        assert_eq!((search.length(), search.due(now)), (600, Some(900)));
        search.black_hole(now);
        search.black_hole(now);
        assert_eq!((search.length(), search.due(now)), (556, Some(578)));
        assert_eq!(search.due(now + RAISE), Some(1500));
    }

    #[test]
    fn a_limit_is_for_good_and_what_a_router_says_for_minutes() {
        let now = Instant::ZERO;
        let mut search = PlpmtuSearch::new(bounds(1500), 1200);
        search.limit(1300);
        assert_eq!((search.length(), search.due(now)), (1200, Some(1300)));
        search.limit(1000);
        assert_eq!((search.length(), search.due(now)), (1000, None));
        search.limit(1500);
        assert_eq!(search.length(), 1000);
        let mut search = PlpmtuSearch::new(bounds(1500), 1500);
        search.told(1400, now);
        assert_eq!((search.length(), search.due(now)), (1400, None));
        assert_eq!(search.due(now + RAISE), Some(1500));
    }
}
