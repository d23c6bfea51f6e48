//! Outages: the link is down at set times, for instance during a handover, a rain cell, or while the sun stands behind
//! the satellite.

use super::{Channel, ChannelKind, Fate, Fault, Form, Key, Value, Values};
use crate::keys::LONGEST;
use crate::way::nanos;
use bentpipe_base::{Instant, Stream};
use core::time::Duration;
use thiserror::Error;

/// A channel that loses every packet whose last bit leaves while the link is down. Its times count from the beginning
/// of the run ([`Channel::begin`]), before which the link is up. It draws no random numbers.
pub struct Outage {
    began: Option<Instant>,
    schedule: Schedule,
}

/// In nanoseconds of the run.
enum Schedule {
    /// Beginning (included) and end (excluded) of each outage, in order and disjoint; those before `next` are over.
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
    /// Outages given by start and length, in any order; they may overlap.
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

    /// Outages of `length`, the first at `first`, and one after each further `period`.
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

impl ChannelKind for Outage {
    const NAME: &'static str = "outage";
    const SUMMARY: &'static str = "the link is down at set times";
    const KEY: &'static str = "outage";
    const FORM: Form = Form::List;
    const WAYS: &'static [&'static [Key]] = &[&[
        Key::required("start", || Value::Time(Duration::from_secs(10))),
        Key::required("length", || Value::Time(Duration::from_millis(500))),
        Key::optional("every", || Value::Time(Duration::from_secs(60))),
    ]];

    fn faults(values: &Values) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |key, what: &str, expected: &str| {
            let (what, expected) = (what.to_owned(), expected.to_owned());
            faults.push(Fault {
                key,
                what,
                expected,
            });
        };
        for key in ["start", "length", "every"] {
            if values.time(key) > LONGEST {
                let expected = "at most a day (86400s), such as \"10s\"";
                fault(key, "a time of more than a day", expected);
            }
        }
        let length = values.time("length");
        if length.is_zero() {
            fault("length", "an outage of no time", "such as \"500ms\"");
        }
        if values.get("every").is_some() && values.time("every") <= length {
            let what = "an outage that begins again before it ends";
            fault("every", what, "a longer `every`");
        }
        faults
    }

    fn build(values: &Values) -> Result<Self, Fault> {
        let (start, length) = (values.time("start"), values.time("length"));
        if values.get("every").is_none() {
            return Ok(Self::new([(start, length)]));
        }
        Self::periodic(start, length, values.time("every")).map_err(|error| Fault {
            key: "every",
            what: error.to_string(),
            expected: "a longer `every`".to_owned(),
        })
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
