//! One flow: a file that a program moves ([`mod@file`]), or bulk or requests and answers over kernel TCP: a thread for
//! each end, on non-blocking sockets that were made inside the ends' namespaces.
//!
//! All times count from connect(). The receiver decides when a flow is over: at the last byte of so
//! many bytes, or when its time is up; it looks at every byte it gets.

mod file;
mod pattern;
mod receiver;
mod request;
mod sample_clock;
mod sender;
mod wait;

pub(crate) use file::{Ends as FileEnds, Prepared};
pub(crate) use pattern::Pattern;
pub(crate) use receiver::{End as ReceivedEnd, Received};
pub(crate) use sender::Sent;

use crate::LabError;
use crate::plan::FlowPlan;
use bentpipe_base::Instant;
use bentpipe_bpf::kernel_name;
use bentpipe_os::netns::Netns;
use bentpipe_scenario::{Amount, Flow, FlowKind};
use bentpipe_sockets::tcp::Info;
use bentpipe_sockets::{socket, tcp, timer};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use wait::Wait;

/// How often the state of a flow is noted.
pub(crate) const SAMPLE: Duration = bentpipe_outcome::Flow::SAMPLED;

/// What a socket is given before it connects or listens.
#[derive(Clone, Debug)]
pub(crate) struct SocketSettings {
    /// Congestion control.
    pub(crate) control: String,
    /// `SO_MARK`; `bentpipe_rate` finds the parameters of its link by it.
    pub(crate) mark: Option<u32>,
}

impl SocketSettings {
    /// A socket for connections with `to`, in the namespace of this thread.
    pub(crate) fn socket(&self, to: SocketAddr) -> io::Result<OwnedFd> {
        let stream = socket::stream(to)?;
        tcp::set_congestion(&stream, kernel_name(&self.control))?;
        if let Some(mark) = self.mark {
            socket::set_mark(&stream, mark)?;
        }
        Ok(stream)
    }
}

/// One end of a flow to be.
pub(crate) struct EndPlan<'a> {
    /// Where it is.
    pub(crate) netns: &'a Netns,
    pub(crate) settings: SocketSettings,
}

/// A flow that has not begun.
pub(crate) enum Ready {
    Sockets(Box<Sockets>),
    File(Box<Prepared>),
}

/// A flow whose sockets stand ready, and whose opener has not connected yet.
pub(crate) struct Sockets {
    name: String,
    opener: OwnedFd,
    listener: OwnedFd,
    sends: Opens,
    shared: Shared,
}

/// Which end sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Sender,
    Receiver,
}

/// What both ends of a flow know.
#[derive(Clone)]
struct Shared {
    to: SocketAddr,
    /// What the ends do on the connection.
    kind: FlowKind,
    amount: Amount,
    /// When to connect.
    start: Instant,
    /// When the run is cut off.
    limit: Instant,
    pattern: Arc<Pattern>,
    /// The instant of connect(), set just before.
    opened: Arc<OnceLock<Instant>>,
    /// Raised when the whole run ends.
    stop: Arc<AtomicBool>,
    /// Raised by the receiver when it is through.
    over: Arc<AtomicBool>,
    /// Bytes received so far.
    progress: Arc<AtomicU64>,
    /// The state of the sender's TCP when it was noted last.
    latest: Arc<Mutex<Option<Info>>>,
}

/// A flow under way.
pub(crate) struct Running {
    opened: Arc<OnceLock<Instant>>,
    progress: Arc<AtomicU64>,
    latest: Arc<Mutex<Option<Info>>>,
    /// `None` for a program's file, which has no sockets of ours.
    sender: Option<JoinHandle<Sent>>,
    receiver: JoinHandle<Received>,
}

/// What both ends saw of a flow.
pub(crate) struct FinishedFlow {
    /// The instant of connect(), if it came to that.
    pub(crate) opened: Option<Instant>,
    pub(crate) sent: Sent,
    pub(crate) received: Received,
}

impl Ready {
    /// Lets the flow run in a run that began at `begin` and is cut off at `limit`, or when `stop`
    /// is raised.
    pub(crate) fn start(
        self,
        begin: Instant,
        limit: Instant,
        stop: &Arc<AtomicBool>,
    ) -> Result<Running, LabError> {
        match self {
            Self::Sockets(sockets) => sockets.start(begin, limit, stop),
            Self::File(file) => {
                let shown = file::Shown::default();
                let (name, stop) = (file.name().to_owned(), Arc::clone(stop));
                let file::Shown { opened, progress } = shown.clone();
                let run = move || file.run(begin, limit, &stop, &shown);
                Ok(Running {
                    opened,
                    progress,
                    latest: Arc::default(),
                    sender: None,
                    receiver: spawn(&name, run).map_err(not_spawned(&name))?,
                })
            }
        }
    }
}

fn not_spawned(name: &str) -> impl Fn(io::Error) -> LabError {
    move |source| LabError::Flow {
        flow: name.to_owned(),
        doing: "start its threads",
        source,
    }
}

impl Sockets {
    /// Makes the sockets of `flow` in the namespaces of its ends.
    pub(crate) fn prepare(
        flow: &Flow,
        plan: &FlowPlan,
        opener: &EndPlan<'_>,
        acceptor: &EndPlan<'_>,
        pattern: &Arc<Pattern>,
    ) -> Result<Self, LabError> {
        let sends = if flow.opened_by == flow.from {
            Opens::Sender
        } else {
            Opens::Receiver
        };
        let error = |doing| {
            move |source| LabError::Flow {
                flow: flow.name.clone(),
                doing,
                source,
            }
        };
        let listener = acceptor.socket(plan, true).map_err(error("listen"))?;
        let dialler = opener
            .socket(plan, false)
            .map_err(error("make the socket that connects"))?;
        Ok(Self {
            name: flow.name.clone(),
            opener: dialler,
            listener,
            sends,
            shared: Shared {
                to: plan.to,
                kind: flow.kind,
                amount: flow.amount,
                start: Instant::ZERO + flow.start,
                limit: Instant::MAX,
                pattern: Arc::clone(pattern),
                opened: Arc::default(),
                stop: Arc::default(),
                over: Arc::default(),
                progress: Arc::default(),
                latest: Arc::default(),
            },
        })
    }

    fn start(
        self,
        begin: Instant,
        limit: Instant,
        stop: &Arc<AtomicBool>,
    ) -> Result<Running, LabError> {
        let shared = Shared {
            start: begin + self.shared.start.since(Instant::ZERO),
            limit,
            stop: Arc::clone(stop),
            ..self.shared
        };
        let spawned = not_spawned(&self.name);
        let (opened, progress) = (Arc::clone(&shared.opened), Arc::clone(&shared.progress));
        let latest = Arc::clone(&shared.latest);
        let (for_sender, for_receiver) = (shared.clone(), shared);
        let connect = |shared: &Shared, wait: &mut Wait, fd| shared.connect(wait, fd);
        let accept = |shared: &Shared, wait: &mut Wait, fd| shared.accept(wait, fd);
        // Two shapes of one thing: which function opens goes with the end, the rest does not.
        let (sender, receiver) = match self.sends {
            Opens::Sender => (
                spawn(&self.name, move || for_sender.send(self.opener, connect)),
                spawn(&self.name, move || {
                    for_receiver.receive(self.listener, accept)
                }),
            ),
            Opens::Receiver => (
                spawn(&self.name, move || for_sender.send(self.listener, accept)),
                spawn(&self.name, move || {
                    for_receiver.receive(self.opener, connect)
                }),
            ),
        };
        Ok(Running {
            opened,
            progress,
            latest,
            sender: Some(sender.map_err(&spawned)?),
            receiver: receiver.map_err(&spawned)?,
        })
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(f)
}

impl EndPlan<'_> {
    /// Its socket, which listens or is to connect.
    fn socket(&self, plan: &FlowPlan, listens: bool) -> io::Result<OwnedFd> {
        let make = || {
            let stream = self.settings.socket(plan.to)?;
            if listens {
                socket::bind(&stream, plan.to)?;
                socket::listen(&stream, 1)?;
            }
            Ok(stream)
        };
        let made = self.netns.run(make);
        made.unwrap_or_else(|e| Err(io::Error::other(e)))
    }
}

impl Running {
    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// The state of the sender's TCP when it was noted last.
    pub(crate) fn sender(&self) -> Option<Info> {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the receiver is through.
    pub(crate) fn is_received(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Whether both ends are through.
    pub(crate) fn is_over(&self) -> bool {
        let sent = self.sender.as_ref().is_none_or(JoinHandle::is_finished);
        self.receiver.is_finished() && sent
    }

    /// Waits for both ends, which the caller has told to stop where it must not take long.
    pub(crate) fn join(self) -> FinishedFlow {
        let panicked = "the thread of a flow panicked";
        FinishedFlow {
            sent: self.sender.map_or_else(Sent::default, |sender| {
                sender.join().unwrap_or_else(|_| Sent::failed(panicked))
            }),
            received: self
                .receiver
                .join()
                .unwrap_or_else(|_| Received::failed(panicked)),
            opened: self.opened.get().copied(),
        }
    }
}

/// Why an end could not open its connection, or lost it.
pub(crate) enum Lost {
    /// The time was up, or the run was stopped, first.
    TimeUp,
    /// The connection was refused, reset or timed out; what the kernel said.
    Broken(String),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl Shared {
    /// Connects at the appointed time.
    fn connect(&self, wait: &mut Wait, opener: OwnedFd) -> Result<OwnedFd, Lost> {
        wait.sleep_until(self.start, &self.stop)?;
        let now = timer::now();
        // Only this thread sets it, once.
        let _ = self.opened.set(now);
        if socket::connect(&opener, self.to)? == socket::Dial::Pending {
            wait.writable(&opener)?;
            loop {
                let at = self.limit.min(timer::now() + SAMPLE);
                if wait.for_one(at)? {
                    break;
                }
                self.go_on()?;
            }
            wait.forget(&opener)?;
            socket::take_error(&opener)?;
        }
        Ok(opener)
    }

    /// Accepts the one connection that comes.
    fn accept(&self, wait: &mut Wait, listener: OwnedFd) -> Result<OwnedFd, Lost> {
        wait.readable(&listener)?;
        loop {
            let at = self.limit.min(timer::now() + SAMPLE);
            if wait.for_one(at)? {
                match socket::accept(&listener) {
                    Ok((stream, _)) => {
                        wait.forget(&listener)?;
                        return Ok(stream);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e.into()),
                }
            }
            self.go_on()?;
        }
    }

    fn go_on(&self) -> Result<(), Lost> {
        if self.stop.load(Ordering::Relaxed) || timer::now() >= self.end() {
            return Err(Lost::TimeUp);
        }
        Ok(())
    }

    /// When the receiver ends this flow at the latest. One that lasts a time was found to lie within
    /// the run's limit when the scenario was read; its connect() may come a little late.
    fn end(&self) -> Instant {
        match (self.amount, self.opened.get()) {
            (Amount::Duration(duration), Some(opened)) => *opened + duration,
            _ => self.limit,
        }
    }
}
