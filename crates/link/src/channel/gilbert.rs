//! Gilbert–Elliott: errors in bursts, from a channel of two states.
//!
//! Sources: E. N. Gilbert, "Capacity of a burst-noise channel", Bell System Technical Journal 39
//! (1960); E. O. Elliott, "Estimates of error rates for codes on burst-noise channels", ibid. 42
//! (1963).
//!
//! The channel is *good* or *bad*. Before each packet it turns bad with probability p when good, and
//! good with probability r when bad; then the packet is hit with the error rate of the state, e(good)
//! or e(bad). In the long run, in packets:
//!
//! ```text
//! share of bad     π = p / (p + r)
//! mean error rate  (1 - π) e(good) + π e(bad)
//! mean stay in bad 1 / r
//! ```
//!
//! Deviations: Gilbert and Elliott count bits, this counts packets (as netem and most studies do), so
//! the mean error rate does not depend on their lengths, and the state stands still while nothing is
//! sent. The first packet meets the states in their shares of the long run.

use super::{Channel, ChannelKind, Fate, Fault, Form, Key, Value, Values};
use bentpipe_base::{Bytes, Instant, Probability, Stream};
use thiserror::Error;

/// The transition probabilities and error rates of a [`Gilbert`], each for one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chain {
    /// From good to bad (p).
    pub worsen: Probability,
    /// From bad to good (r).
    pub recover: Probability,
    /// Error rate of the good state; 0 in Gilbert's paper.
    pub good: Probability,
    /// Error rate of the bad state.
    pub bad: Probability,
}

/// A mean burst length and a mean error rate that no channel has.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error(
    "bursts of {burst} packets on average do not go with a mean error rate of {rate}: \
     the mean burst must be a number of at least {least} packets"
)]
pub struct BurstError {
    /// The mean burst length asked for, in packets.
    pub burst: f64,
    /// The mean error rate asked for.
    pub rate: Probability,
    /// The shortest mean burst at that rate, in packets.
    pub least: f64,
}

impl Chain {
    /// The chain whose errors come in bursts of `burst` packets on average (a burst: hit packets in
    /// a row) and hit the share `rate` of all packets: every packet in the bad state, none in the
    /// good one; r = 1 / burst, p = r rate / (1 - rate).
    ///
    /// # Errors
    /// Bursts shorter than a packet, or so short that the gaps between them would have to be shorter
    /// than a packet.
    pub fn bursts(burst: f64, rate: Probability) -> Result<Self, BurstError> {
        let odds = rate.value() / (1.0 - rate.value());
        let least = odds.max(1.0);
        let fits = burst.is_finite() && burst >= least;
        let chance = |value: f64| Probability::new(value).filter(|_| fits);
        let chain = chance(1.0 / burst).zip(chance(odds / burst));
        let (recover, worsen) = chain.ok_or(BurstError { burst, rate, least })?;
        Ok(Self {
            worsen,
            recover,
            good: Probability::default(),
            bad: certain(),
        })
    }

    /// The chain whose probabilities `values` give directly.
    fn of(values: &Values) -> Self {
        Self {
            worsen: values.chance("to_bad"),
            recover: values.chance("to_good"),
            good: values.chance("good_error_rate"),
            bad: values.chance("bad_error_rate"),
        }
    }

    /// The share of packets that meet the bad state: p / (p + r); 0 where neither state is left.
    pub fn share_of_bad(&self) -> f64 {
        let (p, r) = (self.worsen.value(), self.recover.value());
        if p + r == 0.0 { 0.0 } else { p / (p + r) }
    }

    /// The share of packets that are hit.
    pub fn mean_error_rate(&self) -> f64 {
        let bad = self.share_of_bad();
        (1.0 - bad) * self.good.value() + bad * self.bad.value()
    }
}

/// A channel that corrupts packets in bursts. It draws twice for each packet: for the state, and for the packet's fate.
pub struct Gilbert {
    chain: Chain,
    /// `None` before the first packet.
    bad: Option<bool>,
}

impl Gilbert {
    /// A channel that moves as `chain` says.
    pub const fn new(chain: Chain) -> Self {
        Self { chain, bad: None }
    }
}

impl ChannelKind for Gilbert {
    const NAME: &'static str = "gilbert";
    const SUMMARY: &'static str =
        "packets are hit in bursts, by a channel of a good and a bad state";
    const KEY: &'static str = "gilbert";
    const FORM: Form = Form::Table;
    const WAYS: &'static [&'static [Key]] = &[
        &[
            Key::required("mean_burst", || Value::Number(10.0)),
            Key::required("error_rate", || chance(0.01)),
        ],
        &[
            Key::required("to_bad", || chance(0.001)),
            Key::required("to_good", || chance(0.1)),
            Key::or("good_error_rate", || chance(0.0)),
            Key::or("bad_error_rate", || chance(1.0)),
        ],
    ];

    fn faults(values: &Values) -> Vec<Fault> {
        if values.get("mean_burst").is_none() {
            return Vec::new();
        }
        let (burst, rate) = (values.number("mean_burst"), values.chance("error_rate"));
        // The good state lasts (1 - rate) / rate bursts; less than one packet it cannot last.
        let most = burst / (burst + 1.0);
        if burst < 1.0 {
            return vec![Fault {
                key: "mean_burst",
                what: format!("a mean burst of {burst} packets"),
                expected: "at least 1".to_owned(),
            }];
        }
        if rate.value() > most {
            return vec![Fault {
                key: "error_rate",
                what: format!("an error rate of {rate} with bursts of {burst} packets"),
                expected: format!("at most {most}"),
            }];
        }
        Vec::new()
    }

    fn passes(values: &Values, _size: Bytes) -> f64 {
        match values.get("mean_burst") {
            Some(_) => 1.0 - values.chance("error_rate").value(),
            None => 1.0 - Chain::of(values).mean_error_rate(),
        }
    }

    fn build(values: &Values) -> Result<Self, Fault> {
        if values.get("mean_burst").is_none() {
            return Ok(Self::new(Chain::of(values)));
        }
        let (burst, rate) = (values.number("mean_burst"), values.chance("error_rate"));
        let chain = Chain::bursts(burst, rate).map_err(|error| Fault {
            key: "mean_burst",
            what: error.to_string(),
            expected: format!("at least {}", error.least),
        });
        chain.map(Self::new)
    }
}

impl Channel for Gilbert {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn strike(&mut self, _bits: u64, _now: Instant, draw: &mut Stream) -> Fate {
        let chain = &self.chain;
        let (turn, hit) = (draw.uniform(), draw.uniform());
        let bad = match self.bad {
            None => turn < chain.share_of_bad(),
            Some(false) => turn < chain.worsen.value(),
            Some(true) => turn >= chain.recover.value(),
        };
        self.bad = Some(bad);
        let rate = if bad { chain.bad } else { chain.good };
        if hit < rate.value() {
            Fate::Corrupt
        } else {
            Fate::Deliver
        }
    }
}

fn chance(value: f64) -> Value {
    Value::Chance(Probability::new(value).expect("between 0 and 1"))
}

fn certain() -> Probability {
    Probability::new(1.0).expect("1 is a probability")
}
