//! Records time-sequence series: the segments that the source of each flow sent, against time.

use crate::{EndId, Observer};
use bentpipe_base::{Instant, Seq};
use bentpipe_scenario::Scenario;
use bentpipe_wire::{Flags, Segment};

/// The segments with payload of each flow, as its source sent them. What its receiver got in order,
/// [`Sampler`](crate::Sampler) records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    flows: Vec<Vec<Sent>>,
    /// By end of a flow: the stream that its segments belong to.
    streams: Vec<Stream>,
}

/// A segment with payload that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// Number in the stream of the byte behind its last: the bytes sent when it is the newest.
    pub end: u64,
    /// Whether all of it had been sent before.
    pub again: bool,
}

/// Follows the sequence numbers of one direction beyond their 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stream {
    /// Whether it is that of a flow's data, from the source.
    data: bool,
    /// Number of the byte behind the highest sent, and its place in the stream; `None` before any.
    highest: Option<(Seq, u64)>,
}

impl Series {
    /// Nothing yet of the flows of `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        let stream = |data| Stream {
            data,
            highest: None,
        };
        let ends = scenario.flows.iter().flat_map(|flow| {
            let opened = flow.opened_by == flow.from;
            [stream(opened), stream(!opened)]
        });
        Self {
            flows: vec![Vec::new(); scenario.flows.len()],
            streams: ends.collect(),
        }
    }

    /// In the order of the scenario.
    pub fn flows(&self) -> &[Vec<Sent>] {
        &self.flows
    }
}

impl Observer for Series {
    const PACKETS: bool = false;

    fn segment(&mut self, now: Instant, end: EndId, segment: &Segment) {
        let Some(stream) = self
            .streams
            .get_mut(end.index())
            .filter(|stream| stream.data)
        else {
            return;
        };
        let len = segment.payload.len() as u32;
        let syn = segment.flags.contains(Flags::SYN);
        let first = segment.seq + u32::from(syn);
        let (highest, place) = *stream.highest.get_or_insert((first, 0));
        if len == 0 {
            return;
        }
        let ahead = (first + len).offset_from(highest);
        let end_at = place.saturating_add_signed(ahead.into());
        let again = ahead <= 0;
        if !again {
            stream.highest = Some((first + len, end_at));
        }
        self.flows[end.flow()].push(Sent {
            at: now,
            end: end_at,
            again,
        });
    }
}
