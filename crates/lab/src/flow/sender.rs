//! The sending end of a flow: keeps the socket full, and records the state of its TCP.

use super::sample_clock::SampleClock;
use super::wait::Wait;
use super::{Lost, Shared};
use bentpipe_base::{Bytes, Instant};
use bentpipe_bpf::user_name;
use bentpipe_scenario::{Amount, FlowKind};
use bentpipe_sockets::tcp::Info;
use bentpipe_sockets::{socket, tcp, timer};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a sender that has written everything looks whether it is acknowledged.
const LOOK: Duration = Duration::from_millis(1);

/// What the sender saw.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// When the connection was established.
    pub(crate) connected: Option<Instant>,
    /// The congestion control in use.
    pub(crate) control: Option<String>,
    /// The state of the connection at each instant.
    pub(crate) series: Vec<(Instant, Info)>,
    /// When the receiver's TCP, or a gateway's in its place, had acknowledged all of it; `None` where
    /// that did not happen, or the flow has no end of its own.
    pub(crate) acknowledged: Option<Instant>,
    /// The error that ended it, if there was one before its time was up.
    pub(crate) broken: Option<String>,
}

impl Sent {
    pub(super) fn failed(why: &str) -> Self {
        Self {
            broken: Some(why.to_owned()),
            ..Self::default()
        }
    }
}

impl Shared {
    /// Opens the connection with `open`, then sends until the flow is over.
    pub(super) fn send(
        &self,
        fd: OwnedFd,
        open: impl FnOnce(&Self, &mut Wait, OwnedFd) -> Result<OwnedFd, Lost>,
    ) -> Sent {
        let mut sent = Sent::default();
        let lost = Wait::new().map_err(Lost::from).and_then(|mut wait| {
            let stream = open(self, &mut wait, fd)?;
            sent.connected = Some(timer::now());
            let control = tcp::congestion(&stream).ok();
            sent.control = control.map(|name| user_name(&name).to_owned());
            socket::abort_on_close(&stream, true)?;
            let filled = match self.kind {
                FlowKind::RequestResponse {
                    request, response, ..
                } => self.answer(&mut wait, &stream, &mut sent, (request, response)),
                FlowKind::Bulk | FlowKind::OnOff { .. } => self.fill(&mut wait, &stream, &mut sent),
            };
            if let Ok(info) = tcp::info(&stream) {
                self.note(&mut sent, timer::now(), info);
            }
            filled
        });
        if let Err(Lost::Broken(why)) = lost
            && !self.over.load(Ordering::Acquire)
        {
            sent.broken = Some(why);
        }
        sent
    }

    fn fill(&self, wait: &mut Wait, stream: &OwnedFd, sent: &mut Sent) -> Result<(), Lost> {
        let size = match self.amount {
            Amount::Bytes(size) => size.0,
            // Segments are refused before anything is built (`simulated`).
            Amount::Duration(_) | Amount::Segments(_) => u64::MAX,
        };
        let mut written = 0;
        let mut clock = SampleClock::new(self);
        wait.writable(stream)?;
        loop {
            let looks = written == size && sent.acknowledged.is_none();
            let until = if looks {
                timer::now() + LOOK
            } else {
                clock.next
            };
            let ready = wait.for_one(until.min(clock.next))?;
            // The FIN, which counts as one byte, may follow the data on its own.
            if looks && tcp::unacknowledged(stream)? <= Bytes(1) {
                sent.acknowledged = Some(timer::now());
            }
            if ready {
                if written < size {
                    written += self.write(stream, written, size)?;
                    if written == size {
                        socket::shutdown_send(stream)?;
                        wait.turn_readable(stream)?;
                    }
                } else if closed(stream)? {
                    return Ok(());
                }
            }
            if let Some(now) = clock.due() {
                self.note(sent, now, tcp::info(stream)?);
            }
            self.send_on(timer::now())?;
        }
    }

    /// Notes the state of the sender's TCP, where who watches the run sees it too.
    pub(super) fn note(&self, sent: &mut Sent, now: Instant, info: Info) {
        sent.series.push((now, info));
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(info);
    }

    /// A flow that lasts for a set time is ended by its receiver. If the sender ended it by the clock, the receiver
    /// might see the reset first.
    pub(super) fn send_on(&self, now: Instant) -> Result<(), Lost> {
        let by_time = matches!(self.amount, Amount::Duration(_));
        let over = if by_time {
            self.over.load(Ordering::Acquire)
        } else {
            now >= self.limit
        };
        if over || self.stop.load(Ordering::Relaxed) {
            return Err(Lost::TimeUp);
        }
        Ok(())
    }

    /// Writes once, as much as there is room for.
    pub(super) fn write(&self, stream: &OwnedFd, written: u64, size: u64) -> Result<u64, Lost> {
        match socket::send(stream, self.pattern.piece(written, size - written)) {
            Ok(length) => Ok(length as u64),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(e.into()),
        }
    }
}

/// Whether the receiver, who sends nothing, has closed.
fn closed(stream: &OwnedFd) -> Result<bool, Lost> {
    match socket::receive(stream, &mut [0; 1]) {
        Ok(0) => Ok(true),
        Ok(_) => Err(Lost::Broken("the receiver sent something".to_owned())),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(e) => Err(e.into()),
    }
}
