//! `bentpipe web`: the testbed in a browser. A researcher picks a scenario, runs it, watches and compares.
//!
//! The server runs nothing itself: each run, study and order to a gateway is a child process of the same binary
//! (`bentpipe sim run`, `lab run`, `study run`, `trace`, `gateway`), so that a scenario without end is stopped, and one
//! that wants all memory is refused it, without the server (`child_process`). What it knows is in the result folders alone
//! (`run_store`). Whoever asks must have the token that is printed at the start, by a browser that was given this address
//! (`authorization`). The pages are in `web/testbed`, built into the binary (`assets`).
//!
//! Begin with [`run`], then `api.rs`.
#![forbid(unsafe_code)]

mod api;
mod assets;
mod authorization;
mod child_process;
mod connection_slots;
mod gateway_commands;
pub mod live;
mod response;
mod run_events;
mod run_queue;
mod run_record;
mod run_store;
mod scenario_form;
mod scenario_library;
mod server;
mod studies;

use anyhow::{Context, bail};
use clap::builder::RangedU64ValueParser;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  bentpipe web                                   then open the address that it prints
  sudo bentpipe web --results results            the lab too, which needs root
  bentpipe web --listen 192.0.2.1:8080           for others; no TLS: put a proxy that has it before it

Runs are folders in --results, as `lab run --out` writes them; nothing is kept elsewhere. docs/web.md";

/// Options of `web`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// A name that browsers may know this server by, beside its address; may be given again
    #[arg(long, value_name = "HOST")]
    name: Vec<String>,
    /// Folder of the result folders
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Folder of papers, whose studies can be run
    #[arg(long, value_name = "DIR", default_value = "papers")]
    papers: PathBuf,
    /// What `make advisor` made, to be served at /advisor/ [default: ../share/bentpipe/advisor from this program's
    /// folder, as packages have it, or ../advisor, as a build has it]
    #[arg(long, value_name = "DIR")]
    advisor: Option<PathBuf>,
    /// Control socket of a gateway on this machine
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/bentpipe/gateway.sock"
    )]
    control: PathBuf,
    /// Simulations that run at a time [default: the processors]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=256))]
    jobs: Option<usize>,
    /// Lab runs that run at a time; more than one may make each other's emulators late
    #[arg(long, value_name = "N", default_value = "1", value_parser = RangedU64ValueParser::<usize>::new().range(1..=64))]
    lab_jobs: usize,
    /// Memory that a run may have, in MB
    #[arg(long, value_name = "MB", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(64..))]
    memory: u64,
    /// Time that a run may take by the clock, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    longest: u64,
}

/// Serves until SIGINT or SIGTERM; prints the address with the token by `print`.
///
/// # Errors
/// When it cannot listen, or the folder of the results cannot be made.
pub fn run(args: &Args, print: impl Fn(&str) -> io::Result<()>) -> anyhow::Result<()> {
    std::fs::create_dir_all(&args.results)
        .with_context(|| format!("cannot make the folder `{}`", args.results.display()))?;
    if let Some(advisor) = &args.advisor
        && !advisor.join("index.html").is_file()
    {
        let advisor = advisor.display();
        bail!(
            "there is no `{advisor}/index.html`: give --advisor the folder that `make advisor` makes"
        );
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the server")?;
    runtime.block_on(server::serve(args, print))
}
