//! The stack under test: one host, its virtual clock, the packets that left, and the calls that sleep.
//!
//! A call that blocks sleeps on a second thread, while the first one moves the clock. Before the clock moves, the first
//! thread waits until the sleeper has seen all that happened, and, if that ends its call, until it has read the time:
//! otherwise the clock would run ahead of a call that returns at once on a real machine.

use crate::bursts;
use crate::epoll::Epoll;
use crate::errno::{Answer, Errno, Progress};
use crate::options::Options;
use crate::socket::{Kind, Socket};
use bentpipe_base::{Instant, Machine, Output};
use bentpipe_host::{Config, ConnectionId, Event, Host, Secret};
use bentpipe_tcp as tcp;
use bentpipe_wire::{Checksums, Packet};
use core::ffi::c_int;
use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The time at which a run begins: not 0, which timestamps take for none.
const START: Instant = Instant::from_nanos(1_000_000_000_000);
/// Each look at the clock moves it by this.
const TICK: Duration = Duration::from_micros(1);
/// No packet is waited for longer than this: the longest timer of a connection is two hours of keep-alive.
const PATIENCE: Duration = Duration::from_secs(86_400);
/// How long the first thread waits, in real time, for one that sleeps in a call to see what happened. It is exceeded
/// only where that thread never looks at the clock after its call.
const GRACE: Duration = Duration::from_millis(200);
/// If the first thread makes no call for so long, in real time, it waits for the sleeper.
const IDLE: Duration = Duration::from_millis(500);

/// The object's `userdata`.
#[derive(Debug)]
pub(crate) struct Stack {
    state: Mutex<State>,
    /// Something happened: sleepers look again.
    happened: Condvar,
    /// A sleeper has looked.
    looked: Condvar,
    /// The thread that moves the clock.
    main: c_int,
}

/// All of it, behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) now: Instant,
    pub(crate) host: Host,
    pub(crate) sockets: BTreeMap<c_int, Socket>,
    pub(crate) epolls: BTreeMap<c_int, Epoll>,
    pub(crate) tcp: tcp::Config,
    /// `net.ipv4.tcp_fastopen`: 1: clients, 2: servers.
    pub(crate) fast_open: u32,
    holders: BTreeMap<ConnectionId, c_int>,
    out: VecDeque<(Instant, Vec<u8>)>,
    /// How often something happened.
    turns: u64,
    /// How often the first thread made a call that takes time.
    looks: u64,
    sleeper: Option<Sleeper>,
    /// Bursts are marked by PSH, as Linux does it: the least segments of one. `None`: they are not marked.
    bursts: Option<u32>,
}

/// A thread inside a blocking call.
#[derive(Clone, Copy, Debug)]
struct Sleeper {
    thread: c_int,
    /// The turn that it saw last.
    seen: u64,
    /// When it gives up.
    until: Option<Instant>,
    /// Its call is over, and it has not looked at the clock yet.
    returning: bool,
}

fn thread() -> c_int {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

type Guard<'a> = MutexGuard<'a, State>;

impl Stack {
    /// A stack as `flags` tell, with commas between them: `address=A` for each address of the host; `bursts=off`, where
    /// PSH shall be only where the endpoint itself sets it; `net.ipv4.NAME=VALUE` for what Linux calls so.
    pub(crate) fn new(flags: &str) -> Self {
        let host = Host::new(
            Config {
                // Scripts ask for as many as they like.
                replies_per_second: u32::MAX,
                ..Config::default()
            },
            Secret::new([0x5a; 16]),
        );
        let mut state = State {
            now: START,
            host,
            sockets: BTreeMap::new(),
            epolls: BTreeMap::new(),
            tcp: tcp::Config::linux(),
            fast_open: 1,
            holders: BTreeMap::new(),
            out: VecDeque::new(),
            turns: 0,
            looks: 0,
            sleeper: None,
            bursts: Some(bursts::LEAST),
        };
        for flag in flags.split(',') {
            if let Some((name, value)) = flag.trim().split_once('=') {
                state.flag(name, value);
            }
        }
        Self {
            state: Mutex::new(state),
            happened: Condvar::new(),
            looked: Condvar::new(),
            main: thread(),
        }
    }

    fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that is over at once.
    pub(crate) fn at_once<T>(&self, call: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = call(&mut state);
        state.settle();
        self.happened.notify_all();
        result
    }

    /// A call that may have to wait, on a descriptor that blocks or not; `until`: no longer than that.
    pub(crate) fn call<T>(
        &self,
        blocks: bool,
        timeout: Option<Duration>,
        mut call: impl FnMut(&mut State) -> Progress<T>,
    ) -> Progress<T> {
        let mut state = self.lock();
        let until = timeout.map(|timeout| state.now + timeout);
        let mut attempt = |state: &mut State| {
            let progress = call(state);
            state.settle();
            progress
        };
        let first = attempt(&mut state);
        self.happened.notify_all();
        if !blocks || matches!(first, Progress::Done(_)) {
            return first;
        }
        if thread() != self.main {
            return self.sleep(state, until, attempt);
        }
        // Nobody else moves the clock. Without a timeout this call would never end, were it not told to.
        let Some(until) = until else {
            return Progress::Pending;
        };
        loop {
            let due = state.host.deadline().filter(|due| *due < until);
            state = self.advance(state, due.unwrap_or(until));
            let progress = attempt(&mut state);
            if matches!(progress, Progress::Done(_)) || due.is_none() {
                return progress;
            }
        }
    }

    /// Sleeps until `attempt` has a result.
    fn sleep<T>(
        &self,
        mut state: Guard<'_>,
        until: Option<Instant>,
        mut attempt: impl FnMut(&mut State) -> Progress<T>,
    ) -> Progress<T> {
        state.sleeper = Some(Sleeper {
            thread: thread(),
            seen: state.turns,
            until,
            returning: false,
        });
        loop {
            let seen = state.sleeper.map_or(0, |sleeper| sleeper.seen);
            let looks = state.looks;
            let same = |state: &mut State| state.turns == seen;
            let idle = self.happened.wait_timeout_while(state, IDLE, same);
            state = idle.unwrap_or_else(PoisonError::into_inner).0;
            if state.turns == seen
                && state.looks == looks
                && let Some(until) = until
            {
                // The first thread waits for this call to end, so that nobody else moves the clock.
                let due = state.host.deadline().unwrap_or(until).min(until);
                state.now = state.now.max(due);
                let now = state.now;
                state.host.timeout(now);
            }
            let progress = attempt(&mut state);
            let over = until.is_some_and(|until| until <= state.now);
            let done = matches!(progress, Progress::Done(_)) || over;
            let turns = state.turns;
            if let Some(sleeper) = &mut state.sleeper {
                sleeper.seen = turns;
                sleeper.returning = done;
            }
            self.looked.notify_all();
            if done {
                return progress;
            }
        }
    }

    /// Waits until a sleeper has seen all that happened, and one whose call is over has looked at the clock.
    fn await_sleeper<'a>(&'a self, state: Guard<'a>) -> Guard<'a> {
        let here = thread();
        let behind = |state: &mut State| {
            let turns = state.turns;
            state.sleeper.is_some_and(|sleeper| {
                sleeper.thread != here && (sleeper.returning || sleeper.seen != turns)
            })
        };
        self.happened.notify_all();
        let waited = self.looked.wait_timeout_while(state, GRACE, behind);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            state.sleeper = None;
        }
        state
    }

    /// Moves the clock to `to`, and does what is due on the way.
    fn advance<'a>(&'a self, mut state: Guard<'a>, to: Instant) -> Guard<'a> {
        loop {
            state = self.await_sleeper(state);
            let until = state.sleeper.and_then(|sleeper| sleeper.until);
            let due = [state.host.deadline(), until].into_iter().flatten().min();
            let Some(due) = due.filter(|due| *due <= to) else {
                state.now = state.now.max(to);
                return state;
            };
            state.now = state.now.max(due);
            let now = state.now;
            state.host.timeout(now);
            state.settle();
        }
    }

    /// The time, in microseconds. The thread whose call was over has looked at the clock.
    pub(crate) fn time(&self) -> u64 {
        let mut state = self.lock();
        let here = thread();
        if state
            .sleeper
            .is_some_and(|sleeper| sleeper.thread == here && sleeper.returning)
        {
            state.sleeper = None;
            self.looked.notify_all();
        }
        state.looks += 1;
        let to = state.now + TICK;
        state = self.advance(state, to);
        state.now.as_nanos() / 1_000
    }

    /// Lets `time` pass.
    pub(crate) fn pass(&self, time: Duration) {
        let mut state = self.lock();
        state.looks += 1;
        let to = state.now + time;
        drop(self.advance(state, to));
    }

    /// Takes a packet from the network. What cannot be read is dropped, as hosts do.
    pub(crate) fn packet_in(&self, bytes: &[u8]) {
        self.at_once(|state| {
            let Ok(packet) = Packet::parse(bytes, Checksums::Verify) else {
                return;
            };
            let now = state.now;
            state.host.input((), packet, now);
        });
    }

    /// The next packet that left, and when. With none there, time passes until one leaves; `None` where no timer is set
    /// that could send one.
    pub(crate) fn packet_out(&self) -> Option<(Instant, Vec<u8>)> {
        let mut state = self.lock();
        state.looks += 1;
        let until = state.now + PATIENCE;
        loop {
            state = self.await_sleeper(state);
            if let Some(packet) = state.out.pop_front() {
                return Some(packet);
            }
            let sleeper = state.sleeper.and_then(|sleeper| sleeper.until);
            let due = [state.host.deadline(), sleeper]
                .into_iter()
                .flatten()
                .min()
                .filter(|due| *due <= until)?;
            state = self.advance(state, due);
        }
    }
}

impl State {
    /// Heeds one flag; one that is not known changes nothing, as scripts set much that only the kernel has.
    fn flag(&mut self, name: &str, value: &str) {
        let on = value != "0";
        match name {
            "address" => {
                if let Ok(address) = value.parse::<IpAddr>() {
                    self.host.add_address(address);
                }
            }
            "bursts" if value == "off" => self.bursts = None,
            "net.ipv4.tcp_min_tso_segs" => {
                if let (Some(least), Ok(value)) = (&mut self.bursts, value.parse()) {
                    *least = value;
                }
            }
            "net.ipv4.tcp_ecn" => {
                self.tcp.ecn = match value {
                    "0" => tcp::EcnMode::Off,
                    "1" => tcp::EcnMode::Ask,
                    _ => tcp::EcnMode::Accept,
                }
            }
            "net.ipv4.tcp_fastopen" => self.fast_open = value.parse().unwrap_or(self.fast_open),
            "net.ipv4.tcp_timestamps" => self.tcp.timestamps = on,
            "net.ipv4.tcp_window_scaling" => self.tcp.window_scaling = on,
            "net.ipv4.tcp_sack" if !on => self.tcp.sack_blocks = 0,
            _ => {}
        }
    }

    /// Takes what the host did: its packets and events, and what the socket interface makes of them.
    pub(crate) fn settle(&mut self) {
        self.turns += 1;
        loop {
            let now = self.now;
            let (mut packets, mut events) = (Vec::new(), Vec::new());
            self.host.drain(now, |output| match output {
                Output::Packet((), packet) => packets.push(packet),
                Output::Event(event) => events.push(event),
            });
            if let Some(least) = self.bursts {
                bursts::mark(
                    &mut packets,
                    &self.host,
                    self.holders.keys().copied(),
                    least,
                );
            }
            // Only a machine that is wrong makes a packet that contradicts itself: its script then misses it.
            let bytes = packets.iter().filter_map(|packet| packet.to_vec().ok());
            self.out.extend(bytes.map(|bytes| (now, bytes)));
            if events.is_empty() {
                return;
            }
            for event in events {
                self.on_event(event);
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        let Event::Connection(id, event) = event else {
            for socket in self.sockets.values_mut() {
                socket.edges.read += 1;
            }
            return;
        };
        let holder = self.holders.get(&id);
        if let Some(socket) = holder.and_then(|fd| self.sockets.get_mut(fd)) {
            socket.on_event(event);
        }
    }

    /// A real descriptor of this process, with `socket` behind it.
    pub(crate) fn open(&mut self, socket: Socket) -> Answer<c_int> {
        let fd = descriptor()?;
        if let Kind::Connection(id) = socket.kind {
            self.holders.insert(id, fd);
        }
        self.sockets.insert(fd, socket);
        Ok(fd)
    }

    /// `fd` holds connection `id` from now on.
    pub(crate) fn hold(&mut self, id: ConnectionId, fd: c_int) {
        self.holders.insert(id, fd);
    }

    /// Nobody holds `id` any more.
    pub(crate) fn let_go(&mut self, id: ConnectionId) {
        self.holders.remove(&id);
    }

    pub(crate) fn socket(&self, fd: c_int) -> Answer<&Socket> {
        self.sockets.get(&fd).ok_or(Errno(libc::EBADF))
    }

    pub(crate) fn socket_mut(&mut self, fd: c_int) -> Answer<&mut Socket> {
        self.sockets.get_mut(&fd).ok_or(Errno(libc::EBADF))
    }

    /// The endpoint's configuration that a socket with `options` has.
    pub(crate) fn configured(&self, options: &Options) -> Arc<tcp::Config> {
        Arc::new(options.configure(&self.tcp))
    }
}

/// A descriptor that stands for one of ours: scripts leave them open, and packetdrill closes them by the C library.
pub(crate) fn descriptor() -> Answer<c_int> {
    // SAFETY: eventfd takes two numbers.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) } {
        -1 => Err(Errno(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EMFILE),
        )),
        fd => Ok(fd),
    }
}
