//! Captures of the points of a study that says `capture = true`.

use crate::row::Key;
use bentpipe_scenario::Scenario;
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
    let open = |link: &str, node: &str| {
        let path = folder.join(format!("{link}-{node}.pcapng"));
        File::create(path).map(BufWriter::new)
    };
    Captures::new(scenario, open)
}
