//! From what the threads of a run saw to its figures.

use crate::emulator::Report;
use crate::flow::{Ended, Received, ReceivedEnd};
use crate::legs::Look;
use crate::plan::{FlowPlan, Plan};
use crate::result::{FlowResult, Measured, Outcome, Point, Sample, TrafficResult};
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_os::tcp::Info;
use bentpipe_scenario::{Amount, Flow, Scenario};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the threads saw.
pub(crate) struct Watched {
    /// In the order of the scenario.
    pub(crate) ended: Vec<Ended>,
    pub(crate) looks: Vec<Look>,
    pub(crate) links: BTreeMap<String, Report>,
    pub(crate) traffic: Option<TrafficResult>,
}

/// The figures of a run that began at `begin`.
pub(crate) fn measured(
    scenario: &Scenario,
    plan: &Plan,
    begin: Instant,
    watched: Watched,
) -> Measured {
    let mut measured = Measured::default();
    let limit = begin + scenario.time_limit;
    let flows = scenario.flows.iter().zip(&plan.flows).zip(&watched.ended);
    for (index, ((flow, plan), ended)) in flows.enumerate() {
        // A flow that never connected is told from its appointed time.
        let opened = ended.opened.unwrap_or(begin + flow.start);
        let looks: Vec<&Look> = watched
            .looks
            .iter()
            .filter(|look| look.flow == index)
            .collect();
        let result = FlowResult {
            legs: legs(&looks),
            ..result(scenario, flow, plan, ended, opened, limit)
        };
        measured.flows.push(result);
        let flow = Samples {
            flow: index,
            opened,
        };
        measured.samples.extend(flow.all(ended, &looks));
    }
    measured.links = watched.links;
    measured.traffic = watched.traffic;
    measured
}

/// The last look at each gateway.
fn legs(looks: &[&Look]) -> BTreeMap<String, Info> {
    let named = looks.iter().map(|look| (look.gateway.clone(), look.info));
    named.collect()
}

/// What a program's flow uses: the control of its route, or Saratoga's own.
fn own_control(scenario: &Scenario, flow: &Flow) -> String {
    let control = match flow.is_saratoga() {
        true => Some(flow.congestion_control.as_deref().unwrap_or("none")),
        false => scenario.sender_control(flow),
    };
    control.unwrap_or_default().to_owned()
}

fn result(
    scenario: &Scenario,
    flow: &Flow,
    plan: &FlowPlan,
    ended: &Ended,
    opened: Instant,
    limit: Instant,
) -> FlowResult {
    let Ended { sent, received, .. } = ended;
    let (outcome, end) = outcome(flow, ended, opened, limit);
    let elapsed = end - opened;
    let opener = if flow.opened_by == flow.from {
        sent.connected
    } else {
        received.connected
    };
    let by_size = matches!(flow.amount, Amount::Bytes(_));
    let finished = outcome == Outcome::Finished;
    FlowResult {
        name: flow.name.clone(),
        size: match flow.amount {
            Amount::Bytes(size) => Some(size),
            Amount::Segments(_) | Amount::Duration(_) => None,
        },
        round_trip: plan.round_trip,
        congestion_control: sent
            .control
            .clone()
            .unwrap_or_else(|| own_control(scenario, flow)),
        connect: opener.map(|connected| connected - opened),
        completion: (by_size && finished).then_some(elapsed),
        acknowledged: sent.acknowledged.map(|at| at - opened),
        elapsed,
        received: Bytes(received.bytes),
        goodput: goodput(received.bytes, elapsed),
        limit: plan.limit,
        sender: sent.series.last().map(|(_, info)| *info),
        legs: BTreeMap::new(),
        outcome,
    }
}

/// What became of a flow, and when it ended.
fn outcome(flow: &Flow, ended: &Ended, opened: Instant, limit: Instant) -> (Outcome, Instant) {
    let Received { last, end, .. } = &ended.received;
    let last = last.unwrap_or(opened);
    match (end, flow.amount) {
        (ReceivedEnd::Finished, Amount::Bytes(_) | Amount::Segments(_)) => {
            (Outcome::Finished, last)
        }
        (ReceivedEnd::Finished, Amount::Duration(time)) => (Outcome::Finished, opened + time),
        (ReceivedEnd::CutOff, _) => {
            // A connection that the sender could not even open is its story, not the clock's.
            match &ended.sent.broken {
                Some(why) if ended.received.connected.is_none() => {
                    (Outcome::Failed(format!("the sender: {why}")), last)
                }
                _ => (Outcome::CutOff, limit),
            }
        }
        (ReceivedEnd::Failed(why), _) => {
            let why = match &ended.sent.broken {
                Some(sender) => format!("the receiver: {why}; the sender: {sender}"),
                None => format!("the receiver: {why}"),
            };
            (Outcome::Failed(why), last)
        }
    }
}

fn goodput(bytes: u64, elapsed: Duration) -> Rate {
    let seconds = elapsed.as_secs_f64();
    if seconds == 0.0 {
        return Rate::default();
    }
    Rate::from_bits_per_sec((bytes as f64 * 8.0 / seconds).round() as u64)
}

/// The samples of one flow.
struct Samples {
    flow: usize,
    opened: Instant,
}

impl Samples {
    fn all(&self, ended: &Ended, looks: &[&Look]) -> Vec<Sample> {
        let received = ended.received.series.iter();
        let received = received.map(|(at, bytes)| self.one(Point::Receiver, *at, *bytes, None));
        let sent = ended.sent.series.iter();
        let sent = sent.map(|(at, info)| self.tcp(Point::Sender, *at, *info));
        let legs = looks.iter();
        let legs =
            legs.map(|look| self.tcp(Point::Gateway(look.gateway.clone()), look.at, look.info));
        let mut all: Vec<Sample> = received.chain(sent).chain(legs).collect();
        all.sort_by(|a, b| (&a.point, a.at).cmp(&(&b.point, b.at)));
        all
    }

    fn tcp(&self, point: Point, at: Instant, info: Info) -> Sample {
        self.one(point, at, info.bytes_acked.0, Some(info))
    }

    fn one(&self, point: Point, at: Instant, bytes: u64, tcp: Option<Info>) -> Sample {
        Sample {
            flow: self.flow,
            point,
            at: at - self.opened,
            bytes: Bytes(bytes),
            tcp,
        }
    }
}
