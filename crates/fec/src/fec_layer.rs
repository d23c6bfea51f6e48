//! The layer between QUIC and UDP: an encoder for what goes and a decoder for what comes, as one machine.

use crate::decoder::{Decoder, Received};
use crate::encoder::{Config, Encoder, Sent};
use crate::frame::{Frame, ParseError};
use crate::{Report, Strength};
use bentpipe_base::{Instant, Machine};
use bytes::Bytes;
use core::convert::Infallible;
use std::collections::VecDeque;

/// The two sides of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Above: packets of QUIC.
    Quic,
    /// Below: datagrams of UDP.
    Path,
}

/// What the layer has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What went out.
    pub sent: Sent,
    /// What came in.
    pub received: Received,
    /// Datagrams that are no frames, handed on as they are.
    pub foreign: u64,
    /// Datagrams that begin as frames and are none.
    pub malformed: u64,
}

/// One end of a path: both the encoder of what is sent and the decoder of what comes.
///
/// Packets of QUIC that enter at [`Side::Quic`] leave as frames at [`Side::Path`], and repairs between and behind them.
/// Whatever arrives at the path and is, or holds, a packet leaves at [`Side::Quic`], lost packets as soon as enough repairs
/// have come: the order is QUIC's affair, as is whether a packet is true, or has come twice.
///
/// Its driver counts in its pace whatever leaves at the path.
#[derive(Debug)]
pub struct Layer {
    encoder: Encoder,
    decoder: Decoder,
    /// With their numbers, if they have any.
    up: VecDeque<(Option<u64>, Bytes)>,
    down: VecDeque<Bytes>,
    foreign: u64,
    malformed: u64,
}

impl Layer {
    /// An end that sends as `config` says, and understands whatever another sends.
    pub fn new(config: Config) -> Self {
        Self {
            encoder: Encoder::new(config),
            decoder: Decoder::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            foreign: 0,
            malformed: 0,
        }
    }

    /// How much it sends besides the packets at present.
    pub const fn strength(&self) -> Strength {
        self.encoder.strength()
    }

    /// The losses on the way here.
    pub fn losses(&self) -> Report {
        self.decoder.report()
    }

    /// What it has done.
    pub const fn counters(&self) -> Counters {
        Counters {
            sent: self.encoder.sent(),
            received: self.decoder.received(),
            foreign: self.foreign,
            malformed: self.malformed,
        }
    }

    /// A datagram came.
    fn arrive(&mut self, datagram: Bytes) {
        match Frame::parse(&datagram) {
            Ok(Frame::Source { report, id, packet }) => {
                self.hear(report);
                let number = self.decoder.source(id, &packet);
                self.up.push_back((number, packet));
            }
            Ok(Frame::Repair {
                report,
                window,
                key,
                length,
                symbol,
            }) => {
                self.hear(report);
                self.decoder.repair(window, key, length, &symbol);
            }
            Err(ParseError::Foreign) => {
                self.foreign += 1;
                let latest = self.next().checked_sub(1);
                self.up.push_back((latest, datagram));
            }
            Err(ParseError::Short(_) | ParseError::Window(_)) => self.malformed += 1,
        }
        while let Some((number, packet)) = self.decoder.recovered() {
            self.up.push_back((Some(number), packet));
        }
    }

    /// The packets that have arrived or were given back, for a driver that has another use of
    /// [`transmit`](Machine::transmit) than to hand these on; with their numbers, counted without wrapping. What is no frame has that of
    /// the latest packet, and a frame whose number is not believed has none.
    pub fn arrived(&mut self) -> impl Iterator<Item = (Option<u64>, Bytes)> {
        self.up.drain(..)
    }

    /// The number after that of the latest packet that the other end is known to have sent, counted without wrapping.
    pub fn next(&self) -> u64 {
        self.decoder.next()
    }

    /// The first packet from number `from` on that has neither come nor been given back. More than 64 missing in a row, an outage, no
    /// repairs give back: these are passed over.
    pub fn oldest_missing(&self, from: u64) -> Option<u64> {
        self.decoder.oldest_missing(from)
    }

    fn hear(&mut self, report: Report) {
        if report != Report::default() {
            self.encoder.hear(report);
        }
    }
}

impl Machine for Layer {
    type Packet = Bytes;
    type Port = Side;
    type Event = Infallible;

    fn input(&mut self, port: Side, packet: Bytes, now: Instant) {
        match port {
            Side::Path => self.arrive(packet),
            Side::Quic => {
                let report = self.decoder.report();
                let frame = self.encoder.source(packet, report, now);
                self.down.push_back(frame.emit());
            }
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.encoder.timeout(now);
    }

    fn transmit(&mut self, _now: Instant) -> Option<(Side, Bytes)> {
        if let Some((_, packet)) = self.up.pop_front() {
            return Some((Side::Quic, packet));
        }
        let datagram = self.down.pop_front().or_else(|| {
            let report = self.decoder.report();
            self.encoder.repair(report).map(|repair| repair.emit())
        })?;
        Some((Side::Path, datagram))
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        self.encoder.deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Overhead;
    use bentpipe_base::Output;
    use core::time::Duration;

    fn layer() -> Layer {
        Layer::new(Config {
            overhead: Overhead::Fixed(Strength::INITIAL),
            silence: Duration::from_millis(4),
        })
    }

    fn turn(layer: &mut Layer, arrived: Option<(Side, Bytes)>, now: Instant) -> Vec<(Side, Bytes)> {
        let mut sent = Vec::new();
        layer.turn(arrived, now, |out| match out {
            Output::Packet(port, packet) => sent.push((port, packet)),
            Output::Event(event) => match event {},
        });
        sent
    }

    #[test]
    fn the_end_of_a_request_that_is_lost_comes_after_the_silence() {
        let (mut near, mut far) = (layer(), layer());
        let request = Bytes::from_static(b"request");
        let lost = turn(
            &mut near,
            Some((Side::Quic, request.clone())),
            Instant::ZERO,
        );
        assert_eq!(lost.len(), 1);
        assert_eq!(lost[0].1.len(), request.len() + crate::SOURCE_HEADER);
        let silent = near.deadline().unwrap();
        assert_eq!(silent.since(Instant::ZERO), Duration::from_millis(4));
        let tail = turn(&mut near, None, silent);
        assert_eq!(tail.len(), usize::from(Strength::INITIAL.tail));
        assert_eq!(tail[0].1.len(), request.len() + crate::REPAIR_HEADER);
        assert_eq!(near.deadline(), None);
        let at_far = |far: &mut Layer, datagram: &Bytes| {
            turn(far, Some((Side::Path, datagram.clone())), silent)
        };
        assert_eq!(at_far(&mut far, &tail[0].1), [(Side::Quic, request)]);
        assert_eq!(at_far(&mut far, &tail[1].1), []);
        assert_eq!(far.counters().received.recovered, 1);
        assert_eq!(far.counters().received.redundant, 1);
    }

    #[test]
    fn what_is_no_frame_passes_and_what_is_half_of_one_does_not() {
        let mut layer = layer();
        let handshake = Bytes::from_static(b"\xc3 an Initial");
        let arrived = Some((Side::Path, handshake.clone()));
        assert_eq!(
            turn(&mut layer, arrived, Instant::ZERO),
            [(Side::Quic, handshake)]
        );
        let half = Some((Side::Path, Bytes::from_static(b"\x0dhalf")));
        assert_eq!(turn(&mut layer, half, Instant::ZERO), []);
        let counters = layer.counters();
        assert_eq!((counters.foreign, counters.malformed), (1, 1));
    }
}
