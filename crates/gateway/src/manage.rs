//! The operator's side of a gateway, apart from the data plane: a control socket, and metrics for Prometheus.
//!
//! Everything here runs on threads of its own, at a lower priority, with bounds on clients, lines and
//! time: a client that hangs or floods costs its own slot ([`bounded_server`]) and nothing of the flows.

mod bounded_server;
mod deadline;
mod http;
mod metrics;
pub mod protocol;
mod socket;

use crate::handle::{CommandError, Handle};
use bentpipe_gateway_config::{Config, ControlSocket};
use bounded_server::{BoundedServer, ClientClass, Triage};
use deadline::Deadline;
use protocol::{Answer, Request};
use socket::SocketFile;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The most clients of the control socket at a time that may only look, and the most that may give orders.
const CLIENTS: usize = 4;
/// Scrapers at a time.
const SCRAPERS: usize = 4;
/// How long a connection to the metrics waits for its request where no thread of ours waits for it.
const SILENT: Duration = Duration::from_secs(5);
/// How long a client has for a line.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it has to take its answer.
const UNREAD: Duration = Duration::from_secs(2);
/// Between the answers to one client: a flood of questions gets no more than twenty a second.
const PAUSE: Duration = Duration::from_millis(50);

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

/// Held for reading while a client is answered, so that a gateway without flows, which ends as soon as it retires, tells so first.
type Answering = Arc<RwLock<()>>;

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
                match control(path, server, predecessor) {
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
        let slots = match listener.map(|listener| offer(listener, handle)) {
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

/// Opens the metrics.
fn offer(listener: TcpListener, handle: &Handle) -> Result<BoundedServer, ManageError> {
    // The kernel keeps back clients that say nothing, so that they take no slot; where it cannot, they take one for a while.
    let _ = bentpipe_sockets::socket::accept_with_data(&listener, SILENT);
    let (early, late) = (handle.clone(), handle.clone());
    let triage = move |stream: &mut TcpStream| http::triage(stream, &early);
    let serve = move |stream: TcpStream| http::answer(&stream, &late);
    let slots = (SCRAPERS, http::BUSY);
    BoundedServer::open("metrics", listener, slots, triage, serve).map_err(ManageError::Thread)
}

/// Opens the control socket. Where a predecessor has it, that one retires first.
fn control(
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
    let serve = move |stream| server.serve_client(stream);
    // Clients that may only look must not keep out those that may give orders.
    let triage = |stream: &mut UnixStream| {
        if socket::may_order(&*stream) {
            Triage::Serve(ClientClass::Reserved)
        } else {
            Triage::Serve(ClientClass::Common)
        }
    };
    let slots = BoundedServer::open(
        "control",
        listener,
        (CLIENTS, protocol::BUSY),
        triage,
        serve,
    )
    .map_err(ManageError::Thread)?;
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
    /// Answers a client until it ends, is silent for too long, or talks nonsense.
    fn serve_client(&self, stream: UnixStream) {
        let may_order = socket::may_order(&stream);
        let mut lines = BufReader::new(Deadline::new(&stream, PATIENCE));
        let mut line = Vec::new();
        let mut answered = None::<Instant>;
        loop {
            line.clear();
            lines.get_mut().extend(PATIENCE);
            let mut bounded = (&mut lines).take(protocol::LONGEST as u64);
            match bounded.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if let Some(answered) = answered {
                std::thread::sleep(PAUSE.saturating_sub(answered.elapsed()));
            }
            let _answering = self.answering.read();
            let (answer, keep_open) = match protocol::parse(&line) {
                // If the successor has given up while this process was frozen, the gateway stays.
                Ok(Request::Retire) if bentpipe_sockets::socket::has_hung_up(&stream) => return,
                Ok(request) => (self.answer(&request, may_order), true),
                Err(error) => (Answer::error(error), false),
            };
            let mut answers = Deadline::new(&stream, UNREAD);
            if answers.write_all(&answer.to_line()).is_err() || !keep_open {
                return;
            }
            answered = Some(Instant::now());
        }
    }

    fn answer(&self, request: &Request, may_order: bool) -> Answer {
        let done = |result: Result<(), CommandError>| match result {
            Ok(()) => Answer::done(),
            Err(error) => Answer::error(error),
        };
        match request {
            Request::Status => match self.handle.status() {
                Ok(status) => Answer::status(&status),
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
