//! The traffic of the comparison: what the endpoints do, the same for every subject.
//!
//! Endpoints are threads of this process with sockets in the client's and the server's namespace.
//! They are written to cost little, because their cost is in every figure of every subject: a bulk
//! sender writes one 256 KiB buffer again and again (as nearly every program writes; sendfile
//! would hand the proxies pages of 4 KiB, which no network card does), a bulk receiver has the
//! kernel discard the bytes in place (MSG_TRUNC), and one thread a side serves all flows.

mod bulk;
mod connects;
mod crowd;
mod idle;
mod round_trip;
pub(crate) mod worker;

pub(super) use bulk::bulk;
pub(super) use connects::{Ports, connects};
pub(super) use crowd::crowd;
pub(super) use idle::idle;
pub(super) use round_trip::round_trip;
pub(crate) use round_trip::{CONNECTIONS, round_trips};

use super::usage;
use bentpipe_os::netns::{Netns, NetnsError};
use bentpipe_sockets::socket;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Nothing here takes longer on a working path.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Which way the bytes of a bulk transfer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

/// Why a measurement gave no figure.
#[derive(Debug, Error)]
pub enum TrafficError {
    /// The user asked to stop.
    #[error("stopped")]
    Cancelled,
    /// A namespace refused us.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Flows did not come through, or broke off.
    #[error("{what} within {} s", PATIENCE.as_secs())]
    Stalled {
        /// What did not happen.
        what: String,
    },
    /// Nothing came while it was measured.
    #[error("not one byte arrived in the {} ms that were measured", window.as_millis())]
    Silent {
        /// How long that was.
        window: Duration,
    },
    /// Flows ended that should have lasted.
    #[error("{ended} of {flows} flows ended before the measurement did")]
    Ended {
        /// How many ended.
        ended: usize,
        /// How many there were.
        flows: usize,
    },
}

/// Names what was being done when a system call failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: &'static str) -> Result<T, TrafficError>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: &'static str) -> Result<T, TrafficError> {
        self.map_err(|source| TrafficError::Io {
            doing: what,
            source,
        })
    }
}

/// The user's wish to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(pub(crate) Arc<AtomicBool>);

impl Cancel {
    /// Fails once the user asked to stop.
    pub(crate) fn check(&self) -> Result<(), TrafficError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(TrafficError::Cancelled);
        }
        Ok(())
    }

    /// Sleeps for `time`, or fails soon after the user asked to stop.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), TrafficError> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Waits until `done`, at most [`PATIENCE`]; `what` is what did not happen then.
    pub(crate) fn until(
        &self,
        what: impl Fn() -> String,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), TrafficError> {
        let end = Instant::now() + PATIENCE;
        while !done() {
            self.check()?;
            if Instant::now() > end {
                return Err(TrafficError::Stalled { what: what() });
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Where traffic starts and ends, and who carries it.
pub(super) struct Path<'a> {
    /// The client's namespace.
    pub(super) client: &'a Netns,
    /// The server's namespace.
    pub(super) server: &'a Netns,
    /// Where the server listens.
    pub(super) address: SocketAddr,
    /// The client's addresses and ports for short connections.
    pub(super) ports: &'a Ports,
    /// The proxy between them, if there is one.
    pub(super) proxy: Option<u32>,
    /// The proxy behind it, where two have a link between them.
    pub(super) far_proxy: Option<u32>,
    /// The user's wish to stop.
    pub(super) cancel: Cancel,
}

impl Path<'_> {
    /// The same path to the server's next port.
    fn next_port(&self) -> Path<'_> {
        Path {
            address: SocketAddr::new(self.address.ip(), self.address.port() + 1),
            cancel: self.cancel.clone(),
            ..*self
        }
    }

    /// A listening socket of the server.
    fn listen(&self) -> Result<OwnedFd, TrafficError> {
        let address = self.address;
        self.server
            .run(move || {
                let listener = socket::stream(address)?;
                socket::set_reuse_address(&listener, true)?;
                socket::bind(&listener, address)?;
                socket::listen(&listener, 4096)?;
                Ok(listener)
            })?
            .doing("listening in the server's namespace")
    }

    /// `flows` connections from the client to the server, one after another, each warmed up by
    /// `greet`. Closing them sends RST, so that none lingers.
    fn connect<F>(&self, flows: usize, greet: F) -> Result<Vec<TcpStream>, TrafficError>
    where
        F: Fn(&mut TcpStream) -> io::Result<()> + Send + Sync,
    {
        self.client.run(|| {
            let mut streams = Vec::with_capacity(flows);
            for _ in 0..flows {
                self.cancel.check()?;
                let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)
                    .doing("connecting to the server")?;
                socket::abort_on_close(&stream, true)
                    .and_then(|()| stream.set_nodelay(true))
                    .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
                    .doing("preparing a client's socket")?;
                greet(&mut stream).doing("exchanging the first byte")?;
                streams.push(stream);
            }
            Ok(streams)
        })?
    }

    /// Processor time of the proxies so far; zero without one.
    fn proxy_cpu(&self) -> Result<Duration, TrafficError> {
        let proxies = self.proxy.into_iter().chain(self.far_proxy);
        proxies
            .map(|pid| usage::process_cpu(pid).doing("reading the proxy's processor time"))
            .sum()
    }
}

/// Whether a connection from client to server goes through process `proxy`: it must hold so many `sockets` more while the
/// connection is established.
pub(super) fn is_intercepted(
    path: &Path<'_>,
    proxy: u32,
    sockets: u64,
) -> Result<bool, TrafficError> {
    let held = || usage::process_descriptors(proxy).doing("counting the proxy's descriptors");
    let server = worker::Worker::start(worker::Duty::Echo, Some(path.listen()?), Vec::new())?;
    let before = held()?;
    let streams = path.connect(1, ping)?;
    let during = held()?;
    drop(streams);
    server.stop()?;
    Ok(during >= before + sockets)
}

/// Whether packets of connections that stand go through a queue whose reader is in the namespace of process `gateway`.
pub(super) fn is_queued(path: &Path<'_>, gateway: u32) -> Result<bool, TrafficError> {
    let queued = || usage::queued(gateway).doing("counting what the gateway's queues held");
    let server = worker::Worker::start(worker::Duty::Echo, Some(path.listen()?), Vec::new())?;
    let mut streams = path.connect(1, ping)?;
    let before = queued()?;
    for stream in &mut streams {
        ping(stream).doing("exchanging a byte")?;
    }
    let after = queued()?;
    drop(streams);
    server.stop()?;
    Ok(after >= before + 2)
}

/// One byte there and back.
fn ping(stream: &mut TcpStream) -> io::Result<()> {
    use std::io::{Read, Write};
    stream.write_all(b"p")?;
    stream.read_exact(&mut [0])
}
