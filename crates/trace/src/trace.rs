//! A whole analysis: captures in, connections and what was skipped out.

use crate::series::MOST_MARKS;
use crate::{
    Connection, Connections, Dissected, Ending, Frame, LinkType, ReadError, Segment, read,
};
use crate::{Recorder, Series, Side};
use bentpipe_base::Instant;
use std::collections::BTreeMap;
use std::io::Read;

/// Bounds on what is kept in memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at most; segments of further ones are counted only.
    pub connections: usize,
}

impl Default for Limits {
    /// A hundred thousand connections take some 150 MB.
    fn default() -> Self {
        Self {
            connections: 100_000,
        }
    }
}

/// Frames that are in no connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Not TCP over IP.
    pub other: u64,
    /// Fragments behind the first.
    pub fragments: u64,
    /// Too little was kept.
    pub too_short: u64,
    /// Lengths that contradict each other.
    pub malformed: u64,
    /// Of link types that are not known here, by type.
    pub unknown_links: BTreeMap<LinkType, u64>,
}

/// The analysis of one or more captures, read one after the other.
#[derive(Debug, Default)]
pub struct Trace {
    connections: Connections,
    skipped: Skipped,
    packets: u64,
    segments: u64,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Packets that came before the one ahead of them.
    backwards: u64,
}

impl Trace {
    /// Nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            connections: Connections::new(limits),
            ..Self::default()
        }
    }

    /// Keeps the series of connections besides their counts.
    pub fn record(&mut self, recorder: Recorder) {
        self.connections.record(recorder);
    }

    /// The series of connection number `index`, from 0, if they were kept.
    pub fn series(&self, index: usize) -> Option<&Series> {
        self.connections.recorder()?.series(index)
    }

    /// Takes all of the capture in `input`.
    ///
    /// # Errors
    /// As [`read`]; what came before counts.
    pub fn take(&mut self, input: impl Read) -> Result<Ending, ReadError> {
        read(input, |frame| self.frame(&frame))
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        self.packets += 1;
        self.first = self.first.or(Some(frame.at));
        self.backwards += u64::from(self.last.is_some_and(|last| last > frame.at));
        self.last = Some(frame.at);
        match Segment::dissect(frame) {
            Dissected::Segment(segment) => {
                self.segments += 1;
                self.connections.take(&segment, frame.at);
            }
            Dissected::Other => self.skipped.other += 1,
            Dissected::Fragment => self.skipped.fragments += 1,
            Dissected::TooShort => self.skipped.too_short += 1,
            Dissected::Malformed => self.skipped.malformed += 1,
            Dissected::UnknownLink => {
                *self.skipped.unknown_links.entry(frame.link).or_default() += 1;
            }
        }
    }

    /// No more captures come.
    pub fn finish(&mut self) {
        self.connections.finish();
    }

    /// The connections.
    pub fn connections(&self) -> &[Connection] {
        self.connections.all()
    }

    /// The connection and direction that carries most data, by the connection's number from 0; `None` where none carries any.
    pub fn heaviest(&self) -> Option<(usize, Side)> {
        let all = self.connections().iter().enumerate();
        let directions = all.flat_map(|(index, connection)| {
            [Side::A, Side::B].map(|side| (index, side, connection.direction(side).data_bytes))
        });
        let most = directions.max_by_key(|(.., bytes)| *bytes);
        most.filter(|(.., bytes)| *bytes > 0)
            .map(|(index, side, _)| (index, side))
    }

    /// Packets of any kind.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Segments of TCP.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// What was skipped.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// What a reader should know before the counts are believed, a line each.
    pub fn warnings(&self) -> Vec<String> {
        let skipped = &self.skipped;
        let counted = [
            (
                skipped.too_short,
                "packets were kept too short for their TCP header: capture at least 96 bytes of each",
            ),
            (
                skipped.malformed,
                "packets say lengths that contradict each other, and are left out",
            ),
            (
                skipped.fragments,
                "fragments of IP packets are left out: data in them counts as missed",
            ),
            (
                self.backwards,
                "packets bear an earlier time than the one before: times between them count as zero",
            ),
            (
                self.connections.left_out(),
                "segments belong to connections beyond the first 100,000, and are left out",
            ),
        ];
        let mut warnings: Vec<String> = counted
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if let Some(marks) = self
            .connections
            .recorder()
            .map(Recorder::left_out)
            .filter(|it| *it > 0)
        {
            warnings.push(format!(
                "{marks} segments are missing at the end of the graphs, which hold {MOST_MARKS}: name the connections that matter by --only"
            ));
        }
        warnings.extend(skipped.unknown_links.iter().map(|(link, count)| {
            format!(
                "{count} packets are of link type {}, which is not known here, and are left out",
                link.0
            )
        }));
        warnings
    }
}
