//! Takes the outcome of a run from the engine at its end: what it found of each flow, link and proxy.

use crate::engine::{Engine, FlowProgress, PepNode};
use crate::flow_endpoint::{FlowEndpoint, Protocol};
use crate::hosted_connection::EndConnection;
use crate::network::SimplexLink;
use crate::{EndId, Observer, Options};
use bentpipe_base::{Bytes, Instant};
use bentpipe_outcome::{self as outcome, End};
use bentpipe_pep::split::LegCounters;
use bentpipe_pep::{AnyPep, Pep as _};
use bentpipe_plan::limits::FullPacket;
use bentpipe_scenario::{Amount, Flow, SARATOGA, Scenario, Topology};
use bentpipe_tcp::{Cause, Connection, Counters, Gauges};
use core::time::Duration;

/// What the run found that `engine` holds, which ended at `end`.
pub(crate) fn of_run<O: Observer>(
    scenario: &Scenario,
    options: &Options,
    engine: &Engine<O>,
    end: Instant,
) -> outcome::Run {
    let topology = Topology::new(scenario);
    let links = scenario.links.iter().flat_map(|(name, link)| {
        let [a, b] = &link.ends;
        [(name, a, b), (name, b, a)]
    });
    let links = links.zip(&engine.network.links);
    let proxies = engine.peps.iter().map(|pep| outcome::Proxy {
        name: pep.name.clone(),
        counters: pep.proxy.counters(),
    });
    outcome::Run {
        engine: outcome::Engine::Simulator,
        scenario: scenario.name.clone(),
        seed: options.seed.unwrap_or(scenario.seed),
        elapsed: end - Instant::ZERO,
        flows: (0..scenario.flows.len())
            .map(|index| flow_outcome(scenario, &topology, engine, end, index))
            .collect(),
        samples: Vec::new(),
        links: links
            .map(|((link, from, to), simplex)| simplex_link([link, from, to], simplex))
            .collect(),
        proxies: proxies.collect(),
        traffic: None,
        lateness: Duration::ZERO,
    }
}

fn simplex_link(names: [&String; 3], simplex: &SimplexLink) -> outcome::SimplexLink {
    let counters = simplex.direction.observer();
    counters.outcome(names.map(String::as_str), Some(simplex.refused_data))
}

fn flow_outcome<O: Observer>(
    scenario: &Scenario,
    topology: &Topology<'_>,
    engine: &Engine<O>,
    end: Instant,
    index: usize,
) -> outcome::Flow {
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
    let sender = Sender::new(source, sink, || {
        let path = path.as_ref()?;
        Some(FullPacket::new(scenario, flow, path))
    });
    let ending = ending(opener, acceptor, progress);
    let elapsed = completion.unwrap_or_else(|| match ending {
        End::Finished | End::CutOff => since(progress.over.unwrap_or(end)),
        End::Failed(_) => sink.record.last.map(since).unwrap_or_default(),
    });
    let tcp = sender.tcp;
    let srtt = tcp.and_then(|(_, gauges)| gauges.srtt);
    outcome::Flow {
        name: flow.name.clone(),
        end: ending,
        control: sender.control.into(),
        recovery: Some(sender.recovery),
        size: match flow.amount {
            Amount::Bytes(size) => Some(size),
            Amount::Segments(segments) => Some(sender.mss * segments),
            Amount::Duration(_) => None,
        },
        round_trip: topology
            .round_trip(&flow.from, &flow.to)
            .expect("without paths both ways the flow would not have been placed"),
        limit: { sender.full }
            .zip(path)
            .and_then(|(full, path)| full.goodput_limit(&path)),
        received,
        mss: Some(sender.mss),
        segments: Some(received.0.div_ceil(sender.mss.0)),
        connect: opener.record.connected.map(since),
        elapsed,
        completion,
        acknowledged: source.done.map(since),
        final_ack: sink
            .record
            .final_ack
            .or(sink.done.filter(|_| sink.tcp().is_none()))
            .map(since),
        sent: Some(sender.sent),
        sent_again: Some(sender.sent_again),
        segments_again: tcp.map(|(counters, _)| counters.retransmitted),
        gateways: gateways(engine, flow, index),
        timeouts: tcp.map(|(counters, _)| counters.timeouts),
        recoveries: tcp.map(|(counters, _)| counters.recoveries),
        srtt,
        queueing: source
            .queueing
            .until(srtt, source.done.or(progress.over).unwrap_or(end)),
        cwnd: tcp.map(|(_, gauges)| gauges.cwnd),
        ssthresh: tcp.and_then(|(_, gauges)| gauges.ssthresh).map(f64::from),
        responses: sink
            .tcp()
            .map_or_else(Vec::new, |tcp| tcp.app.responses().to_vec()),
    }
}

/// How a flow of those ends ended.
fn ending(opener: &FlowEndpoint, acceptor: &FlowEndpoint, progress: FlowProgress) -> End {
    let broken = opener.record.broken.or(acceptor.record.broken);
    let damaged = opener.record.damaged || acceptor.record.damaged;
    match (progress.over, broken) {
        // Only seen with `wire`: bytes arrived that were not sent, a mistake in this program.
        _ if damaged => End::Failed("it received wrong bytes".into()),
        (None, _) => End::CutOff,
        (Some(_), Some(cause)) if !progress.cut => End::Failed(why(cause).into()),
        (Some(_), _) => End::Finished,
    }
}

/// What the source of a flow is, and what it sent.
struct Sender {
    control: &'static str,
    recovery: &'static str,
    /// Payload of a full segment.
    mss: Bytes,
    /// A full segment in its headers.
    full: Option<FullPacket>,
    sent: Bytes,
    sent_again: Bytes,
    /// What its TCP tells, nothing but zeros before its start; `None` of a file that Saratoga moves.
    tcp: Option<(Counters, Gauges)>,
}

impl Sender {
    /// The outcome of `source`, which sends to `sink`; `packet` is a full one of a file that Saratoga moves.
    fn new(
        source: &FlowEndpoint,
        sink: &FlowEndpoint,
        packet: impl FnOnce() -> Option<FullPacket>,
    ) -> Self {
        match &source.protocol {
            Protocol::Saratoga(file) => {
                let [sent, sent_again] = file.sent().map(Bytes);
                Self {
                    control: file.control(),
                    recovery: SARATOGA,
                    mss: file.payload(),
                    full: packet(),
                    sent,
                    sent_again,
                    tcp: None,
                }
            }
            Protocol::Tcp(tcp) => {
                let config = &tcp.config;
                let peer = sink.tcp().map_or(config, |peer| &peer.config);
                let mss = config.payload(peer).max(Bytes(1));
                let headers = Bytes(config.data_header().into());
                let connection = tcp.connection.as_ref().and_then(EndConnection::get);
                let counters = connection.map_or_else(Default::default, |it| *it.counters());
                Self {
                    control: tcp.control,
                    recovery: config.recovery.name,
                    mss,
                    full: Some(FullPacket {
                        length: mss + headers,
                        headers,
                    }),
                    sent: Bytes(counters.bytes_sent),
                    sent_again: Bytes(counters.bytes_retransmitted),
                    tcp: Some((
                        counters,
                        connection.map_or_else(Default::default, Connection::gauges),
                    )),
                }
            }
        }
    }
}

pub(crate) const fn why(cause: Cause) -> &'static str {
    match cause {
        Cause::Reset => "the other side reset the connection",
        Cause::Refused => "the other side refused the connection",
        Cause::Unreachable => "no way leads to the other side",
        Cause::TimedOut => "what it sent was never acknowledged",
        Cause::Local => "its application gave up",
    }
}

/// What each gateway that splits the flow sent of it towards its receiver.
fn gateways<O: Observer>(engine: &Engine<O>, flow: &Flow, index: usize) -> Vec<outcome::Leg> {
    let (opener, acceptor) = (EndId::opener(index), EndId::acceptor(index));
    let (source, sink) = if flow.opened_by == flow.from {
        (opener, acceptor)
    } else {
        (acceptor, opener)
    };
    let of = |pep: &PepNode| match &pep.proxy {
        AnyPep::Split(split) => Some(leg(&pep.name, &split.sent_to(source, sink)?)),
        _ => None,
    };
    engine.peps.iter().filter_map(of).collect()
}

fn leg(gateway: &str, counters: &LegCounters) -> outcome::Leg {
    outcome::Leg {
        gateway: gateway.to_owned(),
        sent: counters.sent,
        sent_again: counters.sent_again,
        segments_again: counters.segments_again,
    }
}
