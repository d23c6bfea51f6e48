//! What a sender is told of a link.

use bentpipe_base::{Bytes, Probability, Rate};
use std::time::Duration;

/// How the flows of one link are to be sent. The kernel's controls read it as `struct bp_params`, their twins here as
/// [`Params`](crate::fixed_point::Params).
#[derive(Clone, Debug, PartialEq)]
pub struct LinkParams {
    /// The link's rate on the wire, and the most that the rate control sends. Without one, Hybla finds
    /// its own way, and the rate control follows what the link delivers.
    pub rate: Option<Rate>,
    /// Hybla's reference round-trip time: a flow grows as one of this round-trip time would.
    pub rtt0: Duration,
    /// The share of the rate to pace at, 0.01 to 1. Above the true rate a queue stands; a little
    /// below, none does.
    pub pace: Probability,
    /// The queueing delay at which the rate control falls to the measured delivery rate, and from
    /// there follows it; `None`: never, where the rate is given.
    pub guard: Option<Duration>,
    /// Bytes the link adds to an IP packet; [`Window::wire`](crate::Window::wire) has them.
    pub overhead: Bytes,
    /// The rate control's window, in bandwidth-delay products, 1 to 16: room for retransmissions
    /// in several rounds.
    pub windows: u32,
    /// Hybla keeps growing in recovery: a deviation from the paper.
    pub aggressive: bool,
    /// Hybla grows by 2^rho - 1 a segment, as published, without the bound of rho a segment; only
    /// for links whose rate is known.
    pub uncapped: bool,
}

impl Default for LinkParams {
    /// No rate, RTT0 25 ms, 98.5% of the rate, a guard of 60 ms, three bandwidth-delay products.
    fn default() -> Self {
        Self {
            rate: None,
            rtt0: Duration::from_millis(25),
            pace: Probability::new(0.985).expect("lies in [0, 1]"),
            guard: Some(Duration::from_millis(60)),
            overhead: Bytes(0),
            windows: 3,
            aggressive: false,
            uncapped: false,
        }
    }
}

impl LinkParams {
    /// A link of `rate` on the wire, the rest by default.
    pub fn of_rate(rate: Rate) -> Self {
        Self {
            rate: Some(rate),
            ..Self::default()
        }
    }

    /// For a control that has nothing but the rate, which is a contract (SCPS-TP): without a guard, and unless another pace was
    /// chosen, at 99.8% of the rate. What leaves beside data, acknowledgements, is taken off that.
    pub fn pure_rate(self) -> Self {
        let pace = match self.pace == Self::default().pace {
            true => Probability::new(0.998).expect("lies in [0, 1]"),
            false => self.pace,
        };
        Self {
            pace,
            guard: None,
            ..self
        }
    }

    /// The longest of all times: the controls' integers hold no longer one.
    pub const LONGEST: Duration = Duration::from_secs(16);

    /// What is wrong with them, in words, if anything is: outside these bounds the controls' integers do not hold them.
    pub fn fault(&self) -> Option<String> {
        let rates = Rate::from_bits_per_sec(8_000)..=Rate::from_bits_per_sec(8 << 34);
        let times = Duration::from_millis(1)..=Self::LONGEST;
        if let Some(rate) = self.rate.filter(|rate| !rates.contains(rate)) {
            return Some(format!("the rate {rate} lies outside 8kbit/s to 137Gbit/s"));
        }
        if !times.contains(&self.rtt0) {
            return Some(format!("RTT0 {:?} lies outside 1ms to 16s", self.rtt0));
        }
        if self.pace.value() < 0.01 {
            return Some(format!(
                "the pace {} lies below 0.01 of the rate",
                self.pace
            ));
        }
        if let Some(guard) = self.guard.filter(|guard| !times.contains(guard)) {
            return Some(format!("the guard {guard:?} lies outside 1ms to 16s"));
        }
        if self.overhead > Bytes(65_535) {
            return Some(format!(
                "the overhead {} exceeds 65535 bytes",
                self.overhead
            ));
        }
        if !(1..=16).contains(&self.windows) {
            return Some(format!(
                "the window of {} bandwidth-delay products lies outside 1 to 16",
                self.windows
            ));
        }
        None
    }
}
