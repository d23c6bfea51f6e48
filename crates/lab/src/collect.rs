//! Makes the figures of a run from what its threads recorded.

use crate::app::{APPS, App};
use crate::emulator::Report;
use crate::flow::{FinishedFlow, Received, ReceivedEnd};
use crate::gateway;
use crate::legs::Look;
use crate::plan::{FlowPlan, Plan};
use crate::result::Measured;
use bentpipe_base::{Bytes, Instant};
use bentpipe_outcome::{self as outcome, End, Leg, Point, Sample, TcpState, Traffic};
use bentpipe_scenario::{Amount, Flow, Scenario};
use bentpipe_sockets::tcp::Info;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the threads recorded.
pub(crate) struct Watched {
    /// In the order of the scenario.
    pub(crate) ended: Vec<FinishedFlow>,
    /// What each gateway said and counted.
    pub(crate) gateways: BTreeMap<String, gateway::StoppedGateway>,
    pub(crate) looks: Vec<Look>,
    pub(crate) links: BTreeMap<String, Report>,
    pub(crate) traffic: Option<Traffic>,
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
        let sampled = SampledFlow {
            flow: index,
            opened,
        };
        let samples = sampled.all(ended, &looks);
        measured.flows.push(outcome::Flow {
            gateways: legs(&looks),
            queueing: queueing(&samples, plan.round_trip),
            ..result(scenario, flow, plan, ended, opened, limit)
        });
        measured.samples.extend(samples);
    }
    let counters = watched.gateways.into_iter();
    let counters = counters.filter_map(|(name, ended)| Some((name, ended.status?.into_counters())));
    measured.counters = counters.collect();
    measured.links = watched.links;
    measured.traffic = watched.traffic;
    measured
}

/// The last look at each gateway.
fn legs(looks: &[&Look]) -> Vec<Leg> {
    let last: BTreeMap<&str, Info> = looks
        .iter()
        .map(|look| (look.gateway.as_str(), look.info))
        .collect();
    let legs = last.into_iter().map(|(gateway, tcp)| Leg {
        gateway: gateway.to_owned(),
        sent: tcp.bytes_sent,
        sent_again: tcp.bytes_retrans,
        segments_again: tcp.total_retrans.into(),
    });
    legs.collect()
}

/// By how much the sender's smoothed round-trip time exceeded propagation, sample by sample, in ms.
fn queueing(samples: &[Sample], round_trip: Duration) -> outcome::Mean {
    let own = samples.iter().filter(|it| it.point == Point::Sender);
    let delays = own.filter_map(|sample| {
        let tcp = sample.tcp.filter(|_| sample.at > outcome::Flow::START)?;
        Some(1e3 * tcp.srtt?.saturating_sub(round_trip).as_secs_f64())
    });
    delays.collect()
}

/// What a program's flow uses: the control of its route, Saratoga's own or that of SCPS-TP; none where nothing is sent again.
fn own_control(scenario: &Scenario, flow: &Flow) -> String {
    let once = |app: &&App| app.report.is_some() && flow.app.as_deref() == Some(app.name);
    if APPS.iter().any(|app| once(&app)) {
        return Flow::SARATOGA_CONTROLS[0].to_owned();
    }
    let own = |app: &&App| app.interface.is_some() && flow.app.as_deref() == Some(app.name);
    if APPS.iter().any(|app| own(&app)) {
        return "rate".to_owned();
    }
    let control = scenario
        .sender_control(flow)
        .unwrap_or_else(|| flow.saratoga_control());
    control.to_owned()
}

fn result(
    scenario: &Scenario,
    flow: &Flow,
    plan: &FlowPlan,
    ended: &FinishedFlow,
    opened: Instant,
    limit: Instant,
) -> outcome::Flow {
    let FinishedFlow { sent, received, .. } = ended;
    let (end, at) = end(flow, ended, opened, limit);
    let elapsed = at - opened;
    let opener = if flow.opened_by == flow.from {
        sent.connected
    } else {
        received.connected
    };
    let by_size = matches!(flow.amount, Amount::Bytes(_));
    let finished = end == End::Finished;
    let tcp = sent.series.last().map(|(_, info)| *info);
    let completion = (by_size && finished).then_some(elapsed);
    outcome::Flow {
        name: flow.name.clone(),
        size: match flow.amount {
            Amount::Bytes(size) => Some(size),
            Amount::Segments(_) | Amount::Duration(_) => None,
        },
        round_trip: plan.round_trip,
        control: sent
            .control
            .clone()
            .unwrap_or_else(|| own_control(scenario, flow)),
        connect: opener.map(|connected| connected - opened),
        completion,
        acknowledged: sent.acknowledged.map(|at| at - opened),
        elapsed,
        received: Bytes(received.bytes),
        limit: plan.limit,
        sent: tcp.map(|tcp| tcp.bytes_sent),
        sent_again: tcp.map(|tcp| tcp.bytes_retrans),
        segments_again: tcp.map(|tcp| tcp.total_retrans.into()),
        timeouts: tcp.map(|tcp| tcp.total_rto.into()),
        srtt: tcp.map(|tcp| tcp.rtt),
        cwnd: tcp.map(|tcp| tcp.cwnd.into()),
        ssthresh: tcp.and_then(|tcp| tcp.ssthresh).map(f64::from),
        responses: received.responses.clone(),
        end,
        ..outcome::Flow::default()
    }
}

/// What became of a flow, and when it ended.
fn end(flow: &Flow, ended: &FinishedFlow, opened: Instant, limit: Instant) -> (End, Instant) {
    let Received { last, end, .. } = &ended.received;
    let last = last.unwrap_or(opened);
    match (end, flow.amount) {
        (ReceivedEnd::Finished, Amount::Bytes(_) | Amount::Segments(_)) => (End::Finished, last),
        (ReceivedEnd::Finished, Amount::Duration(time)) => (End::Finished, opened + time),
        (ReceivedEnd::Incomplete, _) => (End::CutOff, last),
        (ReceivedEnd::CutOff, _) => {
            // If the sender could not open the connection, that is why the flow ended, and not the time limit.
            match &ended.sent.broken {
                Some(why) if ended.received.connected.is_none() => {
                    (End::Failed(format!("the sender: {why}")), last)
                }
                _ => (End::CutOff, limit),
            }
        }
        (ReceivedEnd::Failed(why), _) => {
            let why = match &ended.sent.broken {
                Some(sender) => format!("the receiver: {why}; the sender: {sender}"),
                None => format!("the receiver: {why}"),
            };
            (End::Failed(why), last)
        }
    }
}

/// A flow of which samples are made.
struct SampledFlow {
    flow: usize,
    opened: Instant,
}

impl SampledFlow {
    fn all(&self, ended: &FinishedFlow, looks: &[&Look]) -> Vec<Sample> {
        let received = ended
            .received
            .series
            .iter()
            .map(|(at, bytes)| self.one(Point::Receiver, *at, *bytes, None));
        let sent = ended
            .sent
            .series
            .iter()
            .map(|(at, info)| self.tcp(Point::Sender, *at, *info));
        let legs = looks.iter();
        let legs =
            legs.map(|look| self.tcp(Point::Gateway(look.gateway.clone()), look.at, look.info));
        let mut all: Vec<Sample> = received.chain(sent).chain(legs).collect();
        all.sort_by(|a, b| (&a.point, a.at).cmp(&(&b.point, b.at)));
        all
    }

    fn tcp(&self, point: Point, at: Instant, info: Info) -> Sample {
        self.one(point, at, info.bytes_acked.0, Some(state(&info)))
    }

    fn one(&self, point: Point, at: Instant, bytes: u64, tcp: Option<TcpState>) -> Sample {
        Sample {
            flow: self.flow,
            point,
            at: at - self.opened,
            bytes: Bytes(bytes),
            tcp,
        }
    }
}

fn state(info: &Info) -> TcpState {
    // The kernel's "not paced" is no number.
    let paced = info.pacing_rate.bits_per_sec() < u64::MAX;
    TcpState {
        cwnd: info.cwnd.into(),
        ssthresh: info.ssthresh.map(f64::from),
        in_flight: Some(info.unacked.into()),
        srtt: Some(info.rtt),
        min_rtt: Some(info.min_rtt),
        retransmitted: info.total_retrans.into(),
        delivery_rate: Some(info.delivery_rate),
        pacing_rate: paced.then_some(info.pacing_rate),
        recovery_state: Some(info.ca_state),
    }
}
