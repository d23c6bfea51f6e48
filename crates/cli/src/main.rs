//! The bentpipe command.
#![forbid(unsafe_code)]

mod args;
mod command;
mod demo;
mod failure;
mod log;
mod notify;
mod report;
mod stop;
mod terminal;

use args::{Args, Command};
use clap::Parser;
use failure::{Blame, Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            terminal::say(&failure.to_string());
            failure.code()
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let _log = log::start(args.verbose).or_usage()?;
    match &args.command {
        Command::Gateway(command) => command::gateway::run(command),
        Command::Lab(command) => command::lab::run(command),
        Command::Sim(command) => command::sim::run(command),
        Command::Compare(args) => command::compare::run(args),
        Command::Study(command) => command::study::run(command),
        Command::Saratoga(command) => command::saratoga::run(command),
        Command::Traffic(command) => command::traffic::run(command),
        Command::List(args) => command::list::run(args),
        Command::Bench(command) => command::bench::run(command),
        Command::Doctor(args) => command::doctor::run(args),
        Command::Manual(args) => command::manual::run(args),
        Command::Demo(args) => demo::run(args),
    }
}
