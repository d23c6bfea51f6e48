//! The time-sequence graphs of a study's captures.

use super::blame;
use crate::failure::{Blame, Failure};
use anyhow::Context;
use bentpipe_report::study::Graph;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::TimeSequence;
use bentpipe_study::captured;
use std::path::Path;

/// Those of `study`, whose results are in `out`; what is not run today, by --quick for one, is left out.
pub(super) fn graphs<'s>(study: &'s Study, out: &Path) -> Result<Vec<Graph<'s>>, Failure> {
    let drawn = study.time_sequences().iter();
    let graphs = drawn.map(|one| graph(study, one, out));
    graphs.filter_map(Result::transpose).collect()
}

fn graph<'s>(
    study: &'s Study,
    one: &'s TimeSequence,
    out: &Path,
) -> Result<Option<Graph<'s>>, Failure> {
    let Some(file) = captured(study, one, out).map_err(blame)? else {
        return Ok(None);
    };
    let seconds = one.part.map(|(begin, length)| {
        let begin = begin.as_secs_f64();
        begin..begin + length.as_secs_f64()
    });
    let svg = bentpipe_trace_command::time_sequence(&file, seconds)
        .with_context(|| {
            format!(
                "time sequence `{}` cannot be drawn; --fresh runs and captures its point again",
                one.name
            )
        })
        .or_run()?;
    Ok(Some(Graph {
        name: &one.name,
        title: &one.title,
        svg,
    }))
}
