//! One folder of those of shards that machines ran apart.

use crate::StudyError;
use crate::collector::Collector;
use crate::folder::Absorbed;
use crate::run::{Options, Results, visit};
use crate::shard::Shard;
use bentpipe_scenario::Study;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Shards that are named one by one in a message.
const NAMED: usize = 12;

/// Puts the points in the folders of `shards` together in `options.out`, which ends as the folder of a run of all points.
/// It streams: memory keeps of a point what [`run`](crate::run()) keeps. A shard's folder is only read.
///
/// # Errors
/// A folder that is not of this study, or of another version; points that are nowhere. What was there is kept in
/// `options.out`.
pub fn merge(
    study: &Study,
    options: &Options<'_>,
    shards: &[PathBuf],
) -> Result<Results, StudyError> {
    let mut collector = Collector::open(study, options)?;
    let mut counts = BTreeSet::new();
    let mut reasons = None;
    for path in shards {
        let Absorbed { shard, failures } = collector.folder().absorb(path, study)?;
        counts.insert(shard.map(Shard::of));
        reasons = reasons.or(failures);
    }
    // Where folders are not all shards of as many, a missing point is of no shard that could be named.
    let of = match Vec::from_iter(&counts)[..] {
        [Some(of)] => *of,
        _ => 1,
    };
    let mut collector = visit(study, options, None, collector)?;
    let missing = collector.missing();
    if missing.is_empty() || options.cancel.load(Ordering::Relaxed) {
        return collector.finish();
    }
    Err(StudyError::Lost {
        points: missing.len() as u64,
        total: study.len(),
        whose: whose(&missing, of),
        reasons,
        path: options.out.to_owned(),
    })
}

/// Which of `of` shards lack the points at these places of the visiting order, and what to do.
fn whose(missing: &[u64], of: u64) -> String {
    if of == 1 {
        return "run the study in that folder to finish them".to_owned();
    }
    let mut lacking: BTreeMap<Shard, u64> = BTreeMap::new();
    for place in missing {
        *lacking.entry(Shard::holding(*place, of)).or_default() += 1;
    }
    let mut text = String::new();
    for (shard, points) in lacking.iter().take(NAMED) {
        // Writing to a String cannot fail.
        let _ = write!(text, "shard {shard} lacks {points}, ");
    }
    if lacking.len() > NAMED {
        let _ = write!(text, "{} more shards lack some, ", lacking.len() - NAMED);
    }
    text + "run those again by --shard, then merge again"
}
