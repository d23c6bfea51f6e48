//! Which stretches beyond gaps the SACK blocks of an acknowledgement tell of, and in what order.

use bentpipe_base::Ranges;

/// So many are remembered (Linux `TCP_NUM_SACKS`); an option has room for no more.
const REMEMBERED: usize = 4;

/// The stretches in which something arrived last, the latest first.
#[derive(Debug)]
pub(super) enum SackList {
    /// A byte of each. A block tells the whole of a stretch, and blocks that are left over tell of others (RFC 2018,
    /// section 4).
    Whole(Vec<u64>),
    /// The blocks themselves. What arrives beside none of these is a block by itself, though its neighbours may have arrived long
    /// before (Linux `tcp_sack_new_ofo_skb`): of a window full of holes the peer hears segment by segment.
    Recent(Vec<(u64, u64)>),
}

impl SackList {
    pub(super) const fn new(recent: bool) -> Self {
        if recent {
            Self::Recent(Vec::new())
        } else {
            Self::Whole(Vec::new())
        }
    }

    /// A segment of the bytes `[from, to)` arrived, which is among those `beyond` gaps.
    pub(super) fn arrived(&mut self, (from, to): (u64, u64), beyond: &Ranges) {
        match self {
            Self::Whole(latest) => {
                let same = beyond.covering(from);
                latest.retain(|at| beyond.covering(*at) != same);
                latest.truncate(REMEMBERED - 1);
                latest.insert(0, from);
            }
            Self::Recent(blocks) => {
                let mut merged = (from, to);
                blocks.retain(|&(left, right)| {
                    let apart = merged.1 < left || right < merged.0;
                    if !apart {
                        merged = (merged.0.min(left), merged.1.max(right));
                    }
                    apart
                });
                blocks.truncate(REMEMBERED - 1);
                blocks.insert(0, merged);
            }
        }
    }

    /// All before `next` is in order now.
    pub(super) fn advanced(&mut self, next: u64, beyond: &Ranges) {
        if let Self::Recent(blocks) = self {
            blocks.retain(|(from, _)| *from > next);
            if beyond.is_empty() {
                // A connection that is idle keeps no room.
                *blocks = Vec::new();
            }
        }
    }

    /// Tells the blocks that follow each other in the option, the first being of the bytes that arrived twice, if any.
    pub(super) fn tell(
        &self,
        duplicate: Option<(u64, u64)>,
        beyond: &Ranges,
        mut add: impl FnMut((u64, u64)),
    ) {
        if let Some(duplicate) = duplicate {
            add(duplicate);
        }
        match self {
            Self::Whole(latest) => {
                // Behind what arrived twice comes the stretch that it lies in (RFC 2883, section 4, point 4).
                let around = duplicate.and_then(|(from, _)| beyond.covering(from));
                let latest = latest.iter().filter_map(|at| beyond.covering(*at));
                let stretches = around.into_iter().chain(latest).chain(beyond.iter().rev());
                let (mut told, mut count) = ([(0, 0); REMEMBERED], 0);
                for stretch in stretches {
                    if told[..count].contains(&stretch) {
                        continue;
                    }
                    let Some(slot) = told.get_mut(count) else {
                        break;
                    };
                    *slot = stretch;
                    count += 1;
                    add(stretch);
                }
            }
            Self::Recent(blocks) => blocks.iter().copied().for_each(add),
        }
    }
}
