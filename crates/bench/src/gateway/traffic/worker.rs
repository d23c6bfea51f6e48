//! One thread that serves many connections in one way.

use super::{Doing, TrafficError};
use bentpipe_sockets::epoll::{Epoll, Event, Events, Interest};
use bentpipe_sockets::socket;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{RecvFlags, recv};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// What a worker does with each of its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Sends back what comes.
    Echo,
    /// Discards what comes.
    Sink,
    /// Sends without end.
    Source,
}

/// Written again and again by a source.
const CHUNK: usize = 256 * 1024;
/// Most that a sink discards by one call.
const GULP: usize = 1024 * 1024;

/// Token of the listener and of the stop signal; connections carry their descriptor's number.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// What is seen of a worker from outside.
#[derive(Debug, Default)]
struct Gauges {
    open: AtomicUsize,
    received: AtomicU64,
    /// Bytes received on each connection, in the order in which connections came.
    each: Mutex<Vec<Arc<AtomicU64>>>,
}

/// The thread, from outside. Dropping it ends the thread and closes its connections.
#[derive(Debug)]
pub(crate) struct Worker {
    gauges: Arc<Gauges>,
    stop: OwnedFd,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Worker {
    /// Starts a worker that serves `streams`, and all that come to `listener`.
    pub(crate) fn start(
        duty: Duty,
        listener: Option<OwnedFd>,
        streams: Vec<OwnedFd>,
    ) -> Result<Self, TrafficError> {
        let gauges = Arc::new(Gauges::default());
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(io::Error::from)
            .doing("making an eventfd")?;
        let inside = Inside::new(duty, listener, streams, Arc::clone(&gauges), &stop)
            .doing("preparing an endpoint")?;
        let thread = thread::Builder::new()
            .name(format!("bench {duty:?}").to_lowercase())
            .spawn(move || inside.run())
            .doing("starting a thread")?;
        Ok(Self {
            gauges,
            stop,
            thread: Some(thread),
        })
    }

    /// Connections open at this moment.
    pub(crate) fn open(&self) -> usize {
        self.gauges.open.load(Ordering::Relaxed)
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.gauges.received.load(Ordering::Relaxed)
    }

    /// Bytes received so far of each connection that ever came, in that order.
    pub(crate) fn each(&self) -> Vec<u64> {
        let each = self
            .gauges
            .each
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        each.iter()
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .collect()
    }

    /// Ends the thread, closes its connections, and says whether it failed before.
    pub(crate) fn stop(mut self) -> Result<(), TrafficError> {
        self.end().doing("serving an endpoint")
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        rustix::io::write(&self.stop, &1u64.to_ne_bytes())?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the endpoint's thread panicked")))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::debug!(%error, "an endpoint failed");
        }
    }
}

/// The worker as its thread sees it.
struct Inside {
    duty: Duty,
    epoll: Epoll,
    listener: Option<OwnedFd>,
    streams: HashMap<u64, Connection>,
    gauges: Arc<Gauges>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: OwnedFd,
    received: Arc<AtomicU64>,
}

impl Inside {
    fn new(
        duty: Duty,
        listener: Option<OwnedFd>,
        streams: Vec<OwnedFd>,
        gauges: Arc<Gauges>,
        stop: &OwnedFd,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(stop, STOP, Interest::READ)?;
        if let Some(listener) = &listener {
            epoll.add(listener, LISTENER, Interest::READ)?;
        }
        let mut inside = Self {
            duty,
            epoll,
            listener,
            streams: HashMap::new(),
            gauges,
            buffer: match duty {
                Duty::Echo => vec![0; 64],
                Duty::Sink => vec![0; GULP],
                Duty::Source => vec![0x5a; CHUNK],
            },
        };
        for stream in streams {
            inside.adopt(stream)?;
        }
        Ok(inside)
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            self.epoll.wait(&mut events, None)?;
            for event in events.iter() {
                match event.token {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    _ => self.serve(event)?,
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let Some(listener) = &self.listener else {
                return Ok(());
            };
            match socket::accept(listener) {
                Ok((stream, _)) => self.adopt(stream)?,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // A connection that was reset while it waited is no fault of the listener.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn adopt(&mut self, stream: OwnedFd) -> io::Result<()> {
        if self.duty != Duty::Echo {
            socket::abort_on_close(&stream, true)?;
        }
        let token = stream.as_raw_fd() as u64;
        let interest = match self.duty {
            Duty::Source => Interest::WRITE,
            Duty::Echo | Duty::Sink => Interest::READ,
        };
        self.epoll.add(&stream, token, interest)?;
        let received = Arc::default();
        self.gauges
            .each
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&received));
        self.streams.insert(token, Connection { stream, received });
        self.gauges
            .open
            .store(self.streams.len(), Ordering::Relaxed);
        Ok(())
    }

    fn serve(&mut self, event: Event) -> io::Result<()> {
        let Some(Connection { stream, received }) = self.streams.get(&event.token) else {
            return Ok(());
        };
        let moved = match self.duty {
            Duty::Echo => echo(stream, &mut self.buffer),
            Duty::Sink => discard(stream, &mut self.buffer),
            Duty::Source => socket::send(stream, &self.buffer),
        };
        match moved {
            Ok(bytes) if bytes > 0 => {
                received.fetch_add(bytes as u64, Ordering::Relaxed);
                self.gauges
                    .received
                    .fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // An end of stream or a reset: whoever counts on the flow looks at `open`.
            Ok(_) | Err(_) => {
                self.streams.remove(&event.token);
                self.gauges
                    .open
                    .store(self.streams.len(), Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Has the kernel drop up to a buffer's worth of received bytes without copying them (tcp(7),
/// MSG_TRUNC).
fn discard(stream: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    let (_, length) = recv(stream, buffer, flags)?;
    Ok(length)
}

/// Sends back what is there: a byte or two, which always fit.
fn echo(stream: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    match socket::receive(&stream, buffer)? {
        0 => Ok(0),
        length => socket::send(&stream, &buffer[..length]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    fn listener() -> (OwnedFd, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        (listener.into(), address)
    }

    fn soon(mut done: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(5);
        while !done() {
            assert!(Instant::now() < end, "nothing came of it");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_echo_answers_and_forgets_who_left() {
        let (listener, address) = listener();
        let worker = Worker::start(Duty::Echo, Some(listener), Vec::new()).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"q").unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((&answer, worker.open()), (b"q", 1));
        drop(stream);
        soon(|| worker.open() == 0);
        worker.stop().unwrap();
    }

    #[test]
    fn a_sink_counts_what_a_source_sends() {
        let (listener, address) = listener();
        let sink = Worker::start(Duty::Sink, Some(listener), Vec::new()).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        let source = Worker::start(Duty::Source, None, vec![stream.into()]).unwrap();
        soon(|| sink.received() > 10_000_000);
        source.stop().unwrap();
        soon(|| sink.open() == 0);
        sink.stop().unwrap();
    }
}
