//! What a time-sequence graph shows, whoever draws it.

use crate::{Connection, Endpoint, Flags, Kind, SegmentMark, Side, Stream};
use bentpipe_base::Instant;
use std::ops::Range;

/// A time-sequence graph: places in a stream of bytes, against seconds since the first packet of its connection.
#[derive(Clone, Debug)]
pub struct TimeSequence {
    /// Who sent the stream.
    pub from: Endpoint,
    /// Who received it.
    pub to: Endpoint,
    /// The seconds that are shown.
    pub seconds: Range<f64>,
    /// The bytes of the stream that are shown, from its first. Windows may reach beyond.
    pub bytes: Range<f64>,
    /// What is drawn, from the back to the front.
    pub layers: [Layer; 7],
}

/// Marks of one kind.
#[derive(Clone, Debug)]
pub struct Layer {
    /// What the legend calls them.
    pub name: &'static str,
    /// Their colour, `#rrggbb`.
    pub colour: &'static str,
    /// The marks, in the order of time.
    pub marks: Marks,
}

/// Marks by their form; times are seconds, places are bytes.
#[derive(Clone, Debug)]
pub enum Marks {
    /// A line that keeps its place until the next mark: time and place.
    Steps(Vec<(f64, f64)>),
    /// An upright stroke each: time, first place, and the place behind the last.
    Strokes(Vec<(f64, f64, f64)>),
    /// A single place each.
    Points(Vec<(f64, f64)>),
}

impl TimeSequence {
    /// Of what the end on `side` of `connection` sent, in the given seconds since its first packet; `None`: in all of them.
    pub fn new(
        connection: &Connection,
        stream: &Stream,
        side: Side,
        seconds: Option<Range<f64>>,
    ) -> Self {
        let (from, to) = match side {
            Side::A => (connection.a, connection.b),
            Side::B => (connection.b, connection.a),
        };
        let enlarged = seconds.is_some();
        let whole = 0.0..(connection.elapsed() as f64 / 1e9).max(1e-6);
        let picture = Picture {
            stream,
            first: connection.first,
            seconds: seconds.unwrap_or(whole),
        };
        Self {
            from,
            to,
            bytes: picture.bytes(enlarged),
            layers: picture.layers(),
            seconds: picture.seconds,
        }
    }
}

struct Picture<'s> {
    stream: &'s Stream,
    /// When the first packet of the connection came.
    first: Instant,
    seconds: Range<f64>,
}

impl Picture<'_> {
    fn bytes(&self, enlarged: bool) -> Range<f64> {
        let stream = self.stream;
        let shown = |at| self.seconds.contains(&self.since_first(at)) || !enlarged;
        let sent = stream.segments.iter().filter(|mark| shown(mark.at));
        let ends = sent.map(|mark| self.ends(mark));
        // The whole begins at the stream's first byte, a part of it where something was sent or acknowledged.
        let acks = stream.acks.iter().filter(|mark| enlarged && shown(mark.at));
        let acks = acks.map(|mark| self.place(mark.place));
        let all = ends.chain(acks.map(|place| (place, place)));
        let none = if enlarged {
            (f64::INFINITY, f64::NEG_INFINITY)
        } else {
            (0.0, 1.0)
        };
        let (low, high) = all.fold(none, |(low, high), (start, end)| {
            (low.min(start), high.max(end))
        });
        if low < high { low..high } else { 0.0..1.0 }
    }

    fn layers(&self) -> [Layer; 7] {
        let stream = self.stream;
        let layer = |name, colour, marks| Layer {
            name,
            colour,
            marks,
        };
        let acks = || stream.acks.iter();
        let window = acks().map(|mark| {
            let end = self.place(mark.place) + f64::from(mark.window);
            (self.since_first(mark.at), end)
        });
        let acked = acks().map(|mark| (self.since_first(mark.at), self.place(mark.place)));
        let blocks = stream.sacks.iter().map(|mark| {
            let (start, end) = (self.place(mark.start), self.place(mark.end));
            (self.since_first(mark.at), start, end)
        });
        let blocks = blocks.filter(|(at, ..)| self.shows(*at)).collect();
        let new =
            |mark: &SegmentMark| matches!(mark.kind, Kind::New | Kind::Probe) && mark.length > 0;
        [
            layer("window", "#1690b8", self.steps(window)),
            layer("acknowledged", "#2c8a3d", self.steps(acked)),
            layer("segments", "#16202b", self.segments(new)),
            layer("SACK blocks", "#a0449a", Marks::Strokes(blocks)),
            layer(
                "out of order",
                "#a67c00",
                self.segments(|mark| mark.kind == Kind::OutOfOrder),
            ),
            layer(
                "retransmissions",
                "#c8452f",
                self.segments(|mark| mark.kind == Kind::Again),
            ),
            layer("SYN, FIN, RST", "#1d4fd1", self.flags()),
        ]
    }

    fn segments(&self, wanted: impl Fn(&SegmentMark) -> bool) -> Marks {
        let chosen = self.stream.segments.iter().filter(|mark| wanted(mark));
        let strokes = chosen.map(|mark| {
            let (start, end) = self.ends(mark);
            (self.since_first(mark.at), start, end)
        });
        Marks::Strokes(strokes.filter(|(at, ..)| self.shows(*at)).collect())
    }

    fn flags(&self) -> Marks {
        let wanted = [Flags::SYN, Flags::FIN, Flags::RST];
        let marks = self.stream.segments.iter();
        let marks = marks.filter(|mark| wanted.iter().any(|flag| mark.flags.has(*flag)));
        let points = marks.map(|mark| (self.since_first(mark.at), self.ends(mark).1));
        Marks::Points(points.filter(|(at, _)| self.shows(*at)).collect())
    }

    /// The marks that the picture shows, and of those before it the last, from where the line comes.
    fn steps(&self, marks: impl Iterator<Item = (f64, f64)>) -> Marks {
        let mut marks = marks.peekable();
        let mut kept = Vec::new();
        while let Some(mark) = marks.next().filter(|mark| mark.0 <= self.seconds.end) {
            let next = marks.peek();
            if next.is_none_or(|next| next.0 >= self.seconds.start) {
                kept.push(mark);
            }
        }
        Marks::Steps(kept)
    }

    /// Whether what happened then is in the picture.
    fn shows(&self, seconds: f64) -> bool {
        (self.seconds.start..=self.seconds.end).contains(&seconds)
    }

    fn since_first(&self, at: Instant) -> f64 {
        at.nanos_since(self.first) as f64 / 1e9
    }

    fn place(&self, place: u64) -> f64 {
        self.stream.relative(place) as f64
    }

    /// The first place of a segment, and the place behind its last.
    fn ends(&self, mark: &SegmentMark) -> (f64, f64) {
        let start = self.place(mark.start);
        (start, start + f64::from(mark.length))
    }
}
