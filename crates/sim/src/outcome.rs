//! Takes the outcome of a run from the engine at its end: what it found of each flow, link and proxy.

use crate::engine::{Engine, PepNode};
use crate::flow_endpoint::{FlowEndpoint, Protocol, Tcp};
use crate::{EndId, LinkCounters, Observer, Options};
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_outcome as outcome;
use bentpipe_pep::split::LegCounters;
use bentpipe_pep::{AnyPep, Pep as _};
use bentpipe_plan::limits::FullPacket;
use bentpipe_scenario::{Amount, Flow, SARATOGA, Scenario, Topology};
use bentpipe_tcp::{Cause, Connection, Counters, Gauges};
use core::time::Duration;

/// What a run found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// The seed that it ran with.
    pub seed: u64,
    /// Virtual time from the start to the end.
    pub elapsed: Duration,
    /// In the order of the scenario.
    pub flows: Vec<FlowOutcome>,
    /// By name of the link: first the direction from its first end, then the other.
    pub links: Vec<LinkOutcome>,
    /// By name.
    pub peps: Vec<PepOutcome>,
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All was delivered, or its time passed.
    Finished,
    /// The run's time limit came first.
    CutOff,
    /// Its connection failed.
    Broken(Cause),
    /// Bytes arrived that were not sent: a mistake in this program. Only seen with `wire`.
    Damaged,
}

/// What became of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// The congestion control of its source.
    pub control: &'static str,
    /// How it ended.
    pub status: Status,
    /// What it is to send; `None` for one that lasts a time.
    pub size: Option<Bytes>,
    /// Propagation there and back.
    pub round_trip: Duration,
    /// From its start to the last byte at the receiver, the end of its time, or the time limit; of a flow that failed, to
    /// the last byte that did arrive.
    pub elapsed: Duration,
    /// Bytes that its receiver got in order until then.
    pub received: Bytes,
    /// The same in full segments, a last short one counted whole: the highest segment number in
    /// order at the receiver, the first being 1.
    pub segments: u64,
    /// Payload of a full segment.
    pub mss: Bytes,
    /// What no TCP can exceed on its path; `None` where nothing limits the rate.
    pub limit: Option<Rate>,
    /// From its start to the established connection at the opener.
    pub connect: Option<Duration>,
    /// From its start to the last byte at the receiver, where there is a last one.
    pub completion: Option<Duration>,
    /// From its start until its source knew that all had arrived.
    pub acknowledged: Option<Duration>,
    /// From its start until its receiver sent the acknowledgement of the last byte, where there is
    /// one.
    pub final_ack: Option<Duration>,
    /// Payload that the source sent, what it sent again counted again.
    pub sent: Bytes,
    /// The part of it that was sent again.
    pub sent_again: Bytes,
    /// By how much the smoothed round-trip time of the source exceeded `round_trip`, in milliseconds.
    pub queueing: outcome::Samples,
    /// What its two TCPs tell; `None` of a file that Saratoga moves.
    pub tcp: Option<TcpOutcome>,
    /// What each gateway that split it sent towards the receiver, by the gateway's name.
    pub gateways: Vec<(String, LegCounters)>,
}

/// What the two TCPs of a flow tell.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpOutcome {
    /// The loss recovery of the source.
    pub recovery: &'static str,
    /// Counts of the source.
    pub source: Counters,
    /// Counts of the receiver.
    pub receiver: Counters,
    /// The last state of the source: congestion window and so on.
    pub gauges: Gauges,
}

impl FlowOutcome {
    /// [`outcome::Flow::goodput`].
    pub fn goodput(&self) -> Rate {
        outcome::Flow::from(self).goodput()
    }
}

/// What happened on one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkOutcome {
    /// The link's name.
    pub link: String,
    /// The node that the direction leaves.
    pub from: String,
    /// The node that it reaches.
    pub to: String,
    /// Data segments of the scenario's flows, not of cross traffic, for which its queue had no room.
    pub refused_data: u64,
    /// The counts.
    pub counters: LinkCounters,
}

/// What a proxy did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PepOutcome {
    /// Its name.
    pub name: String,
    /// Its own counts by name, always in the same order.
    pub counters: Vec<(&'static str, u64)>,
}

/// What the run found that `engine` holds, which ended at `end`.
pub(crate) fn of_run<O: Observer>(
    scenario: &Scenario,
    options: &Options,
    engine: &Engine<O>,
    end: Instant,
) -> Outcome {
    let topology = Topology::new(scenario);
    let links = scenario.links.iter().flat_map(|(name, link)| {
        let [a, b] = &link.ends;
        [(name, a, b), (name, b, a)]
    });
    Outcome {
        name: scenario.name.clone(),
        seed: options.seed.unwrap_or(scenario.seed),
        elapsed: end - Instant::ZERO,
        flows: (0..scenario.flows.len())
            .map(|index| flow_outcome(scenario, &topology, engine, end, index))
            .collect(),
        links: links
            .zip(&engine.network.links)
            .map(|((link, from, to), simplex)| LinkOutcome {
                link: link.clone(),
                from: from.clone(),
                to: to.clone(),
                refused_data: simplex.refused_data,
                counters: *simplex.direction.observer(),
            })
            .collect(),
        peps: engine
            .peps
            .iter()
            .map(|pep| PepOutcome {
                name: pep.name.clone(),
                counters: pep.proxy.counters(),
            })
            .collect(),
    }
}

fn flow_outcome<O: Observer>(
    scenario: &Scenario,
    topology: &Topology<'_>,
    engine: &Engine<O>,
    end: Instant,
    index: usize,
) -> FlowOutcome {
    let flow = &scenario.flows[index];
    let opener = &engine.ends[EndId::opener(index).index()];
    let acceptor = &engine.ends[EndId::acceptor(index).index()];
    let (source, sink) = if flow.opened_by == flow.from {
        (opener, acceptor)
    } else {
        (acceptor, opener)
    };
    let progress = engine.flows[index];
    let since = |at: Instant| at - opener.start;
    let completion = sink.done.and(sink.record.last).map(since);
    let received = Bytes(sink.record.received);
    let path = topology.path(&flow.from, &flow.to);
    let (mss, control, full) = match &source.protocol {
        Protocol::Saratoga(file) => {
            let full = path
                .as_ref()
                .map(|path| FullPacket::new(scenario, flow, path));
            (file.payload(), file.control(), full)
        }
        Protocol::Tcp(tcp) => {
            let peer = sink.tcp().map_or(&tcp.config, |peer| &peer.config);
            let config = &tcp.config;
            let mss = config.payload(peer).max(Bytes(1));
            let headers = Bytes(config.data_header().into());
            let full = FullPacket {
                length: mss + headers,
                headers,
            };
            (mss, config.congestion.name, Some(full))
        }
    };
    let broken = opener.record.broken.or(acceptor.record.broken);
    let status = match (progress.over, broken) {
        _ if opener.record.damaged || acceptor.record.damaged => Status::Damaged,
        (None, _) => Status::CutOff,
        (Some(_), Some(cause)) if !progress.cut => Status::Broken(cause),
        (Some(_), _) => Status::Finished,
    };
    let elapsed = completion.unwrap_or_else(|| match status {
        Status::Finished | Status::CutOff => since(progress.over.unwrap_or(end)),
        Status::Broken(_) | Status::Damaged => sink.record.last.map(since).unwrap_or_default(),
    });
    let tcp = source.tcp().map(|tcp| tcp_outcome(tcp, sink));
    let [sent, sent_again] = match &source.protocol {
        Protocol::Saratoga(file) => file.sent(),
        Protocol::Tcp(_) => tcp.as_ref().map_or([0; 2], |tcp| {
            [tcp.source.bytes_sent, tcp.source.bytes_retransmitted]
        }),
    };
    let srtt = tcp.as_ref().and_then(|tcp| tcp.gauges.srtt);
    FlowOutcome {
        name: flow.name.clone(),
        control,
        status,
        size: match flow.amount {
            Amount::Bytes(size) => Some(size),
            Amount::Segments(segments) => Some(mss * segments),
            Amount::Duration(_) => None,
        },
        round_trip: topology
            .round_trip(&flow.from, &flow.to)
            .expect("without paths both ways the flow would not have been placed"),
        elapsed,
        received,
        segments: received.0.div_ceil(mss.0),
        mss,
        limit: full
            .zip(path)
            .and_then(|(full, path)| full.goodput_limit(&path)),
        connect: opener.record.connected.map(since),
        completion,
        acknowledged: source.done.map(since),
        final_ack: sink
            .record
            .final_ack
            .or(sink.done.filter(|_| sink.tcp().is_none()))
            .map(since),
        sent: Bytes(sent),
        sent_again: Bytes(sent_again),
        queueing: source
            .delays
            .until(srtt, source.done.or(progress.over).unwrap_or(end)),
        tcp,
        gateways: gateways(engine, flow, index),
    }
}

/// What `source` and the end it sends to tell; of a flow that has not started, nothing but its recovery.
fn tcp_outcome(source: &Tcp, sink: &FlowEndpoint) -> TcpOutcome {
    let counters = |connection: Option<&Connection>| {
        connection.map_or_else(Default::default, |it| *it.counters())
    };
    let connection = source.connection.as_ref();
    TcpOutcome {
        recovery: source.config.recovery.name,
        source: counters(connection),
        receiver: counters(sink.connection()),
        gauges: connection.map_or_else(Default::default, |it| it.gauges()),
    }
}

fn gateways<O: Observer>(
    engine: &Engine<O>,
    flow: &Flow,
    index: usize,
) -> Vec<(String, LegCounters)> {
    let (opener, acceptor) = (EndId::opener(index), EndId::acceptor(index));
    let (source, sink) = if flow.opened_by == flow.from {
        (opener, acceptor)
    } else {
        (acceptor, opener)
    };
    let of = |pep: &PepNode| match &pep.proxy {
        AnyPep::Split(split) => Some((pep.name.clone(), split.sent_to(source, sink)?)),
        _ => None,
    };
    engine.peps.iter().filter_map(of).collect()
}

impl From<&Outcome> for outcome::Run {
    fn from(run: &Outcome) -> Self {
        let proxies = run.peps.iter().map(|pep| outcome::Proxy {
            name: pep.name.clone(),
            counters: pep.counters.clone(),
        });
        Self {
            engine: outcome::Engine::Simulator,
            scenario: run.name.clone(),
            seed: run.seed,
            elapsed: run.elapsed,
            flows: run.flows.iter().map(outcome::Flow::from).collect(),
            links: run.links.iter().map(outcome::SimplexLink::from).collect(),
            proxies: proxies.collect(),
            traffic: None,
            lateness: Duration::ZERO,
        }
    }
}

const fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Reset => "the other side reset the connection",
        Cause::Refused => "the other side refused the connection",
        Cause::Unreachable => "no way leads to the other side",
        Cause::TimedOut => "what it sent was never acknowledged",
        Cause::Local => "its application gave up",
    }
}

impl From<&FlowOutcome> for outcome::Flow {
    fn from(flow: &FlowOutcome) -> Self {
        let tcp = flow.tcp.as_ref();
        Self {
            name: flow.name.clone(),
            end: match flow.status {
                Status::Finished => outcome::End::Finished,
                Status::CutOff => outcome::End::CutOff,
                Status::Broken(cause) => outcome::End::Failed(why(cause).into()),
                Status::Damaged => outcome::End::Failed("it received wrong bytes".into()),
            },
            control: flow.control.into(),
            recovery: Some(tcp.map_or(SARATOGA, |tcp| tcp.recovery)),
            connect: flow.connect,
            elapsed: flow.elapsed,
            size: flow.size,
            round_trip: flow.round_trip,
            limit: flow.limit,
            received: flow.received,
            segments: Some(flow.segments),
            completion: flow.completion,
            acknowledged: flow.acknowledged,
            final_ack: flow.final_ack,
            sent: Some(flow.sent),
            sent_again: Some(flow.sent_again),
            segments_again: tcp.map(|tcp| tcp.source.retransmitted),
            gateways: { flow.gateways.iter() }
                .map(|(gateway, leg)| outcome::Leg {
                    gateway: gateway.clone(),
                    sent: leg.sent,
                    sent_again: leg.sent_again,
                    segments_again: leg.segments_again,
                })
                .collect(),
            timeouts: tcp.map(|tcp| tcp.source.timeouts),
            recoveries: tcp.map(|tcp| tcp.source.recoveries),
            srtt: tcp.and_then(|tcp| tcp.gauges.srtt),
            queueing: flow.queueing,
            cwnd: tcp.map(|tcp| tcp.gauges.cwnd),
            ssthresh: tcp.and_then(|tcp| tcp.gauges.ssthresh).map(f64::from),
        }
    }
}

impl From<&LinkOutcome> for outcome::SimplexLink {
    fn from(line: &LinkOutcome) -> Self {
        Self {
            link: line.link.clone(),
            from: line.from.clone(),
            to: line.to.clone(),
            packets: line.counters.packets,
            corrupted: line.counters.corrupted,
            lost: line.counters.lost,
            struck_before_queue: line.counters.struck_before_queue,
            refused: line.counters.refused,
            marked: line.counters.marked,
            refused_data: Some(line.refused_data),
            waited: line.counters.waited(),
            longest_queue: Some(line.counters.longest_queue as u64),
        }
    }
}
