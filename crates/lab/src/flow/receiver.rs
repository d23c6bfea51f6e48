//! The receiving end of a flow: counts the bytes, records when they came, and checks each.

use super::sample_clock::SampleClock;
use super::wait::Wait;
use super::{Lost, Shared};
use bentpipe_base::Instant;
use bentpipe_scenario::{Amount, FlowKind};
use bentpipe_sockets::{socket, timer};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What the receiver saw.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Bytes received, all of them right.
    pub(crate) bytes: u64,
    /// When the connection was established.
    pub(crate) connected: Option<Instant>,
    /// When the last byte came.
    pub(crate) last: Option<Instant>,
    /// Bytes received by each instant.
    pub(crate) series: Vec<(Instant, u64)>,
    /// How long each answer took that it had asked for, from the request's first byte to the answer's last.
    pub(crate) responses: Vec<Duration>,
    pub(crate) end: End,
}

/// How it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// All bytes came, or the flow's time was up.
    #[default]
    Finished,
    /// The run was over first.
    CutOff,
    /// All was sent, once, and not all of it came.
    Incomplete,
    /// The connection failed, or delivered wrong bytes.
    Failed(String),
}

impl Received {
    pub(super) fn failed(why: &str) -> Self {
        Self {
            end: End::Failed(why.to_owned()),
            ..Self::default()
        }
    }
}

impl Shared {
    /// Opens the connection with `open`, then receives until the flow is over.
    pub(super) fn receive(
        &self,
        fd: OwnedFd,
        open: impl FnOnce(&Self, &mut Wait, OwnedFd) -> Result<OwnedFd, Lost>,
    ) -> Received {
        let mut received = Received::default();
        let lost = Wait::new().map_err(Lost::from).and_then(|mut wait| {
            let stream = open(self, &mut wait, fd)?;
            received.connected = Some(timer::now());
            // Whatever remains is not wanted any more: an end by time is a reset.
            socket::abort_on_close(&stream, true)?;
            let drained = match self.kind {
                FlowKind::RequestResponse {
                    request,
                    response,
                    think,
                } => self.ask(
                    &mut wait,
                    &stream,
                    &mut received,
                    (request, response, think),
                ),
                // The lab has no others (`simulated`).
                FlowKind::Bulk | FlowKind::OnOff { .. } => {
                    self.drain(&mut wait, &stream, &mut received)
                }
            };
            // Before the socket closes: the sender must not take our reset for a failure.
            self.over.store(true, Ordering::Release);
            drained
        });
        self.over.store(true, Ordering::Release);
        received.end = match lost {
            Ok(()) => End::Finished,
            Err(Lost::Broken(why)) => End::Failed(why),
            Err(Lost::TimeUp) => self.out_of_time(&received),
        };
        received
    }

    fn out_of_time(&self, received: &Received) -> End {
        let by_time = matches!(self.amount, Amount::Duration(_));
        if self.stop.load(Ordering::Relaxed) || !by_time {
            End::CutOff
        } else if received.connected.is_none() {
            End::Failed("no connection in the flow's time".to_owned())
        } else {
            End::Finished
        }
    }

    fn drain(&self, wait: &mut Wait, stream: &OwnedFd, got: &mut Received) -> Result<(), Lost> {
        let mut buffer = vec![0; 256 * 1024];
        let mut clock = SampleClock::new(self);
        wait.readable(stream)?;
        loop {
            if wait.for_one(clock.next.min(self.end()))? {
                match socket::receive(stream, &mut buffer) {
                    Ok(0) => return self.ended(stream, got),
                    Ok(length) => self.take(&buffer[..length], got)?,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e.into()),
                }
            }
            if let Some(now) = clock.due() {
                got.series.push((now, got.bytes));
            }
            self.go_on()?;
        }
    }

    pub(super) fn take(&self, bytes: &[u8], got: &mut Received) -> Result<(), Lost> {
        if !self.pattern.matches(got.bytes, bytes) {
            let at = got.bytes;
            let why = format!("what came after {at} bytes is not what was sent");
            return Err(Lost::Broken(why));
        }
        got.bytes += bytes.len() as u64;
        got.last = Some(timer::now());
        self.progress.store(got.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The stream ended in order: it must have been whole.
    pub(super) fn ended(&self, stream: &OwnedFd, got: &mut Received) -> Result<(), Lost> {
        got.series.push((timer::now(), got.bytes));
        match self.amount {
            Amount::Bytes(size) if got.bytes == size.0 => {
                socket::abort_on_close(stream, false)?;
                Ok(())
            }
            _ => {
                let why = format!("the stream ended after {} bytes", got.bytes);
                Err(Lost::Broken(why))
            }
        }
    }
}
