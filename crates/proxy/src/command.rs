//! `bentpipe proxy`: its arguments, and what it prints.

use crate::certificate::make_certificate;
use crate::config::{Config, ConfigError};
use crate::server::{Ending, Proxy};
use crate::status::page;
use anyhow::{Context as _, anyhow};
use bentpipe_config::Problems;
use bentpipe_management::Shutdown;
use bentpipe_management::control_protocol::{self, Request};
use bentpipe_process::notify;
use bentpipe_tunnel_sockets::{
    CertificateFiles, make_identity, read_certificate_key, read_identity,
};
use clap::Subcommand;
use serde_json::Value;
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::Signals;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

/// What to do with a proxy.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a secret key in a file, or show the public key of the one that is there
    #[command(after_help = "\
Examples:
  sudo bentpipe proxy keys /etc/bentpipe/proxy.key      prints the public key, for the other side
  sudo bentpipe proxy keys /etc/bentpipe/gateway.key    one for the gateway at the near end
  sudo bentpipe proxy keys /etc/bentpipe/proxy.key --certificate /etc/bentpipe/proxy.crt \\
    --name proxy.example                                and a certificate for others' clients
  bentpipe proxy keys client.crt                        the key in a client's certificate

A file that is there is never written: its public key is shown. The secret is for its owner alone
(mode 0600); the service may be let in by its group (0640). A certificate that is made here signs
itself, and does not expire: clients are given its file, or its key.")]
    Keys {
        /// The file of the secret key, or a certificate (PEM) whose key is to be shown
        file: PathBuf,
        /// Make a certificate for the key in this file, and show its key too
        #[arg(long, value_name = "FILE", requires = "names")]
        certificate: Option<PathBuf>,
        /// A name or IP address that clients call this host by; may be given again
        #[arg(long = "name", value_name = "NAME", requires = "certificate")]
        names: Vec<String>,
    },
    /// Serve gateways with `carrier = "quic"` until SIGTERM
    #[command(after_help = "\
Examples:
  bentpipe proxy run /etc/bentpipe/proxy.toml

Prints `ready` on stdout once clients are served. SIGTERM or Ctrl-C takes no more connections, waits
for the open ones as long as `drain` says, and ends with 0; a second one ends at once. SIGHUP reads
the configuration again. Keys of the configuration: docs/distributed.md")]
    Run {
        /// The configuration, a TOML file
        config: PathBuf,
    },
    /// Show how a running proxy stands, and its clients
    #[command(after_help = "\
Examples:
  bentpipe proxy status
  bentpipe proxy status --json | jq .counters.failures")]
    Status {
        /// Which
        #[command(flatten)]
        at: At,
        /// Everything as one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a running proxy read its configuration again
    #[command(after_help = "\
Examples:
  sudo bentpipe proxy reload

Policies, clients and limits of a client change for new connections; a client who is not listed any
more is cut off. A mistake in the configuration changes nothing, and is told here and in the log.")]
    Reload {
        /// Which
        #[command(flatten)]
        at: At,
    },
    /// Check a configuration file without opening anything
    #[command(after_help = "\
Examples:
  bentpipe proxy check /etc/bentpipe/proxy.toml")]
    Check {
        /// The configuration, a TOML file
        config: PathBuf,
    },
}

/// Which proxy.
#[derive(Debug, clap::Args)]
pub struct At {
    /// Its control socket, as `control` in its configuration
    #[arg(long, value_name = "PATH", default_value = Config::CONTROL)]
    control: PathBuf,
    /// Its configuration, a TOML file, which says where its control socket is
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,
}

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// A run failed.
    Run(anyhow::Error),
    /// Wrong use, or something is missing.
    Usage(anyhow::Error),
    /// Mistakes in a file.
    Mistakes(Problems),
}

/// What went wrong is to be mended by whoever gave the command.
fn usage(error: impl Into<anyhow::Error>) -> Failure {
    Failure::Usage(error.into())
}

fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure::Run(error.into())
}

/// Does what `command` says; `out` writes to standard output.
///
/// # Errors
/// [`Failure`].
pub fn run(command: &Command, out: fn(&str) -> io::Result<()>) -> Result<(), Failure> {
    let print = |text: &str| out(text).map_err(failed);
    match command {
        Command::Keys {
            file,
            certificate,
            names,
        } => print(&keys(file, certificate.as_deref(), names)?),
        Command::Run { config } => serve(config, out),
        Command::Status { at, json } => {
            let mut answer = ask(at, &Request::Status)?;
            let status = answer.get_mut("status").map(Value::take);
            let status =
                status.context("the proxy's answer has no status: is it of another version?");
            let status = status.map_err(failed)?;
            print(&if *json {
                status.to_string()
            } else {
                page(&status)
            })
        }
        Command::Reload { at } => {
            ask(at, &Request::Reload)?;
            print("done")
        }
        Command::Check { config } => {
            let found = load(config)?;
            let identity = read_identity(&found.identity).map_err(usage)?;
            if let Some(files) = &found.certificates {
                files.read(&identity).map_err(usage)?;
            }
            print(&format!("{}: right", config.display()))
        }
    }
}

/// The public keys of what is in `file`, or is put there, and in `certificate`; one a line.
fn keys(file: &Path, certificate: Option<&Path>, names: &[String]) -> Result<String, Failure> {
    if !file.exists() {
        make_identity(file).map_err(usage)?;
    } else if certificate.is_none()
        && let Some(key) = read_certificate_key(file).map_err(usage)?
    {
        return Ok(key.to_string());
    }
    let identity = read_identity(file).map_err(usage)?;
    let public = identity.public().to_string();
    let Some(certificate) = certificate else {
        return Ok(public);
    };
    if !certificate.exists() {
        make_certificate(certificate, &identity, names).map_err(usage)?;
    }
    let files = CertificateFiles {
        chain: certificate.to_owned(),
        key: None,
        authorities: None,
        revoked: None,
    };
    let shown = files.read(&identity).map_err(usage)?;
    Ok(format!("{public}\n{}", shown.key()))
}

fn load(file: &Path) -> Result<Config, Failure> {
    Config::load(file).map_err(|error| match error {
        ConfigError::Wrong(problems) => Failure::Mistakes(problems),
        error @ ConfigError::Unreadable { .. } => usage(error),
    })
}

fn ask(at: &At, request: &Request) -> Result<Value, Failure> {
    let control = match &at.config {
        None => at.control.clone(),
        Some(file) => load(file)?.control.ok_or_else(|| {
            usage(anyhow!(
                "`control` is \"off\" in this configuration: SIGHUP has the proxy read it again"
            ))
        })?,
    };
    control_protocol::ask("proxy", &control, request).map_err(failed)
}

fn serve(file: &Path, print: fn(&str) -> io::Result<()>) -> Result<(), Failure> {
    // It is kept until it is heeded, and ends no proxy that starts.
    let signals = Signals::new([SIGHUP]).context("cannot catch SIGHUP");
    let mut signals = signals.map_err(usage)?;
    let config = load(file)?;
    let shutdown = Shutdown::on_signals().map_err(usage)?;
    let proxy = Proxy::start(&config, file).map_err(usage)?;
    let reload = proxy.reload();
    spawn("signals", move || {
        for _ in signals.forever() {
            notify::tell("RELOADING=1");
            // A refusal is in the log already.
            let _ = reload();
            notify::tell("READY=1");
        }
    })?;
    if let Some(interval) = notify::watchdog() {
        let pulse = proxy.pulse();
        spawn("watchdog", move || {
            loop {
                thread::sleep(interval / 3);
                if pulse(interval / 3) {
                    notify::tell("WATCHDOG=1");
                }
            }
        })?;
    }
    notify::tell("READY=1");
    if let Err(error) = print("ready") {
        tracing::warn!(%error, "cannot print `ready` to standard output: the proxy works all the same");
    }
    let ending = proxy.run_until(&shutdown).map_err(failed)?;
    notify::tell("STOPPING=1");
    if let Ending::Cut(flows) = ending {
        tracing::warn!(flows, "open flows were reset");
    }
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread
        .map(drop)
        .context("cannot start a thread")
        .map_err(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What [`keys`] says, or what it says is wrong.
    fn said(file: &Path, certificate: Option<&Path>, names: &[&str]) -> Result<String, String> {
        let names: Vec<_> = names.iter().copied().map(str::to_owned).collect();
        keys(file, certificate, &names).map_err(|failure| match failure {
            Failure::Usage(error) => error.to_string(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn a_certificate_is_made_for_a_key_and_shown() {
        let folder = tempfile::tempdir().unwrap();
        let [key, other, certificate] =
            ["key", "other", "certificate"].map(|name| folder.path().join(name));
        let public = said(&key, None, &[]).unwrap();
        let names = ["Far.example", "192.0.2.7", "2001:db8::7"];
        let both = said(&key, Some(&certificate), &names).unwrap();
        let (first, shown) = both.split_once('\n').unwrap();
        assert_eq!(first, public);
        assert!(shown.starts_with("sha256:"), "{shown}");
        assert_eq!(said(&certificate, None, &[]).as_deref(), Ok(shown));
        // It is for the names, and signed by its own key: others' clients are given it as an authority's.
        let made = std::fs::read_to_string(&certificate).unwrap();
        let identity = read_identity(&key).unwrap();
        let trusting = bentpipe_quic::Certificates::of_identity(made.as_bytes(), &identity);
        assert!(
            trusting
                .unwrap()
                .with_authorities(made.as_bytes(), None)
                .is_ok()
        );
        // What is there is not written over: its key is shown, if it is that one's.
        assert_eq!(said(&key, Some(&certificate), &["x"]).as_ref(), Ok(&both));
        assert_eq!(std::fs::read_to_string(&certificate).unwrap(), made);
        let error = said(&other, Some(&certificate), &["x"]).unwrap_err();
        assert!(
            error.contains("of another key than the secret one"),
            "{error}"
        );
        for wrong in [
            "",
            "a b",
            "far.example:443",
            "300.0.0.1",
            "f\u{e4}r.example",
        ] {
            let nowhere = folder.path().join("nowhere");
            let error = said(&key, Some(&nowhere), &["far.example", wrong]).unwrap_err();
            let quoted = format!("`{wrong}` is neither an address nor the name of a host");
            assert!(error.contains(&quoted), "{error}");
            assert!(!nowhere.exists());
        }
        let nowhere = folder.path().join("none/certificate");
        let error = said(&key, Some(&nowhere), &["far.example"]).unwrap_err();
        assert!(error.contains("choose another place"), "{error}");
    }
}
