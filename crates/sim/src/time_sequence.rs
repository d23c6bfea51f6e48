//! Records time-sequence series: what the source of each flow sent and what its receiver got, against time.

use crate::{EndId, Observer};
use bentpipe_base::{Instant, Seq};
use bentpipe_scenario::Scenario;
use bentpipe_wire::{Flags, Segment};

/// Progress against time: for each flow what its source sent and what its receiver got in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    flows: Vec<FlowSeries>,
    /// By end of a flow: the stream that its segments belong to.
    streams: Vec<Stream>,
}

/// The two columns of points of one flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSeries {
    /// Segments with payload as the source sent them.
    pub sent: Vec<Sent>,
    /// Each time that the receiver got bytes in order.
    pub received: Vec<Progress>,
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

/// What a receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When.
    pub at: Instant,
    /// Bytes in order so far.
    pub bytes: u64,
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
            flows: vec![FlowSeries::default(); scenario.flows.len()],
            streams: ends.collect(),
        }
    }

    /// In the order of the scenario.
    pub fn flows(&self) -> &[FlowSeries] {
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
        self.flows[end.flow()].sent.push(Sent {
            at: now,
            end: end_at,
            again,
        });
    }

    fn progress(&mut self, now: Instant, end: EndId, bytes: u64) {
        let source = self
            .streams
            .get(end.index())
            .is_none_or(|stream| stream.data);
        if !source {
            let point = Progress { at: now, bytes };
            self.flows[end.flow()].received.push(point);
        }
    }
}
