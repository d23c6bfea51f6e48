//! The agent among frames: [`Snoop`] sees of each what is TCP in it, and keeps the frame itself.

use bentpipe_base::{Bytes, Instant, Machine};
use bentpipe_driver::{End, Frame};
use bentpipe_pep::snoop::{Config, Counters, Snoop};
use bentpipe_pep::{Packet, SegmentView, Side, host_of};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// Two addresses of Ethernet, behind which is the type.
const TYPE: usize = 12;

/// A frame, shared with its copies in the agent's cache.
#[derive(Clone, Debug)]
struct Held(Rc<Frame>);

/// The VLAN tags of a frame, without priority; 0: none. Networks with the same addresses do not meet.
type Vlans = [u16; 2];

/// The VLAN tags of a frame.
fn vlans(frame: &[u8]) -> Vlans {
    let word = |at: usize| match frame.get(at..at + 2) {
        Some(word) => u16::from_be_bytes([word[0], word[1]]),
        None => 0,
    };
    let tag = |place: usize| match word(TYPE + 4 * place) {
        0x8100 | 0x88a8 => Some(word(TYPE + 4 * place + 2) & 0xfff),
        _ => None,
    };
    let outer = tag(0);
    let inner = outer.and_then(|_| tag(1));
    [outer.unwrap_or(0), inner.unwrap_or(0)]
}

impl Packet for Held {
    type Endpoint = (Vlans, SocketAddr);
    type Host = (Vlans, IpAddr);

    fn host((vlans, end): Self::Endpoint) -> Self::Host {
        (vlans, host_of(end.ip()))
    }

    fn view(&self) -> Option<SegmentView<'_, Self::Endpoint>> {
        let view = self.0.packet()?.view()?;
        let vlans = vlans(self.0.bytes());
        Some(SegmentView {
            source: (vlans, view.source),
            destination: (vlans, view.destination),
            seq: view.seq,
            ack: view.ack,
            flags: view.flags,
            window: view.window,
            payload: view.payload,
            sack: view.sack,
        })
    }

    fn wire_length(&self) -> Bytes {
        Bytes(self.0.bytes().len() as u64)
    }
}

/// The agent: senders are near, and the link that loses is far.
pub(crate) struct Agent(Snoop<Held>);

impl Agent {
    pub(crate) fn new(config: Config) -> Self {
        Self(Snoop::new(config))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.0.tally()
    }

    pub(crate) fn flows(&self) -> usize {
        self.0.flows()
    }
}

impl Machine for Agent {
    type Packet = Frame;
    type Port = End;
    type Event = Infallible;

    fn input(&mut self, end: End, frame: Frame, now: Instant) {
        let side = match end {
            End::Near => Side::Ground,
            End::Far => Side::Space,
        };
        self.0.input(side, Held(Rc::new(frame)), now);
    }

    fn timeout(&mut self, now: Instant) {
        self.0.timeout(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<(End, Frame)> {
        let (side, Held(frame)) = self.0.transmit(now)?;
        let end = match side {
            Side::Ground => End::Near,
            Side::Space => End::Far,
        };
        // A frame that is cached too is shared: what leaves is a copy of a few words.
        Some((end, Rc::unwrap_or_clone(frame)))
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        self.0.deadline()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_told_by_two_tags_without_priority() {
        let frame = |behind: &[u8]| [&[7; 12], behind].concat();
        assert_eq!(vlans(&frame(&[8, 0, 0x45])), [0, 0]);
        assert_eq!(vlans(&frame(&[0x81, 0, 0xe0, 9, 8, 0])), [9, 0]);
        let two = [0x88, 0xa8, 0x01, 0x00, 0x81, 0, 0, 9, 0x86, 0xdd];
        assert_eq!(vlans(&frame(&two)), [256, 9]);
        assert_eq!(vlans(&frame(&[0x81])), [0, 0]);
    }
}
