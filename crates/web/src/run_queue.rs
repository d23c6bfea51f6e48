//! The queue of runs: what waits, what runs, and who may begin.
//!
//! Simulations run side by side, as many as there are processors. A lab run is alone, for what runs beside it makes its
//! emulators late, unless the operator allows several; a study always, for it takes all processors by itself. Who came first
//! begins first.

use crate::child_process::{self, Ended, Limits};
use crate::response::Refusal;
use crate::run_events::RunEvents;
use crate::run_record::{ASKED, RunRecord, State, Work, now};
use crate::run_store::RunStore;
use axum::http::StatusCode;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::mem::discriminant;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The most runs that wait.
const MOST: usize = 1_000;

/// What waits and what runs.
pub(crate) struct RunQueue {
    store: Arc<RunStore>,
    limits: Limits,
    jobs: Jobs,
    inner: Mutex<Inner>,
    /// Grows when anything begins or ends.
    changes: watch::Sender<u64>,
}

/// How many run at a time.
#[derive(Clone, Copy)]
pub(crate) struct Jobs {
    pub(crate) simulator: usize,
    pub(crate) lab: usize,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<RunRecord>,
    running: BTreeMap<String, Running>,
    /// The server ends: nothing more begins.
    closed: bool,
}

struct Running {
    record: RunRecord,
    events: Arc<RunEvents>,
    stop: watch::Sender<bool>,
}

/// The queue as the page shows it.
#[derive(Serialize)]
pub(crate) struct Shown {
    /// The server's clock, seconds since 1970.
    now: f64,
    running: Vec<RunningShown>,
    waiting: Vec<RunRecord>,
}

#[derive(Serialize)]
struct RunningShown {
    #[serde(flatten)]
    record: RunRecord,
    /// How far it is, in seconds of its own time, and how far it goes at most.
    at_s: f64,
    at_most_s: Option<f64>,
}

impl RunQueue {
    pub(crate) fn new(store: Arc<RunStore>, limits: Limits, jobs: Jobs) -> Arc<Self> {
        Arc::new(Self {
            store,
            limits,
            jobs,
            inner: Mutex::default(),
            changes: watch::channel(0).0,
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up what an earlier server left: what waited waits again, what ran was interrupted.
    ///
    /// # Errors
    /// When the folder cannot be read, or its records not be written.
    pub(crate) fn resume(self: &Arc<Self>) -> std::io::Result<()> {
        let mut records = self.store.list()?;
        records.sort_by(|a, b| a.asked.total_cmp(&b.asked));
        for mut record in records {
            match record.state {
                State::Queued => self.inner().waiting.push_back(record),
                State::Running => {
                    record.state = State::Interrupted;
                    record.why = Some("the server ended in the middle of it".to_owned());
                    self.store.write(&record)?;
                }
                _ => {}
            }
        }
        self.begin();
        Ok(())
    }

    /// Whether so many more may wait.
    pub(crate) fn has_room(&self, more: usize) -> Result<(), Refusal> {
        if self.inner().waiting.len() + more > MOST {
            let said = format!("the queue is full: {MOST} runs wait; stop some of them, or wait");
            return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, said));
        }
        Ok(())
    }

    /// Puts a run, which is noted, at the end.
    pub(crate) fn put(self: &Arc<Self>, record: RunRecord) {
        self.inner().waiting.push_back(record);
        self.begin();
    }

    /// Ends a run that waits or runs; `false`: it does neither.
    pub(crate) fn stop(&self, id: &str) -> bool {
        let mut inner = self.inner();
        if let Some(running) = inner.running.get(id) {
            running.stop.send_replace(true);
            return true;
        }
        let Some(place) = inner.waiting.iter().position(|record| record.id == id) else {
            return false;
        };
        if let Some(mut record) = inner.waiting.remove(place) {
            record.state = State::Stopped;
            record.ended = Some(now());
            self.keep(&record);
        }
        true
    }

    /// What watchers of a run that goes on are sent.
    pub(crate) fn events(&self, id: &str) -> Option<Arc<RunEvents>> {
        self.inner()
            .running
            .get(id)
            .map(|it| Arc::clone(&it.events))
    }

    /// What runs, and what waits in its order.
    pub(crate) fn shown(&self) -> Shown {
        let inner = self.inner();
        let running = inner.running.values().map(|it| {
            let (at_s, at_most_s) = it.events.reached();
            RunningShown {
                record: it.record.clone(),
                at_s,
                at_most_s,
            }
        });
        Shown {
            now: now(),
            running: running.collect(),
            waiting: inner.waiting.iter().cloned().collect(),
        }
    }

    /// Ends all that runs, and waits for it; what waits stays noted for the next server.
    pub(crate) async fn close(&self) {
        {
            let mut inner = self.inner();
            inner.closed = true;
            inner.running.values().for_each(|it| {
                it.stop.send_replace(true);
            });
        }
        let mut changes = self.changes.subscribe();
        while !self.inner().running.is_empty() {
            let waited = tokio::time::timeout(Duration::from_secs(70), changes.changed()).await;
            if waited.is_err() {
                return;
            }
        }
    }

    /// Begins all that may.
    fn begin(self: &Arc<Self>) {
        while let Some((record, events, stop)) = self.next() {
            let queue = Arc::clone(self);
            tokio::spawn(async move { queue.carry_out(record, events, stop).await });
        }
    }

    /// Takes the first that waits, if it may begin.
    fn next(&self) -> Option<(RunRecord, Arc<RunEvents>, watch::Receiver<bool>)> {
        let mut inner = self.inner();
        let work = &inner.waiting.front()?.work;
        let most = match work {
            Work::Simulator => self.jobs.simulator,
            Work::Lab => self.jobs.lab,
            Work::Study { .. } => 1,
        };
        let kind = discriminant(work);
        let mixed = { inner.running.values() }.any(|it| discriminant(&it.record.work) != kind);
        if mixed || inner.running.len() >= most || inner.closed {
            return None;
        }
        let record = inner.waiting.pop_front()?;
        let events = Arc::new(RunEvents::default());
        let (stop, stopped) = watch::channel(false);
        let running = Running {
            record: RunRecord {
                state: State::Running,
                began: Some(now()),
                ..record.clone()
            },
            events: Arc::clone(&events),
            stop,
        };
        inner.running.insert(record.id.clone(), running);
        Some((record, events, stopped))
    }

    async fn carry_out(
        self: Arc<Self>,
        mut record: RunRecord,
        events: Arc<RunEvents>,
        stop: watch::Receiver<bool>,
    ) {
        record.state = State::Running;
        record.began = Some(now());
        self.keep(&record);
        let folder = self.store.folder().join(&record.id);
        let ended = self.run(&record, &folder, &events, stop).await;
        record.ended = Some(now());
        (record.state, record.why) = match ended {
            Ended::Done => (State::Done, None),
            Ended::Failed(why) => (State::Failed, Some(why)),
            Ended::Stopped => (State::Stopped, None),
        };
        self.keep(&record);
        events.end(match record.state {
            State::Done => "done",
            State::Stopped => "stopped",
            _ => "failed",
        });
        self.inner().running.remove(&record.id);
        self.changes.send_modify(|count| *count += 1);
        self.begin();
    }

    async fn run(
        &self,
        record: &RunRecord,
        folder: &Path,
        events: &RunEvents,
        stop: watch::Receiver<bool>,
    ) -> Ended {
        let live_file = match record.work {
            Work::Study { .. } => "output.txt",
            _ => "live.jsonl",
        };
        let mut file = match File::create(folder.join(live_file)) {
            Ok(file) => file,
            Err(error) => return Ended::Failed(format!("cannot write `{live_file}`: {error}")),
        };
        let is_live = !matches!(record.work, Work::Study { .. });
        // A study has files by its own path, which was given from where the server was started.
        let place = if is_live { folder } else { Path::new(".") };
        child_process::run(&self.limits, &arguments(record), place, stop, |lines| {
            // What is lost of the record is lost; the run's own files are its own.
            let _ = file.write_all(lines.as_bytes());
            if is_live {
                events.send(lines);
            }
        })
        .await
    }

    /// Writes a record; where that fails the run goes on, and this server knows of it.
    fn keep(&self, record: &RunRecord) {
        if let Err(error) = self.store.write(record) {
            tracing::warn!(%error, run = record.id, "cannot write run.json");
        }
    }
}

/// What the child is given, in the folder of its run.
fn arguments(record: &RunRecord) -> Vec<OsString> {
    let words: &[&str] = match &record.work {
        Work::Simulator => &["sim", "run", ASKED, "--live", "-", "--json", "result.json"],
        Work::Lab => &["lab", "run", ASKED, "--live", "-", "--out", "."],
        Work::Study { .. } => &["study", "run"],
    };
    let mut all: Vec<OsString> = words.iter().map(OsString::from).collect();
    if let Work::Study { path, out, quick } = &record.work {
        all.extend([path.into(), "--out".into(), out.into()]);
        if *quick {
            all.push("--quick".into());
        }
    } else if record.captured {
        all.extend(["--pcap".into(), "captures".into()]);
    }
    all
}
