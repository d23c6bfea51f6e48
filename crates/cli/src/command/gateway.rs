//! `bentpipe gateway`: the split-TCP gateway.

use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::anyhow;
use bentpipe_base::Rate;
use bentpipe_gateway::{Config, ConfigError, Ending, Gateway, Leg, Shutdown};
use clap::Subcommand;
use std::path::{Path, PathBuf};

/// What to do with the gateway.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Split TCP between two interfaces until SIGTERM
    #[command(after_help = "\
Examples:
  sudo bentpipe gateway run --lan eth0 --sat eth1 --rate 10Mbit/s
  sudo bentpipe gateway run --config /etc/bentpipe/gateway.toml

Prints `ready` on stdout once new connections are split. SIGTERM or Ctrl-C stops splitting new
connections, waits for the open ones as long as `drain` says, and ends with 0; a second one ends at
once. Connections pass end to end when the gateway is gone.")]
    Run(Run),
    /// Check a configuration file without touching the system
    #[command(after_help = "\
Examples:
  bentpipe gateway check /etc/bentpipe/gateway.toml")]
    Check {
        /// The configuration, a TOML file
        file: PathBuf,
    },
}

/// Options of `gateway run`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Run {
    /// The interface towards the ground; overrides `interface` of the lan leg
    #[arg(long, value_name = "IF")]
    lan: Option<String>,
    /// The interface towards the satellite; overrides `interface` of the sat leg
    #[arg(long, value_name = "IF")]
    sat: Option<String>,
    /// The configuration, a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What the satellite link carries towards the terminals, such as 10Mbit/s, without a
    /// configuration file: chooses the paced control bentpipe_rate
    #[arg(long, value_name = "RATE", conflicts_with = "config")]
    rate: Option<Rate>,
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => split(args),
        Command::Check { file } => check(file),
    }
}

fn load(file: &Path) -> Result<Config, Failure> {
    Config::load(file).map_err(|error| match error {
        ConfigError::Wrong(problems) => Failure::Mistakes(problems),
        error @ ConfigError::Unreadable { .. } => Failure::Usage(error.into()),
    })
}

fn check(file: &Path) -> Result<(), Failure> {
    load(file)?;
    terminal::print(&format!("{}: right", file.display())).or_run()
}

fn split(args: &Run) -> Result<(), Failure> {
    let config = config(args)?;
    let shutdown = Shutdown::on_signals().or_usage()?;
    let gateway = Gateway::start(&config).or_usage()?;
    terminal::print("ready").or_run()?;
    match gateway.run_until(&shutdown).or_run()? {
        Ending::Drained => {}
        Ending::Cut(flows) => tracing::warn!(flows, "open flows were reset"),
    }
    Ok(())
}

fn config(args: &Run) -> Result<Config, Failure> {
    let mut config = match &args.config {
        Some(file) => load(file)?,
        None => Config {
            sat: Leg::satellite(args.rate),
            ..Config::default()
        },
    };
    for (interface, given) in [
        (&mut config.lan_interface, &args.lan),
        (&mut config.sat_interface, &args.sat),
    ] {
        if given.is_some() {
            interface.clone_from(given);
        }
    }
    match (&config.lan_interface, &config.sat_interface) {
        (Some(lan), Some(sat)) if lan == sat => Err(Failure::Usage(anyhow!(
            "--lan and --sat are both `{lan}`: a split needs two interfaces"
        ))),
        _ => Ok(config),
    }
}
