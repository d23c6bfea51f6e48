//! A running proxy: the thread that carries, and what its operator sees and asks.

use crate::config::Config;
use crate::metrics;
use crate::reload::Reloader;
use crate::return_paths::{ReturnPathError, ReturnPaths};
use crate::status::Status;
use bentpipe_bpf::LazyControls;
use bentpipe_connect_tcp::Template;
use bentpipe_management::control_protocol::{Answer, Request};
use bentpipe_management::control_socket::{self, Answering};
use bentpipe_management::metrics_server::{self, Documents};
use bentpipe_management::{BoundedServer, Shutdown, SocketFile};
use bentpipe_os::netlink::{Netlink, NetlinkError};
use bentpipe_process::{cgroup, limits, sched};
use bentpipe_quic::UnusableControl;
use bentpipe_sockets::epoll::{Epoll, Events, Interest, Waker};
use bentpipe_tunnel_sockets::{
    CertificateFileError, CertificateFiles, Driver, DriverError, Far, Handle, IdentityFileError,
    Policy, read_identity,
};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long the carrying thread may take to tell how it stands.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the addresses of this host are looked at.
const LOOK: Duration = Duration::from_secs(30);
/// And whether somebody has removed what leads answers to clients' addresses here.
const LOOK_AT_PATHS: Duration = Duration::from_secs(1);

/// All sockets of HTTP/2 are on the one link, and need no mark to tell which.
const UNMARKED: u32 = 0;

/// A proxy could not start; nothing is left behind.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its secret key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityFileError),
    /// Its certificates cannot.
    #[error(transparent)]
    Certificates(#[from] CertificateFileError),
    /// Its congestion control cannot.
    #[error(transparent)]
    Control(#[from] UnusableControl),
    /// The endpoint cannot be made.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The addresses of this host are not known, which policies keep closed.
    #[error(transparent)]
    Addresses(#[from] NetlinkError),
    /// Another proxy has the control socket.
    #[error("another proxy answers at {}: give this one another `control`", .0.display())]
    InUse(PathBuf),
    /// The control socket cannot be made.
    #[error("cannot make the control socket {} ({source}): choose another `control`, or \"off\"", .path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
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
    /// Answers to dials from clients' addresses cannot be led here.
    #[error(transparent)]
    ReturnPath(#[from] ReturnPathError),
    /// The kernel refused something small.
    #[error("cannot {doing} ({source}): see the kernel's reason")]
    System {
        /// What.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { doing, source }
}

/// How a proxy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All flows had ended.
    Drained,
    /// So many were reset.
    Cut(usize),
}

/// Who may be reached by `config`, and what this host's own addresses are.
pub(crate) fn policy(config: &Config) -> Result<Policy, NetlinkError> {
    Ok(Policy {
        rules: config.rules.clone(),
        own: Netlink::open()?.addresses()?,
    })
}

/// What an operator's threads have of a proxy.
#[derive(Clone)]
struct OperatorInterface {
    handle: Handle,
    reloader: Reloader,
    began: Instant,
    listen: SocketAddr,
    key: String,
}

impl OperatorInterface {
    fn status(&self) -> Option<Status> {
        let tunnels = self.handle.status(PATIENCE)?;
        Some(Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            uptime: self.began.elapsed().as_secs_f64(),
            state: if tunnels.up { "serving" } else { "draining" },
            listen: self.listen,
            key: self.key.clone(),
            tunnels,
        })
    }

    fn answer(&self, request: &Request, may_order: bool) -> Answer {
        match request {
            Request::Status => match self.status() {
                Some(status) => Answer::status(&status),
                None => Answer::error("the proxy does not answer: see its log"),
            },
            _ if !may_order => Answer::error("only root and the proxy's own user may do that"),
            Request::Reload => match self.reloader.reload() {
                Ok(()) => Answer::done(),
                Err(words) => Answer::error(words),
            },
            Request::Bypass { .. } | Request::Link { .. } | Request::Retire => {
                Answer::error("that is asked of gateways, and this is a proxy")
            }
        }
    }
}

impl Documents for OperatorInterface {
    fn metrics(&self) -> Result<String, fmt::Error> {
        self.status()
            .as_ref()
            .map_or(Err(fmt::Error), metrics::text)
    }

    fn health(&self) -> (bool, &'static str) {
        match self.handle.status(PATIENCE) {
            Some(status) if status.up => (true, "serving"),
            Some(_) => (false, "draining"),
            None => (false, "silent"),
        }
    }
}

/// Tells the supervising thread that the carrying one has ended, also by a panic.
struct EndGuard(Arc<Waker>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// A running proxy.
pub struct Proxy {
    operator: OperatorInterface,
    carrying: Option<JoinHandle<Result<usize, DriverError>>>,
    ended: Arc<Waker>,
    /// They are in the kernel while they live.
    _controls: LazyControls,
    _control: Option<(BoundedServer, SocketFile)>,
    _metrics: Option<BoundedServer>,
}

impl Proxy {
    /// Starts one by `config`, which was read from `file`. When this returns, clients are served.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(config: &Config, file: &Path) -> Result<Self, StartError> {
        // Each tunnel takes a descriptor, and a shell's limit is far below their number.
        limits::raise_descriptors().map_err(system("raise the limit on open files"))?;
        let identity = read_identity(&config.identity)?;
        let key = identity.public().to_string();
        let read = |files: &CertificateFiles| files.read(&identity);
        let certificates = config.certificates.as_ref().map(read).transpose()?;
        let mut quic = config.quic_within(cgroup::memory_limit(), identity.clone())?;
        quic.certificates = certificates;
        let return_paths = ReturnPaths::default();
        let far = Far {
            policy: policy(config)?,
            // The path alone is looked at: whoever knows the key may call the proxy as he likes.
            templates: Template::of_authority("proxy").into_iter().collect(),
            dial_timeout: config.limits.dial,
            client: config.limits.client,
            idle: config.limits.idle,
            udp_idle: config.limits.udp_idle,
            client_addresses: return_paths.follow(config)?,
        };
        let mut driver = Driver::far(&quic, config.listen, far.clone())?;
        let mut controls = LazyControls::default();
        if config.link.path.fall_back {
            let tcp = config.link.tcp(UNMARKED, &mut controls);
            if let Some(why) = &tcp.lack {
                tracing::info!("HTTP/2 goes by a congestion control of the kernel's: {why}");
            }
            driver = driver.with_http2(tcp, config.limits.connections)?;
        }
        let listen = driver
            .address()
            .map_err(system("ask for the UDP address"))?;
        let handle = driver.handle();
        let reloader = Reloader::new(
            file.to_owned(),
            handle.clone(),
            identity,
            config.clone(),
            far,
            return_paths,
        );
        let operator = OperatorInterface {
            handle,
            reloader,
            began: Instant::now(),
            listen,
            key,
        };
        let control = { config.control.as_deref() }
            .map(|path| open_control(path, &operator))
            .transpose()?;
        let metrics = config.metrics.map(|address| {
            let listener = TcpListener::bind(address);
            let served = listener.and_then(|listener| metrics_server::serve(listener, &operator));
            served.map_err(|source| StartError::Metrics { address, source })
        });
        let metrics = metrics.transpose()?;
        let ended = Arc::new(Waker::new().map_err(system("make an eventfd"))?);
        let at_end = EndGuard(Arc::clone(&ended));
        let work = move || {
            let _at_end = at_end;
            sched::leave_signals_to_others();
            driver.run()
        };
        let carrying = thread::Builder::new()
            .name("tunnels".to_owned())
            .spawn(work);
        tracing::info!(%listen, key = operator.key, "ready");
        Ok(Self {
            operator,
            carrying: Some(carrying.map_err(system("start a thread"))?),
            ended,
            _controls: controls,
            _control: control,
            _metrics: metrics,
        })
    }

    /// Its address, of UDP and, with a second carrier, of TCP.
    pub const fn address(&self) -> SocketAddr {
        self.operator.listen
    }

    /// How it stands; `None` where it does not answer.
    pub fn status(&self) -> Option<Status> {
        self.operator.status()
    }

    /// Reads its configuration again, by the function that this gives.
    pub(crate) fn reload(&self) -> impl Fn() -> Result<(), String> + Send + use<> {
        let reloader = self.operator.reloader.clone();
        move || reloader.reload()
    }

    /// Whether it still carries, by the function that this gives.
    pub(crate) fn pulse(&self) -> impl Fn(Duration) -> bool + Send + use<> {
        let handle = self.operator.handle.clone();
        move |patience| handle.status(patience).is_some()
    }

    /// Works until `shutdown` is requested. The first request takes no more tunnels, and waits for the flows to end, at most for the
    /// time configured; the second, and the end of that time, reset those that are left.
    ///
    /// # Errors
    /// When the carrying thread fails.
    pub fn run_until(mut self, shutdown: &Shutdown) -> io::Result<Ending> {
        let epoll = Epoll::new()?;
        epoll.add(shutdown, 0, Interest::READ)?;
        epoll.add(&*self.ended, 1, Interest::READ)?;
        let mut events = Events::with_capacity(2);
        let (mut until, mut looked) = (None::<Instant>, Instant::now());
        while { &self.carrying }
            .as_ref()
            .is_some_and(|one| !one.is_finished())
        {
            if shutdown.take() || until.is_some_and(|until| until <= Instant::now()) {
                if until.is_some() {
                    self.operator.handle.stop();
                    break;
                }
                tracing::info!("draining: no more tunnels are taken");
                until = Some(Instant::now() + self.operator.reloader.drain());
                self.operator.handle.drain();
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let look = match self.operator.reloader.look_at_paths() {
                true => LOOK_AT_PATHS,
                false => LOOK,
            };
            epoll.wait(&mut events, Some(left.unwrap_or(look).min(look)))?;
            if until.is_none() && looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.operator.reloader.look_at_addresses();
            }
        }
        match self.carrying.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(0))) => Ok(Ending::Drained),
            Some(Ok(Ok(cut))) => Ok(Ending::Cut(cut)),
            Some(Ok(Err(error))) => Err(io::Error::other(error)),
            Some(Err(_)) => Err(io::Error::other("the carrying thread panicked")),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(carrying) = self.carrying.take() {
            self.operator.handle.stop();
            // How it ended was told by whoever waited for it.
            let _ = carrying.join();
        }
        self.operator.reloader.leave_paths();
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxy").field(&self.operator.listen).finish()
    }
}

fn open_control(
    path: &Path,
    operator: &OperatorInterface,
) -> Result<(BoundedServer, SocketFile), StartError> {
    if UnixStream::connect(path).is_ok() {
        return Err(StartError::InUse(path.to_owned()));
    }
    let refused = |source| StartError::Socket {
        path: path.to_owned(),
        source,
    };
    let (listener, pending) = SocketFile::make(path).map_err(refused)?;
    let operator = operator.clone();
    let answer = move |request: &Request, may_order| operator.answer(request, may_order);
    let server = control_socket::serve(listener, Answering::default(), answer).map_err(refused)?;
    Ok((server, pending.take().map_err(refused)?))
}
