//! One host of the cross traffic, which sends and receives all of its transfers on one thread.

use crate::flow::{SAMPLE, SocketSettings};
use bentpipe_base::{Bytes, Instant};
use bentpipe_outcome::Traffic;
use bentpipe_sockets::epoll::{Epoll, Event, Events, Interest};
use bentpipe_sockets::{socket, timer};
use bentpipe_traffic::{Source, Transfer};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The token of the listener; flows have their index, and what is read the numbers behind.
const LISTENER: u64 = u64::MAX;
/// The bytes of transfers, which nobody checks.
static CONTENT: [u8; 64 * 1024] = [0; 64 * 1024];

/// One transfer after another.
pub(super) struct Flow {
    source: Source,
    /// What the next one carries.
    size: Bytes,
    /// From the start of the run; that of the first.
    start: Duration,
    sending: Option<Sending>,
}

/// A transfer under way.
struct Sending {
    stream: OwnedFd,
    left: u64,
    /// All is written, and the stream ended.
    ended: bool,
}

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is no room for the rest.
    Writing,
    /// The other end has still to read, and to close.
    Written,
    /// All has arrived, and both ends have closed.
    Over,
}

pub(super) struct Host {
    epoll: Epoll,
    listener: OwnedFd,
    /// Where the other host listens.
    to: SocketAddr,
    settings: SocketSettings,
    flows: Vec<Flow>,
    /// When flows begin their next transfer.
    due: BTreeSet<(Instant, usize)>,
    reading: BTreeMap<u64, OwnedFd>,
    next_token: u64,
    buffer: Vec<u8>,
    result: Traffic,
}

impl Flow {
    /// A flow that begins with the transfer `first` and goes on as `source` says.
    pub(super) const fn new(source: Source, first: &Transfer) -> Self {
        Self {
            source,
            size: first.bytes,
            start: first.start,
            sending: None,
        }
    }
}

impl Host {
    /// A host that listens at `listener` and sends `flows` to `to`, from sockets with `settings`.
    pub(super) fn new(
        listener: OwnedFd,
        to: SocketAddr,
        settings: SocketSettings,
        flows: Vec<Flow>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(&listener, LISTENER, Interest::READ)?;
        Ok(Self {
            epoll,
            listener,
            to,
            settings,
            next_token: flows.len() as u64,
            flows,
            due: BTreeSet::new(),
            reading: BTreeMap::new(),
            buffer: vec![0; 256 * 1024],
            result: Traffic::default(),
        })
    }

    /// Sends and reads until `stop` is raised, in a run that began at `begin`. What breaks a transfer ends
    /// that transfer; an error is that no more can be made.
    pub(super) fn run(mut self, begin: Instant, stop: &AtomicBool) -> io::Result<Traffic> {
        let starts = self.flows.iter().enumerate();
        self.due = starts.map(|(i, flow)| (begin + flow.start, i)).collect();
        let mut events = Events::with_capacity(64);
        while !stop.load(Ordering::Relaxed) {
            let now = timer::now();
            while let Some(&(at, index)) = self.due.first().filter(|(at, _)| *at <= now) {
                self.due.remove(&(at, index));
                self.begin(index, now)?;
            }
            let next = self.due.first().map_or(SAMPLE, |(at, _)| at.since(now));
            self.epoll.wait(&mut events, Some(next.min(SAMPLE)))?;
            for event in events.iter() {
                self.turn(event)?;
            }
        }
        Ok(self.result)
    }

    fn turn(&mut self, event: Event) -> io::Result<()> {
        match usize::try_from(event.token) {
            _ if event.token == LISTENER => self.accept(),
            Ok(index) if index < self.flows.len() => {
                self.send(index);
                Ok(())
            }
            _ => {
                self.read(event.token);
                Ok(())
            }
        }
    }

    /// Opens the connection of the next transfer of flow number `index`.
    fn begin(&mut self, index: usize, now: Instant) -> io::Result<()> {
        let stream = self.settings.socket(self.to)?;
        socket::abort_on_close(&stream, true)?;
        if socket::connect(&stream, self.to).is_err() {
            self.over(index, now, false);
            return Ok(());
        }
        self.epoll.add(&stream, index as u64, Interest::WRITE)?;
        let flow = &mut self.flows[index];
        flow.sending = Some(Sending {
            stream,
            left: flow.size.0,
            ended: false,
        });
        Ok(())
    }

    fn send(&mut self, index: usize) {
        let Some(sending) = &mut self.flows[index].sending else {
            return;
        };
        let state = sending.proceed().and_then(|state| {
            if state == State::Written {
                // The other end sends nothing but its own end.
                let (stream, token) = (&sending.stream, index as u64);
                self.epoll.modify(stream, token, Interest::READ)?;
            }
            Ok(state)
        });
        match state {
            Ok(State::Writing | State::Written) => {}
            Ok(State::Over) => self.over(index, timer::now(), true),
            Err(_) => self.over(index, timer::now(), false),
        }
    }

    /// A transfer is over, `whole` or broken: its flow pauses before the next.
    fn over(&mut self, index: usize, now: Instant, whole: bool) {
        self.result.finished += u64::from(whole);
        self.result.broken += u64::from(!whole);
        let flow = &mut self.flows[index];
        let (pause, size) = flow.source.succeed();
        flow.size = size;
        flow.sending = None;
        self.due.insert((now + pause, index));
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match socket::accept(&self.listener) {
                Ok((stream, _)) => {
                    self.epoll.add(&stream, self.next_token, Interest::READ)?;
                    self.reading.insert(self.next_token, stream);
                    self.next_token += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if socket::is_exhausted(&e) => return Err(e),
                // The connection was reset before it was accepted, which its sender notices itself.
                Err(_) => {}
            }
        }
    }

    fn read(&mut self, token: u64) {
        let Some(stream) = self.reading.get(&token) else {
            return;
        };
        match socket::receive(stream, &mut self.buffer) {
            Ok(0) => {
                // Where this fails its sender hears a reset in place of the end.
                let _ = socket::abort_on_close(stream, false);
                self.reading.remove(&token);
            }
            Ok(length) => self.result.received += Bytes(length as u64),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => {
                self.reading.remove(&token);
            }
        }
    }
}

impl Sending {
    /// Does what can be done now.
    fn proceed(&mut self) -> io::Result<State> {
        let or_blocked = |e: io::Error, state| match e.kind() {
            io::ErrorKind::WouldBlock => Ok(state),
            _ => Err(e),
        };
        while self.left > 0 {
            let most = self.left.min(CONTENT.len() as u64) as usize;
            match socket::send(&self.stream, &CONTENT[..most]) {
                Ok(length) => self.left -= length as u64,
                Err(e) => return or_blocked(e, State::Writing),
            }
        }
        if !self.ended {
            socket::shutdown_send(&self.stream)?;
            self.ended = true;
            return Ok(State::Written);
        }
        match socket::receive(&self.stream, &mut [0; 1]) {
            Ok(0) => socket::abort_on_close(&self.stream, false).map(|()| State::Over),
            Ok(_) => Err(io::ErrorKind::InvalidData.into()),
            Err(e) => or_blocked(e, State::Written),
        }
    }
}
