//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod demo;
pub(crate) mod doctor;
mod figures;
pub(crate) mod gateway;
pub(crate) mod lab;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod saratoga;
pub(crate) mod sim;
pub(crate) mod snoop;
pub(crate) mod study;
pub(crate) mod tcp;
pub(crate) mod traffic;

use crate::failure::{Blame, Failure};
use anyhow::Context;
use bentpipe_base::read_text;
use bentpipe_scenario::{Known, Scenario};
use std::fs::{self, File};
use std::path::Path;

/// The text of the scenario in `file`.
fn read(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    File::open(file)
        .and_then(read_text)
        .with_context(|| format!("cannot read the scenario `{name}`; give the path of a TOML file"))
        .or_usage()
}

/// The scenario in `text`, its programs among those that the lab has.
fn parse(name: &str, text: &str) -> Result<Scenario, Failure> {
    let apps = bentpipe_lab::app_names();
    let known = Known {
        apps: &apps,
        ..Known::default()
    };
    Scenario::parse_knowing(name, text, known).map_err(Failure::Mistakes)
}

/// Writes `text` to the file at `path`.
fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}
