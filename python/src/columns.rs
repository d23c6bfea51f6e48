//! Tables of a run: the keys of `docs/results.md`, a column each.

use crate::table::{Builder, Table};
use bentpipe_base::Instant;
use bentpipe_outcome::{End, Flow, Leg, Point, Run, Sample, SimplexLink};
use bentpipe_scenario::Scenario;
use bentpipe_sim::Series;
use std::time::Duration;

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// A row a flow, with the keys of a flow in `docs/results.md`.
pub(crate) fn flows(flows: &[Flow]) -> Table {
    let mut table = Builder::new(flows);
    table.text("name", |flow| Some(&flow.name));
    table.text("outcome", |flow| {
        Some(match flow.end {
            End::Finished => "finished",
            End::CutOff => "cut off",
            End::Failed(_) => "failed",
        })
    });
    table.text("why", |flow| match &flow.end {
        End::Failed(why) => Some(why),
        _ => None,
    });
    table.text("congestion_control", |flow| Some(&flow.control));
    table.text("recovery", |flow| flow.recovery);
    table.count("size_bytes", |flow| flow.size.map(|size| size.0));
    table.real("round_trip_s", |flow| Some(seconds(flow.round_trip)));
    table.real("limit_mbps", |flow| flow.limit.map(|limit| limit.mbps()));
    table.count("received_bytes", |flow| Some(flow.received.0));
    table.count("segments", |flow| flow.segments);
    table.real("connect_s", |flow| flow.connect.map(seconds));
    table.real("elapsed_s", |flow| Some(seconds(flow.elapsed)));
    table.real("completion_s", |flow| flow.completion.map(seconds));
    table.real("acknowledged_s", |flow| flow.acknowledged.map(seconds));
    table.real("final_ack_s", |flow| flow.final_ack.map(seconds));
    table.count("sent_bytes", |flow| flow.sent.map(|sent| sent.0));
    table.count("sent_again_bytes", |flow| {
        flow.sent_again.map(|sent| sent.0)
    });
    table.count("segments_again", |flow| flow.segments_again);
    table.count("timeouts", |flow| flow.timeouts);
    table.count("recoveries", |flow| flow.recoveries);
    table.real("srtt_ms", |flow| flow.srtt.map(milliseconds));
    table.real("mean_queueing_ms", |flow| flow.queueing.value());
    table.real("cwnd_segments", |flow| flow.cwnd);
    table.real("ssthresh_segments", |flow| flow.ssthresh);
    table.real("goodput_mbps", |flow| Some(flow.goodput().mbps()));
    table.build()
}

/// A row for each gateway's TCP that sent of a flow.
pub(crate) fn gateways(flows: &[Flow]) -> Table {
    let legs: Vec<(&Flow, &Leg)> = { flows.iter() }
        .flat_map(|flow| flow.gateways.iter().map(move |leg| (flow, leg)))
        .collect();
    let mut table = Builder::new(&legs);
    table.text("flow", |(flow, _)| Some(&flow.name));
    table.text("gateway", |(_, leg)| Some(&leg.gateway));
    table.count("sent_bytes", |(_, leg)| Some(leg.sent.0));
    table.count("sent_again_bytes", |(_, leg)| Some(leg.sent_again.0));
    table.count("segments_again", |(_, leg)| Some(leg.segments_again));
    table.build()
}

/// A row for each answer of a request-response flow.
pub(crate) fn responses(flows: &[Flow]) -> Table {
    let answers: Vec<(&Flow, Duration)> = { flows.iter() }
        .flat_map(|flow| flow.responses.iter().map(move |time| (flow, *time)))
        .collect();
    let mut table = Builder::new(&answers);
    table.text("flow", |(flow, _)| Some(&flow.name));
    table.real("response_ms", |(_, time)| Some(milliseconds(*time)));
    table.build()
}

/// A row a direction of a link.
pub(crate) fn links(links: &[SimplexLink]) -> Table {
    let mut table = Builder::new(links);
    table.text("link", |link| Some(&link.link));
    table.text("from", |link| Some(&link.from));
    table.text("to", |link| Some(&link.to));
    table.count("packets", |link| Some(link.packets));
    table.count("corrupted", |link| Some(link.corrupted));
    table.count("lost", |link| Some(link.lost));
    table.count("struck_before_queue", |link| Some(link.struck_before_queue));
    table.count("refused", |link| Some(link.refused));
    table.count("refused_data", |link| link.refused_data);
    table.count("marked", |link| Some(link.marked));
    table.real("waited_s", |link| Some(seconds(link.waited)));
    table.count("longest_queue_packets", |link| link.longest_queue);
    table.build()
}

/// A row a counter of a proxy.
pub(crate) fn proxies(run: &Run) -> Table {
    let counters: Vec<(&str, &str, u64)> = { run.proxies.iter() }
        .flat_map(|proxy| {
            let counters = proxy.counters.iter();
            counters.map(|(counter, count)| (proxy.name.as_str(), *counter, *count))
        })
        .collect();
    let mut table = Builder::new(&counters);
    table.text("name", |(name, ..)| Some(name));
    table.text("counter", |(_, counter, _)| Some(counter));
    table.count("count", |(.., count)| Some(*count));
    table.build()
}

/// A row a measure of the whole run.
pub(crate) fn measures(run: &Run) -> Table {
    let found: Vec<(&str, f64, &str)> = { bentpipe_outcome::MEASURES.iter() }
        .filter_map(|measure| Some((measure.name, measure.of(run)?, measure.unit)))
        .collect();
    let mut table = Builder::new(&found);
    table.text("measure", |(name, ..)| Some(name));
    table.real("value", |(_, value, _)| Some(*value));
    table.text("unit", |(.., unit)| Some(unit));
    table.build()
}

/// A row a sample of a flow's course.
pub(crate) fn samples(run: &Run) -> Table {
    let names: Vec<&str> = run.flows.iter().map(|flow| flow.name.as_str()).collect();
    let tcp = |sample: &Sample| sample.tcp;
    let mut table = Builder::new(&run.samples);
    table.label("flow", &names, |sample| sample.flow);
    table.label(
        "point",
        &["receiver", "sender", "gateway"],
        |sample| match sample.point {
            Point::Receiver => 0,
            Point::Sender => 1,
            Point::Gateway(_) => 2,
        },
    );
    table.real("at_s", |sample| Some(seconds(sample.at)));
    table.count("bytes", |sample| Some(sample.bytes.0));
    table.real("cwnd_segments", |sample| Some(tcp(sample)?.cwnd));
    table.real("ssthresh_segments", |sample| tcp(sample)?.ssthresh);
    table.count("in_flight_segments", |sample| tcp(sample)?.in_flight);
    table.real("srtt_ms", |sample| tcp(sample)?.srtt.map(milliseconds));
    table.count("retransmitted_segments", |sample| {
        Some(tcp(sample)?.retransmitted)
    });
    table.real("pacing_rate_mbps", |sample| {
        tcp(sample)?.pacing_rate.map(|rate| rate.mbps())
    });
    table.build()
}

/// A row a segment with payload that a flow's source sent, and a row each time its receiver got more in order: by flow, in
/// the order of time.
pub(crate) fn sequence(scenario: &Scenario, run: &Run, series: &Series) -> Table {
    let mut rows: Vec<(usize, Instant, usize, u64)> = Vec::new();
    for (flow, sent) in series.flows().iter().enumerate() {
        rows.extend(
            sent.iter()
                .map(|sent| (flow, sent.at, usize::from(sent.again), sent.end)),
        );
    }
    let received = run
        .samples
        .iter()
        .filter(|sample| sample.point == Point::Receiver);
    rows.extend(received.map(|sample| {
        let start = scenario.flows.get(sample.flow).map(|flow| flow.start);
        let at = Instant::ZERO + start.unwrap_or_default() + sample.at;
        (sample.flow, at, 2, sample.bytes.0)
    }));
    rows.sort_by_key(|(flow, at, ..)| (*flow, *at));
    let names: Vec<&str> = run.flows.iter().map(|flow| flow.name.as_str()).collect();
    let mut table = Builder::new(&rows);
    table.label("flow", &names, |row| row.0);
    table.label("event", &["sent", "sent again", "received"], |row| row.2);
    table.real("at_s", |row| Some((row.1 - Instant::ZERO).as_secs_f64()));
    table.count("end_bytes", |row| Some(row.3));
    table.build()
}
