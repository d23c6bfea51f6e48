//! A child process of the same binary: what it may use, what it says, how it is ended.

use anyhow::{Context, anyhow};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// How often what a run says is handed on.
const TICK: Duration = Duration::from_millis(100);
/// How long a run that was asked to stop may take to clean up.
const GRACE: Duration = Duration::from_secs(30);
/// The most that is kept of what a child says to stderr: its end.
const LAST_WORDS: usize = 4 << 10;
/// The largest file that a run may write.
const LARGEST_FILE: u64 = 4 << 30;

/// What a run may use.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// This very binary.
    pub(crate) program: PathBuf,
    /// Memory, in bytes.
    pub(crate) memory: u64,
    /// Time by the clock.
    pub(crate) longest: Duration,
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    /// Why.
    Failed(String),
    /// Somebody asked.
    Stopped,
}

/// Runs this binary with `args` in `folder`, and hands what it prints to `tell`, whole lines ten times a second, until it
/// ends, `stop` turns true, or its time is up.
pub(crate) async fn run(
    limits: &Limits,
    args: &[OsString],
    folder: &Path,
    mut stop: watch::Receiver<bool>,
    mut tell: impl FnMut(&str),
) -> Ended {
    let mut child = match spawn(limits, args, folder) {
        Ok(child) => child,
        Err(error) => return Ended::Failed(format!("{error:#}")),
    };
    let Some((stdout, stderr)) = child.stdout.take().zip(child.stderr.take()) else {
        return Ended::Failed("the run has no pipes".to_owned());
    };
    let words = tokio::spawn(last_words(stderr));
    let mut lines = BufReader::new(stdout).lines();
    let mut pending = String::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let deadline = Instant::now() + limits.longest;
    let mut asked = false;
    let mut late = false;
    let mut kill_at = None;
    loop {
        tokio::select! {
            line = lines.next_line() => match line {
                Ok(Some(line)) => {
                    pending.push_str(&line);
                    pending.push('\n');
                }
                // It ends, or said what is no text.
                _ => break,
            },
            _ = ticks.tick(), if !pending.is_empty() => {
                tell(&pending);
                pending.clear();
            }
            () = raised(&mut stop), if !asked => {
                asked = true;
                kill_at = Some(terminate(&child));
            }
            () = sleep_until(deadline), if !late => {
                late = true;
                kill_at = Some(terminate(&child));
            }
            () = until(kill_at) => {
                kill_at = None;
                // It is waited for below.
                let _ = child.start_kill();
            }
        }
    }
    if !pending.is_empty() {
        tell(&pending);
    }
    let status = wait(&mut child).await;
    let words = words.await.unwrap_or_default();
    match status {
        _ if asked => Ended::Stopped,
        _ if late => Ended::Failed(format!(
            "it took longer than {} minutes, which is what `bentpipe web --longest` allows",
            limits.longest.as_secs() / 60
        )),
        Ok(status) => judged(status, &words, limits),
        Err(error) => Ended::Failed(format!("cannot wait for the run: {error}")),
    }
}

/// What this binary prints with `args`, within `time`.
///
/// # Errors
/// What it said where it failed.
pub(crate) async fn output(
    limits: &Limits,
    args: &[OsString],
    folder: &Path,
    time: Duration,
) -> Result<String, String> {
    let mut child = spawn(limits, args, folder).map_err(|error| format!("{error:#}"))?;
    let Some((stdout, stderr)) = child.stdout.take().zip(child.stderr.take()) else {
        return Err("the program has no pipes".to_owned());
    };
    let words = tokio::spawn(last_words(stderr));
    let mut text = String::new();
    // A child that is dropped is killed.
    let read = timeout(time, async {
        let _ = BufReader::new(stdout)
            .take(16 << 20)
            .read_to_string(&mut text)
            .await;
        child.wait().await
    });
    let status = read
        .await
        .map_err(|_| format!("it took longer than {} s", time.as_secs()))?;
    let status = status.map_err(|error| error.to_string())?;
    match judged(status, &words.await.unwrap_or_default(), limits) {
        Ended::Done => Ok(text),
        Ended::Failed(why) => Err(why),
        Ended::Stopped => Err("it was stopped".to_owned()),
    }
}

fn spawn(limits: &Limits, args: &[OsString], folder: &Path) -> anyhow::Result<Child> {
    let child = Command::new(&limits.program)
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at a terminal is for the server, which stops its runs itself.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start `{}`", limits.program.display()))?;
    bound(&child, limits)?;
    Ok(child)
}

/// Sets what the child may use. It may have begun: what it had until then is far below.
fn bound(child: &Child, limits: &Limits) -> anyhow::Result<()> {
    let pid = pid(child).ok_or_else(|| anyhow!("the run ended at once"))?;
    for (resource, most) in [
        (Resource::As, limits.memory),
        (Resource::Fsize, LARGEST_FILE),
        (Resource::Core, 0),
    ] {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        prlimit(Some(pid), resource, limit).context("cannot bound what the run may use")?;
    }
    Ok(())
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id()?.cast_signed())
}

/// Asks the child to end; returns when it is to be killed.
fn terminate(child: &Child) -> Instant {
    if let Some(pid) = pid(child) {
        // One that has ended is waited for.
        let _ = kill_process(pid, Signal::TERM);
    }
    Instant::now() + GRACE
}

/// Waits for the child, whose stdout is closed; kills it where that takes long.
async fn wait(child: &mut Child) -> std::io::Result<ExitStatus> {
    match timeout(GRACE, child.wait()).await {
        Ok(status) => status,
        Err(_) => {
            child.start_kill()?;
            child.wait().await
        }
    }
}

async fn raised(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The end of what is said.
async fn last_words(mut from: impl AsyncRead + Unpin) -> String {
    let mut words = Vec::new();
    let mut piece = [0; 1024];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        words.extend_from_slice(&piece[..length]);
        let surplus = words.len().saturating_sub(LAST_WORDS);
        words.drain(..surplus);
    }
    String::from_utf8_lossy(&words).trim().to_owned()
}

fn judged(status: ExitStatus, words: &str, limits: &Limits) -> Ended {
    use std::os::unix::process::ExitStatusExt as _;
    if status.success() {
        return Ended::Done;
    }
    let errors: Vec<&str> = { words.lines() }
        .filter_map(|line| line.strip_prefix("error: "))
        .collect();
    Ended::Failed(match (status.signal(), errors.as_slice()) {
        // What Rust does where memory is refused.
        (Some(signal), _) if words.contains("memory allocation") || signal == 6 => format!(
            "it wanted more than the {} MB of memory that `bentpipe web --memory` allows a run",
            limits.memory / 1_000_000
        ),
        (Some(signal), _) => format!("it was ended by signal {signal}"),
        (None, []) if words.is_empty() => format!("it ended with {status}"),
        (None, []) => words.to_owned(),
        (None, errors) => errors.join("\n"),
    })
}
