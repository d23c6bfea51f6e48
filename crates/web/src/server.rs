//! The server: who connects, how many at once, and how it ends.

use crate::Args;
use crate::api;
use crate::authorization::Authorization;
use crate::child_process::{self, Limits};
use crate::connection_slots::{ConnectionSlots, TokenShown};
use crate::response::Refusal;
use crate::run_queue::{Jobs, RunQueue};
use crate::run_store::RunStore;
use crate::studies::Studies;
use anyhow::Context;
use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

/// Connections at a time.
const CONNECTIONS: usize = 256;
/// How long a connection may take to say what it wants, also the next time.
const PATIENCE: Duration = Duration::from_secs(15);

/// What all requests share.
pub(crate) struct Server {
    pub(crate) authorization: Authorization,
    pub(crate) store: Arc<RunStore>,
    pub(crate) queue: Arc<RunQueue>,
    pub(crate) studies: Studies,
    pub(crate) limits: Limits,
    pub(crate) advisor: Option<PathBuf>,
    pub(crate) control: PathBuf,
    /// Whether the lab can run here.
    pub(crate) is_root: bool,
    /// Scenarios that are read at a time, as many as there are processors: one of many flows wants megabytes.
    pub(crate) readers: Semaphore,
    /// Browsers that watch.
    pub(crate) watchers: AtomicUsize,
    /// Which report of a study's finished points was made last, and when.
    pub(crate) so_far: Mutex<Option<(PathBuf, tokio::time::Instant)>>,
    /// What a gateway said last, and when: however many ask, it is asked once.
    pub(crate) gateway: Mutex<Option<(tokio::time::Instant, Result<String, String>)>>,
}

impl Server {
    /// Waits for the turn of who would read a scenario.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        let turn = self.readers.acquire().await;
        turn.map_err(|_| Refusal::broken("the server ends"))
    }
}

/// Serves until SIGINT or SIGTERM, then ends all runs in order.
pub(crate) async fn serve(
    args: &Args,
    print: impl Fn(&str) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut interrupted = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminated = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let listener = TcpListener::bind(args.listen).await.with_context(|| {
        format!(
            "cannot listen at {}: give another address or port by --listen",
            args.listen
        )
    })?;
    let at = listener
        .local_addr()
        .context("the listener has no address")?;
    let server = Arc::new(prepare(args, at)?);
    if server.is_root {
        // What a killed server's runs left in the kernel. It says itself what it could not remove.
        let clean = ["lab", "clean"].map(Into::into);
        let swept = child_process::output(
            &server.limits,
            &clean,
            Path::new("."),
            Duration::from_secs(60),
        );
        if let Err(error) = swept.await {
            tracing::warn!(%error, "cannot sweep what earlier runs left");
        }
    }
    { server.queue.resume() }
        .with_context(|| format!("cannot read the results in `{}`", args.results.display()))?;
    print(&format!(
        "{}/?token={}",
        address(at),
        server.authorization.token()
    ))?;
    if !at.ip().is_loopback() {
        print("Whoever sees the traffic sees the token: there is no TLS here.")?;
    }
    let app = api::router(Arc::clone(&server));
    let mut slots = ConnectionSlots::new(CONNECTIONS);
    loop {
        tokio::select! {
            () = admit(&listener, &mut slots, &app) => {}
            _ = interrupted.recv() => break,
            _ = terminated.recv() => break,
        }
    }
    drop(listener);
    server.queue.close().await;
    Ok(())
}

fn prepare(args: &Args, at: SocketAddr) -> anyhow::Result<Server> {
    let store = RunStore::new(&args.results);
    let store =
        store.with_context(|| format!("cannot open the folder `{}`", args.results.display()))?;
    let store = Arc::new(store);
    let limits = Limits {
        program: std::env::current_exe().context("this program does not know its own path")?,
        memory: args.memory.saturating_mul(1_000_000),
        longest: Duration::from_secs(60 * args.longest),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Server {
        authorization: Authorization::new(at, &args.name)?,
        queue: RunQueue::new(
            Arc::clone(&store),
            limits.clone(),
            Jobs {
                simulator: args.jobs.unwrap_or(processors),
                lab: args.lab_jobs,
            },
        ),
        studies: Studies::new(&args.papers, store.folder()),
        store,
        advisor: args
            .advisor
            .clone()
            .or_else(|| installed_advisor(&limits.program)),
        limits,
        control: args.control.clone(),
        readers: Semaphore::new(processors),
        is_root: rustix::process::geteuid().is_root(),
        watchers: AtomicUsize::new(0),
        so_far: Mutex::default(),
        gateway: Mutex::default(),
    })
}

/// The advisor's page where it is installed with `program`, or built beside it.
fn installed_advisor(program: &Path) -> Option<PathBuf> {
    let beside = program.parent()?.parent()?;
    let mut folders = ["share/bentpipe/advisor", "advisor"]
        .map(|it| beside.join(it))
        .into_iter();
    folders.find(|folder| folder.join("index.html").is_file())
}

/// Takes the next connection.
async fn admit(listener: &TcpListener, slots: &mut ConnectionSlots, app: &Router) {
    match listener.accept().await {
        Ok((stream, _)) => {
            let app = app.clone();
            slots.take(|shown| converse(stream, app, shown)).await;
        }
        // Descriptors have run out, or the peer has gone already.
        Err(error) => {
            tracing::debug!(%error, "accept");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn converse(stream: TcpStream, app: Router, shown: TokenShown) {
    // What is sent is whole answers and events that are wanted at once.
    let _ = stream.set_nodelay(true);
    let app = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(shown.clone());
        app.call(request)
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = conversation.await {
        tracing::debug!(%error, "connection");
    }
}

/// How a browser on this machine reaches `at`.
fn address(at: SocketAddr) -> String {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, at.port()))
}
