//! Captures of the points of a study that says `capture = true`.

use crate::StudyError;
use crate::row::Key;
use crate::trace::first_point;
use bentpipe_scenario::study::TimeSequence;
use bentpipe_scenario::{Scenario, Study};
use bentpipe_sim::Captures;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// The folder of captures in a results folder.
pub(crate) const CAPTURES: &str = "captures";

/// Where the captures of the point `scenario` go in the results folder `out`: under the name that its line in `points.jsonl` has.
pub fn capture_folder(out: &Path, scenario: &Scenario) -> PathBuf {
    out.join(CAPTURES).join(Key::of(scenario).to_string())
}

/// An observer that writes a capture of each end of each link to `LINK-NODE.pcapng` in `folder`, made if it is not there.
///
/// # Errors
/// What making folder and files gives.
pub fn captures(scenario: &Scenario, folder: &Path) -> io::Result<Captures<BufWriter<File>>> {
    fs::create_dir_all(folder)?;
    let open =
        |link: &str, node: &str| File::create(folder.join(file(link, node))).map(BufWriter::new);
    Captures::new(scenario, open)
}

/// The capture in the results folder `out` that the graph `one` shows; `None` where its point is not run today, by --quick for
/// one.
///
/// # Errors
/// What the point's scenario cannot be made for.
pub fn captured(
    study: &Study,
    one: &TimeSequence,
    out: &Path,
) -> Result<Option<PathBuf>, StudyError> {
    let point = first_point(study, &one.filter, &[])?;
    let name = file(&one.link, &one.node);
    Ok(point.map(|point| capture_folder(out, &point.scenario).join(name)))
}

fn file(link: &str, node: &str) -> String {
    format!("{link}-{node}.pcapng")
}
