//! What the TCP connections of a capture did, as tcptrace tells it.
//!
//! [`read`] takes a capture (pcap or pcapng) apart into frames, [`Segment::dissect`] finds the TCP segment in each, and
//! [`Connections`] has one [`Connection`] for each pair of endpoints, with the counts of both directions
//! ([`MEASURES`] names them). Nothing here opens files or asks for the time: a capture is anything that can be read,
//! and what is printed is text. Captures come from strangers: whatever is wrong with one is told, with its place, and
//! what could be read before it counts.
//!
//! The definitions of the counts are tcptrace's (Ostermann), from its manual and from what it prints; docs/trace.md has
//! those in which this differs, and why. Begin with [`Trace`].
#![forbid(unsafe_code)]

mod capture;
mod connection;
mod connections;
mod direction;
mod event;
mod expert;
mod link_layer;
mod measures;
mod output;
mod segment;
mod sent;
mod sequence;
mod series;
mod svg;
mod time_sequence;
mod trace;
mod xplot;

pub use bentpipe_base::Instant;
pub use capture::{Ending, Frame, ReadError, read};
pub use connection::{Connection, Endpoint, Side};
pub use connections::Connections;
pub use direction::{Direction, Rtt, Statistics};
pub use event::{Acknowledgement, Event, Kind};
pub use expert::{Limit, NotJudged, Period, expert, judge};
pub use link_layer::LinkType;
pub use measures::{MEASURES, Measure, Value};
pub use output::{brief, csv, json, json_with_limits, letters, long};
pub use segment::{Dissected, Flags, Options, Segment};
pub use series::{AckMark, Recorder, SackMark, SegmentMark, Series, Stream};
pub use svg::svg;
pub use time_sequence::{Layer, Marks, TimeSequence};
pub use trace::{Limits, Skipped, Trace};
pub use xplot::{Graph, xplot};
