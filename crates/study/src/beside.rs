//! Reads the values to compare ours with: the paper's (`expected.csv`) and a reference's (`reference.csv`).

use crate::StudyError;
use crate::agree::Reference;
use bentpipe_base::read_text;
use bentpipe_config::nearest;
use bentpipe_scenario::Study;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// Table, row and column.
type Place = (String, String, String);

/// The values of others, by table, row and column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReferenceValues {
    pub(crate) paper: BTreeMap<Place, f64>,
    pub(crate) reference: BTreeMap<Place, Reference>,
}

#[derive(Deserialize)]
struct Expected {
    table: String,
    row: String,
    column: String,
    value: f64,
}

#[derive(Deserialize)]
struct ReferenceRow {
    table: String,
    row: String,
    column: String,
    mean: f64,
    sd: f64,
    n: u64,
}

impl ReferenceValues {
    /// Reads both files; one that does not exist has no values.
    ///
    /// # Errors
    /// A line that cannot be read, or that names a table, row or column which the study has not.
    pub fn read(study: &Study, expected: &Path, reference: &Path) -> Result<Self, StudyError> {
        let mut beside = Self::default();
        for (line, row) in rows::<Expected>(expected)? {
            let place = (row.table, row.row, row.column);
            in_study(study, expected, line, &place)?;
            beside.paper.insert(place, row.value);
        }
        for (line, row) in rows::<ReferenceRow>(reference)? {
            let place = (row.table, row.row, row.column);
            in_study(study, reference, line, &place)?;
            let theirs = Reference {
                mean: row.mean,
                sd: row.sd,
                n: row.n,
            };
            beside.reference.insert(place, theirs);
        }
        Ok(beside)
    }
}

fn name_of(path: &Path) -> String {
    path.display().to_string()
}

fn rows<T: DeserializeOwned>(path: &Path) -> Result<Vec<(u64, T)>, StudyError> {
    let text = match File::open(path).and_then(read_text) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(StudyError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let wrong = |error: csv::Error| StudyError::Values {
        file: name_of(path),
        line: error.position().map_or(1, csv::Position::line),
        what: error.to_string(),
        expected: "a header line, then table, row, column and numbers".to_owned(),
    };
    let headers = reader.headers().map_err(wrong)?.clone();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(wrong)?;
        let line = record.position().map_or(1, csv::Position::line);
        rows.push((line, record.deserialize(Some(&headers)).map_err(wrong)?));
    }
    Ok(rows)
}

fn in_study(study: &Study, path: &Path, line: u64, place: &Place) -> Result<(), StudyError> {
    let (table, row, column) = place;
    let wrong = |what: &str, found: &str, names: Vec<String>| {
        let near = nearest(found, names.iter().map(String::as_str))
            .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        StudyError::Values {
            file: name_of(path),
            line,
            what: format!("the study has no {what} `{found}`"),
            expected: format!("one of {}{near}", names.join(", ")),
        }
    };
    let Some(spec) = study.tables().iter().find(|spec| spec.name == *table) else {
        let names = study.tables().iter().map(|spec| spec.name.clone());
        return Err(wrong("table", table, names.collect()));
    };
    for (what, axis, label) in [("row", spec.rows, row), ("column", spec.columns, column)] {
        let axis = &study.axes()[axis];
        if axis.position(label).is_none() {
            return Err(wrong(what, label, axis.labels().take(50).collect()));
        }
    }
    Ok(())
}
