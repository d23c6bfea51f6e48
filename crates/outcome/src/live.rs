//! The course of a run while it goes on: what stands in the lines that `--live` writes (docs/results.md).

use crate::run::Engine;
use bentpipe_base::Bytes;
use core::time::Duration;
use serde::Serialize;

/// The first line: what the lines behind it are looks at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outline {
    /// What runs the scenario.
    pub engine: Engine,
    /// The scenario's name.
    pub scenario: String,
    /// The seed that it runs with.
    pub seed: u64,
    /// How long the run takes at most, in the time of the scenario.
    #[serde(rename = "at_most_s", serialize_with = "crate::json::seconds")]
    pub at_most: Duration,
    /// Names of the flows that each look has, in its order.
    pub flows: Vec<String>,
    /// The directions of links that each look has, in its order.
    pub links: Vec<LinkName>,
    /// The TCPs of gateways that each look has, in its order.
    pub legs: Vec<LegName>,
}

impl Outline {
    /// Of a run of a scenario of that name: its flows by name, its links by name with their ends, and which flow each gateway
    /// splits.
    pub fn new<'s>(
        engine: Engine,
        (scenario, seed): (&str, u64),
        at_most: Duration,
        flows: impl Iterator<Item = &'s str>,
        links: impl Iterator<Item = (&'s str, &'s [String; 2])>,
        legs: impl Iterator<Item = (&'s str, &'s str)>,
    ) -> Self {
        let links = links.flat_map(|(link, [a, b])| {
            [(a, b), (b, a)].map(|(from, to)| LinkName {
                link: link.to_owned(),
                from: from.clone(),
                to: to.clone(),
            })
        });
        Self {
            engine,
            scenario: scenario.to_owned(),
            seed,
            at_most,
            flows: flows.take(Look::FLOWS).map(str::to_owned).collect(),
            links: links.take(Look::LINKS).collect(),
            legs: { legs.take(Look::LEGS) }
                .map(|(flow, gateway)| LegName {
                    flow: flow.to_owned(),
                    gateway: gateway.to_owned(),
                })
                .collect(),
        }
    }
}

/// A direction of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkName {
    /// The link.
    pub link: String,
    /// The node that it leaves.
    pub from: String,
    /// The node that it reaches.
    pub to: String,
}

/// The TCP by which a gateway that splits a flow sends on to the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LegName {
    /// The flow.
    pub flow: String,
    /// The gateway.
    pub gateway: String,
}

/// A look at all flows and links at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Look {
    /// When, from the start of the run.
    #[serde(rename = "at_s", serialize_with = "crate::json::seconds")]
    pub at: Duration,
    /// By flow.
    pub flows: Vec<FlowLook>,
    /// By direction of a link.
    pub links: Vec<LinkLook>,
    /// By TCP of a gateway; the last that was seen, once its connection is over.
    pub legs: Vec<TcpLook>,
}

/// A flow at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlowLook {
    /// Payload that the receiver has in order.
    #[serde(rename = "received_bytes", serialize_with = "crate::json::bytes")]
    pub received: Bytes,
    /// The TCP of its source.
    #[serde(flatten)]
    pub source: TcpLook,
}

/// A TCP that sends, at one time; what is not known yet, or never is, is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TcpLook {
    /// Congestion window, in segments.
    #[serde(rename = "cwnd_segments")]
    pub cwnd: Option<f64>,
    /// Smoothed round-trip time.
    #[serde(rename = "srtt_ms", serialize_with = "crate::json::maybe_ms")]
    pub srtt: Option<Duration>,
    /// Segments that it has sent again.
    pub segments_again: Option<u64>,
}

/// A direction of a link at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkLook {
    /// Packets that wait in its queue.
    pub waiting_packets: u64,
    /// Packets that are gone, whatever was the cause: refused by the queue, hit by errors, lost.
    pub dropped_packets: u64,
}

impl Look {
    /// The most flows that a look has: the first ones of the scenario.
    pub const FLOWS: usize = 64;
    /// The most directions of links that a look has.
    pub const LINKS: usize = 64;
    /// The most TCPs of gateways that a look has.
    pub const LEGS: usize = 64;
    /// The most looks at one run, so that neither a file nor who watches grows without bound.
    pub const MOST: u32 = 6_000;

    /// The time between two looks at a run of `at_most`: as that between samples, but for runs above ten minutes, whose looks
    /// are fewer.
    pub fn every(at_most: Duration) -> Duration {
        (at_most / Self::MOST).max(crate::Flow::SAMPLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_bounded_number_of_looks() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert_eq!(Look::every(minutes(1)), Duration::from_millis(100));
        assert_eq!(Look::every(minutes(100)), Duration::from_secs(1));
        let looks = minutes(1_000_000).as_secs() / Look::every(minutes(1_000_000)).as_secs();
        assert_eq!(looks, u64::from(Look::MOST));
    }

    #[test]
    fn each_key_has_its_unit() {
        let look = Look {
            at: Duration::from_millis(300),
            flows: vec![FlowLook {
                received: Bytes(1500),
                source: TcpLook {
                    cwnd: Some(10.0),
                    srtt: Some(Duration::from_millis(600)),
                    segments_again: None,
                },
            }],
            links: vec![LinkLook {
                waiting_packets: 3,
                dropped_packets: 1,
            }],
            legs: vec![TcpLook::default()],
        };
        assert_eq!(
            serde_json::to_string(&look).unwrap(),
            r#"{"at_s":0.3,"flows":[{"received_bytes":1500,"cwnd_segments":10.0,"srtt_ms":600.0,"segments_again":null}],"links":[{"waiting_packets":3,"dropped_packets":1}],"legs":[{"cwnd_segments":null,"srtt_ms":null,"segments_again":null}]}"#
        );
    }
}
