//! Outages: the link is down at set times, as by a hand-over, a rain cell, or the sun behind the
//! satellite.

use super::{Channel, Fate};
use crate::way::nanos;
use bentpipe_base::{Instant, Stream};
use core::time::Duration;
use thiserror::Error;

/// A channel that loses every packet whose last bit leaves while the link is down. Its times count from the
/// beginning of the run ([`Channel::begin`]), before which the link is up. No chance.
pub struct Outage {
    began: Option<Instant>,
    schedule: Schedule,
}

/// In nanoseconds of the run.
enum Schedule {
    /// From (included) and until (excluded), in order, apart from each other; those that are over
    /// lie before `next`.
    List { spans: Vec<(u64, u64)>, next: usize },
    Periodic {
        first: u64,
        length: u64,
        period: u64,
    },
}

/// A periodic outage that leaves no time between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "an outage of {length:?} every {period:?} never ends: the period must be longer than the outage"
)]
pub struct PeriodError {
    /// How long each outage was to last.
    pub length: Duration,
    /// From the start of one to the start of the next.
    pub period: Duration,
}

impl Outage {
    pub(super) const NAME: &'static str = "outage";

    /// Down from each start for its length. They may overlap, in any order.
    pub fn new(outages: impl IntoIterator<Item = (Duration, Duration)>) -> Self {
        let span = |(start, length)| (nanos(start), nanos(start).saturating_add(nanos(length)));
        let mut all: Vec<(u64, u64)> = outages.into_iter().map(span).collect();
        all.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (from, until) in all {
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => spans.push((from, until)),
            }
        }
        Self {
            began: None,
            schedule: Schedule::List { spans, next: 0 },
        }
    }

    /// Down for `length` from `first` on, and again after each `period`.
    ///
    /// # Errors
    /// A period that is not longer than the outage.
    pub fn periodic(
        first: Duration,
        length: Duration,
        period: Duration,
    ) -> Result<Self, PeriodError> {
        if length >= period {
            return Err(PeriodError { length, period });
        }
        Ok(Self {
            began: None,
            schedule: Schedule::Periodic {
                first: nanos(first),
                length: nanos(length),
                period: nanos(period),
            },
        })
    }

    /// Whether the link is down at `now`, which must not go backwards.
    fn down(&mut self, now: Instant) -> bool {
        let Some(began) = self.began.filter(|began| *began <= now) else {
            return false;
        };
        let run = now.nanos_since(began);
        match &mut self.schedule {
            Schedule::List { spans, next } => {
                while spans.get(*next).is_some_and(|(_, until)| *until <= run) {
                    *next += 1;
                }
                spans.get(*next).is_some_and(|(from, _)| *from <= run)
            }
            Schedule::Periodic {
                first,
                length,
                period,
            } => {
                let since = run.checked_sub(*first);
                since.is_some_and(|since| since % *period < *length)
            }
        }
    }
}

impl Channel for Outage {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn begin(&mut self, at: Instant) {
        self.began = Some(at);
    }

    fn strike(&mut self, _bits: u64, now: Instant, _draw: &mut Stream) -> Fate {
        if self.down(now) {
            Fate::Lose
        } else {
            Fate::Deliver
        }
    }
}
