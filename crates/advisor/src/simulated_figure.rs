//! One figure: a scenario is run, with several seeds where chance has a say, and the user in the middle is taken.

use crate::alternative::{Alternative, Measure};
use crate::question::{Activity, Question};
use crate::scenario_text::scenario;
use bentpipe_base::Instant;
use bentpipe_config::Problems;
use bentpipe_outcome::{End, Flow, Run, SimplexLink};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{EndId, Observer, Options, SimError, observe};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// What was measured of one alternative. It is the figure of one run, that with this seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Whose.
    pub alternative: Alternative,
    /// What.
    pub measure: Measure,
    /// Until the last byte was there, of the user in the middle; `None` where it was cut off.
    pub seconds: Option<f64>,
    /// When a run is cut off.
    pub limit_s: f64,
    /// The seed of the run that it is from.
    pub seed: u64,
    /// The flow of that run whose `completion_s` it is.
    pub flow: String,
    /// Runs with different seeds that it is the middle of.
    pub runs: u64,
    /// Payload of all users together over the time until the last byte was there.
    pub goodput_mbps: f64,
    /// What else that run tells.
    pub evidence: Evidence,
    /// What all users together had received by when: of [`Measure::Long`] alone.
    pub curve: Vec<Point>,
}

/// What a run tells besides: of the satellite link in the direction of the data, where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The goodput that no TCP can exceed.
    pub limit_mbps: f64,
    /// What a packet waited in the queue, in the mean.
    pub wait_ms: f64,
    /// Packets that the link carried or lost.
    pub packets: u64,
    /// Packets of these that the link lost.
    pub lost: u64,
    /// Packets that found the queue full.
    pub refused: u64,
    /// Acknowledgements that found the queue of the way back full.
    pub refused_back: u64,
    /// What an acknowledgement waited in the queue of the way back, in the mean.
    pub wait_back_ms: f64,
    /// Expiries of the source's retransmission timer, all users together.
    pub timeouts: u64,
}

/// A point of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When, from the start.
    pub seconds: f64,
    /// What had been received.
    pub megabytes: f64,
}

/// Why a figure could not be taken: a mistake of this crate, for a [`Question`] is always one that can be simulated.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The scenario is none.
    #[error("the scenario of this link: {0}")]
    Scenario(#[from] Problems),
    /// The simulator does not have what it asks for.
    #[error("the simulator refuses this link: {0}")]
    Simulator(#[from] SimError),
    /// A connection broke.
    #[error("with seed {seed} the connection of `{flow}` broke: {why}")]
    Failed {
        /// The seed.
        seed: u64,
        /// The flow.
        flow: String,
        /// Why.
        why: String,
    },
}

/// Takes the figure of `measure` for `alternative`.
///
/// # Errors
/// See [`MeasureError`].
pub fn measure(
    question: &Question,
    alternative: Alternative,
    measure: Measure,
) -> Result<Figure, MeasureError> {
    let runs = measure.seeds(question);
    let long = measure == Measure::Long;
    let mut users = Vec::new();
    let mut all = Vec::new();
    for seed in 1..=runs {
        let text = scenario(question, alternative, measure, seed);
        let scenario = Scenario::parse("advisor.toml", &text)?;
        let curve = long.then(|| Curve::new(scenario.flows.len()));
        let (run, curve) = observe(&scenario, &Options::default(), curve)?;
        for flows in run.flows.chunks(measure.connections() as usize) {
            users.push(User {
                run: all.len(),
                last: last(flows, seed)?.clone(),
            });
        }
        all.push((seed, scenario.time_limit, run, curve));
    }
    // Who was cut off was slower than all others; of two in the middle the quicker. Equals keep the order of the seeds.
    users.sort_by_key(|user| user.last.completion.unwrap_or(Duration::MAX));
    let middle = &users[(users.len() - 1) / 2];
    let (seed, limit, run, curve) = &all[middle.run];
    Ok(Figure {
        alternative,
        measure,
        seconds: middle.last.completion.map(|time| time.as_secs_f64()),
        limit_s: limit.as_secs_f64(),
        seed: *seed,
        flow: middle.last.name.clone(),
        runs,
        goodput_mbps: goodput(run),
        evidence: Evidence::of(question, run),
        curve: curve.as_ref().map_or_else(Vec::new, Curve::points),
    })
}

/// What one user waited for.
struct User {
    /// The index of the run.
    run: usize,
    /// Of the user's connections the one that was ready last.
    last: Flow,
}

fn last(flows: &[Flow], seed: u64) -> Result<&Flow, MeasureError> {
    for flow in flows {
        if let End::Failed(why) = &flow.end {
            return Err(MeasureError::Failed {
                seed,
                flow: flow.name.clone(),
                why: why.clone(),
            });
        }
    }
    let slowest = flows
        .iter()
        .max_by_key(|flow| flow.completion.unwrap_or(Duration::MAX));
    Ok(slowest.expect("a user has a connection"))
}

/// Payload of all flows over the time until the last byte of the last one, or until the cut.
fn goodput(run: &Run) -> f64 {
    let bits: u64 = run.flows.iter().map(|flow| flow.received.bits()).sum();
    let ends = { run.flows.iter() }.map(|flow| flow.completion.unwrap_or(flow.elapsed));
    let seconds = ends.max().unwrap_or_default().as_secs_f64();
    if seconds > 0.0 {
        bits as f64 / seconds / 1e6
    } else {
        0.0
    }
}

impl Evidence {
    fn of(question: &Question, run: &Run) -> Self {
        let ahead = if question.activity == Activity::Upload {
            1
        } else {
            0
        };
        let space: Vec<&SimplexLink> = { run.links.iter() }
            .filter(|link| link.link == "space")
            .collect();
        let (there, back) = (space[ahead], space[1 - ahead]);
        let wait =
            |link: &SimplexLink| 1e3 * link.waited.as_secs_f64() / link.packets.max(1) as f64;
        let limit = { run.flows.iter() }.find_map(|flow| flow.limit);
        Self {
            limit_mbps: limit.map_or(0.0, |rate| rate.mbps()),
            wait_ms: wait(there),
            packets: there.packets,
            lost: there.lost + there.corrupted,
            refused: there.refused,
            refused_back: back.refused,
            wait_back_ms: wait(back),
            timeouts: run.flows.iter().filter_map(|flow| flow.timeouts).sum(),
        }
    }
}

/// What was received by when, in steps that double while there are too many of them.
struct Curve {
    step: Duration,
    /// The end of the step that is under way.
    due: Instant,
    /// What had been received at the end of each step before.
    steps: Vec<u64>,
    /// Of each flow.
    received: Vec<u64>,
    total: u64,
    /// When something was received last.
    last: Instant,
}

impl Curve {
    const MOST: usize = 160;

    fn new(flows: usize) -> Self {
        let step = Duration::from_millis(10);
        Self {
            step,
            due: Instant::ZERO + step,
            steps: Vec::with_capacity(Self::MOST),
            received: vec![0; flows],
            total: 0,
            last: Instant::ZERO,
        }
    }

    fn end_step(&mut self) {
        self.steps.push(self.total);
        if self.steps.len() == Self::MOST {
            // The end of each pair of steps is that of one twice as long.
            let pairs = self.steps.chunks(2);
            self.steps = pairs.filter_map(|pair| pair.last().copied()).collect();
            self.step *= 2;
        }
        self.due = Instant::ZERO + self.step * (self.steps.len() as u32 + 1);
    }

    fn points(&self) -> Vec<Point> {
        let point = |at: Duration, bytes: u64| Point {
            seconds: at.as_secs_f64(),
            megabytes: bytes as f64 / 1e6,
        };
        let steps = { self.steps.iter().zip(1u32..) }
            .map(|(bytes, number)| point(self.step * number, *bytes));
        let end = point(self.last.since(Instant::ZERO), self.total);
        { [point(Duration::ZERO, 0)].into_iter() }
            .chain(steps)
            .chain([end])
            .collect()
    }
}

impl Observer for Curve {
    const PACKETS: bool = false;

    fn progress(&mut self, now: Instant, end: EndId, bytes: u64) {
        while now >= self.due {
            self.end_step();
        }
        // One end of a bulk transfer alone receives anything.
        let received = &mut self.received[end.flow()];
        self.total += bytes.saturating_sub(*received);
        *received = bytes.max(*received);
        self.last = now;
    }
}
