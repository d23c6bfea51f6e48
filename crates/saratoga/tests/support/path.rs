//! One file over a line with delay and errors, in virtual time.
#![allow(dead_code, reason = "each test crate uses a part")]

use crate::support::receiving;
use bentpipe_base::{Bytes, Instant, Machine, Probability, Rate, Stream};
use bentpipe_link::channel::{BitError, Outage};
use bentpipe_link::{Direction, Settings};
use bentpipe_saratoga::{Receiver, Sender, receiver, sender};
use bentpipe_wire::saratoga::Frame;
use std::collections::BTreeMap;
use std::time::Duration;

/// A line that is the same in both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) rate: Rate,
    pub(crate) round_trip: Duration,
    pub(crate) bit_errors: f64,
    pub(crate) seed: u64,
    /// Packets longer than that vanish without a word, from then on.
    pub(crate) longest: Option<(Bytes, Instant)>,
    /// But for one in so many of them.
    pub(crate) seldom: Option<u64>,
    /// Packets longer than that vanish on the way back.
    pub(crate) longest_back: Option<Bytes>,
    /// Each packet comes up to so much later, by chance, and others overtake it.
    pub(crate) jitter: Duration,
    /// When nothing gets through, and for how long.
    pub(crate) outage: Option<(Duration, Duration)>,
}

/// What comes out of a line, and then comes later than others.
struct Late {
    line: Direction<Frame>,
    jitter: Duration,
    dice: Stream,
    /// By arrival and number.
    way: BTreeMap<(Instant, u64), Frame>,
    count: u64,
}

impl Late {
    fn deliver(&mut self, now: Instant) -> Option<(Instant, Frame)> {
        while let Some((at, frame)) = self.line.deliver(now) {
            self.count += 1;
            let at = at + self.jitter.mul_f64(self.dice.uniform());
            self.way.insert((at, self.count), frame);
        }
        let next = self.way.first_entry().filter(|next| next.key().0 <= now)?;
        let ((at, _), frame) = next.remove_entry();
        Some((at, frame))
    }

    fn deadline(&self) -> Option<Instant> {
        let late = self.way.first_key_value().map(|((at, _), _)| *at);
        [self.line.deadline(), late].into_iter().flatten().min()
    }
}

/// A transfer that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) why: sender::Failure,
    pub(crate) at: Instant,
    pub(crate) transmitted: u64,
}

/// What came of a transfer.
pub(crate) struct Run {
    /// When the last octet was sent for the first time, when the receiver had all, when the sender
    /// knew.
    pub(crate) sent: Instant,
    pub(crate) complete: Instant,
    pub(crate) known: Instant,
    pub(crate) transmitted: u64,
    /// The sender's rate, whenever it was another.
    pub(crate) rates: Vec<(Instant, Rate)>,
}

impl Path {
    fn direction(&self, name: &str) -> Late {
        let settings = Settings {
            rate: Some(self.rate),
            delay: self.round_trip / 2,
            channels: vec![
                Box::new(BitError::new(Probability::new(self.bit_errors).unwrap())),
                Box::new(Outage::new(self.outage)),
            ],
            ..Settings::default()
        };
        let mut line = Direction::new(settings, self.seed, name, bentpipe_base::Silent);
        line.begin(Instant::ZERO);
        Late {
            line,
            jitter: self.jitter,
            dice: Stream::new(self.seed, &format!("{name}.late")),
            way: BTreeMap::new(),
            count: 0,
        }
    }

    /// Sends what `config` says, and it arrives.
    pub(crate) fn transfer(&self, config: sender::Config) -> Run {
        self.attempt(config).unwrap()
    }

    /// Sends what `config` says.
    pub(crate) fn attempt(&self, config: sender::Config) -> Result<Run, Failed> {
        self.attempt_through(config, |_| true)
    }

    /// Sends what `config` says, of which `keeps` is asked too whether it gets through.
    pub(crate) fn attempt_through(
        &self,
        config: sender::Config,
        mut keeps: impl FnMut(&Frame) -> bool,
    ) -> Result<Run, Failed> {
        let mut now = Instant::ZERO;
        let (mut there, mut back) = (self.direction("forward"), self.direction("return"));
        let mut sender = Sender::new(config, now);
        let mut receiver = Receiver::new(receiving(), now);
        let (mut complete, mut rates) = (None, vec![(now, sender.rate())]);
        let mut long = 0;
        for _ in 0..5_000_000 {
            while let Some(((), frame)) = sender.transmit(now) {
                let length = length(&frame);
                let passes = |(longest, from)| length <= longest || now < from;
                let mut passes = self.longest.is_none_or(passes);
                if !passes {
                    long += 1;
                    passes = self.seldom.is_some_and(|seldom| long % seldom == 0);
                }
                if passes && keeps(&frame) {
                    there.line.push(frame, length, now);
                }
            }
            while let Some(((), frame)) = receiver.transmit(now) {
                let length = length(&frame);
                if self.longest_back.is_none_or(|longest| length <= longest) {
                    back.line.push(frame, length, now);
                }
            }
            while let Some(event) = receiver.event() {
                if event == receiver::Event::Complete {
                    receiver.verified(now);
                    complete = Some(now);
                }
            }
            if rates.last().is_some_and(|(_, last)| *last != sender.rate()) {
                rates.push((now, sender.rate()));
            }
            let transmitted = sender.progress().transmitted;
            match sender.event() {
                Some(sender::Event::Done) => {
                    return Ok(Run {
                        sent: sender.all_sent_at().unwrap(),
                        complete: complete.unwrap(),
                        known: now,
                        transmitted,
                        rates,
                    });
                }
                Some(sender::Event::Failed(why)) => {
                    return Err(Failed {
                        why,
                        at: now,
                        transmitted,
                    });
                }
                None => {}
            }
            let deadlines = [
                there.deadline(),
                back.deadline(),
                sender.deadline(),
                receiver.deadline(),
            ];
            now = now.max(deadlines.into_iter().flatten().min().unwrap());
            while let Some((at, frame)) = there.deliver(now) {
                receiver.input((), frame, at);
            }
            while let Some((at, frame)) = back.deliver(now) {
                sender.input((), frame, at);
            }
            sender.timeout(now);
            receiver.timeout(now);
        }
        panic!("{self:?}: no end");
    }
}

fn length(frame: &Frame) -> Bytes {
    let mut octets = Vec::new();
    frame.emit(&mut octets).unwrap();
    let payload = match frame {
        Frame::Data(data) => data.len as usize,
        _ => 0,
    };
    Bytes((octets.len() + payload + 28) as u64)
}
