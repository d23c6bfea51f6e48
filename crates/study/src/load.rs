//! A study from its folder.

use crate::{ReferenceValues, StudyError};
use bentpipe_base::read_text;
use bentpipe_outcome::{MEASURES, RENAMED, Subject};
use bentpipe_scenario::study::{KnownMeasure, Part};
use bentpipe_scenario::{Known, Study};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A study and what stands beside it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The study.
    pub study: Study,
    /// The paper's values and the reference's.
    pub beside: ReferenceValues,
    /// Folder and file, as in the name of its results: `sing-soh-2005/scenario`.
    pub name: PathBuf,
}

/// Reads the study at `path`: a TOML file, or a folder with a `scenario.toml`. Beside
/// `scenario.toml` stand `expected.csv` and `reference.csv`, beside any other `x.toml`
/// `x.expected.csv` and `x.reference.csv`; each may be missing.
///
/// # Errors
/// What cannot be read, and every mistake in it.
pub fn load(path: &Path) -> Result<Loaded, StudyError> {
    let file = if path.is_dir() {
        path.join("scenario.toml")
    } else {
        path.to_owned()
    };
    let text = File::open(&file)
        .and_then(read_text)
        .map_err(|source| StudyError::Read {
            path: file.clone(),
            source,
        })?;
    let mut study = parse(&file.display().to_string(), &text)?;
    read_profiles(&mut study, &file)?;
    let stem = file.file_stem().unwrap_or(OsStr::new("scenario"));
    let prefix = match stem.to_string_lossy() {
        name if name == "scenario" => String::new(),
        name => format!("{name}."),
    };
    let beside = ReferenceValues::read(
        &study,
        &file.with_file_name(format!("{prefix}expected.csv")),
        &file.with_file_name(format!("{prefix}reference.csv")),
    )?;
    let folder = file.canonicalize().ok();
    let folder = folder
        .as_deref()
        .and_then(Path::parent)
        .and_then(Path::file_name);
    let name = Path::new(folder.unwrap_or(OsStr::new("study"))).join(stem);
    Ok(Loaded {
        study,
        beside,
        name,
    })
}

/// Reads a study, with the names of all registries; `file` is the name of the text in messages. Profiles that it names, and
/// what stands beside its file, are not read.
///
/// # Errors
/// Every mistake in it.
pub fn parse(file: &str, text: &str) -> Result<Study, StudyError> {
    Ok(Study::parse(file, text, Names::all().known())?)
}

/// Reads the profiles of cross traffic that `study` names, from beside its `file`.
///
/// # Errors
/// The first that cannot be read, or what is wrong in it.
pub fn read_profiles(study: &mut Study, file: &Path) -> Result<(), StudyError> {
    for name in study.profile_files()? {
        let path = file.with_file_name(&name);
        let text = File::open(&path)
            .and_then(read_text)
            .map_err(|source| StudyError::Profile {
                path: path.clone(),
                source,
            })?;
        study
            .load_profile(&name, &text)
            .map_err(|error| StudyError::Traffic(error.to_string()))?;
    }
    Ok(())
}

/// The names that scenarios and studies may use: those of all registries.
#[derive(Clone, Debug)]
pub struct Names {
    variants: Vec<&'static str>,
    controls: Vec<&'static str>,
    measures: Vec<KnownMeasure<'static>>,
}

impl Names {
    /// Those that there are.
    pub fn all() -> Self {
        Self {
            variants: bentpipe_tcp::VARIANTS
                .iter()
                .map(|pair| pair.name)
                .collect(),
            // One file runs on either engine: those that we bring to the kernel are known by their names there too.
            controls: bentpipe_cc::REGISTRY
                .iter()
                .flat_map(|control| [Some(control.name), control.kernel])
                .flatten()
                .collect(),
            measures: MEASURES.iter().map(known_measure).collect(),
        }
    }

    /// As the reader of scenarios takes them.
    pub fn known(&self) -> Known<'_> {
        Known {
            variants: &self.variants,
            controls: &self.controls,
            // The lab knows them, and says so.
            apps: &[],
            measures: &self.measures,
            renamed: RENAMED,
        }
    }
}

fn known_measure(measure: &bentpipe_outcome::Measure) -> KnownMeasure<'static> {
    KnownMeasure {
        name: measure.name,
        part: measure.subject().map(|subject| match subject {
            Subject::Flow => Part::Flow,
            Subject::Link => Part::Link,
            Subject::Proxy => Part::Pep,
        }),
    }
}
