//! Studies: points measured by threads here, or in pieces wherever Python takes them.

use crate::errors;
use crate::figures::{Figure, Graph};
use crate::interruptible::interruptible;
use crate::table::{Builder, Table};
use bentpipe_base::read_text;
use bentpipe_scenario::Scenario;
use bentpipe_scenario::study::{Engine, Point, TimeSequence};
use bentpipe_study::{
    Cell, Drawn, Loaded, MOST_POINTS, Options, Progress, ReferenceValues, Results, Row, Shard,
    StudyError, capture_folder, captured, cells, lines, simulate, simulate_captured, single,
    time_sequence,
};
use bentpipe_trace::{Limits, Recorder, Trace};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A study, with the seeds and values that are run.
#[pyclass(frozen, module = "bentpipe._native")]
pub(crate) struct Study {
    file: String,
    text: String,
    /// The profiles of traffic that it names, each with its content.
    profiles: Vec<(String, String)>,
    seeds: Option<u64>,
    quick: bool,
    name: String,
    study: bentpipe_scenario::Study,
    beside: ReferenceValues,
}

/// What one point brought, as it travels between processes.
#[derive(Serialize, Deserialize)]
struct Measured {
    index: u64,
    row: Option<Row>,
    /// Of a point that failed.
    labels: Vec<String>,
    why: String,
}

impl Study {
    fn choose(mut self) -> PyResult<Self> {
        if self.quick {
            self.study.set_quick();
        }
        if let Some(seeds) = self.seeds
            && !self.study.set_seeds(seeds)
        {
            let why = format!(
                "the study `{}` has no axis named `seed`: leave `seeds` out",
                self.file
            );
            return Err(PyValueError::new_err(why));
        }
        Ok(self)
    }

    /// Refuses a study that only the command runs, which needs namespaces and privileges.
    fn must_be_simulated(&self, py: Python<'_>) -> PyResult<()> {
        if self.study.engine() == Engine::Simulator {
            return Ok(());
        }
        let why = format!(
            "`{}` runs in the lab: run it by `bentpipe study run`, and read its results by Study.results(out)",
            self.file
        );
        Err(errors::of_run(py, why))
    }

    /// Refuses a study of captures, which would stay on the machine of a worker.
    fn must_be_local(&self, py: Python<'_>) -> PyResult<()> {
        if !self.study.is_captured() {
            return Ok(());
        }
        let why = format!(
            "`{}` says `capture = true`, and captures stay where they are made: leave out the executor",
            self.file
        );
        Err(errors::of_run(py, why))
    }

    /// Measures point number `index`.
    fn one(
        &self,
        expander: &bentpipe_scenario::study::Expander<'_>,
        single: &[String],
        index: u64,
    ) -> Result<Measured, StudyError> {
        let point = expander.point(index)?;
        Ok(match simulate(&point.scenario, single) {
            Ok(measures) => Measured {
                index,
                row: Some(Row::of(point, measures)),
                labels: Vec::new(),
                why: String::new(),
            },
            Err(why) => Measured {
                index,
                row: None,
                labels: point.labels,
                why,
            },
        })
    }
}

#[pymethods]
impl Study {
    /// Reads the study at `path`.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let Loaded {
            study,
            beside,
            name,
        } = bentpipe_study::load(&path).map_err(|error| errors::of_study(py, error))?;
        let file = if path.is_dir() {
            path.join("scenario.toml")
        } else {
            path
        };
        let read = |path: &Path| {
            File::open(path).and_then(read_text).map_err(|source| {
                let path = path.to_owned();
                errors::of_study(py, StudyError::Read { path, source })
            })
        };
        let named = study
            .profile_files()
            .map_err(|problems| errors::of_problems(py, &problems))?;
        let profiles = named.into_iter().map(|name| {
            let text = read(&file.with_file_name(&name))?;
            PyResult::Ok((name, text))
        });
        let own = Self {
            text: read(&file)?,
            profiles: profiles.collect::<PyResult<_>>()?,
            file: file.display().to_string(),
            seeds: None,
            quick: false,
            name: name.display().to_string(),
            study,
            beside,
        };
        own.choose()
    }

    /// What `state` brought; tables have no papers' values then.
    #[staticmethod]
    fn restore(
        py: Python<'_>,
        file: String,
        text: String,
        profiles: Vec<(String, String)>,
        seeds: Option<u64>,
        quick: bool,
        name: String,
    ) -> PyResult<Self> {
        let parsed = bentpipe_study::parse(&file, &text);
        let mut study = parsed.map_err(|error| errors::of_study(py, error))?;
        for (name, content) in &profiles {
            study
                .load_profile(name, content)
                .map_err(|error| errors::of_study(py, StudyError::Traffic(error.to_string())))?;
        }
        let own = Self {
            file,
            text,
            profiles,
            seeds,
            quick,
            name,
            study,
            beside: ReferenceValues::default(),
        };
        own.choose()
    }

    /// All that it is made of.
    #[expect(
        clippy::type_complexity,
        reason = "a tuple for pickle, which has no names"
    )]
    fn state(&self) -> (&str, &str, Vec<(String, String)>, Option<u64>, bool, &str) {
        let profiles = self.profiles.clone();
        (
            &self.file, &self.text, profiles, self.seeds, self.quick, &self.name,
        )
    }

    /// The same with seeds 1 to `seeds`, or the `quick` values.
    fn with_values(&self, seeds: Option<u64>, quick: bool) -> PyResult<Self> {
        if seeds == Some(0) {
            return Err(PyValueError::new_err("`seeds` is 0: give at least 1"));
        }
        let own = Self {
            file: self.file.clone(),
            text: self.text.clone(),
            profiles: self.profiles.clone(),
            seeds,
            quick,
            name: self.name.clone(),
            study: self.study.clone(),
            beside: self.beside.clone(),
        };
        own.choose()
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// `simulator` or `lab`.
    #[getter]
    fn engine(&self) -> &'static str {
        self.study.engine().name()
    }

    #[getter]
    fn axes(&self) -> Vec<(String, u64)> {
        let axes = self.study.axes().iter();
        axes.map(|axis| (axis.name().to_owned(), axis.len()))
            .collect()
    }

    #[getter]
    fn most_points(&self) -> u64 {
        MOST_POINTS
    }

    fn __len__(&self) -> usize {
        self.study.len() as usize
    }

    /// The scenario of point number `index`, and its label on each axis.
    fn scenario(
        &self,
        py: Python<'_>,
        index: u64,
    ) -> PyResult<(Vec<String>, crate::scenario::Scenario)> {
        let point = self.study.expander().point(index);
        let Point {
            labels, scenario, ..
        } = point.map_err(|problems| errors::of_problems(py, &problems))?;
        let named = scenario.traffic.as_ref().and_then(|traffic| traffic.file());
        let profile = { self.profiles.iter() }.find(|(name, _)| Some(name.as_str()) == named);
        let profile = profile.map(|(_, content)| content.clone());
        let file = format!("{}, {}", self.file, labels.join(", "));
        let scenario = crate::scenario::Scenario::of_point(file, scenario, profile);
        Ok((labels, scenario))
    }

    /// Measures the points of these numbers: a line of JSON each. Nothing is written.
    fn measure(&self, py: Python<'_>, numbers: Vec<u64>) -> PyResult<Vec<u8>> {
        let work = |cancel: &AtomicBool| -> Result<_, StudyError> {
            let (expander, single) = (self.study.expander(), single(&self.study));
            let mut lines = Vec::new();
            for index in numbers {
                if cancel.load(Ordering::Relaxed) {
                    break;
                }
                let measured = self.one(&expander, &single, index)?;
                serde_json::to_writer(&mut lines, &measured)
                    .map_err(|error| StudyError::Row(error.to_string()))?;
                lines.push(b'\n');
            }
            Ok(lines)
        };
        interruptible(py, work, |_| Ok(()))?.map_err(|error| errors::of_study(py, error))
    }

    /// Runs all points on `threads` threads into `out`; `progress` is told how many are done, failed, and to be done.
    #[pyo3(signature = (out, threads, fresh, shard, progress))]
    fn run(
        &self,
        py: Python<'_>,
        out: PathBuf,
        threads: usize,
        fresh: bool,
        shard: Option<&str>,
        progress: &Bound<'_, PyAny>,
    ) -> PyResult<Found> {
        self.must_be_simulated(py)?;
        let shard = shard.map(str::parse::<Shard>).transpose();
        let shard = shard.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let single = single(&self.study);
        let latest = Mutex::new(None);
        let work = |cancel: &AtomicBool| {
            let note = |progress: Progress| {
                *latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
            };
            let options = Options {
                out: &out,
                shard,
                threads,
                fresh,
                cancel,
                progress: &note,
            };
            let measure = |scenario: &Scenario| {
                if self.study.is_captured() {
                    simulate_captured(scenario, &single, &capture_folder(&out, scenario))
                } else {
                    simulate(scenario, &single)
                }
            };
            bentpipe_study::run(&self.study, &options, &measure)
        };
        let tell = || {
            let told = latest.lock().unwrap_or_else(PoisonError::into_inner).take();
            told.map_or(Ok(()), |told: Progress| {
                progress
                    .call1((told.done, told.failed, told.total))
                    .map(drop)
            })
        };
        let results = interruptible(py, work, |_| tell())?;
        tell()?;
        let results = results.map_err(|error| errors::of_study(py, error))?;
        Ok(Found(results))
    }

    /// Opens `out` for points that others measure.
    fn open(&self, py: Python<'_>, out: PathBuf, fresh: bool) -> PyResult<Session> {
        self.must_be_simulated(py)?;
        self.must_be_local(py)?;
        let work = |cancel: &AtomicBool| {
            bentpipe_study::Session::open(&self.study, &taken(&out, fresh, cancel))
        };
        let session = interruptible(py, work, |_| Ok(()))?;
        let session = session.map_err(|error| errors::of_study(py, error))?;
        Ok(Session(Mutex::new(Some(session))))
    }

    /// What is in `out`, once all is finished, whichever engine ran it.
    fn read(&self, py: Python<'_>, out: PathBuf) -> PyResult<Found> {
        let work =
            |cancel: &AtomicBool| bentpipe_study::read(&self.study, &taken(&out, false, cancel));
        let results = interruptible(py, work, |_| Ok(()))?;
        let results = results.map_err(|error| errors::of_study(py, error))?;
        Ok(Found(results))
    }

    /// The cells of the tables.
    fn cells(&self, py: Python<'_>, found: &Bound<'_, Found>) -> Table {
        let samples = &found.get().0.samples;
        py.detach(|| cell_table(&cells(&self.study, samples, &self.beside)))
    }

    /// The figures. Those of single runs run these again.
    fn figures(&self, py: Python<'_>, found: &Bound<'_, Found>) -> PyResult<Vec<Figure>> {
        let samples = &found.get().0.samples;
        let work = |cancel: &AtomicBool| {
            let course = |scenario: &Scenario| match cancel.load(Ordering::Relaxed) {
                false if self.study.engine() == Engine::Simulator => time_sequence(scenario),
                false => Err("the lab keeps no course of single runs for figures".to_owned()),
                true => Err("it was stopped".to_owned()),
            };
            let all = self.study.figures().iter();
            let drawn = all.map(|figure| {
                let lines = lines(&self.study, figure, samples, &course)?;
                Ok(Drawn::new(&self.study, figure, &lines).into())
            });
            drawn.collect::<Result<Vec<Figure>, StudyError>>()
        };
        interruptible(py, work, |_| Ok(()))?.map_err(|error| errors::of_study(py, error))
    }

    /// The time-sequence graphs of what was captured in `out`.
    fn graphs(&self, py: Python<'_>, out: PathBuf) -> PyResult<Vec<Graph>> {
        let all = self.study.time_sequences().iter();
        let graphs = all.filter_map(|one| {
            let file = match captured(&self.study, one, &out) {
                Ok(file) => file?,
                Err(error) => return Some(Err(errors::of_study(py, error))),
            };
            let graph = py.detach(|| graph(&file, one));
            let why = |why| {
                let file = file.display();
                let why = format!(
                    "time sequence `{}` cannot be drawn of `{file}`: {why}",
                    one.name
                );
                errors::of_words(py, why)
            };
            Some(graph.map_err(why))
        });
        graphs.collect()
    }

    /// A row each of the points in `out`, once all are finished.
    fn points(&self, py: Python<'_>, out: PathBuf) -> PyResult<Table> {
        let path = out.join("points.jsonl");
        let read = py.detach(|| {
            let lines = BufReader::new(File::open(&path)?).lines();
            let own = lines.take(self.study.len() as usize);
            own.map(|line| Ok(serde_json::from_str(&line?)?))
                .collect::<std::io::Result<Vec<Row>>>()
        });
        let rows =
            read.map_err(|source| errors::of_study(py, StudyError::Read { path, source }))?;
        Ok(py.detach(|| self.point_table(&rows)))
    }
}

impl Study {
    fn point_table(&self, rows: &[Row]) -> Table {
        let mut table = Builder::new(rows);
        for (number, axis) in self.study.axes().iter().enumerate() {
            table.text(axis.name(), |row| row.labels.get(number));
        }
        let names: BTreeSet<&String> = rows.iter().flat_map(|row| row.measures.keys()).collect();
        for name in names {
            table.real(name, |row| row.measures.get(name).copied().flatten());
        }
        table.build()
    }
}

fn cell_table(cells: &[Cell]) -> Table {
    let mut table = Builder::new(cells);
    table.text("table", |cell| Some(&cell.table));
    table.text("row", |cell| Some(&cell.row));
    table.text("column", |cell| Some(&cell.column));
    table.real("mean", |cell| cell.mean);
    table.real("half", |cell| cell.half);
    table.real("min", |cell| cell.min);
    table.real("max", |cell| cell.max);
    table.real("otherwise", |cell| cell.otherwise);
    table.real("within", |cell| cell.within);
    table.count("n", |cell| Some(cell.n));
    table.count("runs", |cell| Some(cell.runs));
    table.real("paper", |cell| cell.paper);
    table.real("reference", |cell| cell.reference);
    table.truth("agrees", |cell| cell.agrees);
    table.build()
}

/// How all points in `out` are taken in, on all processors.
fn taken<'a>(out: &'a Path, fresh: bool, cancel: &'a AtomicBool) -> Options<'a> {
    Options {
        out,
        shard: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        fresh,
        cancel,
        progress: &|_| {},
    }
}

/// The graph `one` of the capture `file`.
fn graph(file: &Path, one: &TimeSequence) -> Result<Graph, String> {
    let mut trace = Trace::new(Limits::default());
    trace.record(Recorder::new(&[]));
    let opened = File::open(file).map_err(|error| error.to_string())?;
    trace.take(opened).map_err(|error| error.to_string())?;
    trace.finish();
    let heaviest = trace.heaviest();
    let (index, side) = heaviest.ok_or("no connection in it carries data")?;
    let series = trace.series(index);
    let series = series.ok_or("it has too many segments before this connection")?;
    let seconds = one.part.map(|(begin, length)| {
        let begin = begin.as_secs_f64();
        begin..begin + length.as_secs_f64()
    });
    let connection = &trace.connections()[index];
    let graph = bentpipe_trace::TimeSequence::new(connection, series.stream(side), side, seconds);
    Ok(Graph::new(&one.name, &one.title, graph))
}

/// What a study found.
#[pyclass(frozen, module = "bentpipe._native")]
pub(crate) struct Found(Results);

#[pymethods]
impl Found {
    /// How many points an earlier run had finished.
    #[getter]
    fn resumed(&self) -> u64 {
        self.0.resumed
    }
}

/// An open results folder.
#[pyclass(frozen, module = "bentpipe._native")]
pub(crate) struct Session(Mutex<Option<bentpipe_study::Session>>);

impl Session {
    fn with<T>(
        &self,
        work: impl FnOnce(&mut bentpipe_study::Session) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || PyValueError::new_err("the results folder is closed");
        work(session.as_mut().ok_or_else(closed)?)
    }
}

#[pymethods]
impl Session {
    /// The numbers of the points that are to be measured.
    fn unfinished(&self) -> PyResult<Vec<u64>> {
        self.with(|session| Ok(session.unfinished().to_vec()))
    }

    /// Done, failed and all points.
    fn progress(&self) -> PyResult<(u64, u64, u64)> {
        self.with(|session| {
            let progress = session.progress();
            Ok((progress.done, progress.failed, progress.total))
        })
    }

    /// Takes what [`Study::measure`] returned.
    fn add(&self, py: Python<'_>, lines: &[u8]) -> PyResult<()> {
        self.with(|session| {
            for line in lines
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
            {
                let measured: Measured = serde_json::from_slice(line)
                    .map_err(|error| errors::of_study(py, StudyError::Row(error.to_string())))?;
                let Measured {
                    index,
                    row,
                    labels,
                    why,
                } = measured;
                let taken = match row {
                    Some(row) => session.add(index, &row),
                    None => session.fail(&labels, &why),
                };
                taken.map_err(|error| errors::of_study(py, error))?;
            }
            Ok(())
        })
    }

    /// Puts the folder in order and closes it; returns as `Study.run`.
    fn finish(&self, py: Python<'_>) -> PyResult<Found> {
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = || PyValueError::new_err("the results folder is closed");
        let session = session.ok_or_else(closed)?;
        let results = py.detach(|| session.finish());
        let results = results.map_err(|error| errors::of_study(py, error))?;
        Ok(Found(results))
    }

    /// Closes the folder; what was taken is kept.
    fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}
