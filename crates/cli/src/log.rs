//! The log: to stderr, as loud as asked for.

use crate::terminal;
use anyhow::{Context, anyhow};
use std::io::IsTerminal;
use std::{env, fmt, panic};
use tracing::field::Field;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// The variable that overrides `-v`, in the directives of tracing's `EnvFilter`.
pub(crate) const VARIABLE: &str = "BENTPIPE_LOG";

/// Lines that may wait for their thread.
const WAITING: usize = 4096;

/// Starts the log: warnings, and with each `-v` more; `BENTPIPE_LOG` has the last word. The lines of
/// a `server` are written by a thread of their own: whoever logs never waits for a terminal, pipe or
/// disk; lines beyond those that may wait are lost. Dropping the value writes those that wait, for a
/// second at the most.
///
/// # Errors
/// When `BENTPIPE_LOG` is not understood, and when a server cannot have that thread.
pub(crate) fn start(verbose: u8, server: bool) -> anyhow::Result<Option<WorkerGuard>> {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let directives = env::var(VARIABLE).unwrap_or_else(|_| level.to_owned());
    let filter = EnvFilter::builder()
        .parse(&directives)
        .with_context(|| format!("{VARIABLE}={directives:?} is no filter: try `debug`"))?;
    let (writer, guard) = if server {
        let builder = NonBlockingBuilder::default().buffered_lines_limit(WAITING);
        // It panics where it cannot have its thread. A thread tried before would have the place that one is to have.
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| ()));
        let made = panic::catch_unwind(|| builder.finish(terminal::Log));
        panic::set_hook(hook);
        let (writer, guard) = made.map_err(|_| {
            anyhow!("cannot start a thread for the log (`ulimit -u`, LimitNPROC, TasksMax)")
        })?;
        (BoxMakeWriter::new(writer), Some(guard))
    } else {
        (BoxMakeWriter::new(|| terminal::Log), None)
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(verbose > 1)
        .fmt_fields(debug_fn(write_field).delimited(" "))
        .init();
    Ok(guard)
}

/// Writes one field of an event. Names of files and words of peers are in them: nothing in one moves the
/// cursor, and none begins a line of its own.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = terminal::one_line(&format!("{value:?}"));
    match field.name() {
        "message" => write!(writer, "{value}"),
        name => write!(writer, "{name}={value}"),
    }
}
