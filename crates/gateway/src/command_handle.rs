//! The handle by which any thread commands a running gateway (bypass, reload, retire) and looks at it (status).
//!
//! Commands go to the supervising thread, which alone changes interception and settings; workers never wait for one.

use crate::congestion::CongestionError;
use crate::gateway::Meter;
use crate::status::{Status, StatusCollector};
use bentpipe_base::{Bytes, Rate};
use bentpipe_gateway_config::{Config, ControlSocket, Handshake, Intercept, Leg, LegId, Snoop};
use bentpipe_interception::InterceptError;
use bentpipe_relay::{Lifecycle, Shared, Snapshot};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a command may take: loading BPF programs takes a second or two.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command was not carried out; the gateway goes on as before.
#[derive(Debug, Error)]
pub enum CommandError {
    /// It has ended.
    #[error("the gateway has ended: start it again")]
    Ended,
    /// It takes too long to answer.
    #[error("the gateway has not answered for {} s: see its log", PATIENCE.as_secs())]
    Slow,
    /// It no longer splits new flows.
    #[error("the gateway drains: start another one for new flows")]
    Draining,
    /// Another gateway has its place.
    #[error(
        "a successor has its place already: replace that one (`--replace` and its control socket)"
    )]
    Retired,
    /// Another reload has not come to its end.
    #[error("another reload is under way: try again")]
    Busy,
    /// A key that takes a start.
    #[error(
        "{keys} cannot change in a running gateway: start a successor in its place (`bentpipe gateway run --replace`)"
    )]
    Fixed {
        /// Which keys.
        keys: String,
    },
    /// A leg insists on a congestion control that is not to be had.
    #[error(transparent)]
    Control(#[from] CongestionError),
    /// Interception could not be changed.
    #[error(transparent)]
    Intercept(#[from] InterceptError),
    /// Not one flow would fit.
    #[error("the limits leave no room for a flow: raise `descriptors` in [limits]")]
    NoRoom,
    /// The leg is not one of those whose link is known to somebody.
    #[error("`{leg}` is no leg with `carrier = \"scps\"`{}", .there)]
    NotCarried {
        /// Which.
        leg: String,
        /// Which are.
        there: String,
    },
    /// The kernel does not tell about connections.
    #[error("cannot list the gateway's connections ({0}): see the kernel's reason")]
    Diag(#[source] io::Error),
}

/// What the supervising thread is to do.
#[derive(Debug)]
pub(crate) enum Command {
    Bypass(bool),
    Reload(Box<Config>),
    Retire,
    /// Whether the link of a carried leg carries anything.
    Link(String, bool),
    /// Nothing but to answer, as a sign of life.
    Pulse,
}

/// A command, and where the reply to it goes.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) command: Command,
    pub(crate) reply: ReplySender,
}

/// Where the reply to a command goes.
pub(crate) type ReplySender = SyncSender<Result<(), CommandError>>;

pub(crate) type CommandReceiver = Receiver<Submission>;

/// Commands a gateway and looks at it, from any thread. It may outlive the gateway: then every call fails.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) commands: Sender<Submission>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) meter: Meter,
    pub(crate) collector: Arc<Mutex<StatusCollector>>,
}

impl Handle {
    /// With `true`, new flows pass end to end until `false`; split ones stay so.
    ///
    /// # Errors
    /// When the gateway drains or has ended.
    pub fn bypass(&self, on: bool) -> Result<(), CommandError> {
        self.submission(Command::Bypass(on))
    }

    /// Uses `config` for new flows. Established ones keep what they have, but for the rate of a link, which all its flows
    /// share.
    ///
    /// # Errors
    /// Then everything stays as it was.
    pub fn reload(&self, config: &Config) -> Result<(), CommandError> {
        self.submission(Command::Reload(Box::new(config.clone())))
    }

    /// Whether the link of `leg`, which SCPS-TP carries, is up, says who knows: a modem.
    ///
    /// # Errors
    /// When the leg has no such carrier, and when the gateway has ended.
    pub fn set_link(&self, leg: &str, is_up: bool) -> Result<(), CommandError> {
        self.submission(Command::Link(leg.to_owned(), is_up))
    }

    /// No more new flows; established ones go on until they end by themselves, at most for the time of
    /// [`Config::retire`]. [`crate::Shutdown`] still shortens it.
    ///
    /// # Errors
    /// When the gateway has ended.
    pub fn retire(&self) -> Result<(), CommandError> {
        self.submission(Command::Retire)
    }

    /// Whether it has been told to retire.
    pub fn is_retired(&self) -> bool {
        self.shared.is_retired()
    }

    /// Whether it has come to its end: its threads end, and need not answer any more.
    pub fn has_stopped(&self) -> bool {
        self.shared.lifecycle() == Lifecycle::Stopped
    }

    /// Whether the supervisor, every worker and every thread that packets wait for answer within `patience`.
    pub fn is_alive(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let asked = self.shared.request_heartbeat();
        let supervisor = self.submit_within(Command::Pulse, patience).is_ok();
        while supervisor && self.shared.unanswered(asked).is_some() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        supervisor
    }

    /// The counters now.
    pub fn counters(&self) -> Snapshot {
        self.meter.read()
    }

    /// The gateway's status. It may be up to 200 ms old: however often it is asked for, the kernel is asked at most five times
    /// a second.
    ///
    /// # Errors
    /// When the kernel does not list the connections.
    pub fn status(&self) -> Result<Arc<Status>, CommandError> {
        let mut collector = self
            .collector
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        collector
            .collect(&self.shared, &self.meter)
            .map_err(CommandError::Diag)
    }

    fn submission(&self, command: Command) -> Result<(), CommandError> {
        let reply = self.submit_within(command, PATIENCE);
        let mut collector = self
            .collector
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Whoever looks next sees what the command has done.
        collector.forget();
        reply
    }

    fn submit_within(&self, command: Command, patience: Duration) -> Result<(), CommandError> {
        let (reply, answer) = sync_channel(1);
        let submission = Submission { command, reply };
        self.commands
            .send(submission)
            .map_err(|_| CommandError::Ended)?;
        self.shared.gateway_waker().wake();
        match answer.recv_timeout(patience) {
            Ok(reply) => reply,
            Err(RecvTimeoutError::Timeout) => Err(CommandError::Slow),
            Err(RecvTimeoutError::Disconnected) => Err(CommandError::Ended),
        }
    }
}

/// What a start fixes: a reload that would change it is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StartSettings {
    interfaces: [Vec<String>; 2],
    profiles: Vec<(String, LegId)>,
    intercept: Intercept,
    handshake: Handshake,
    port: u16,
    threads: Option<usize>,
    control: ControlSocket,
    metrics: Option<SocketAddr>,
    flow_log: Option<PathBuf>,
    ack_rate: Option<Rate>,
    /// Whether SCONE packets are told anything; what, may change.
    scone: bool,
    /// Where some policy asks for the agent.
    snoop: Option<(Snoop, Bytes, usize)>,
    carried: Option<(Leg, Vec<String>)>,
    tunnelled: Option<(Leg, Vec<bool>)>,
}

impl StartSettings {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            interfaces: [config.lan_interfaces.clone(), config.sat_interfaces.clone()],
            profiles: config
                .profiles
                .iter()
                .map(|profile| (profile.name.clone(), profile.like))
                .collect(),
            intercept: config.intercept,
            handshake: config.handshake,
            port: config.port,
            threads: config.threads,
            control: config.control.clone(),
            metrics: config.metrics,
            flow_log: config.flow_log.clone(),
            ack_rate: config.sat.ack_rate,
            scone: config.sat.scone.is_some(),
            carried: config.carried_leg().map(|leg| {
                let names = config.carried_names().into_iter();
                (leg.clone(), names.map(str::to_owned).collect())
            }),
            tunnelled: config.tunnelled_leg().map(|leg| {
                let variants = config.profiles.iter().map(|profile| &profile.leg);
                let legs = [&config.sat].into_iter().chain(variants);
                let quic = legs.map(|leg| leg.quic.is_some());
                (leg.clone(), quic.collect())
            }),
            snoop: config.snoops().then(|| {
                let limits = &config.limits;
                (config.snoop, limits.snoop_cache, limits.snoop_flows)
            }),
        }
    }

    fn carried_names(&self) -> &[String] {
        self.carried.as_ref().map_or(&[], |(_, names)| names)
    }

    /// Whether SCPS-TP carries the leg of that name.
    pub(crate) fn carries(&self, leg: &str) -> bool {
        self.carried_names().iter().any(|name| name == leg)
    }

    /// The error for a leg that it does not carry.
    pub(crate) fn not_carried(&self, leg: String) -> CommandError {
        let there = match self.carried_names() {
            [] => ", and no leg is".to_owned(),
            names => format!(": there is `{}`", names.join("`, `")),
        };
        CommandError::NotCarried { leg, there }
    }

    /// Refuses a configuration that differs here.
    pub(crate) fn admit(&self, config: &Config) -> Result<(), CommandError> {
        let new = Self::of(config);
        let changed = [
            ("`interface`", self.interfaces != new.interfaces),
            (
                "the names and `like` of `[leg]`",
                self.profiles != new.profiles,
            ),
            ("`intercept`", self.intercept != new.intercept),
            ("`handshake`", self.handshake != new.handshake),
            ("`port`", self.port != new.port),
            ("`threads`", self.threads != new.threads),
            ("`control`", self.control != new.control),
            ("`metrics`", self.metrics != new.metrics),
            ("`flow_log`", self.flow_log != new.flow_log),
            ("`ack_rate`", self.ack_rate != new.ack_rate),
            ("whether there is a `scone`", self.scone != new.scone),
            (
                "the leg with `carrier = \"scps\"`",
                self.carried != new.carried,
            ),
            (
                "the leg with `carrier = \"quic\"`",
                self.tunnelled != new.tunnelled,
            ),
            // The agent of a gateway that has begun with it may be left without work.
            (
                "the first `action = \"snoop\"`, `[snoop]` and its limits",
                new.snoop.is_some() && self.snoop != new.snoop,
            ),
        ];
        let keys: Vec<&str> = changed
            .iter()
            .filter(|(_, changed)| *changed)
            .map(|(key, _)| *key)
            .collect();
        if keys.is_empty() {
            Ok(())
        } else {
            Err(CommandError::Fixed {
                keys: keys.join(", "),
            })
        }
    }
}
