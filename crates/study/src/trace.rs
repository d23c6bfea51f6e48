//! The progress of single runs, for time-sequence figures.

use crate::StudyError;
use crate::figure::Line;
use bentpipe_outcome::Point;
use bentpipe_scenario::study::{Axis, Figure, Filter, Point as RunPoint};
use bentpipe_scenario::{Scenario, Study};
use bentpipe_sim::Options;

/// Runs a scenario and tells its course: seconds, and segments received in order by its first flow.
pub type Trace<'a> = dyn Fn(&Scenario) -> Result<Vec<(f64, f64)>, String> + Sync + 'a;

/// Most points of a line: more than a screen shows.
const MOST: usize = 600;

/// The run of the first value that counts on every other axis.
pub(crate) fn traced(
    study: &Study,
    figure: &Figure,
    chosen: &[(usize, String)],
    label: String,
    trace: &Trace<'_>,
) -> Result<Line, StudyError> {
    let Some(point) = first_point(study, &figure.filter, chosen)? else {
        return Ok(Line::new(label));
    };
    let points = trace(&point.scenario).map_err(|why| StudyError::Point {
        labels: point.labels.join(", "),
        why,
    })?;
    let (x, y) = thinned(&points).into_iter().unzip();
    Ok(Line {
        x,
        y,
        ..Line::new(label)
    })
}

/// The point of the values `chosen`, and on every other axis of the first value that `filter` admits; `None` where it is not
/// run today, by --quick for one.
///
/// # Errors
/// What its scenario cannot be made for.
pub(crate) fn first_point(
    study: &Study,
    filter: &Filter,
    chosen: &[(usize, String)],
) -> Result<Option<RunPoint>, StudyError> {
    let at = |(number, axis): (usize, &Axis)| {
        let own = chosen.iter().find(|(series, _)| *series == number);
        let first = || filter.get(&number).and_then(|labels| labels.first());
        let wanted = own.map(|(_, label)| label).or_else(first);
        wanted.map_or(Some(0), |label| axis.position(label))
    };
    let choice: Option<Vec<u64>> = study.axes().iter().enumerate().map(at).collect();
    match choice.and_then(|choice| study.index_of(&choice)) {
        Some(index) => Ok(Some(study.expander().point(index)?)),
        None => Ok(None),
    }
}

/// At most about [`MOST`] of `points`, evenly in time: the last of each slice, so that the end stays.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some((last, _)) = points.last().filter(|_| points.len() > MOST) else {
        return points.to_vec();
    };
    let slice = last / MOST as f64;
    let number = |time: f64| (time / slice) as usize;
    let ends = points.iter().enumerate().filter(|(at, (time, _))| {
        let next = points.get(at + 1);
        next.is_none_or(|(next, _)| number(*next) != number(*time))
    });
    ends.map(|(_, point)| *point).collect()
}

/// Runs `scenario` in the simulator: seconds and segments received in order by its first flow.
///
/// # Errors
/// What the simulator cannot run, in words.
pub fn time_sequence(scenario: &Scenario) -> Result<Vec<(f64, f64)>, String> {
    let run = bentpipe_sim::run_sampled(scenario, &Options::default())
        .map_err(|error| error.to_string())?;
    let (Some(flow), Some(plan)) = (run.flows.first(), scenario.flows.first()) else {
        return Ok(Vec::new());
    };
    let mss = flow.mss.map_or(1, |mss| mss.0.max(1)) as f64;
    let received = { run.samples.iter() }
        .filter(|sample| (sample.flow, &sample.point) == (0, &Point::Receiver))
        .map(|sample| {
            let time = plan.start + sample.at;
            (time.as_secs_f64(), sample.bytes.0 as f64 / mss)
        });
    Ok(received.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_thinned_and_keeps_its_end() {
        let long: Vec<(f64, f64)> = (1..=100_000)
            .map(|i| (f64::from(i) / 100.0, f64::from(i)))
            .collect();
        let thin = thinned(&long);
        assert!(
            (MOST - 1..=MOST + 2).contains(&thin.len()),
            "{}",
            thin.len()
        );
        assert_eq!(thin.last(), long.last());
        assert!(thin.is_sorted_by(|a, b| a < b));
        assert_eq!(thinned(&long[..10]), long[..10]);
    }
}
