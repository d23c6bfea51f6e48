//! What a person reads: lines on stdout and stderr that do not tear a progress bar.

use indicatif::ProgressBar;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// The bar to step aside for a line, if there is one.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// From now on lines step around `bar`.
pub(crate) fn attach(bar: &ProgressBar) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
}

fn around_bar<R>(write: impl FnOnce() -> R) -> R {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) if !bar.is_finished() => bar.suspend(write),
        _ => write(),
    }
}

/// Writes `line` and a newline to stderr.
pub(crate) fn say(line: &str) {
    // Nobody is left to tell when stderr is gone.
    let _ = around_bar(|| writeln!(io::stderr(), "{line}"));
}

/// Writes `text` and a newline to stdout, where results go.
///
/// # Errors
/// When stdout cannot be written; a reader that closed its pipe early is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let written = around_bar(|| {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush())
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Stderr for the log.
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        around_bar(|| io::stderr().write_all(buffer)).map(|()| buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// `text` in lines of at most `width` characters where words allow.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let longer = line.chars().count() + 1 + word.chars().count() > width;
            if longer && !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join("\n")
}
