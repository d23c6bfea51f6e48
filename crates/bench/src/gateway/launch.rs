//! How the proxies of a path are started, and started again: their programs and configurations.

use super::error::BenchError;
use super::proxy::{CONFIGURATION, Proxy};
use super::stage::{HOP, LAN, SAT};
use super::subject::Subject;
use super::{MOST_FLOWS, MOST_PIPES, Options, haproxy, usage};
use bentpipe_os::folder::Folder;
use bentpipe_os::netlink::{Diversion, Family, Mark};
use bentpipe_os::netns::Netns;
use bentpipe_os::nft;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What HAProxy's intercepted packets are marked with.
const MARK: u32 = 1;
/// A rule for a service of the gateway itself, which meets none of the traffic.
const CLOSED_PORT: &str =
    "table inet own { chain input { type filter hook input priority filter; tcp dport 22 drop; } }";

/// The policy that has every connection snooped, and none split.
const SNOOP: &str = "[[policy]]\naction = \"snoop\"\n";

/// What each of a pair of gateways may send by SCPS-TP: more than it can on the two processors of a small machine.
const SCPS_RATE: &str = "2Gbit/s";
/// The same of a pair with QUIC between them, and what else they are told of the wire.
const QUIC_LINK: &str = "rate = \"20Gbit/s\"\nround_trip = \"2ms\"\nloss = \"0%\"\n";
/// Where the far end of QUIC listens.
const QUIC_PORT: u16 = 4433;
/// What the servers' side of that far end is set to. It dials from its own address, and each port waits for a minute where a client
/// has closed first: beside a server that knows timestamps, as every Linux does, it may be used again after a second.
const FAR_SETTINGS: (&str, &str) = ("net.ipv4.tcp_tw_reuse", "1");

/// How the proxy is started, and started again.
#[derive(Debug)]
pub(super) struct Launch {
    subject: Subject,
    program: PathBuf,
    /// Of the two ends of QUIC.
    keys: Option<Keys>,
}

/// Secret keys of a near and a far end, in files, and their public ones.
#[derive(Debug)]
struct Keys {
    folder: Folder,
    near: String,
    far: String,
}

impl Launch {
    pub(super) fn of(subject: Subject, options: &Options) -> Result<Self, BenchError> {
        let program = match (subject, &options.bentpipe) {
            (ours, Some(named)) if ours.is_ours() => named.clone(),
            (ours, None) if ours.is_ours() => {
                std::env::current_exe().map_err(|source| BenchError::NoBentpipe { source })?
            }
            _ => options.haproxy.clone(),
        };
        let keys = (subject == Subject::BentpipeQuic).then(|| Keys::make(&program));
        let keys = keys.transpose().map_err(|source| BenchError::Start {
            subject: subject.name(),
            source,
        })?;
        Ok(Self {
            subject,
            program,
            keys,
        })
    }

    pub(super) fn subject(&self) -> Subject {
        self.subject
    }

    /// Leads traffic to HAProxy; ours sees to that itself.
    pub(super) fn intercept(&self, gateway: &Netns) -> Result<Option<Diversion>, BenchError> {
        if self.subject == Subject::BentpipePastChains {
            nft(gateway, CLOSED_PORT)?;
        }
        if !self.subject.is_haproxy() {
            return Ok(None);
        }
        nft(gateway, &haproxy::interception(LAN, SAT, MARK))?;
        let netlink = gateway.netlink()?;
        Ok(Some(netlink.divert(
            &[Family::V4],
            Mark::exact(MARK),
            100,
            0,
        )?))
    }

    /// Starts the proxy in the namespace `gateway`, which is the near one where there are two.
    pub(super) fn start(
        &self,
        gateway: &Netns,
        congestion: &str,
    ) -> Result<Option<Proxy>, BenchError> {
        let configuration = match self.subject {
            Subject::Kernel => return Ok(None),
            Subject::Haproxy => Self::haproxy(haproxy::SPLICE),
            Subject::HaproxySpliceAuto => Self::haproxy(haproxy::SPLICE_AUTO),
            Subject::Bentpipe | Subject::BentpipePastChains => bentpipe("end-to-end", congestion),
            Subject::BentpipeEarly | Subject::BentpipeTwice => bentpipe("early", congestion),
            Subject::BentpipeSnoop => bentpipe("end-to-end", congestion) + SNOOP,
            Subject::BentpipeScps => scps(congestion),
            Subject::BentpipeQuic => { self.keys.as_ref() }
                .map(|keys| keys.near_end(congestion))
                .unwrap_or_default(),
        };
        let mut command = gateway.command(&self.program);
        if self.subject.is_ours() {
            command.args(["gateway", "run", "--lan", LAN, "--sat", SAT, "--config"]);
        } else {
            command.args(["-db", "-f"]);
        }
        command.arg(CONFIGURATION);
        Proxy::start(self.subject, command, &configuration).map(Some)
    }

    /// Starts the far one of two.
    pub(super) fn start_far(
        &self,
        far: &Netns,
        congestion: &str,
    ) -> Result<Option<Proxy>, BenchError> {
        let Some(keys) = &self.keys else {
            return self.start(far, congestion);
        };
        far.set_sysctl(FAR_SETTINGS.0, FAR_SETTINGS.1)?;
        let mut command = far.command(&self.program);
        command.args(["proxy", "run", CONFIGURATION]);
        Proxy::start(self.subject, command, &keys.far_end()).map(Some)
    }

    fn haproxy(splice: &[&str]) -> String {
        haproxy::configuration(usage::processors(), splice, MOST_FLOWS, MOST_PIPES)
    }
}

impl Keys {
    fn make(program: &Path) -> io::Result<Self> {
        let folder = Folder::create("bench_keys")?;
        let make = |name: &str| {
            let mut command = Command::new(program);
            command
                .args(["proxy", "keys"])
                .arg(folder.path().join(name));
            let made = command.output()?;
            if !made.status.success() {
                let said = String::from_utf8_lossy(&made.stderr).into_owned();
                return Err(io::Error::other(said));
            }
            Ok(String::from_utf8_lossy(&made.stdout).trim().to_owned())
        };
        let (near, far) = (make("near")?, make("far")?);
        Ok(Self { folder, near, far })
    }

    /// The configuration of the gateway, as it comes but for what it is told of the link and its congestion control towards clients.
    fn near_end(&self, congestion: &str) -> String {
        format!(
            "control = \"off\"\n\
             [lan]\n\
             congestion_control = \"{congestion}\"\n\
             [sat]\n\
             carrier = \"quic\"\n\
             proxy = \"{}:{QUIC_PORT}\"\n\
             identity = \"{}\"\n\
             peer_key = \"{}\"\n\
             {QUIC_LINK}",
            HOP[1],
            self.folder.path().join("near").display(),
            self.far,
        )
    }

    /// The configuration of the proxy, which dials the addresses of benchmarks only where a policy says so.
    fn far_end(&self) -> String {
        format!(
            "control = \"off\"\n\
             listen = \"0.0.0.0:{QUIC_PORT}\"\n\
             identity = \"{}\"\n\
             clients = [\"{}\"]\n\
             [link]\n\
             {QUIC_LINK}\
             [[policy]]\n\
             to = [\"198.18.0.0/15\"]\n\
             action = \"allow\"\n",
            self.folder.path().join("far").display(),
            self.near,
        )
    }
}

/// The gateway as it comes, but for the namespace's congestion control on both legs and no rate, for
/// there is no satellite here.
fn bentpipe(handshake: &str, congestion: &str) -> String {
    format!(
        "control = \"off\"\n\
         handshake = \"{handshake}\"\n\
         [lan]\n\
         congestion_control = \"{congestion}\"\n\
         [sat]\n\
         congestion_control = \"{congestion}\"\n"
    )
}

/// One of a pair of gateways with SCPS-TP between them.
fn scps(congestion: &str) -> String {
    format!(
        "control = \"off\"\n\
         [lan]\n\
         congestion_control = \"{congestion}\"\n\
         [sat]\n\
         carrier = \"scps\"\n\
         rate = \"{SCPS_RATE}\"\n"
    )
}

fn nft(gateway: &Netns, rules: &str) -> Result<(), BenchError> {
    let applied = gateway.run(|| nft::apply(rules))?;
    applied.map_err(|error| BenchError::Nft {
        said: error.to_string(),
    })
}
