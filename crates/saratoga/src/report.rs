//! Makes STATUS frames from the set of octets that have arrived.

use bentpipe_base::Ranges;
use bentpipe_wire::saratoga::{Code, Frame, Hole, Status, Timestamp, Width};

/// What a STATUS writes as the end of a hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoleEnd {
    /// The last octet that is missing: the draft.
    #[default]
    Inclusive,
    /// The octet after it: the Perl implementation of 2012.
    Exclusive,
}

/// STATUS frames that one report takes at most: what is left out, a later one will tell.
const MOST_FRAMES: usize = 16;

/// What a report says besides the holes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) session: u32,
    pub(crate) width: Width,
    pub(crate) timestamp: Option<Timestamp>,
    pub(crate) metadata_missing: bool,
    pub(crate) voluntary: bool,
    pub(crate) in_response_to: u64,
}

impl Report {
    /// A STATUS without holes.
    pub(crate) fn status(&self, progress: u64) -> Status {
        Status {
            session: self.session,
            width: self.width,
            timestamp: self.timestamp,
            metadata_missing: self.metadata_missing,
            incomplete: false,
            voluntary: self.voluntary,
            code: Code::OK,
            progress: progress.into(),
            in_response_to: self.in_response_to.into(),
            holes: Vec::new(),
        }
    }

    /// Frames of at most `room` octets that tell what of `[0, extent)` is not in `have`. A list that
    /// does not fit one is split, and each part says that it is not the whole.
    pub(crate) fn frames(
        &self,
        have: &Ranges,
        extent: u64,
        end: HoleEnd,
        room: usize,
    ) -> Vec<Status> {
        let progress = have.uncovered(0, u64::MAX).map_or(0, |(from, _)| from);
        let each = self.most_holes(room);
        let mut holes = holes(have, extent).map(|(from, to)| Hole {
            first: from.into(),
            last: match end {
                HoleEnd::Inclusive => (to - 1).into(),
                HoleEnd::Exclusive => to.into(),
            },
        });
        let mut frames = Vec::new();
        loop {
            let mut status = self.status(progress);
            status.holes.extend(holes.by_ref().take(each));
            if status.holes.is_empty() && !frames.is_empty() {
                break;
            }
            let full = status.holes.len() == each;
            frames.push(status);
            if !full || frames.len() == MOST_FRAMES {
                break;
            }
        }
        if frames.len() > 1 {
            frames
                .iter_mut()
                .for_each(|status| status.incomplete = true);
        }
        frames
    }

    /// Holes in a frame of `room` octets at most.
    pub(crate) fn most_holes(&self, room: usize) -> usize {
        let bare = 32 + 2 * self.width.octets();
        let holes = room.saturating_sub(bare) / (2 * self.width.octets());
        holes.max(1)
    }
}

/// The stretches of `[0, extent)` that are not in `have`, rising.
fn holes(have: &Ranges, extent: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let ends = have.iter().chain([(extent, extent)]);
    let mut at = 0;
    ends.filter_map(move |(from, to)| {
        let hole = (at, from.min(extent));
        at = at.max(to);
        (hole.0 < hole.1).then_some(hole)
    })
}

/// The STATUS that refuses or ends `session` with `code`.
pub fn refusal(session: u32, code: Code) -> Frame {
    let report = Report {
        session,
        width: Width::Bits16,
        timestamp: None,
        metadata_missing: false,
        voluntary: false,
        in_response_to: 0,
    };
    Frame::Status(Status {
        code,
        ..report.status(0)
    })
}

/// The STATUS of a side that receives nothing in `session`: it hears the peer, and echoes `stamp`.
pub fn echo(session: u32, stamp: Option<Timestamp>) -> Frame {
    let report = Report {
        session,
        width: Width::Bits16,
        timestamp: stamp,
        metadata_missing: false,
        voluntary: true,
        in_response_to: 0,
    };
    Frame::Status(report.status(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPORT: Report = Report {
        session: 1,
        width: Width::Bits32,
        timestamp: None,
        metadata_missing: false,
        voluntary: true,
        in_response_to: 4000,
    };

    proptest! {
        #[test]
        fn frames_and_stretches_are_the_whole(
            stretches in prop::collection::vec((0u64..4000, 1u64..40), 0..60),
            room in 40usize..300,
            exclusive: bool,
        ) {
            let mut have = Ranges::default();
            stretches.iter().for_each(|&(from, len)| have.insert(from, from + len));
            let extent = have.last().map_or(0, |(_, to)| to);
            let end = if exclusive { HoleEnd::Exclusive } else { HoleEnd::Inclusive };
            let frames = REPORT.frames(&have, extent, end, room);
            let mut all = have.clone();
            let count = frames.len();
            for status in frames {
                let mut octets = Vec::new();
                Frame::Status(status.clone()).emit(&mut octets).unwrap();
                prop_assert_eq!(status.incomplete, count > 1);
                prop_assert!(octets.len() <= room.max(64));
                let beyond = u128::from(!exclusive);
                for hole in status.holes {
                    let (from, to) = (hole.first as u64, (hole.last + beyond) as u64);
                    prop_assert!(have.covering(from).is_none());
                    prop_assert!(to > from);
                    all.insert(from, to);
                }
            }
            // As many as fit the frames; all of them when those were not the most.
            if count < MOST_FRAMES && extent > 0 {
                prop_assert_eq!(all.iter().collect::<Vec<_>>(), vec![(0, extent)]);
            }
        }
    }
}
