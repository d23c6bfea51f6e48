//! How a SNACK names a hole, and in its bit vector those behind it (CCSDS 714.0-B-2; layout in [`bentpipe_wire::scps`]).

use crate::Receiver;
use bentpipe_wire::scps::Snack;

impl Receiver {
    /// The SNACK that announces `hole`, one of [`Self::announce`], in units of so many bytes, with a bit vector of at most
    /// `room` bytes; `None` where the hole lies further above the acknowledgement number than it can say.
    pub fn snack(&self, hole: (u64, u64), unit: u64, room: usize) -> Option<Snack> {
        name(self.next, hole, unit, self.arrived_behind(hole.1), room)
    }

    /// The stretches that arrived behind a hole that ends at `end`, as far as the holes between them may be announced.
    fn arrived_behind(&self, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let edge = { self.announcer.as_ref() }.map_or(end, |announcer| announcer.edge());
        let mut at = end;
        std::iter::from_fn(move || {
            let stretch = self.beyond.covering(at).filter(|(from, _)| *from <= edge)?;
            (_, at) = self.beyond.uncovered(stretch.1, u64::MAX)?;
            Some(stretch)
        })
    }
}

/// The hole `[from, to)` beyond `next` in `unit`s, and what `arrived` behind it.
fn name(
    next: u64,
    (from, to): (u64, u64),
    unit: u64,
    arrived: impl Iterator<Item = (u64, u64)>,
    room: usize,
) -> Option<Snack> {
    let offset = u16::try_from((from - next) / unit).ok()?;
    let begin = next + u64::from(offset) * unit;
    let size = (to - begin).div_ceil(unit).min(u16::MAX.into()) as u16;
    let end = begin + u64::from(size) * unit;
    // A unit has arrived where all of it has.
    let whole = arrived.map(|(from, to)| {
        let first = from.saturating_sub(end).div_ceil(unit);
        first..to.saturating_sub(end) / unit
    });
    Some(Snack::long((offset, size), whole, room))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(ack: u64, hole: (u64, u64), unit: u64) -> Option<Snack> {
        name(ack, hole, unit, [].into_iter(), 0)
    }

    #[test]
    fn a_hole_is_named_in_whole_units_that_hold_it() {
        assert_eq!(announced(1, (1, 1449), 1448), Some(Snack::short(0, 1)));
        // As captured from the reference implementation: the 25th segment.
        let from = 1 + 24 * 1448;
        assert_eq!(
            announced(1, (from, from + 1448), 1448),
            Some(Snack::short(24, 1))
        );
        // A hole that begins and ends within units.
        assert_eq!(announced(1, (700, 3000), 1448), Some(Snack::short(0, 3)));
    }

    #[test]
    fn a_hole_too_far_away_is_not_named_and_a_long_one_is_cut() {
        assert_eq!(announced(0, (65_536 * 10, 65_537 * 10), 10), None);
        assert_eq!(
            announced(0, (0, 70_000), 1),
            Some(Snack::short(0, u16::MAX))
        );
    }

    /// Segments of ten bytes, of which 1, 3, 4 and 7 arrived, 7 in part.
    #[test]
    fn a_bit_vector_tells_of_whole_units_behind_the_hole() {
        let arrived = [(11, 21), (31, 51), (72, 81)];
        let told = |room| name(1, (1, 11), 10, arrived.into_iter(), room);
        let long = told(3).expect("a hole");
        assert_eq!(
            (long.offset, long.size, &long.vector[..]),
            (0, 1, &[0b1011_0000][..])
        );
        assert_eq!(told(0), Some(Snack::short(0, 1)));
    }
}
