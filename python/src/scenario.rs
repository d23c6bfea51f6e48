//! Scenarios.

use crate::{errors, value};
use bentpipe_base::read_text;
use bentpipe_study::Names;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

static NAMES: LazyLock<Names> = LazyLock::new(Names::all);

/// A scenario: its text, and keys that are set otherwise.
#[pyclass(frozen, module = "bentpipe._native")]
pub(crate) struct Scenario {
    file: String,
    text: String,
    /// Dotted keys, and their values in TOML.
    settings: Vec<(String, String)>,
    /// The profile of its cross traffic, where it has one.
    profile: Option<String>,
    pub(crate) scenario: bentpipe_scenario::Scenario,
}

impl Scenario {
    /// A point of a study; `profile` is the content of its profile of traffic.
    pub(crate) fn of_point(
        file: String,
        scenario: bentpipe_scenario::Scenario,
        profile: Option<String>,
    ) -> Self {
        Self {
            file,
            text: scenario.to_toml(),
            settings: Vec::new(),
            profile,
            scenario,
        }
    }

    /// Reads the text. A profile of traffic is `profile`, or read from beside the file.
    fn read(
        py: Python<'_>,
        file: String,
        text: String,
        settings: Vec<(String, String)>,
        profile: Option<String>,
    ) -> PyResult<Self> {
        let pairs: Vec<(&str, &str)> = { settings.iter() }
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let mut scenario =
            bentpipe_scenario::Scenario::parse_setting(&file, &text, &pairs, NAMES.known())
                .map_err(|problems| errors::of_problems(py, &problems))?;
        let length = scenario.time_limit;
        let mut taken = None;
        if let Some(traffic) = &mut scenario.traffic
            && let Some(name) = traffic.file().map(str::to_owned)
        {
            let path = Path::new(&file).with_file_name(name);
            let content = match profile {
                Some(content) => content,
                None => File::open(&path).and_then(read_text).map_err(|error| {
                    let what = format!("the profile of traffic cannot be read ({error})");
                    let expected = "a profile, as `bentpipe traffic ftp -o FILE` makes one";
                    errors::of_file(py, &path.display().to_string(), what, expected)
                })?,
            };
            traffic.load(&content, length).map_err(|error| {
                let expected = "a profile of traffic";
                errors::of_file(py, &path.display().to_string(), error.to_string(), expected)
            })?;
            taken = Some(content);
        }
        Ok(Self {
            file,
            text,
            settings,
            profile: taken,
            scenario,
        })
    }
}

#[pymethods]
impl Scenario {
    /// Reads the file at `path`.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let file = path.display().to_string();
        let text = File::open(&path).and_then(read_text).map_err(|error| {
            let what = format!("cannot be read ({error})");
            errors::of_file(py, &file, what, "the path of a scenario, a TOML file")
        })?;
        Self::read(py, file, text, Vec::new(), None)
    }

    /// Reads `text`; `file` is its name in messages.
    #[staticmethod]
    fn parse(py: Python<'_>, file: String, text: String) -> PyResult<Self> {
        Self::read(py, file, text, Vec::new(), None)
    }

    /// The scenario that `content` is; `file` is its name in messages.
    #[staticmethod]
    fn of_dict(py: Python<'_>, file: String, content: &Bound<'_, PyDict>) -> PyResult<Self> {
        let text = value::table("", content, 0)?.to_string();
        Self::read(py, file, text, Vec::new(), None)
    }

    /// What `state` brought.
    #[staticmethod]
    fn restore(
        py: Python<'_>,
        file: String,
        text: String,
        settings: Vec<(String, String)>,
        profile: Option<String>,
    ) -> PyResult<Self> {
        Self::read(py, file, text, settings, profile)
    }

    /// All that it is made of.
    fn state(&self) -> (&str, &str, Vec<(String, String)>, Option<&str>) {
        let profile = self.profile.as_deref();
        (&self.file, &self.text, self.settings.clone(), profile)
    }

    /// With each dotted key set to its value.
    fn set(&self, py: Python<'_>, pairs: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let mut settings = self.settings.clone();
        for (key, content) in pairs {
            let written = value::toml(&key, &content)?.to_string();
            settings.retain(|(earlier, _)| *earlier != key);
            settings.push((key, written));
        }
        let (file, text) = (self.file.clone(), self.text.clone());
        Self::read(py, file, text, settings, self.profile.clone())
    }

    #[getter]
    fn name(&self) -> &str {
        &self.scenario.name
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.scenario.seed
    }

    #[getter]
    fn flows(&self) -> Vec<String> {
        let flows = self.scenario.flows.iter();
        flows.map(|flow| flow.name.clone()).collect()
    }

    /// Complete, with every default.
    fn to_toml(&self) -> String {
        self.scenario.to_toml()
    }

    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        bentpipe_sim::warnings(&self.scenario)
            .map_err(|error| errors::of_run(py, error.to_string()))
    }
}
