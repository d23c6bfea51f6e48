//! `--live`: how a run stands while it goes on, a line of JSON a look.

use crate::failure::{Blame, Failure};
use anyhow::{Context, anyhow};
use bentpipe_outcome::{Look, Outline};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Where the lines go.
pub(super) struct Live {
    out: Box<dyn Write + Send>,
    path: PathBuf,
    /// Why no more lines can be written.
    broken: Option<io::Error>,
}

/// Whether the lines go to stdout, which then has nothing else; refused where `json` wants it too.
pub(super) fn has_stdout(live: Option<&Path>, json: Option<&Path>) -> Result<bool, Failure> {
    let stdout = Path::new("-");
    if live == Some(stdout) && json == Some(stdout) {
        let both = anyhow!("--live and --json both want stdout: name a file for one of them");
        return Err(Failure::Usage(both));
    }
    Ok(live == Some(stdout))
}

impl Live {
    /// Writes the first line to the file at `path`, or for `-` to stdout.
    pub(super) fn open(path: &Path, outline: &Outline) -> anyhow::Result<Self> {
        let out: Box<dyn Write + Send> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("cannot write `{}`", path.display()))?)
        };
        let mut live = Self {
            out,
            path: path.to_owned(),
            broken: None,
        };
        live.line(outline);
        Ok(live)
    }

    /// Writes a line; breaks off where it cannot be written: who wanted to watch is gone.
    pub(super) fn look(&mut self, look: &Look) -> ControlFlow<()> {
        self.line(look);
        match self.broken {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    }

    fn line(&mut self, value: &impl Serialize) {
        if self.broken.is_some() {
            return;
        }
        let mut write = || {
            let mut line = serde_json::to_vec(value)?;
            line.push(b'\n');
            self.out.write_all(&line)?;
            self.out.flush()
        };
        self.broken = write().err();
    }

    /// That all lines were written.
    pub(super) fn whole(&mut self) -> Result<(), Failure> {
        let broken = self.broken.take().map_or(Ok(()), Err);
        let path = self.path.display();
        broken
            .with_context(|| format!("the run was ended: cannot write to `{path}` how it stands"))
            .or_run()
    }
}
