//! Requests and answers on one connection: the receiver asks, the sender answers, as the simulator's
//! applications of this name do.

use super::sample_clock::SampleClock;
use super::wait::Wait;
use super::{Lost, Received, SAMPLE, Sent, Shared};
use bentpipe_base::Bytes;
use bentpipe_scenario::Amount;
use bentpipe_sockets::{socket, tcp, timer};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

impl Shared {
    /// Asks, waits for the answer, thinks and asks again, until the answers sum up to the flow's amount or its time is up.
    pub(super) fn ask(
        &self,
        wait: &mut Wait,
        stream: &OwnedFd,
        got: &mut Received,
        (request, response, think): (Bytes, Bytes, Duration),
    ) -> Result<(), Lost> {
        let mut clock = SampleClock::new(self);
        let mut asked = 0;
        let mut buffer = vec![0; 256 * 1024];
        wait.writable(stream)?;
        loop {
            let begun = timer::now();
            let end_of_request = asked + request.0;
            while asked < end_of_request {
                asked += self.write(stream, asked, end_of_request)?;
                if asked < end_of_request {
                    self.wait(wait, &mut clock, got)?;
                }
            }
            wait.turn_readable(stream)?;
            let end_of_answer = got.bytes + response.0.min(self.left(got.bytes));
            while got.bytes < end_of_answer {
                if self.wait(wait, &mut clock, got)? {
                    match socket::receive(stream, &mut buffer) {
                        Ok(0) => return self.ended(stream, got),
                        Ok(length) => self.take(&buffer[..length], got)?,
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                        Err(e) => return Err(e.into()),
                    }
                }
            }
            got.responses.push(timer::now() - begun);
            if self.left(got.bytes) == 0 {
                return self.close(wait, stream, got);
            }
            // The socket is not looked at meanwhile: whoever breaks it is noticed by the next request.
            wait.forget(stream)?;
            let next = timer::now() + think;
            while timer::now() < next {
                wait.for_one(next.min(clock.next).min(self.end()))?;
                if let Some(now) = clock.due() {
                    got.series.push((now, got.bytes));
                }
                self.go_on()?;
            }
            wait.writable(stream)?;
        }
    }

    /// Answers each request, until the other end has closed.
    pub(super) fn answer(
        &self,
        wait: &mut Wait,
        stream: &OwnedFd,
        sent: &mut Sent,
        (request, response): (Bytes, Bytes),
    ) -> Result<(), Lost> {
        let mut clock = SampleClock::new(self);
        let (mut asked, mut written, mut owed) = (0, 0, 0);
        let mut buffer = vec![0; 64 * 1024];
        wait.readable(stream)?;
        loop {
            let ready = wait.for_one(clock.next.min(timer::now() + SAMPLE))?;
            if ready && written < owed {
                written += self.write(stream, written, owed)?;
                if written == owed {
                    wait.turn_readable(stream)?;
                }
            } else if ready {
                match socket::receive(stream, &mut buffer) {
                    Ok(0) => {
                        // Who has read all has acknowledged all.
                        sent.acknowledged = Some(timer::now());
                        socket::abort_on_close(stream, false)?;
                        return Ok(socket::shutdown_send(stream)?);
                    }
                    Ok(length) if !self.pattern.matches(asked, &buffer[..length]) => {
                        let why =
                            format!("what was asked after {asked} bytes is not what was sent");
                        return Err(Lost::Broken(why));
                    }
                    Ok(length) => asked += length as u64,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e.into()),
                }
                let answers = asked / request.0;
                owed = answers.saturating_mul(response.0);
                owed = owed.min(self.left(0));
                if written < owed {
                    wait.turn_writable(stream)?;
                }
            }
            if let Some(now) = clock.due() {
                self.note(sent, now, tcp::info(stream)?);
            }
            self.send_on(timer::now())?;
        }
    }

    /// Waits until the socket is as wished, at most until the next sample, which is noted; whether it is.
    fn wait(
        &self,
        wait: &mut Wait,
        clock: &mut SampleClock,
        got: &mut Received,
    ) -> Result<bool, Lost> {
        let ready = wait.for_one(clock.next.min(self.end()))?;
        if let Some(now) = clock.due() {
            got.series.push((now, got.bytes));
        }
        self.go_on()?;
        Ok(ready)
    }

    /// All that was asked for has come: closes, and waits for the other end to do so.
    fn close(&self, wait: &mut Wait, stream: &OwnedFd, got: &mut Received) -> Result<(), Lost> {
        let mut clock = SampleClock::new(self);
        socket::shutdown_send(stream)?;
        loop {
            if self.wait(wait, &mut clock, got)? {
                match socket::receive(stream, &mut [0; 1]) {
                    Ok(0) => return self.ended(stream, got),
                    Ok(_) => {
                        let why = "more came than was asked for".to_owned();
                        return Err(Lost::Broken(why));
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) => return Err(e.into()),
                }
            }
        }
    }

    /// How much of the flow's amount is missing after `bytes` of answers.
    fn left(&self, bytes: u64) -> u64 {
        match self.amount {
            Amount::Bytes(size) => size.0.saturating_sub(bytes),
            Amount::Duration(_) | Amount::Segments(_) => u64::MAX,
        }
    }
}
