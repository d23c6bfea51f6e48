//! Samples of the course of each flow at its two ends.

use crate::{EndId, Observer};
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_outcome::{Point, Sample, TcpState};
use bentpipe_scenario::Scenario;
use bentpipe_tcp::Connection;

/// Takes a sample of each flow whenever its receiver got bytes in order, and whenever the window of its sender changed.
#[derive(Clone, Debug)]
pub struct Sampler {
    flows: Vec<FlowSamples>,
}

#[derive(Clone, Debug)]
struct FlowSamples {
    start: Instant,
    /// Whether the source is the end that opens the connection.
    source_opens: bool,
    receiver: Vec<Sample>,
    sender: Vec<Sample>,
    cwnd: Option<f64>,
}

impl Sampler {
    /// Nothing yet of the flows of `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        let flows = scenario.flows.iter().map(|flow| FlowSamples {
            start: Instant::ZERO + flow.start,
            source_opens: flow.opened_by == flow.from,
            receiver: Vec::new(),
            sender: Vec::new(),
            cwnd: None,
        });
        Self {
            flows: flows.collect(),
        }
    }

    /// All samples, in the order of [`bentpipe_outcome::Run::samples`].
    pub fn into_samples(self) -> Vec<Sample> {
        let flows = self.flows.into_iter();
        flows
            .flat_map(|flow| flow.receiver.into_iter().chain(flow.sender))
            .collect()
    }
}

impl Observer for Sampler {
    const PACKETS: bool = false;

    fn progress(&mut self, now: Instant, end: EndId, bytes: u64) {
        // Cross traffic has numbers behind the scenario's flows.
        let Some(flow) = self.flows.get_mut(end.flow()) else {
            return;
        };
        if end.opens() != flow.source_opens {
            flow.receiver.push(Sample {
                flow: end.flow(),
                point: Point::Receiver,
                at: now.since(flow.start),
                bytes: Bytes(bytes),
                tcp: None,
            });
        }
    }

    fn acted(&mut self, now: Instant, end: EndId, tcp: &Connection) {
        let Some(flow) = self.flows.get_mut(end.flow()) else {
            return;
        };
        let gauges = tcp.gauges();
        if end.opens() != flow.source_opens || flow.cwnd == Some(gauges.cwnd) {
            return;
        }
        flow.cwnd = Some(gauges.cwnd);
        flow.sender.push(Sample {
            flow: end.flow(),
            point: Point::Sender,
            at: now.since(flow.start),
            bytes: Bytes(tcp.counters().bytes_acked),
            tcp: Some(TcpState {
                cwnd: gauges.cwnd,
                ssthresh: gauges.ssthresh.map(f64::from),
                srtt: gauges.srtt,
                retransmitted: tcp.counters().retransmitted,
                pacing_rate: gauges.pacing.map(Rate::from_bits_per_sec),
                ..TcpState::default()
            }),
        });
    }
}
