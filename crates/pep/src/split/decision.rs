//! What may become of a new connection, split, passed or refused, and who decides it.

use super::Split;
use crate::{BuildPacket, Side};
use bentpipe_base::Bytes;
use bentpipe_gateway_config::Action;
use bentpipe_wire::{Flags, Segment};

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is split.
    pub action: Action,
    /// Which of [`Config::profiles`](super::Config::profiles) its legs have, if it is split; `None`: the plain ones.
    pub profile: Option<usize>,
}

impl Decision {
    /// It is split, between the plain legs.
    pub(super) const SPLIT: Self = Self {
        action: Action::Split,
        profile: None,
    };
}

/// Decides what becomes of a new connection: by the source and the destination of the first packet seen of it, and the
/// side from which that came.
pub type Admission<E> = Box<dyn Fn(E, E, Side) -> Decision + Send>;

impl<P: BuildPacket> Split<P> {
    /// What becomes of the connection of which `packet`, from side `from`, is the first.
    pub(super) fn admits(&self, packet: &P, from: Side) -> Decision {
        match (&self.admission, packet.view()) {
            (Some(admission), Some(view)) => admission(view.source, view.destination, from),
            _ => Decision::SPLIT,
        }
    }

    /// Answers the SYN `segment`, which `packet` is, by a reset (RFC 9293, section 3.10.7.1).
    pub(super) fn reject(&mut self, packet: &P, from: Side, segment: &Segment) {
        let Some(view) = packet.view() else {
            return;
        };
        let reset = Segment {
            ack: segment.seq + 1,
            flags: Flags::RST | Flags::ACK,
            ..Segment::default()
        };
        let endpoints = self.config.endpoints(None, packet.ip_header());
        let length = Bytes(endpoints.of(from).wire_len(&reset) as u64);
        let answer = P::build(view.destination, view.source, reset, length);
        self.out.extend(answer.map(|packet| (from, packet)));
    }
}
