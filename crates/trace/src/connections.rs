//! All connections of a capture.

use crate::{Connection, Limits, Recorder, Segment};
use bentpipe_base::Instant;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The connections of one or more captures, in the order of their first segments.
#[derive(Debug, Default)]
pub struct Connections {
    all: Vec<Connection>,
    /// The last connection between two endpoints, the lesser first. A tree, not a table by hash: whoever wrote the
    /// capture chose the addresses.
    by_ends: BTreeMap<(SocketAddr, SocketAddr), usize>,
    /// That of the last segment, which is often that of the next.
    last: Option<((SocketAddr, SocketAddr), usize)>,
    /// The time of the last segment.
    now: Instant,
    limits: Limits,
    left_out: u64,
    recorder: Option<Recorder>,
}

impl Connections {
    /// None yet, and `limits` on what is kept.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// From now on the series of each connection that `recorder` is for are kept.
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// What was kept.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_ref()
    }

    /// Takes a segment that was seen at `now`.
    pub fn take(&mut self, segment: &Segment, now: Instant) {
        self.now = now;
        let (source, destination) = (segment.source, segment.destination);
        let ends = (source.min(destination), source.max(destination));
        let known = match self.last {
            Some((last, index)) if last == ends => Some(index),
            _ => self.by_ends.get(&ends).copied(),
        };
        let current = known.filter(|index| {
            let connection = self.all.get(*index);
            connection.is_some_and(|connection| !connection.is_over(segment))
        });
        let index = match current {
            Some(index) => index,
            None if self.all.len() >= self.limits.connections => {
                self.left_out += 1;
                return;
            }
            None => {
                self.all.push(Connection::new(segment, now));
                self.by_ends.insert(ends, self.all.len() - 1);
                self.all.len() - 1
            }
        };
        self.last = Some((ends, index));
        if let Some(connection) = self.all.get_mut(index) {
            let event = connection.take(segment, now);
            if let Some(recorder) = &mut self.recorder {
                recorder.take(index, segment, &event);
            }
        }
    }

    /// No more segments come.
    pub fn finish(&mut self) {
        for connection in &mut self.all {
            connection.end(self.now);
        }
    }

    /// Every connection.
    pub fn all(&self) -> &[Connection] {
        &self.all
    }

    /// Segments of connections beyond the limit.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
