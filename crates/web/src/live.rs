//! `--live` of `sim run` and `lab run`: how a run stands while it goes on, a line of JSON a look, for who watches it.

use anyhow::{Context, bail};
use bentpipe_outcome::{Look, Outline};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Where the lines go.
pub struct Live {
    out: Box<dyn Write + Send>,
    path: PathBuf,
    /// Why no more lines can be written.
    broken: Option<io::Error>,
}

/// Whether the lines go to stdout, which then has nothing else.
///
/// # Errors
/// Where `json` wants it too.
pub fn has_stdout(live: Option<&Path>, json: Option<&Path>) -> anyhow::Result<bool> {
    let stdout = Path::new("-");
    if live == Some(stdout) && json == Some(stdout) {
        bail!("--live and --json both want stdout: name a file for one of them");
    }
    Ok(live == Some(stdout))
}

impl Live {
    /// Writes the first line to the file at `path`, or for `-` to stdout.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn open(path: &Path, outline: &Outline) -> anyhow::Result<Self> {
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
    pub fn look(&mut self, look: &Look) -> ControlFlow<()> {
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
    ///
    /// # Errors
    /// Why one could not be.
    pub fn whole(&mut self) -> anyhow::Result<()> {
        let broken = self.broken.take().map_or(Ok(()), Err);
        let path = self.path.display();
        broken.with_context(|| format!("the run was ended: cannot write to `{path}` how it stands"))
    }
}
