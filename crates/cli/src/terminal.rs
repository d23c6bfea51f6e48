//! Output for people: writes lines to stdout and stderr without tearing a progress bar.

use indicatif::ProgressBar;
use rustix::fs::{OFlags, fcntl_getfl, fstat, makedev};
use std::io::{self, Write};
use std::os::fd::AsFd;
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

/// Writes `line` and a newline to stderr. Names of files and words of peers are in it: whatever could move the
/// cursor or rename the terminal is written as an escape.
pub(crate) fn say(line: &str) {
    let line = harmless(line);
    // Nobody is left to tell when stderr is gone.
    let _ = around_bar(|| writeln!(io::stderr(), "{line}"));
}

/// `text` with all control characters escaped but the ends of lines and tabs; also what turns the direction of
/// writing, so that a name cannot look like another.
fn harmless(text: &str) -> String {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

/// As [`harmless`], with the ends of lines escaped too.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, |character| character == '\t')
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match character {
            white if stays(white) => out.push(white),
            control if control.is_control() || turns => out.extend(control.escape_default()),
            other => out.push(other),
        }
    }
    out
}

/// Writes `text` and a newline to stdout, where results go.
///
/// # Errors
/// When stdout cannot be written; a reader that closed its pipe early is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    show(text).map(drop)
}

/// As [`print()`]; says whether anybody reads.
///
/// # Errors
/// As [`print()`].
pub(crate) fn show(text: &str) -> io::Result<bool> {
    let written = around_bar(|| {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush())
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => written.map(|()| true),
    }
}

/// Whether `stream`, stdin or stdout, was closed when the program began, or is not open for what is `wanted` of it, reading or
/// writing. Rust opens /dev/null in place of the first, to be read and written, as no shell's redirection does, and takes the error
/// of the second for the end or for success.
pub(crate) fn is_closed(stream: impl AsFd, wanted: OFlags) -> bool {
    let null = fstat(&stream).is_ok_and(|stat| stat.st_rdev == makedev(1, 3));
    let access = fcntl_getfl(&stream).map(|flags| flags & OFlags::RWMODE);
    !access.is_ok_and(|access| access == wanted || access == OFlags::RDWR && !null)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_drive_the_terminal() {
        let name = "a\x1b]0;owned\x07\u{9b}2J\u{202e}gpj.exe\r b\n\tc";
        let said = harmless(name);
        assert_eq!(
            said,
            "a\\u{1b}]0;owned\\u{7}\\u{9b}2J\\u{202e}gpj.exe\\r b\n\tc"
        );
        assert_eq!(harmless("Grüße, 世界"), "Grüße, 世界");
        assert_eq!(
            one_line("a\n2026 WARN b\u{1b}[2J"),
            "a\\n2026 WARN b\\u{1b}[2J"
        );
    }
}
