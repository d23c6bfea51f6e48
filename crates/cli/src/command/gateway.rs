//! `bentpipe gateway`: the split-TCP gateway.

mod service;
mod status;
mod status_lines;

use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::anyhow;
use bentpipe_base::Rate;
use bentpipe_gateway::protocol::{self, Request};
use bentpipe_gateway::{
    Config, ConfigError, ConfigSource, ControlSocket, Ending, Gateway, Leg, Manager, Shutdown,
};
use bentpipe_process::notify;
use clap::{Subcommand, ValueEnum};
use service::{Service, keep_signals};
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
once. SIGHUP reads the configuration again, SIGUSR2 starts the program anew in its own place.
Connections pass end to end when the gateway is gone.")]
    Run(Run),
    /// Show how a running gateway stands, and its busiest flows
    #[command(after_help = "\
Examples:
  bentpipe gateway status
  bentpipe gateway status --watch
  bentpipe gateway status --json")]
    Status(status::Args),
    /// Let new connections pass end to end, or split them again
    #[command(after_help = "\
Examples:
  sudo bentpipe gateway bypass on
  sudo bentpipe gateway bypass off

Connections that are split already stay so until they end.")]
    Bypass {
        /// Whether new connections pass end to end
        to: Switch,
        #[command(flatten)]
        at: At,
    },
    /// Tell the gateway whether the link of a leg with carrier "scps" is up, for modems that know
    Link {
        /// Down: connections wait, and send nothing but probes; up: they go on at once
        #[arg(value_parser = ["down", "up"])]
        is: String,
        /// The leg: sat, or the NAME of a [leg.NAME]
        leg: String,
        #[command(flatten)]
        at: At,
    },
    /// Have a running gateway read its configuration again
    #[command(after_help = "\
Examples:
  sudo bentpipe gateway reload

Policies, legs and limits change for new connections; those that stand stay as they are. A mistake
in the configuration changes nothing, and is told here and in the gateway's log.")]
    Reload {
        #[command(flatten)]
        at: At,
    },
    /// Remove the rules, routes and ended connections that a killed gateway left
    Sweep,
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
#[derive(Clone, Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Run {
    /// The interface towards the ground; more than once where there are several; overrides
    /// `interface` of the lan leg
    #[arg(long, value_name = "IF")]
    lan: Vec<String>,
    /// The interface towards the satellite, likewise; overrides `interface` of the sat leg
    #[arg(long, value_name = "IF")]
    sat: Vec<String>,
    /// The configuration, a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What the satellite link carries towards the terminals, such as 10Mbit/s, without a
    /// configuration file: chooses the paced control bentpipe_rate
    #[arg(long, value_name = "RATE", conflicts_with = "config")]
    rate: Option<Rate>,
    /// Take the place of the gateway that runs here: it splits no more new connections and ends with
    /// its last one. CONTROL is its control socket, where that is not the one of the configuration
    #[arg(long, value_name = "CONTROL", num_args = 0..=1, require_equals = true)]
    replace: Option<Option<PathBuf>>,
}

/// Which gateway.
#[derive(Debug, clap::Args)]
pub(crate) struct At {
    /// Its control socket, as `control` in its configuration
    #[arg(long, value_name = "PATH", default_value = ControlSocket::DEFAULT)]
    control: PathBuf,
    /// Its configuration, a TOML file, which says where its control socket is
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// New connections pass end to end
    On,
    /// New connections are split
    Off,
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => split(args),
        Command::Status(args) => status::run(args),
        Command::Bypass { to, at } => order(
            at,
            &Request::Bypass {
                on: *to == Switch::On,
            },
        ),
        Command::Link { is, leg, at } => order(at, &Request::link(leg, is == "up")),
        Command::Reload { at } => order(at, &Request::Reload),
        Command::Sweep => sweep_up(),
        Command::Check { file } => check(file),
    }
}

fn load(file: &Path) -> Result<Config, Failure> {
    bentpipe_gateway::load(file).map_err(|error| match error {
        ConfigError::Wrong(problems) => Failure::Mistakes(problems),
        error @ ConfigError::Unreadable { .. } => Failure::Usage(error.into()),
    })
}

fn check(file: &Path) -> Result<(), Failure> {
    let config = load(file)?;
    for warning in config.warnings() {
        terminal::print(&format!("{}: warning: {warning}", file.display())).or_run()?;
    }
    for (interfaces, leg) in [
        (&config.lan_interfaces, "lan"),
        (&config.sat_interfaces, "sat"),
    ] {
        if interfaces.is_empty() {
            terminal::print(&format!(
                "{}: warning: [{leg}] has no `interface`: `gateway run` needs --{leg} beside it",
                file.display()
            ))
            .or_run()?;
        }
    }
    terminal::print(&format!("{}: right", file.display())).or_run()
}

fn sweep_up() -> Result<(), Failure> {
    let report = bentpipe_os::sweep::sweep();
    if !report.is_empty() {
        terminal::print(report.to_string().trim_end()).or_run()?;
    }
    match report.failures.first() {
        Some(failure) => Err(Failure::Run(anyhow!(
            "not everything could be removed: {failure}"
        ))),
        None => Ok(()),
    }
}

fn order(at: &At, request: &Request) -> Result<(), Failure> {
    protocol::ask_by(&at.control, at.config.as_deref(), request).or_run()?;
    terminal::print("done").or_run()
}

fn split(args: &Run) -> Result<(), Failure> {
    let signals = keep_signals().or_usage()?;
    let config = config(args)?;
    let shutdown = Shutdown::on_signals().or_usage()?;
    let control = config.control.path();
    let predecessor = match &args.replace {
        None => None,
        Some(given) => Some(given.as_deref().or(control).ok_or_else(|| {
            Failure::Usage(anyhow!(
                "`control` is \"off\": name the control socket of the gateway to take the place of (--replace=PATH)"
            ))
        })?),
    };
    let gateway = match predecessor {
        None => Gateway::start(&config),
        Some(predecessor) => Gateway::succeed(&config, predecessor),
    };
    let gateway = gateway.or_usage()?;
    let (handle, source) = (gateway.handle(), source(args.clone()));
    // Without a file there is nothing that a successor could have otherwise.
    let successor = args.config.is_some().then(|| control.map(Path::to_owned));
    let service = Service::prepare(signals, &handle, source.clone(), successor).or_usage()?;
    let _manager = Manager::start(&config, &handle, &source, predecessor).or_usage()?;
    service.begin();
    if let Err(error) = terminal::print("ready") {
        tracing::warn!(%error, "cannot print `ready` to standard output: the gateway works all the same");
    }
    let ending = gateway.run_until(&shutdown).or_run()?;
    // A retired one is not the service any more.
    if !handle.is_retired() {
        notify::tell("STOPPING=1");
    }
    match ending {
        Ending::Drained => {}
        Ending::Cut(flows) => tracing::warn!(flows, "open flows were reset"),
    }
    Ok(())
}

/// Where a reload reads from: the same file, with the same options of the command line.
fn source(args: Run) -> ConfigSource {
    ConfigSource::new(move || match &args.config {
        // A pipe was read once and for all.
        Some(file) if file.exists() && !file.is_file() => Err(format!(
            "{} is no regular file: nothing to read again",
            file.display()
        )),
        Some(_) => config(&args).map_err(|failure| failure.words()),
        None => Err("the gateway was started without a configuration file (--config)".to_owned()),
    })
}

fn config(args: &Run) -> Result<Config, Failure> {
    let mut config = match &args.config {
        Some(file) => load(file)?,
        None => Config {
            sat: Leg::satellite(args.rate),
            ..Config::default()
        },
    };
    for (interfaces, given) in [
        (&mut config.lan_interfaces, &args.lan),
        (&mut config.sat_interfaces, &args.sat),
    ] {
        if !given.is_empty() {
            interfaces.clone_from(given);
        }
    }
    let mut lan = config.lan_interfaces.iter();
    match lan.find(|lan| config.sat_interfaces.contains(lan)) {
        Some(both) => Err(Failure::Usage(anyhow!(
            "`{both}` is named for both legs: a split needs two interfaces"
        ))),
        None => Ok(config),
    }
}
