//! No crate and no file grows past what a newcomer reads in one go: who meets a limit has two ideas in one place, and
//! cuts between them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a source file, tests and benchmarks included.
const FILE: usize = 600;
/// Lines of all of a crate's `src`.
const CRATE: usize = 8_000;

/// Source files below `folder`, with their lines.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, usize)>) {
    // A crate without tests has no such folder.
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if ["rs", "c", "h"]
            .iter()
            .any(|end| path.extension().is_some_and(|it| it == *end))
        {
            let lines = fs::read_to_string(&path).unwrap().lines().count();
            found.push((path, lines));
        }
    }
}

#[test]
fn no_crate_and_no_file_is_too_long() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = 0;
    let mut too_long = Vec::new();
    for one in fs::read_dir(crates).unwrap() {
        let one = one.unwrap().path();
        let (mut own, mut tests) = (Vec::new(), Vec::new());
        sources(&one.join("src"), &mut own);
        sources(&one.join("tests"), &mut tests);
        let lines: usize = own.iter().map(|(_, lines)| lines).sum();
        if lines > CRATE {
            too_long.push(format!(
                "{}: {lines} lines in src, at most {CRATE}",
                one.display()
            ));
        }
        let long = own.iter().chain(&tests).filter(|(_, lines)| *lines > FILE);
        too_long.extend(
            long.map(|(file, lines)| format!("{}: {lines} lines, at most {FILE}", file.display())),
        );
        files += own.len() + tests.len();
    }
    assert!(files > 400, "only {files} source files");
    assert!(too_long.is_empty(), "{too_long:#?}");
}
