//! What happened when: the marks of time-sequence graphs.

use crate::event::{Event, Kind};
use crate::{Flags, Segment, Side};
use bentpipe_base::Instant;
use std::collections::BTreeMap;

/// Marks that are kept at most, of all connections: some 150 MB.
pub(crate) const MOST_MARKS: usize = 4_000_000;

/// A segment that takes numbers of its stream, or ends the connection.
#[derive(Clone, Copy, Debug)]
pub struct SegmentMark {
    /// When.
    pub at: Instant,
    /// Its first place in the stream.
    pub start: u64,
    /// Bytes of data.
    pub length: u32,
    /// What of it was new.
    pub kind: Kind,
    /// Its flags.
    pub flags: Flags,
    /// Bytes that were not acknowledged, with this segment; at most 4 GiB are shown.
    pub outstanding: u32,
}

/// An acknowledgement of a stream.
#[derive(Clone, Copy, Debug)]
pub struct AckMark {
    /// When.
    pub at: Instant,
    /// What is expected next.
    pub place: u64,
    /// How far the sender may go beyond that.
    pub window: u32,
    /// The round-trip time that it gives, in nanoseconds; 0 for none. At most 4 s are exact.
    pub sample: u32,
    /// It is a duplicate.
    pub duplicate: bool,
}

/// A SACK block.
#[derive(Clone, Copy, Debug)]
pub struct SackMark {
    /// When.
    pub at: Instant,
    /// Its first place.
    pub start: u64,
    /// The place behind it.
    pub end: u64,
}

/// One stream of a connection: what was sent, and what came back.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Segments that its sender sent.
    pub segments: Vec<SegmentMark>,
    /// Acknowledgements by the other end.
    pub acks: Vec<AckMark>,
    /// SACK blocks by the other end.
    pub sacks: Vec<SackMark>,
    /// The place that graphs count from.
    pub origin: Option<u64>,
}

/// Both streams of a connection.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// What A sent.
    pub a2b: Stream,
    /// What B sent.
    pub b2a: Stream,
}

impl Series {
    /// The stream of `side`.
    pub fn stream(&self, side: Side) -> &Stream {
        match side {
            Side::A => &self.a2b,
            Side::B => &self.b2a,
        }
    }
}

impl Stream {
    /// `place`, counted from the stream's origin.
    pub fn relative(&self, place: u64) -> i64 {
        place.wrapping_sub(self.origin.unwrap_or(place)) as i64
    }
}

/// Keeps the series of some connections, or of all.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Numbers from 1; all when it is empty.
    only: Vec<usize>,
    series: BTreeMap<usize, Series>,
    marks: usize,
    left_out: u64,
}

impl Recorder {
    /// Of the connections with these numbers, from 1; of all when there are none.
    pub fn new(only: &[usize]) -> Self {
        Self {
            only: only.to_vec(),
            ..Self::default()
        }
    }

    /// The series of connection number `index`, from 0.
    pub fn series(&self, index: usize) -> Option<&Series> {
        self.series.get(&index)
    }

    /// Segments that found no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    pub(crate) fn take(&mut self, index: usize, segment: &Segment, event: &Event) {
        if !self.only.is_empty() && !self.only.contains(&(index + 1)) {
            return;
        }
        if self.marks >= MOST_MARKS {
            self.left_out += 1;
            return;
        }
        let series = self.series.entry(index).or_default();
        let (own, peer) = match event.side {
            Side::A => (&mut series.a2b, &mut series.b2a),
            Side::B => (&mut series.b2a, &mut series.a2b),
        };
        own.origin.get_or_insert(event.start);
        if event.kind != Kind::Nothing || segment.flags.has(Flags::RST) {
            self.marks += 1;
            own.segments.push(SegmentMark {
                at: event.at,
                start: event.start,
                length: event.length,
                kind: event.kind,
                flags: segment.flags,
                outstanding: u32::try_from(event.outstanding).unwrap_or(u32::MAX),
            });
        }
        let Some(ack) = event
            .acknowledgement
            .filter(|_| !segment.flags.has(Flags::RST))
        else {
            return;
        };
        peer.origin.get_or_insert(ack.place);
        self.marks += 1 + segment.options.sacks().len();
        peer.acks.push(AckMark {
            at: event.at,
            place: ack.place,
            window: u32::try_from(ack.window).unwrap_or(u32::MAX),
            sample: ack
                .sample
                .map_or(0, |it| u32::try_from(it).unwrap_or(u32::MAX)),
            duplicate: ack.duplicate,
        });
        for (left, right) in segment.options.sacks() {
            // SACK blocks are near the acknowledgement.
            let near = |number: u32| {
                let beyond = number.wrapping_sub(segment.acknowledgement) as i32;
                ack.place.saturating_add_signed(beyond.into())
            };
            peer.sacks.push(SackMark {
                at: event.at,
                start: near(*left),
                end: near(*right),
            });
        }
    }
}
