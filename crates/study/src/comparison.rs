//! A flow on two sides, the lab's kernel and the simulator: the means of the runs of either, and how far they are apart.

use crate::points::quantile;
use serde::Serialize;
use std::collections::BTreeMap;

/// How far mean goodputs may be apart.
const TOLERANCE: f64 = 0.1;

/// What one flow of one run brings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// Goodput in Mbit/s.
    pub goodput_mbps: f64,
    /// Segments that its sender's TCP sent again; `None` without one.
    pub sent_again: Option<u64>,
    /// Expiries of that TCP's retransmission timer.
    pub timeouts: Option<u64>,
    /// Until its sender knew that all had arrived, in seconds; `None` for a flow without an end.
    pub sender_s: Option<f64>,
    /// Until the last byte arrived, in seconds.
    pub receiver_s: Option<f64>,
    /// The measure `local`: segments that the scenario's gateways sent again, of all flows.
    pub local: Option<f64>,
    /// Packets that queues dropped on its way, by link.
    pub dropped: BTreeMap<String, u64>,
    /// Why the run is no result.
    pub broken: Option<String>,
    /// Congestion window in segments, at equal steps from the connect on; 0 before there is one.
    pub cwnd: Vec<u32>,
}

/// All runs of one flow on one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Runs with a result.
    pub n: usize,
    /// Mean goodput in Mbit/s.
    pub mean_mbps: f64,
    /// The least of the runs.
    pub min_mbps: f64,
    /// The greatest.
    pub max_mbps: f64,
    /// Mean number of segments that the sender's TCP sent again; `None` without one.
    pub sent_again: Option<f64>,
    /// Mean number of segments that gateways sent again, of all flows, where a gateway says so.
    pub local: Option<f64>,
    /// Mean number of retransmission timeouts.
    pub timeouts: Option<f64>,
    /// Mean time until the sender knew that all had arrived, in seconds, where every run has one.
    pub sender_s: Option<f64>,
    /// Mean time until the last byte arrived, in seconds.
    pub receiver_s: Option<f64>,
    /// Mean number of packets that queues dropped on the flow's way, by link.
    pub dropped: BTreeMap<String, f64>,
    /// The windows of each run.
    #[serde(skip)]
    pub cwnd: Vec<Vec<u32>>,
}

/// The simulator's mean over the lab's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio of the means.
    pub mean: f64,
    /// Half the width of its 95% confidence interval; `None` for a single seed.
    pub half: Option<f64>,
}

impl Ratio {
    /// The ratio of the means of `pairs`, of the lab and the simulator with one seed each. What the seeds have in common does not widen
    /// the interval: it is that of a ratio estimator (Cochran, Sampling Techniques, 1977, section 6.4). `None` where the lab's mean is 0.
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let n = pairs.len() as f64;
        let lab = pairs.iter().map(|pair| pair.0).sum::<f64>() / n;
        let simulator = pairs.iter().map(|pair| pair.1).sum::<f64>() / n;
        let mean = (lab > 0.0).then(|| simulator / lab)?;
        let squares = { pairs.iter() }.map(|(lab, simulator)| (simulator - mean * lab).powi(2));
        let deviation = (squares.sum::<f64>() / (n - 1.0)).sqrt();
        let freedom = pairs.len() as u64 - 1;
        let half = quantile(freedom) * deviation / n.sqrt() / lab;
        Some(Self {
            mean,
            half: (freedom > 0).then_some(half),
        })
    }
}

/// The ratios of the figures that are counted, over the seeds that both sides have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ratios {
    /// Of goodputs.
    pub goodput: Option<Ratio>,
    /// Of what the source sent again.
    pub sent_again: Option<Ratio>,
    /// Of what gateways sent again.
    pub local: Option<Ratio>,
}

/// One flow of one case, on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The case, by its values on the axes.
    pub case: String,
    /// The flow.
    pub flow: String,
    /// The kernel's runs.
    pub lab: Summary,
    /// The simulator's.
    pub simulator: Summary,
    /// Mean goodput of the simulator over that of the lab; `None` where one has none.
    pub ratio: Option<f64>,
    /// Whether they differ by at most 10%.
    pub agrees: bool,
    /// What is known of this ratio and others by the seeds that both sides have.
    pub ratios: Ratios,
    /// Mean distance of the two mean windows over time, as a share of the lab's mean.
    pub cwnd_apart: Option<f64>,
}

impl Summary {
    fn new<'a>(sides: impl Iterator<Item = &'a Side>) -> Self {
        let sides: Vec<&Side> = sides.filter(|side| side.broken.is_none()).collect();
        let goodputs = || sides.iter().map(|side| side.goodput_mbps);
        if sides.is_empty() {
            return Self::default();
        }
        let mean = |sum: f64| sum / sides.len() as f64;
        Self {
            n: sides.len(),
            mean_mbps: mean(goodputs().sum()),
            min_mbps: goodputs().fold(f64::INFINITY, f64::min),
            max_mbps: goodputs().fold(0.0, f64::max),
            sent_again: mean_of(&sides, |side| Some(side.sent_again? as f64)),
            local: mean_of(&sides, |side| side.local),
            timeouts: mean_of(&sides, |side| Some(side.timeouts? as f64)),
            sender_s: mean_of(&sides, |side| side.sender_s),
            receiver_s: mean_of(&sides, |side| side.receiver_s),
            dropped: mean_dropped(&sides),
            cwnd: sides.iter().map(|side| side.cwnd.clone()).collect(),
        }
    }

    /// The mean window of the runs at each step that all of them have.
    fn mean_cwnd(&self) -> Vec<f64> {
        let steps = self.cwnd.iter().map(Vec::len).min().unwrap_or(0);
        let mean = |step: usize| {
            let sum: f64 = self.cwnd.iter().map(|run| f64::from(run[step])).sum();
            sum / self.cwnd.len() as f64
        };
        (0..steps).map(mean).collect()
    }
}

/// `None` where a run has no such figure.
fn mean_of(sides: &[&Side], figure: fn(&Side) -> Option<f64>) -> Option<f64> {
    let sum: Option<f64> = sides.iter().map(|side| figure(side)).sum();
    Some(sum? / sides.len() as f64)
}

fn mean_dropped(sides: &[&Side]) -> BTreeMap<String, f64> {
    let mut mean = BTreeMap::new();
    for (link, drops) in sides.iter().flat_map(|side| &side.dropped) {
        *mean.entry(link.clone()).or_default() += *drops as f64 / sides.len() as f64;
    }
    mean
}

/// Mean distance of two series, as a share of the mean of the first.
fn apart(lab: &[f64], simulator: &[f64]) -> Option<f64> {
    let sum: f64 = lab.iter().zip(simulator).map(|(a, b)| (a - b).abs()).sum();
    let whole: f64 = lab.iter().zip(simulator).map(|(a, _)| a).sum();
    (whole > 0.0).then(|| sum / whole)
}

impl Comparison {
    /// Flow `flow` of the case `case`, as it was on either side, by seed.
    pub fn new(
        case: &str,
        flow: &str,
        lab: &BTreeMap<u64, Side>,
        simulator: &BTreeMap<u64, Side>,
    ) -> Self {
        let pairs: Vec<(&Side, &Side)> = { lab.iter() }
            .filter_map(|(seed, lab)| Some((lab, simulator.get(seed)?)))
            .filter(|(lab, simulator)| lab.broken.is_none() && simulator.broken.is_none())
            .collect();
        let ratio_of = |figure: fn(&Side) -> Option<f64>| {
            let figures = { pairs.iter() }.map(|(lab, other)| Some((figure(lab)?, figure(other)?)));
            Ratio::of(&figures.collect::<Option<Vec<_>>>()?)
        };
        let ratios = Ratios {
            goodput: ratio_of(|side| Some(side.goodput_mbps)),
            sent_again: ratio_of(|side| Some(side.sent_again? as f64)),
            local: ratio_of(|side| side.local),
        };
        let lab = Summary::new(lab.values());
        let simulator = Summary::new(simulator.values());
        let both = lab.n > 0 && simulator.n > 0 && lab.mean_mbps > 0.0;
        let ratio = both.then(|| simulator.mean_mbps / lab.mean_mbps);
        Self {
            case: case.to_owned(),
            flow: flow.to_owned(),
            ratio,
            agrees: ratio.is_some_and(|ratio| (ratio - 1.0).abs() <= TOLERANCE),
            ratios,
            cwnd_apart: apart(&lab.mean_cwnd(), &simulator.mean_cwnd()),
            lab,
            simulator,
        }
    }
}
