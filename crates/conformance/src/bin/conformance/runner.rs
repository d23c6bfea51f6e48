//! Runs the scripts of a folder, one process each, and tells what they came to.

use crate::settings::{self, Setting};
use crate::suite::{self, Counts, Expected, Outcome, Verdict};
use crate::syscall::Addresses;
use crate::{AS_EXPECTED, NOT_AS_EXPECTED, addresses};
use anyhow::{Context, Result, bail, ensure};
use bentpipe_os::netns::Netns;
use clap::Args;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// In real time; a script that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(120);

/// So often a script is judged against the kernel until it passes.
const KERNEL_ATTEMPTS: u32 = 5;

/// What `conformance run` takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Arguments {
    /// A folder of scripts (*.pkt), or one script
    scripts: PathBuf,
    /// Let this program judge: packetdrill, on the path or with its path
    #[arg(long, value_name = "PROGRAM", conflicts_with = "kernel")]
    packetdrill: Option<PathBuf>,
    /// The scripts that are expected to fail, each with the reason; by default `expected.txt` in the folder, for the kernel
    /// `expected-kernel.txt`, if there is one
    #[arg(long, value_name = "FILE")]
    expected: Option<PathBuf>,
    /// What each script came to as JSON; `-`: to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Scripts at a time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    #[command(flatten)]
    stack: crate::Stack,
}

/// Our object: built beside this program.
pub(crate) fn our_object() -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?;
    let folder = program.parent().context("where this program is")?;
    let name = "libbentpipe_conformance.so";
    // Cargo leaves what tests need in `deps`.
    let places = [folder.join(name), folder.join("deps").join(name)];
    let found = places.iter().find(|place| place.exists());
    found.cloned().with_context(|| {
        format!(
            "there is no {} : build it (`cargo build -p bentpipe-conformance`)",
            places[0].display()
        )
    })
}

/// What the object is told.
pub(crate) fn flags(addresses: &Addresses, settings: &[Setting]) -> String {
    let mut flags = format!("address={}", addresses.local);
    for Setting { key, value } in settings {
        flags.push_str(&format!(",{key}={value}"));
    }
    flags
}

pub(crate) fn run(arguments: &Arguments) -> Result<u8> {
    let folder = &arguments.scripts;
    let scripts = suite::find(folder)
        .with_context(|| format!("cannot read scripts from {}", folder.display()))?;
    ensure!(
        !scripts.is_empty(),
        "there is no script (*.pkt) in {}: name the folder that has them",
        folder.display()
    );
    let expected = expected(arguments)?;
    let object = match &arguments.stack.object {
        Some(object) => object.clone(),
        None if arguments.stack.kernel => PathBuf::new(),
        None => our_object()?,
    };
    let copy = Copy::new(folder)?;
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    let lock = || outcomes.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.clamp(1, 16) {
            scope.spawn(|| {
                while let Some(script) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = name(folder, script);
                    let outcome = one(arguments, &object, &copy, script, name, &expected);
                    lock().push(outcome);
                }
            });
        }
    });
    let mut outcomes: Vec<Outcome> = lock().drain(..).collect();
    outcomes.sort_by(|a, b| a.script.cmp(&b.script));
    report(arguments, &outcomes, &expected)
}

fn expected(arguments: &Arguments) -> Result<Expected> {
    let name = if arguments.stack.kernel {
        "expected-kernel.txt"
    } else {
        "expected.txt"
    };
    let beside = arguments.scripts.join(name);
    let file = match &arguments.expected {
        Some(file) => file,
        None if beside.exists() => &beside,
        None => return Ok(Expected::default()),
    };
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    match Expected::parse(&text) {
        Ok(expected) => Ok(expected),
        Err(why) => bail!("{}: {why}", file.display()),
    }
}

fn name(folder: &Path, script: &Path) -> String {
    let below = script
        .strip_prefix(folder)
        .ok()
        .filter(|path| !path.as_os_str().is_empty());
    let name = below
        .or(script.file_name().map(Path::new))
        .unwrap_or(script);
    name.display().to_string()
}

fn one(
    arguments: &Arguments,
    object: &Path,
    copy: &Copy,
    script: &Path,
    name: String,
    expected: &Expected,
) -> Outcome {
    let text = match fs::read_to_string(script) {
        Ok(text) => text,
        Err(why) => return Outcome::of(name, Err(format!("cannot read it: {why}")), expected),
    };
    if let Some(why) = suite::not_applicable(&text) {
        return Outcome::not_applicable(name, why);
    }
    let result = match &arguments.packetdrill {
        Some(program) => copy
            .write(script, &text)
            .and_then(|script| packetdrill(program, object, &script)),
        None => repeated(arguments, script),
    };
    Outcome::of(
        name,
        result.unwrap_or_else(|why| Err(format!("{why:#}"))),
        expected,
    )
}

/// Our judge; against the kernel, where other programs' load delays what scripts want at its time, a script that failed is
/// tried again.
fn repeated(arguments: &Arguments, script: &Path) -> Result<Result<(), String>> {
    let attempts = if arguments.stack.kernel {
        KERNEL_ATTEMPTS
    } else {
        1
    };
    let mut result = own(arguments, script)?;
    for _ in 1..attempts {
        if result.is_ok() {
            break;
        }
        result = own(arguments, script)?;
    }
    Ok(result)
}

/// Our judge, in a process of its own.
fn own(arguments: &Arguments, script: &Path) -> Result<Result<(), String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("judge").arg(script);
    command.args(["--tolerance", &arguments.stack.tolerance.to_string()]);
    if arguments.stack.kernel {
        command.arg("--kernel");
    }
    if let Some(object) = &arguments.stack.object {
        command.arg("--object").arg(object);
    }
    finish(command)
}

/// packetdrill with our object, in a network namespace of its own.
fn packetdrill(program: &Path, object: &Path, script: &Path) -> Result<Result<(), String>> {
    // A script that only packetdrill can read sets nothing.
    let parsed = crate::parser::parse(&fs::read_to_string(script)?);
    let settings = parsed.map_or_else(|_| Vec::new(), |script| settings::of(&script));
    let netns = Netns::create("drill")?;
    // The scripts' own set-up wants an interface of that name; the object's packets go past it.
    let _tun = netns.run(|| bentpipe_os::tun::Tun::open("tun0", Default::default()))??;
    let addresses = addresses(false);
    let mut command = netns.command(program);
    command
        .arg(format!("--so_filename={}", object.display()))
        .arg(format!("--so_flags={}", flags(&addresses, &settings)))
        .arg("--ip_version=ipv4")
        .arg(format!("--local_ip={}", addresses.local))
        .arg(format!("--remote_ip={}", addresses.remote))
        .arg("--netmask_ip=255.255.0.0")
        .arg(format!("--gateway_ip={}", addresses.local))
        .arg(script);
    if let Some(folder) = script.parent() {
        command.current_dir(folder);
    }
    finish(command)
}

/// Runs `command` to its end; what it says where it fails.
fn finish(mut command: Command) -> Result<Result<(), String>> {
    let output = tempfile::tempfile()?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?);
    let program = command.get_program().to_owned();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > LONGEST {
            child.kill()?;
            child.wait()?;
            return Ok(Err(format!(
                "it did not end within {} s",
                LONGEST.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(2));
    };
    if status.success() {
        return Ok(Ok(()));
    }
    let said = {
        use std::io::{Read, Seek};
        let (mut output, mut said) = (output, Vec::new());
        output.rewind()?;
        output.take(8_192).read_to_end(&mut said)?;
        String::from_utf8_lossy(&said).trim().to_owned()
    };
    Ok(Err(if said.is_empty() {
        status.to_string()
    } else {
        said
    }))
}

/// The scripts as packetdrill gets them: without blocks of code, and with what stands beside them.
struct Copy {
    from: PathBuf,
    folder: tempfile::TempDir,
}

impl Copy {
    fn new(from: &Path) -> Result<Self> {
        let from = if from.is_file() {
            from.parent().unwrap_or(Path::new("."))
        } else {
            from
        };
        let copy = Self {
            from: from.to_owned(),
            folder: tempfile::tempdir()?,
        };
        Ok(copy)
    }

    /// Writes `script` with all files beside it that are no scripts, and returns where it is.
    fn write(&self, script: &Path, text: &str) -> Result<PathBuf> {
        let below = script.strip_prefix(&self.from)?;
        let to = self.folder.path().join(below);
        let folder = to.parent().context("a script lies in a folder")?;
        fs::create_dir_all(folder)?;
        self.copy_helpers(&self.from, self.folder.path())?;
        fs::write(&to, suite::without_code(text))?;
        Ok(to)
    }

    fn copy_helpers(&self, from: &Path, to: &Path) -> Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let (path, to) = (entry.path(), to.join(entry.file_name()));
            if entry.file_type()?.is_dir() {
                fs::create_dir_all(&to)?;
                self.copy_helpers(&path, &to)?;
            } else if path.extension().is_none_or(|extension| extension != "pkt") && !to.exists() {
                fs::copy(&path, &to)?;
            }
        }
        Ok(())
    }
}

fn report(arguments: &Arguments, outcomes: &[Outcome], expected: &Expected) -> Result<u8> {
    let counts = Counts::of(outcomes);
    let strangers = expected.strangers(outcomes);
    let whole = arguments.scripts.is_dir();
    let mut out = std::io::stdout().lock();
    let to_stdout = arguments.json.as_deref() == Some(Path::new("-"));
    if !to_stdout {
        for outcome in outcomes {
            line(&mut out, outcome)?;
        }
        for stranger in strangers.iter().filter(|_| whole) {
            writeln!(
                out,
                "unknown      {stranger}: it is expected to fail, and there is no such script"
            )?;
        }
        writeln!(
            out,
            "{} passed, {} failed, {} failed as expected, {} passed unexpectedly, {} not applicable",
            counts.passed,
            counts.failed,
            counts.failed_as_expected,
            counts.passed_unexpectedly,
            counts.not_applicable
        )?;
    }
    if let Some(file) = &arguments.json {
        let judge = match &arguments.packetdrill {
            Some(program) => program.display().to_string(),
            None => "own".to_owned(),
        };
        let stack = if arguments.stack.kernel {
            "kernel"
        } else {
            "object"
        };
        let all = json!({ "judge": judge, "stack": stack, "counts": counts, "scripts": outcomes });
        let text = serde_json::to_string_pretty(&all)?;
        if to_stdout {
            writeln!(out, "{text}")?
        } else {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?
        }
    }
    let agrees = counts.agrees() && (strangers.is_empty() || !whole);
    Ok(if agrees { AS_EXPECTED } else { NOT_AS_EXPECTED })
}

fn line(out: &mut impl Write, outcome: &Outcome) -> Result<()> {
    let why = outcome.why.as_deref().unwrap_or_default();
    let reason = outcome.expected.as_deref().unwrap_or_default();
    match outcome.verdict {
        Verdict::Passed => writeln!(out, "passed       {}", outcome.script)?,
        Verdict::Failed => writeln!(out, "FAILED       {}: {why}", outcome.script)?,
        Verdict::FailedAsExpected => {
            writeln!(out, "as expected  {}: {why} ({reason})", outcome.script)?;
        }
        Verdict::PassedUnexpectedly => {
            writeln!(
                out,
                "PASSED       {}: it was expected to fail ({reason})",
                outcome.script
            )?;
        }
        Verdict::NotApplicable => writeln!(out, "not for us   {}: {why}", outcome.script)?,
    }
    Ok(())
}
