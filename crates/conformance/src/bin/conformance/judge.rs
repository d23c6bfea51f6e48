//! Runs a script against a stack, by the rules of packetdrill (docs/conformance.md): what the script says is done at its
//! time, what it expects must come as it says and when it says.

mod blocked;
mod clock;

use crate::connection::{Connection, differences};
use crate::object::{Object, invoke};
use crate::packet::{self, Segment};
use crate::script::{
    Action, Call, Cookie, Event, Flags, Micros, Packet, Script, Tcp, TcpOption, Time,
};
use crate::syscall::{self, Addresses, Descriptors, Outcome, PORT};
use anyhow::{Context, Result, anyhow, bail, ensure};
use blocked::Blocked;
use clock::Clock;
use core::ffi::c_int;
use core::net::SocketAddr;
use std::sync::Arc;

/// How far times may be off: so much, and so much of the span since the event before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    pub(crate) micros: Micros,
    pub(crate) percent: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            micros: 4_000,
            percent: 12.5,
        }
    }
}

/// The first port of peers that connect.
const PEER_PORT: u16 = 40_000;
/// The longest packet.
const LONGEST: usize = 65_536;

/// A run of one script.
struct Run {
    object: Arc<Object>,
    addresses: Addresses,
    tolerance: Tolerance,
    clock: Clock,
    descriptors: Descriptors,
    connection: Option<Connection>,
    /// The cookie of TCP Fast Open that the stack gave first.
    cookie: Option<Vec<u8>>,
    /// A call to `connect` waits for its SYN.
    connecting: bool,
    peers: u16,
    /// The script's time of the event before.
    last: Micros,
    blocked: Option<(Blocked, Call, usize, Micros)>,
    buffer: Vec<u8>,
}

/// Runs `script`.
///
/// # Errors
/// What differs, with the line.
pub(crate) fn run(
    script: &Script,
    object: Object,
    addresses: Addresses,
    tolerance: Tolerance,
) -> Result<()> {
    let object = Arc::new(object);
    let mut run = Run {
        clock: Clock::start(&object)?,
        object,
        addresses,
        tolerance,
        descriptors: Descriptors::new(),
        connection: None,
        cookie: None,
        connecting: false,
        peers: 0,
        last: 0,
        blocked: None,
        buffer: vec![0; LONGEST],
    };
    for event in &script.events {
        run.event(event)
            .with_context(|| format!("line {}", event.line))?;
    }
    run.join()?;
    run.close_all()
}

impl Run {
    fn event(&mut self, event: &Event) -> Result<()> {
        match &event.action {
            Action::Inbound(packet) => {
                self.await_time(event.time)?;
                self.inbound(packet)
            }
            Action::Outbound(Packet::Tcp(expected)) => self.outbound(expected, event.time),
            Action::Outbound(Packet::Icmp { .. }) => {
                bail!("ICMP of the stack is not looked at here")
            }
            Action::Call(call) => {
                self.join_if_due(event.time)?;
                let before = self.last;
                let at = self.await_time(event.time)?;
                self.call(call, event.line, at, at - before)
            }
            Action::Command(_) | Action::Code => self.await_time(event.time).map(drop),
        }
    }

    /// Waits for the time of something that the script does; returns the script's time.
    fn await_time(&mut self, time: Time) -> Result<Micros> {
        let at = match time {
            Time::At(at) => at,
            Time::After(after) => self.last + after,
            _ => bail!("what is done has one time, only what is expected may have a range"),
        };
        self.last = at;
        self.clock.wait(&self.object, at)?;
        Ok(at)
    }

    fn inbound(&mut self, packet: &Packet) -> Result<()> {
        let tcp = match packet {
            Packet::Tcp(tcp) => tcp,
            &Packet::Icmp {
                kind,
                code,
                mtu,
                seq,
                length,
            } => {
                let connection = self
                    .connection
                    .as_ref()
                    .context("there is no connection yet")?;
                let about = Segment {
                    source: connection.local,
                    destination: connection.remote,
                    ..connection.inbound(&Tcp::default())
                };
                let seq = connection.local_number(seq);
                let bytes = packet::icmp((kind, code, mtu), &about, seq, length)?;
                return self.send(&bytes);
            }
        };
        if self.connection.is_none() {
            ensure!(
                !self.connecting,
                "the stack has sent no SYN yet that the script expects"
            );
            let local = SocketAddr::new(self.addresses.local, PORT);
            let remote = SocketAddr::new(self.addresses.remote, PEER_PORT + self.peers);
            self.peers += 1;
            self.connection = Some(Connection::new(local, remote));
        }
        let tcp = self.with_cookie(tcp)?;
        let connection = self.connection.as_ref().context("there is no connection")?;
        let bytes = connection.inbound(&tcp).emit()?;
        self.send(&bytes)
    }

    /// `tcp` with the cookie that the stack gave in the place of `TFO_COOKIE`.
    fn with_cookie(&self, tcp: &Tcp) -> Result<Tcp> {
        let mut tcp = tcp.clone();
        for option in tcp.options.iter_mut().flatten() {
            if *option == TcpOption::FastOpen(Cookie::OfStack) {
                let cookie = self.cookie.clone();
                let cookie = cookie.context("the stack has given no TFO_COOKIE yet")?;
                *option = TcpOption::FastOpen(Cookie::Octets(cookie));
            }
        }
        Ok(tcp)
    }

    /// Takes note of a cookie that `segment` gives.
    fn learn_cookie(&mut self, segment: &Segment) {
        for option in &segment.options {
            if let TcpOption::FastOpen(Cookie::Octets(octets)) = option {
                self.cookie.get_or_insert_with(|| octets.clone());
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<()> {
        let table = self.object.table();
        let sent = invoke!(table, netdev_send, bytes.as_ptr().cast(), bytes.len());
        ensure!(sent == 0, "the stack refused a packet");
        Ok(())
    }

    /// The next segment of the connection, and the script's time at which it left.
    fn next_segment(&mut self) -> Result<(Segment, Micros)> {
        loop {
            let mut length = self.buffer.len();
            let mut at = 0;
            let table = self.object.table();
            let data = self.buffer.as_mut_ptr().cast();
            let got = invoke!(table, netdev_receive, data, &raw mut length, &raw mut at);
            ensure!(got == 0, "the stack could not be asked for a packet");
            ensure!(
                length > 0,
                "a packet was expected, and the stack sends none"
            );
            let Some(segment) = Segment::read(&self.buffer[..length])? else {
                continue;
            };
            if self.connecting && segment.flags.has(Flags::SYN) {
                // The port of the connection is learnt from its SYN.
                let remote = SocketAddr::new(self.addresses.remote, PORT);
                if segment.destination == remote {
                    self.connection = Some(Connection::new(segment.source, remote));
                    self.connecting = false;
                }
            }
            if self
                .connection
                .as_ref()
                .is_some_and(|one| one.sent(&segment))
            {
                return Ok((segment, self.clock.script_time(at)));
            }
        }
    }

    fn outbound(&mut self, expected: &Tcp, time: Time) -> Result<()> {
        let (first, at) = self
            .next_segment()
            .with_context(|| format!("expected {}", brief(expected)))?;
        let segment = self.gather(first, expected)?;
        self.learn_cookie(&segment);
        let expected = &self.with_cookie(expected)?;
        let connection = self.connection.as_mut().context("there is no connection")?;
        let sent = connection.outbound(&segment, expected);
        let differences = differences(expected, &sent);
        ensure!(
            differences.is_empty(),
            "expected {}, got {} at {}: {}",
            brief(expected),
            brief(&sent),
            seconds(at),
            differences.join("; ")
        );
        self.check_time(time, at, &format!("packet {}", brief(expected)))
    }

    /// Joins segments to one that is as long as `expected`: a stack may hand the kernel's long packets over in pieces.
    /// All but the last are of equal length. PSH, FIN and CWR may be on any of them, as Linux has PSH on the last of each
    /// lot; the whole has PSH and FIN as the last piece has them, and CWR as the first.
    fn gather(&mut self, first: Segment, expected: &Tcp) -> Result<Segment> {
        let mut whole = first;
        let piece = whole.length;
        let ends = Flags::PSH.with(Flags::FIN).with(Flags::CWR);
        let reduced = whole.flags.without(ends.without(Flags::CWR));
        while whole.length > 0 && whole.length < expected.length {
            let (next, at) = self.next_segment().with_context(|| {
                format!(
                    "expected {}, of which {} bytes came",
                    brief(expected),
                    whole.length
                )
            })?;
            let follows = next.seq == whole.seq.wrapping_add(whole.length)
                && next.ack == whole.ack
                && next.flags.without(ends) == whole.flags.without(ends)
                && next.length <= piece;
            ensure!(
                follows,
                "expected {}, of which {} bytes came, and then {:?} at {}",
                brief(expected),
                whole.length,
                next,
                seconds(at)
            );
            whole.length += next.length;
            whole.flags = reduced.with(next.flags.without(Flags::CWR));
            if next.length < piece {
                break;
            }
        }
        Ok(whole)
    }

    /// Whether what came `at` came when it should; takes the time of the event.
    fn check_time(&mut self, time: Time, at: Micros, what: &str) -> Result<()> {
        let last = self.last;
        let (from, to, next) = match time {
            Time::At(time) => (time, time, time),
            Time::After(after) => (last + after, last + after, last + after),
            Time::Between(from, to) => (from, to, at),
            Time::AfterBetween(from, to) => (last + from, last + to, at),
            Time::Any => (Micros::MIN, Micros::MAX, at),
        };
        self.last = next;
        if time == Time::Any {
            return Ok(());
        }
        let share = (to - last).max(0) as f64 * self.tolerance.percent / 100.0;
        let allowed = self.tolerance.micros + share as Micros;
        ensure!(
            from - allowed <= at && at <= to + allowed,
            "{what} was expected at {}{}, and came at {} (tolerance {})",
            seconds(from),
            if from == to {
                String::new()
            } else {
                format!(" to {}", seconds(to))
            },
            seconds(at),
            seconds(allowed)
        );
        Ok(())
    }

    fn call(&mut self, call: &Call, line: usize, at: Micros, start: Micros) -> Result<()> {
        if call.name == "listen" {
            (self.connection, self.connecting) = (None, false);
        }
        if syscall::opens_fast(call) {
            (self.connection, self.connecting) = (None, true);
        }
        if call.name == "connect" {
            let in_progress = self.connection.is_some() || self.connecting;
            let new = !in_progress
                || matches!(call.result, crate::script::Expected::Error(ref name) if name == "EINPROGRESS");
            if new {
                (self.connection, self.connecting) = (None, true);
            }
        }
        let Some(end) = call.end else {
            let outcome = syscall::make(&self.object, call, &self.addresses, &self.descriptors)?;
            self.finish(call, &outcome)?;
            let now = self.clock.now(&self.object)?;
            return self.check_span(call, at, now);
        };
        let end = match end {
            // Both times count from the event before, so that the span between them is what counts.
            Time::After(after) => at - start + after,
            Time::At(end) => end,
            _ => bail!("a call ends at one time"),
        };
        ensure!(self.blocked.is_none(), "only one call may block at a time");
        let object = Arc::clone(&self.object);
        let blocked = Blocked::start(
            object,
            call.clone(),
            self.addresses,
            self.descriptors.clone(),
        )?;
        self.blocked = Some((blocked, call.clone(), line, end));
        Ok(())
    }

    /// A call that does not block returns at once, as far as the clock tells.
    fn check_span(&self, call: &Call, from: Micros, to: Micros) -> Result<()> {
        ensure!(
            to - from <= self.tolerance.micros,
            "{} was to return at once, and took {}",
            call.name,
            seconds(to - from)
        );
        Ok(())
    }

    fn finish(&mut self, call: &Call, outcome: &Outcome) -> Result<()> {
        if let Some(complaint) = syscall::judge(call, outcome) {
            bail!("{complaint}");
        }
        let value = outcome.value;
        if let crate::script::Expected::Value(script) = call.result
            && syscall::makes_descriptor(call)
        {
            let known = self.descriptors.insert(script, value as c_int);
            ensure!(
                known.is_none(),
                "descriptor {script} of the script is open already"
            );
        }
        if call.name == "close"
            && let Some(crate::script::Value::Number(script)) = call.arguments.first()
        {
            self.descriptors.remove(script);
        }
        if let (Some(peer), Some(connection)) = (outcome.peer, &self.connection) {
            ensure!(
                peer == connection.remote,
                "accept tells peer {peer}, and it is {}",
                connection.remote
            );
        }
        Ok(())
    }

    /// Takes the result of a blocked call that is over, or should be.
    fn join_if_due(&mut self, time: Time) -> Result<()> {
        let at = match time {
            Time::At(at) => at,
            Time::After(after) => self.last + after,
            _ => self.last,
        };
        match &self.blocked {
            Some((blocked, _, _, end)) if blocked.is_over() || *end <= at => self.join(),
            _ => Ok(()),
        }
    }

    /// Waits for the blocked call, if there is one, and judges it.
    fn join(&mut self) -> Result<()> {
        let Some((blocked, call, line, end)) = self.blocked.take() else {
            return Ok(());
        };
        let (outcome, at) = blocked
            .join()
            .with_context(|| format!("line {line}: {}", call.name))?;
        let at = self.clock.script_time(at);
        self.finish(&call, &outcome)
            .with_context(|| format!("line {line}"))?;
        let allowed = self.tolerance.micros;
        ensure!(
            (end - allowed..=end + allowed).contains(&at),
            "line {line}: {} was to return at {}, and returned at {}",
            call.name,
            seconds(end),
            seconds(at)
        );
        Ok(())
    }

    /// What the script left open is closed by the C library, as packetdrill does it.
    fn close_all(&mut self) -> Result<()> {
        for (script, fd) in core::mem::take(&mut self.descriptors) {
            // SAFETY: a descriptor that the object opened for the script.
            let closed = unsafe { libc::close(fd) };
            if closed != 0 {
                return Err(anyhow!(
                    "descriptor {script} of the script is none of this process"
                ));
            }
        }
        Ok(())
    }
}

/// A time for people.
fn seconds(micros: Micros) -> String {
    format!("{:.6} s", micros as f64 / 1e6)
}

/// A segment for people.
fn brief(tcp: &Tcp) -> String {
    let ack = tcp
        .ack
        .map_or_else(String::new, |ack| format!(" ack {ack}"));
    let end = tcp.seq.wrapping_add(tcp.length);
    format!("`{} {}:{end}({}){ack}`", tcp.flags, tcp.seq, tcp.length)
}
