//! The operator's side of a gateway, apart from the data plane: a control socket, and metrics for Prometheus.
//!
//! What any program of ours that runs for long has of this is in [`bentpipe_management`].

mod metrics;
pub mod protocol;

use crate::command_handle::{CommandError, Handle};
use bentpipe_gateway_config::{Config, ControlSocket};
use bentpipe_management::control_protocol::Answer;
use bentpipe_management::control_socket::Answering;
use bentpipe_management::metrics_server::Documents;
use bentpipe_management::{BoundedServer, SocketFile, control_socket, metrics_server};
use bentpipe_relay::AdmissionMode;
use protocol::Request;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// What the operator asked for cannot be had.
#[derive(Debug, Error)]
pub enum ManageError {
    /// Another gateway has the control socket.
    #[error(
        "another gateway answers at {}: give this one another `control`, or let it take the place of the other (--replace)",
        .0.display()
    )]
    InUse(PathBuf),
    /// The control socket cannot be made.
    #[error("cannot make the control socket {} ({source}): choose another `control`, or \"off\"", .path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The gateway whose place is to be taken does not let go.
    #[error("the gateway at {} does not retire ({what})", .path.display())]
    Predecessor {
        /// Its control socket.
        path: PathBuf,
        /// What it said.
        what: String,
    },
    /// There is no gateway whose place could be taken.
    #[error("no gateway answers at {}: name the control socket of the one that runs (--replace=PATH), or leave --replace out", .0.display())]
    NoPredecessor(PathBuf),
    /// The metrics cannot be offered.
    #[error(
        "cannot offer the metrics at {address} ({source}): choose another `metrics`, or \"off\""
    )]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The kernel gives no thread.
    #[error("cannot start a thread ({0}): see the kernel's reason")]
    Thread(#[source] io::Error),
}

/// Where a reload takes the configuration from.
#[derive(Clone)]
pub struct ConfigSource(Arc<dyn Fn() -> Result<Config, String> + Send + Sync>);

impl ConfigSource {
    /// From `read`, which says in words why there is none.
    pub fn new(read: impl Fn() -> Result<Config, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Reads the configuration and gives it to the gateway.
    ///
    /// # Errors
    /// In words, which are in the log too; the gateway goes on as before.
    pub fn reload(&self, handle: &Handle) -> Result<(), String> {
        let result =
            (self.0)().and_then(|config| handle.reload(&config).map_err(|error| error.to_string()));
        if let Err(error) = &result {
            tracing::error!("not reloaded, everything stays as it was: {error}");
        }
        result
    }
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigSource")
    }
}

/// The metrics' server: closed when the gateway retires, for its successor to open.
type Metrics = Arc<Mutex<Option<BoundedServer>>>;

/// The operator's side of a gateway. Dropping it closes the control socket and the metrics.
#[derive(Debug)]
pub struct Manager {
    _control: Option<(BoundedServer, SocketFile)>,
    _metrics: Metrics,
    answering: Answering,
}

impl Drop for Manager {
    fn drop(&mut self) {
        drop(self.answering.write());
    }
}

impl Manager {
    /// Opens what `config` asks for, in the namespace of the calling thread. Takes the place of the gateway whose
    /// control socket `predecessor` is, if it is given: that one retires.
    ///
    /// # Errors
    /// See [`ManageError`]. That the usual control socket cannot be had is only a warning.
    pub fn start(
        config: &Config,
        handle: &Handle,
        source: &ConfigSource,
        predecessor: Option<&Path>,
    ) -> Result<Self, ManageError> {
        if let Some(path) = predecessor.filter(|path| UnixStream::connect(path).is_err()) {
            return Err(ManageError::NoPredecessor(path.to_owned()));
        }
        let (metrics, answering) = (Metrics::default(), Answering::default());
        // Before the predecessor retires: what cannot be had changes nothing.
        let listener = match config
            .metrics
            .map(|address| (address, TcpListener::bind(address)))
        {
            None => None,
            Some((_, Ok(listener))) => Some(listener),
            Some((_, Err(error)))
                if predecessor.is_some() && error.kind() == io::ErrorKind::AddrInUse =>
            {
                // It may be the predecessor that has it.
                None
            }
            Some((address, Err(source))) => return Err(ManageError::Metrics { address, source }),
        };
        let control = match config.control.path() {
            None => None,
            Some(path) => {
                let server = ControlServer {
                    handle: handle.clone(),
                    source: source.clone(),
                    metrics: Arc::clone(&metrics),
                    answering: Arc::clone(&answering),
                };
                match open_control(path, server, predecessor) {
                    Err(error @ (ManageError::InUse(_) | ManageError::Socket { .. }))
                        if config.control == ControlSocket::Usual && predecessor.is_none() =>
                    {
                        tracing::warn!("no control socket: {error}");
                        None
                    }
                    result => result?,
                }
            }
        };
        if let Some(path) = predecessor.filter(|path| config.control.path() != Some(path)) {
            retire(path)?;
        }
        let listener = match (listener, config.metrics) {
            (None, Some(address)) => TcpListener::bind(address)
                .inspect_err(|error| {
                    tracing::error!(%error, "no metrics: they cannot be offered at {address}");
                })
                .ok(),
            (listener, _) => listener,
        };
        let slots = match listener
            .map(|listener| metrics_server::serve(listener, handle).map_err(ManageError::Thread))
        {
            // The predecessor has retired: without this gateway there would be none.
            Some(Err(error)) if predecessor.is_some() => {
                tracing::error!("no metrics: {error}");
                None
            }
            offered => offered.transpose()?,
        };
        *metrics.lock().unwrap_or_else(PoisonError::into_inner) = slots;
        Ok(Self {
            _control: control,
            _metrics: metrics,
            answering,
        })
    }
}

impl Documents for Handle {
    fn metrics(&self) -> Result<String, fmt::Error> {
        metrics::text(self)
    }

    /// A bypassed or suspended gateway is healthy, because connections work. A draining one takes no new connections, and
    /// established connections of an impaired one may hang.
    fn health(&self) -> (bool, &'static str) {
        let mode = self.shared.mode();
        let fails = matches!(mode, AdmissionMode::Draining | AdmissionMode::Impaired);
        (!fails, mode.name())
    }
}

/// Opens the control socket. Where a predecessor has it, that one retires first.
fn open_control(
    path: &Path,
    server: ControlServer,
    predecessor: Option<&Path>,
) -> Result<Option<(BoundedServer, SocketFile)>, ManageError> {
    let is_predecessors = predecessor == Some(path);
    if !is_predecessors && UnixStream::connect(path).is_ok() {
        return Err(ManageError::InUse(path.to_owned()));
    }
    let refused = |source| ManageError::Socket {
        path: path.to_owned(),
        source,
    };
    let (listener, pending) = SocketFile::make(path).map_err(refused)?;
    let answering = Arc::clone(&server.answering);
    let answer = move |request: &Request, may_order| server.answer(request, may_order);
    let slots = control_socket::serve(listener, answering, answer).map_err(ManageError::Thread)?;
    if is_predecessors {
        retire(path)?;
    }
    match pending.take().map_err(refused) {
        Ok(file) => Ok(Some((slots, file))),
        // It has retired: without this gateway there would be none.
        Err(error) if is_predecessors => {
            tracing::error!("no control socket: {error}");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Has the gateway whose control socket is at `path` retire.
fn retire(path: &Path) -> Result<(), ManageError> {
    let done = protocol::ask(path, &Request::Retire).map(drop);
    done.map_err(|error| ManageError::Predecessor {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

/// Serves the clients of the control socket.
struct ControlServer {
    handle: Handle,
    source: ConfigSource,
    metrics: Metrics,
    answering: Answering,
}

impl ControlServer {
    fn answer(&self, request: &Request, may_order: bool) -> Answer {
        let done = |result: Result<(), CommandError>| match result {
            Ok(()) => Answer::done(),
            Err(error) => Answer::error(error),
        };
        match request {
            Request::Status => match self.handle.status() {
                Ok(status) => Answer::status(&*status),
                Err(error) => Answer::error(error),
            },
            _ if !may_order => Answer::error("only root and the gateway's own user may do that"),
            Request::Bypass { on } => done(self.handle.bypass(*on)),
            Request::Link { leg, up } => done(self.handle.set_link(leg, *up)),
            Request::Reload => match self.source.reload(&self.handle) {
                Ok(()) => Answer::done(),
                Err(words) => Answer::error(words),
            },
            Request::Retire => {
                let retired = self.handle.retire();
                if retired.is_ok() {
                    // Its successor offers them at the same address.
                    drop(
                        self.metrics
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .take(),
                    );
                }
                done(retired)
            }
        }
    }
}
