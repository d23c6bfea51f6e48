//! `conformance`: runs packetdrill scripts against our TCP behind packetdrill's interface, or against the kernel's.
//!
//! `conformance run FOLDER` starts one process a script: the real packetdrill with our object (`--packetdrill`), or this
//! program's own judge, `conformance judge SCRIPT`. docs/conformance.md tells how to read what it prints.

mod connection;
mod judge;
mod kernel;
mod object;
mod packet;
mod parser;
mod runner;
mod script;
mod settings;
mod suite;
mod symbols;
mod syscall;

use anyhow::{Context, Result};
use bentpipe_os::netns::Netns;
use clap::{Args, Parser, Subcommand};
use core::net::IpAddr;
use judge::Tolerance;
use object::Object;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use syscall::Addresses;

/// All scripts went as expected.
const AS_EXPECTED: u8 = 0;
/// A script did not.
const NOT_AS_EXPECTED: u8 = 1;
/// Wrong use, or something that the machine lacks.
const CANNOT_RUN: u8 = 2;

/// Judges TCP by packetdrill scripts.
#[derive(Debug, Parser)]
#[command(name = "conformance", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the scripts of a folder, each in a process of its own
    Run(runner::Arguments),
    /// Runs one script by our own judge
    Judge {
        /// The script
        script: PathBuf,
        #[command(flatten)]
        stack: Stack,
    },
}

/// The stack under test, for our own judge.
#[derive(Clone, Debug, Args)]
struct Stack {
    /// The object that is judged; ours by default
    #[arg(long, value_name = "FILE", conflicts_with = "kernel")]
    object: Option<PathBuf>,
    /// Judge the kernel in its place, in a network namespace and in real time (root)
    #[arg(long)]
    kernel: bool,
    /// How far times may be off, beside an eighth of the span since the event before, in microseconds
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 4_000)]
    tolerance: i64,
}

/// Addresses of documentation (RFC 5737, RFC 3849) for the peer.
fn addresses(ipv6: bool) -> Addresses {
    if ipv6 {
        Addresses {
            local: IpAddr::from([0xfd00, 0x64, 0, 0, 0, 0, 0, 1]),
            remote: IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
        }
    } else {
        Addresses {
            local: IpAddr::from([192, 168, 0, 1]),
            remote: IpAddr::from([192, 0, 2, 1]),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let code = match arguments.command {
        Command::Run(arguments) => runner::run(&arguments),
        Command::Judge { script, stack } => Ok(match judge_one(&script, &stack) {
            Ok(()) => AS_EXPECTED,
            Err(why) => {
                say(&format!("{}: {why:#}", script.display()));
                NOT_AS_EXPECTED
            }
        }),
    };
    ExitCode::from(code.unwrap_or_else(|why| {
        say(&format!("error: {why:#}"));
        CANNOT_RUN
    }))
}

fn say(line: &str) {
    // Who does not listen to standard error misses nothing else.
    let _gone = writeln!(std::io::stderr(), "{line}");
}

fn judge_one(script: &Path, stack: &Stack) -> Result<()> {
    let text = std::fs::read_to_string(script).context("cannot read it")?;
    let script = parser::parse(&text)?;
    let ipv6 = script
        .options
        .iter()
        .any(|(name, value)| name == "ip_version" && value == "ipv6");
    let addresses = addresses(ipv6);
    let settings = settings::of(&script);
    let tolerance = Tolerance {
        micros: stack.tolerance,
        ..Tolerance::default()
    };
    if stack.kernel {
        let netns = Netns::create("drill")?;
        return netns.run(|| {
            let object = Object::of_table(kernel::table(&addresses, &settings)?)?;
            judge::run(&script, object, addresses, tolerance)
        })?;
    }
    let file = match &stack.object {
        Some(file) => file.clone(),
        None => runner::our_object()?,
    };
    let object = Object::load(&file, &runner::flags(&addresses, &settings))?;
    judge::run(&script, object, addresses, tolerance)
}
