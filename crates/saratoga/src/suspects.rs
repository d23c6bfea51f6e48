//! Octets that reports name missing, until it is known whether they are lost or were only overtaken.
//!
//! RFC 5348, section 5.1, takes a packet for lost when three later ones have arrived, because some overtake others. Three
//! packets are soon there where many leave in a round trip. As in RACK (RFC 8985) it is a time here that a packet may be
//! late: octets are lost when a report still names them that answers a packet sent half a round trip after the one which
//! the first such report answered, or as much later as anything has been late on this path, up to three quarters of a round
//! trip. No longer named before a repair can have filled the hole, they were late. Once a repair can have, one cannot know: they
//! were late if others have been for as long, with the same bound, and else lost, as always where reports come but once a
//! round trip. (A hole that its repair fills was named for three quarters of a round trip and longer.)

use crate::stretches::Stretches;
use bentpipe_base::Instant;
use core::time::Duration;
use std::collections::VecDeque;

/// Stretches that are kept at most; those beyond count as lost at once.
const MOST: usize = 4096;

/// Octets `[from, to)` whose fate is open.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// When the packet was sent that the first report answered which named them.
    named: Instant,
    /// So much later that was sent which the latest report answered.
    still: Duration,
    /// No repair was sent before this packet.
    repair: u64,
    from: u64,
    to: u64,
}

/// What a report says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    /// The packet that it answers, and when that was sent.
    pub(crate) number: u64,
    pub(crate) sent: Instant,
    /// What is missing. All else between the octets of `told` has arrived.
    pub(crate) holes: &'a [(u64, u64)],
    pub(crate) told: (u64, u64),
    /// What is missing and no report has named before.
    pub(crate) new: &'a Stretches,
}

/// What follows from a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Octets that it is the first to name.
    pub(crate) named: u64,
    /// Octets that were named and have arrived after all.
    pub(crate) late: u64,
    /// Octets that count as lost from now on.
    pub(crate) lost: u64,
    /// Some are missing for as long as anything has been late, or longer.
    pub(crate) doubt: bool,
}

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Suspects {
    list: VecDeque<Suspect>,
    /// The most by which anything has been late.
    late: Duration,
}

impl Suspects {
    /// A report comes when `next` is the next packet to be sent, over a path of this `round_trip`.
    pub(crate) fn report(&mut self, said: &Said<'_>, round_trip: Duration, next: u64) -> Verdict {
        let mut verdict = Verdict {
            named: said.new.total(),
            ..Verdict::default()
        };
        if !self.list.is_empty() {
            self.judge(said, round_trip, &mut verdict);
        }
        for (from, to) in said.new.iter() {
            verdict.lost += self.keep(Suspect {
                named: said.sent,
                still: Duration::ZERO,
                repair: next,
                from,
                to,
            });
        }
        let late = self.late.min(round_trip * 3 / 4);
        let is_doubtful = |suspect: &Suspect| suspect.still >= late;
        verdict.doubt = self.list.iter().any(is_doubtful);
        verdict
    }

    /// Tells of all that was named before.
    fn judge(&mut self, said: &Said<'_>, round_trip: Duration, verdict: &mut Verdict) {
        let mut open = Stretches::default();
        open.insert(0, said.told.0);
        open.insert(said.told.1, u64::MAX);
        said.holes
            .iter()
            .for_each(|&(from, to)| open.insert(from, to));
        let age = |suspect: &Suspect| said.sent.since(suspect.named);
        let is_unrepaired = |suspect: &Suspect| said.number < suspect.repair;
        let arrived = |&suspect: &&Suspect| {
            is_unrepaired(suspect) && open.uncovered(suspect.from, suspect.to).is_some()
        };
        let late = self.list.iter().filter(arrived).map(age).max();
        self.late = self.late.max(late.unwrap_or_default());
        let known = self.late.min(round_trip * 3 / 4);
        let wait = known.max(round_trip / 2);
        for suspect in std::mem::take(&mut self.list) {
            let is_unrepaired = is_unrepaired(&suspect);
            let is_lost = !is_unrepaired || age(&suspect) > wait;
            let was_late = is_unrepaired || suspect.still < known;
            let mut at = suspect.from;
            while at < suspect.to {
                // What is still missing below `from`, and what has arrived from there to `to`.
                let arrived = open.uncovered(at, suspect.to);
                let (from, to) = arrived.unwrap_or((suspect.to, suspect.to));
                let missing = Suspect {
                    still: age(&suspect),
                    from: at,
                    to: from,
                    ..suspect
                };
                verdict.lost += if is_lost {
                    from - at
                } else {
                    self.keep(missing)
                };
                *(if was_late {
                    &mut verdict.late
                } else {
                    &mut verdict.lost
                }) += to - from;
                at = to;
            }
        }
    }

    /// Keeps what is open; returns how many octets count as lost for want of room.
    fn keep(&mut self, suspect: Suspect) -> u64 {
        if self.list.len() >= MOST {
            return suspect.to - suspect.from;
        }
        if suspect.from < suspect.to {
            self.list.push_back(suspect);
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    /// Packet `n` is sent after `n` milliseconds, and what names `holes` below 10,000 comes a round trip later.
    fn report(
        suspects: &mut Suspects,
        number: u64,
        holes: &[(u64, u64)],
        new: &[(u64, u64)],
    ) -> Verdict {
        part(suspects, number, (0, 10_000), holes, new)
    }

    fn part(
        suspects: &mut Suspects,
        number: u64,
        told: (u64, u64),
        holes: &[(u64, u64)],
        new: &[(u64, u64)],
    ) -> Verdict {
        let mut first = Stretches::default();
        new.iter().for_each(|&(from, to)| first.insert(from, to));
        let said = Said {
            number,
            sent: Instant::from_nanos(1_000_000 * number),
            holes,
            told,
            new: &first,
        };
        suspects.report(&said, ROUND_TRIP, number + 100)
    }

    const fn verdict(named: u64, late: u64, lost: u64, doubt: bool) -> Verdict {
        Verdict {
            named,
            late,
            lost,
            doubt,
        }
    }

    #[test]
    fn what_stays_missing_for_half_a_round_trip_is_lost_once() {
        let mut suspects = Suspects::default();
        let hole = [(100, 200)];
        assert_eq!(
            report(&mut suspects, 10, &hole, &hole),
            verdict(100, 0, 0, true)
        );
        assert_eq!(
            report(&mut suspects, 35, &hole, &[]),
            verdict(0, 0, 0, true)
        );
        assert_eq!(
            report(&mut suspects, 61, &hole, &[]),
            verdict(0, 0, 100, false)
        );
        assert_eq!(
            report(&mut suspects, 85, &hole, &[]),
            verdict(0, 0, 0, false)
        );
    }

    #[test]
    fn what_comes_before_its_repair_was_late_and_shows_how_late_others_may_be() {
        let mut suspects = Suspects::default();
        let holes = [(100, 200), (300, 400)];
        report(&mut suspects, 10, &holes, &holes);
        let left = [(150, 200)];
        assert_eq!(
            report(&mut suspects, 50, &left, &[]),
            verdict(0, 150, 0, true)
        );
        assert_eq!(
            report(&mut suspects, 61, &left, &[]),
            verdict(0, 0, 50, false)
        );
        // Of what a repair may have filled: late, if others have been for as long, else lost.
        report(&mut suspects, 200, &holes, &holes);
        assert_eq!(
            report(&mut suspects, 239, &holes, &[]),
            verdict(0, 0, 0, false)
        );
        assert_eq!(
            report(&mut suspects, 300, &[], &[]),
            verdict(0, 200, 0, false)
        );
    }

    /// All that was under way came very late once, as where a path becomes shorter: what is lost afterwards counts.
    #[test]
    fn nothing_is_late_for_longer_than_three_quarters_of_a_round_trip() {
        let mut suspects = Suspects::default();
        let hole = [(100, 200)];
        report(&mut suspects, 10, &hole, &hole);
        assert_eq!(
            report(&mut suspects, 100, &[], &[]),
            verdict(0, 100, 0, false)
        );
        report(&mut suspects, 200, &hole, &hole);
        assert_eq!(
            report(&mut suspects, 276, &hole, &[]),
            verdict(0, 0, 100, false)
        );
        assert_eq!(
            report(&mut suspects, 300, &[], &[]),
            verdict(0, 0, 0, false)
        );
    }

    #[test]
    fn with_one_report_a_round_trip_every_loss_counts() {
        let mut suspects = Suspects::default();
        let hole = [(100, 200)];
        report(&mut suspects, 10, &hole, &hole);
        assert_eq!(
            report(&mut suspects, 110, &[], &[]),
            verdict(0, 0, 100, false)
        );
    }

    #[test]
    fn a_part_of_a_list_tells_of_what_is_between_its_holes() {
        let mut suspects = Suspects::default();
        let holes = [(100, 200), (300, 400), (500, 600)];
        report(&mut suspects, 10, &holes, &holes);
        let some = part(&mut suspects, 20, (0, 0), &[], &[]);
        assert_eq!(some, verdict(0, 0, 0, true));
        let some = part(
            &mut suspects,
            20,
            (150, 450),
            &[(150, 160), (440, 450)],
            &[],
        );
        assert_eq!(some, verdict(0, 140, 0, true));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut suspects = Suspects::default();
        let holes: Vec<(u64, u64)> = (0..5000).map(|i| (10 * i, 10 * i + 4)).collect();
        let lost = report(&mut suspects, 10, &holes, &holes).lost;
        assert_eq!(
            (suspects.list.len(), lost),
            (MOST, 4 * (5000 - MOST as u64))
        );
        let halves: Vec<(u64, u64)> = (0..10_000).map(|i| (5 * i, 5 * i + 2)).collect();
        part(&mut suspects, 20, (0, 50_000), &halves, &[]);
        assert!(suspects.list.len() <= MOST);
    }
}
