//! Errors as exceptions of the package, whose classes are in `bentpipe/errors.py`.

use bentpipe_config::Problems;
use bentpipe_study::StudyError;
use pyo3::prelude::*;

/// The exception `name`, made of `argument`.
fn exception<'py>(py: Python<'py>, name: &str, argument: impl IntoPyObject<'py>) -> PyErr {
    let made = py
        .import("bentpipe.errors")
        .and_then(|module| module.getattr(name))
        .and_then(|class| class.call1((argument,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// `ScenarioError`, with every problem.
pub(crate) fn of_problems(py: Python<'_>, problems: &Problems) -> PyErr {
    let listed: Vec<_> = { problems.iter() }
        .map(|one| {
            let words = (
                one.what.clone(),
                one.expected.clone(),
                one.suggestion.clone(),
            );
            (
                one.file.clone(),
                one.line,
                one.column,
                words.0,
                words.1,
                words.2,
            )
        })
        .collect();
    exception(py, "ScenarioError", listed)
}

/// `ScenarioError` of what has no line: a file that cannot be read, say.
pub(crate) fn of_file(py: Python<'_>, file: &str, what: String, expected: &str) -> PyErr {
    let listed = vec![(
        file.to_owned(),
        0,
        0,
        what,
        expected.to_owned(),
        None::<String>,
    )];
    exception(py, "ScenarioError", listed)
}

/// `RunError`: what the simulator cannot run.
pub(crate) fn of_run(py: Python<'_>, why: String) -> PyErr {
    exception(py, "RunError", why)
}

/// `StudyError`: what a study's results lack.
pub(crate) fn of_words(py: Python<'_>, why: String) -> PyErr {
    exception(py, "StudyError", why)
}

/// `ScenarioError` or `StudyError`.
pub(crate) fn of_study(py: Python<'_>, error: StudyError) -> PyErr {
    match error {
        StudyError::Problems(problems) => of_problems(py, &problems),
        StudyError::Read { path, source } => {
            let what = format!("cannot be read ({source})");
            of_file(
                py,
                &path.display().to_string(),
                what,
                "a study's folder, or its TOML file",
            )
        }
        error => exception(py, "StudyError", error.to_string()),
    }
}
