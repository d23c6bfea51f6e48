//! The command line.

use crate::command::{
    bench, compare, demo, doctor, gateway, lab, list, manual, saratoga, sim, snoop, study, tcp,
    traffic,
};
use crate::deferred::Deferred;
use clap::{ArgAction, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  sudo bentpipe demo                                 what the gateway is worth, in five minutes
  sudo bentpipe gateway run --lan eth0 --sat eth1 --rate 10Mbit/s
  sudo bentpipe lab run scenarios/geo.toml --out results/geo
  bentpipe sim run scenarios/geo.toml
  bentpipe study run papers/sing-soh-2005            tables and figures of a paper
  sudo bentpipe bench gateway --json bench/gateway.json

Exit codes: 0 done; 1 a run failed; 2 wrong use or configuration, or something is missing here;
130 stopped by Ctrl-C after cleaning up. BENTPIPE_LOG=debug (or any filter of tracing) overrides -v.";

/// TCP over satellite links made fast, and the lab that proves it.
///
/// The gateway splits TCP between the ground and the satellite, transparently and in the kernel's
/// own data path. The lab runs scenarios of real Linux TCP over an emulated link. The demo shows
/// with the lab what the gateway is worth.
#[derive(Debug, Parser)]
#[command(
    name = "bentpipe",
    version,
    after_help = EXAMPLES,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    /// Say more on stderr: -v what happens, -vv details, -vvv everything
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Split TCP between two interfaces, or check a configuration
    #[command(subcommand)]
    Gateway(Deferred<gateway::Command>),
    /// Be the far end of gateways whose satellite leg is QUIC
    #[command(subcommand)]
    Proxy(Deferred<bentpipe_proxy::Command>),
    /// Run a scenario of real TCP over an emulated link
    #[command(subcommand)]
    Lab(Deferred<lab::Command>),
    /// Run a scenario in the simulator, in virtual time
    #[command(subcommand)]
    Sim(Deferred<sim::Command>),
    /// Hold the simulator's TCP against the kernel's on the same scenario
    Compare(Deferred<compare::Args>),
    /// Make the tables and figures of a paper, from a sweep of simulations
    #[command(subcommand)]
    Study(Deferred<study::Command>),
    /// Move files at line rate over a satellite, whatever the delay and the errors
    #[command(subcommand)]
    Saratoga(Deferred<saratoga::Command>),
    /// Move a stream by our own TCP, over an interface of its own, with whoever speaks TCP
    #[command(subcommand)]
    Tcp(Deferred<tcp::Command>),
    /// Help TCP connections that cross this machine's bridge: what the far link loses is sent again from here
    Snoop(Deferred<snoop::Args>),
    /// Say what the TCP connections of a capture did, as tcptrace does
    Trace(Deferred<bentpipe_trace_command::Args>),
    /// Pick, run, watch and compare scenarios on a page in the browser
    Web(Deferred<bentpipe_web::Args>),
    /// Make profiles of cross traffic, for scenarios to replay
    #[command(subcommand)]
    Traffic(Deferred<traffic::Command>),
    /// List what scenarios may name: variants of TCP, queues, channels, proxies
    List(Deferred<list::Args>),
    /// Measure against rivals on this machine
    #[command(subcommand)]
    Bench(Deferred<bench::Command>),
    /// Look what this machine offers the gateway, and what each lack costs
    Doctor(Deferred<doctor::Args>),
    /// Write man pages and shell completions, for packages
    #[command(hide = true)]
    Manual(Deferred<manual::Args>),
    /// Show what a satellite link does to TCP, and what the gateway gives back
    Demo(Deferred<demo::Args>),
}
