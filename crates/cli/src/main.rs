//! The bentpipe command: its subcommands, their arguments, and what they print.
//!
//! It leaves out all that a subcommand does beyond that, which is in the crates. Begin with `command.rs`.
#![forbid(unsafe_code)]

mod args;
mod command;
mod deferred;
mod failure;
mod lateness;
mod log;
mod stop;
mod terminal;

use args::{Args, Command};
use clap::Parser;
use deferred::Deferred;
use failure::{Blame, Failure};
use signal_hook::consts::SIGXFSZ;
use std::process::ExitCode;
use std::sync::Arc;

#[global_allocator]
static HEAP: bentpipe_process::Heap = bentpipe_process::Heap;

fn main() -> ExitCode {
    bentpipe_process::signals::forget_inherited();
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal::say(&failure.to_string());
            failure.code()
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let server = matches!(
        args.command,
        Command::Gateway(_) | Command::Proxy(_) | Command::Saratoga(_) | Command::Web(_)
    );
    // A file that has met a bound on its size then fails a write, where the signal would end the program. A
    // handler, not SIG_IGN: programs that this one starts would inherit that.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).or_usage()?;
    let _log = log::start(args.verbose, server).or_usage()?;
    match &args.command {
        Command::Gateway(Deferred(command)) => command::gateway::run(command),
        Command::Proxy(Deferred(command)) => {
            bentpipe_proxy::run(command, terminal::print).map_err(Failure::from)
        }
        Command::Lab(Deferred(command)) => command::lab::run(command),
        Command::Sim(Deferred(command)) => command::sim::run(command),
        Command::Compare(Deferred(args)) => command::compare::run(args),
        Command::Study(Deferred(command)) => command::study::run(command),
        Command::Saratoga(Deferred(command)) => command::saratoga::run(command),
        Command::Tcp(Deferred(command)) => command::tcp::run(command),
        Command::Snoop(Deferred(args)) => command::snoop::run(args),
        Command::Trace(Deferred(args)) => {
            bentpipe_trace_command::run(args, terminal::print, terminal::say).or_usage()
        }
        Command::Web(Deferred(args)) => bentpipe_web::run(args, terminal::print).or_usage(),
        Command::Traffic(Deferred(command)) => command::traffic::run(command),
        Command::List(Deferred(args)) => command::list::run(args),
        Command::Bench(Deferred(command)) => command::bench::run(command),
        Command::Doctor(Deferred(args)) => command::doctor::run(args),
        Command::Manual(Deferred(args)) => command::manual::run(args),
        Command::Demo(Deferred(args)) => command::demo::run(args),
    }
}
