//! What the agent moves: a packet that waits in a queue, or a copy of one that has gone on.

use bentpipe_base::{Bytes, Seq};
use bentpipe_os::neighbour::Forwarded;
use bentpipe_pep::{Packet, SegmentView, host_of};
use bentpipe_sockets::nfqueue::Waiting;
use bentpipe_wire::{Checksums, Flags, Ip, SackBlock, Transport};
use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// A packet that waits in a queue, or a copy of one that has gone on.
#[derive(Clone)]
pub(super) struct HeldPacket(Rc<Inner>);

/// As little as possible: tens of thousands are kept.
struct Inner {
    id: u32,
    queue: u16,
    /// It has no verdict yet.
    waits: Cell<bool>,
    /// The interfaces by which it came and by which the kernel forwards it, and its mark.
    arrives_by: u32,
    leaves_by: u32,
    mark: u32,
    bytes: Box<[u8]>,
    /// What of it is read; none where it cannot be.
    segment: Option<HeldSegment>,
}

/// What the agent reads of a packet.
struct HeldSegment {
    source: SocketAddr,
    destination: SocketAddr,
    seq: Seq,
    ack: Seq,
    payload: u32,
    window: u16,
    flags: Flags,
    sack: Box<[SackBlock]>,
}

impl HeldPacket {
    pub(super) fn new(waiting: &Waiting<'_>) -> Self {
        Self(Rc::new(Inner {
            id: waiting.id,
            queue: waiting.queue,
            waits: Cell::new(true),
            arrives_by: waiting.arrives_by,
            leaves_by: waiting.leaves_by,
            mark: waiting.mark,
            bytes: waiting.packet.into(),
            segment: HeldSegment::read(waiting.packet),
        }))
    }

    /// Its queue, and its name there.
    pub(super) fn place(&self) -> (u16, u32) {
        (self.0.queue, self.0.id)
    }

    /// Whether it had no verdict yet, and has one from now on.
    pub(super) fn decide(&self) -> bool {
        self.0.waits.take()
    }

    /// How the kernel forwarded it; `None` for what could not be read.
    pub(super) fn forwarded(&self) -> Option<Forwarded> {
        let segment = self.0.segment.as_ref()?;
        Some(Forwarded {
            from: segment.source,
            to: segment.destination,
            arrives_by: self.0.arrives_by,
            leaves_by: self.0.leaves_by,
            mark: self.0.mark,
        })
    }

    /// Its bytes as they left this machine, where its ends are translated behind the queue to these.
    ///
    /// # Errors
    /// An address of another family cannot take the place of its own.
    pub(super) fn between(
        &self,
        source: SocketAddr,
        destination: SocketAddr,
    ) -> io::Result<Cow<'_, [u8]>> {
        let own = self.0.segment.as_ref();
        if own.is_some_and(|own| (own.source, own.destination) == (source, destination)) {
            return Ok(Cow::Borrowed(&self.0.bytes));
        }
        let other = translated(&self.0.bytes, source, destination);
        other
            .map(Cow::Owned)
            .ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

/// The packet of TCP in `bytes` with other ends.
fn translated(bytes: &[u8], source: SocketAddr, destination: SocketAddr) -> Option<Vec<u8>> {
    let mut packet = bentpipe_wire::Packet::parse(bytes, Checksums::Ignore).ok()?;
    match (&mut packet.ip, source.ip(), destination.ip()) {
        (Ip::V4(ip), IpAddr::V4(source), IpAddr::V4(destination)) => {
            (ip.source, ip.destination) = (source, destination);
        }
        (Ip::V6(ip), IpAddr::V6(source), IpAddr::V6(destination)) => {
            (ip.source, ip.destination) = (source, destination);
        }
        _ => return None,
    }
    let Transport::Tcp(tcp) = &mut packet.transport else {
        return None;
    };
    (tcp.source, tcp.destination) = (source.port(), destination.port());
    packet.to_vec().ok()
}

impl HeldSegment {
    fn read(bytes: &[u8]) -> Option<Self> {
        let packet = bentpipe_wire::Packet::parse_headers(bytes, Checksums::Verify).ok()?;
        let view = packet.view()?;
        Some(Self {
            source: view.source,
            destination: view.destination,
            seq: view.seq,
            ack: view.ack,
            payload: view.payload,
            window: view.window,
            flags: view.flags,
            sack: view.sack.into(),
        })
    }
}

impl Packet for HeldPacket {
    type Endpoint = SocketAddr;
    type Host = IpAddr;

    fn host(end: SocketAddr) -> IpAddr {
        host_of(end.ip())
    }

    fn view(&self) -> Option<SegmentView<'_, SocketAddr>> {
        let segment = self.0.segment.as_ref()?;
        Some(SegmentView {
            source: segment.source,
            destination: segment.destination,
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            payload: segment.payload,
            sack: &segment.sack,
        })
    }

    fn wire_length(&self) -> Bytes {
        Bytes(self.0.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::{Packet as WirePacket, Segment as WireSegment};

    #[test]
    fn what_is_translated_is_a_packet_of_the_other_ends() {
        for ends in [
            [
                "10.0.0.2:700",
                "192.0.2.1:80",
                "198.51.100.9:4000",
                "203.0.113.1:8080",
            ],
            [
                "[fd00::2]:700",
                "[2001:db8::1]:80",
                "[2001:db8::9]:4000",
                "[2001:db8::7]:8080",
            ],
        ] {
            let [from, to, new_from, new_to] = ends.map(|end| end.parse::<SocketAddr>().unwrap());
            let packet = |from: SocketAddr, to: SocketAddr| {
                let ip = Ip::between(from.ip(), to.ip()).unwrap();
                let segment = WireSegment {
                    seq: Seq(7),
                    payload: (&b"some data"[..]).into(),
                    ..WireSegment::default()
                };
                let packet = WirePacket::of_segment(ip, from.port(), to.port(), segment);
                packet.to_vec().unwrap()
            };
            let other = translated(&packet(from, to), new_from, new_to).unwrap();
            assert_eq!(other[..], packet(new_from, new_to)[..]);
            let mixed: SocketAddr = match from {
                SocketAddr::V4(_) => "[fd00::1]:1".parse().unwrap(),
                SocketAddr::V6(_) => "10.0.0.1:1".parse().unwrap(),
            };
            assert!(translated(&packet(from, to), mixed, new_to).is_none());
        }
        assert!(
            translated(
                b"no packet",
                "1.1.1.1:1".parse().unwrap(),
                "1.1.1.1:1".parse().unwrap()
            )
            .is_none()
        );
    }
}
