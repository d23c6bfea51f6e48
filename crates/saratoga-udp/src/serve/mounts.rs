//! File systems that are mounted below the served directory, and whether they answer.
//!
//! One thread opens files for all sessions. Before it does so where another file system is mounted, a thread of that file
//! system's own asks whether it answers: what wants a file there waits for that beside the others, and is refused where the
//! answer does not come. The list of mounts is the kernel's, and asks none of them.

use crate::Error;
use crate::endpoint::Key;
use crate::seal::Seal;
use crate::session::PeerValidation;
use bentpipe_base::Instant;
use bentpipe_saratoga_files::{Task, Tree, path, spawn};
use bentpipe_wire::saratoga::Request;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;

/// How long an answer counts, and the list of mounts.
const FRESH: Duration = Duration::from_secs(3);
/// How long a file system may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that wait for answers at most.
const MOST_WAITING: usize = 64;

/// What may be done where a file system is mounted.
pub(super) enum Verdict {
    Go,
    Wait,
    Refuse(Error),
}

/// A REQUEST that waits.
pub(super) struct Waiting {
    pub(super) request: Request,
    pub(super) key: Key,
    pub(super) seal: Option<Seal>,
    pub(super) validation: PeerValidation,
}

/// Asks one file system.
struct Probe {
    /// None: it has answered then.
    task: Option<Task<()>>,
    at: Instant,
}

/// See the file's head.
pub(super) struct Mounts {
    tree: Tree,
    /// Paths from the served directory on.
    below: Vec<String>,
    read_at: Option<Instant>,
    probes: BTreeMap<String, Probe>,
    waiting: Vec<Waiting>,
}

impl Mounts {
    pub(super) fn below(tree: &Tree) -> Self {
        Self {
            tree: tree.clone(),
            below: Vec::new(),
            read_at: None,
            probes: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    /// Whether what is at `path` may be opened.
    pub(super) fn verdict(&mut self, path: &str, now: Instant) -> Verdict {
        if self.read_at.is_none_or(|at| now.since(at) >= FRESH) {
            self.read_at = Some(now);
            self.below = self.tree.mounts_below();
            let below = &self.below;
            let known = |at: &String, probe: &mut Probe| below.contains(at) || probe.task.is_some();
            self.probes.retain(known);
        }
        let Ok(path) = path::normal(path) else {
            // It is refused.
            return Verdict::Go;
        };
        let holds = |at: &&String| {
            let rest = path.strip_prefix(at.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let Some(at) = self.below.iter().filter(holds).max_by_key(|at| at.len()) else {
            return Verdict::Go;
        };
        if let Some(probe) = self.probes.get_mut(at) {
            if probe.task.as_ref().is_some_and(|task| !is_pending(task)) {
                probe.task = None;
                probe.at = now;
            }
            let since = now.since(probe.at);
            match &probe.task {
                None if since < FRESH => return Verdict::Go,
                None => {}
                Some(_) if since < PATIENCE => return Verdict::Wait,
                Some(_) => return Verdict::Refuse(silent(at)),
            }
        }
        let (tree, asked) = (self.tree.clone(), at.clone());
        match spawn("mount", move |_: &_| tree.ask(&asked)) {
            Ok(task) => {
                let task = Some(task);
                self.probes.insert(at.clone(), Probe { task, at: now });
                Verdict::Wait
            }
            Err(error) => Verdict::Refuse(Error::file("open", at.as_str())(error)),
        }
    }

    /// Has `waiting` wait; an error where too many do.
    pub(super) fn wait(&mut self, waiting: Waiting) -> Result<(), Error> {
        let same = |other: &Waiting| other.key == waiting.key;
        if let Some(other) = self.waiting.iter_mut().find(|other| same(other)) {
            *other = waiting;
        } else if self.waiting.len() < MOST_WAITING {
            self.waiting.push(waiting);
        } else {
            return Err(silent(&waiting.request.path));
        }
        Ok(())
    }

    /// All that wait: those that go on waiting come back by [`Self::wait`].
    pub(super) fn take_waiting(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Whether something waits.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }
}

fn is_pending(task: &Task<()>) -> bool {
    task.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty)
}

fn silent(path: &str) -> Error {
    let why =
        "the file system there does not answer: see to it (its server, its program, its disk)";
    Error::file("open", path)(io::Error::new(io::ErrorKind::TimedOut, why))
}
