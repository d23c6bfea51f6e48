//! A packet of the simulator, the number of an end of a flow, and how proxies read such packets.

use bentpipe_base::Bytes;
use bentpipe_link::Length;
use bentpipe_pep::SegmentView;
use bentpipe_wire::saratoga::Frame;
use bentpipe_wire::{Ecn, Payload, Segment};

/// One packet on its way between two ends of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// What it carries.
    pub content: Content,
    /// Where it goes; its source is the other end.
    pub to: EndId,
    /// The host of that end, and in the two highest bits what the IP header says of ECN.
    host_and_ecn: u16,
    /// Bytes of the packet on a link, framing not counted.
    pub len: u16,
}

/// What a packet carries behind its IP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// TCP.
    Tcp(Segment),
    /// UDP, and a frame of Saratoga in it.
    Saratoga(Box<Frame>),
}

impl Default for Content {
    /// An empty segment.
    fn default() -> Self {
        Self::Tcp(Segment::default())
    }
}

impl Default for Packet {
    /// Nothing, to nowhere.
    fn default() -> Self {
        Self {
            content: Content::default(),
            to: EndId(0),
            host_and_ecn: NOWHERE,
            len: 0,
        }
    }
}

impl Packet {
    /// A packet to the end `to`, at `host`, which takes `len` bytes; its IP header says `ecn`.
    pub(crate) const fn new(
        content: Content,
        to: EndId,
        (host, ecn): (u16, Ecn),
        len: u16,
    ) -> Self {
        Self {
            content,
            to,
            host_and_ecn: host | (ecn as u16) << HOST_BITS,
            len,
        }
    }

    /// Gives it another address, ECN field and length.
    #[inline]
    pub(crate) const fn address(&mut self, to: EndId, (host, ecn): (u16, Ecn), len: u16) {
        self.to = to;
        self.host_and_ecn = host | (ecn as u16) << HOST_BITS;
        self.len = len;
    }

    /// The host that it goes to.
    #[inline]
    pub(crate) const fn host(&self) -> u16 {
        self.host_and_ecn & NOWHERE
    }

    pub(crate) const fn set_host(&mut self, host: u16) {
        self.host_and_ecn = self.host_and_ecn & !NOWHERE | host;
    }

    /// The ECN field of its IP header.
    #[inline]
    pub const fn ecn(&self) -> Ecn {
        Ecn::of_traffic_class((self.host_and_ecn >> HOST_BITS) as u8)
    }

    pub(crate) const fn set_ecn(&mut self, ecn: Ecn) {
        self.host_and_ecn = self.host_and_ecn & NOWHERE | (ecn as u16) << HOST_BITS;
    }

    /// The TCP segment, if it is one.
    #[inline]
    pub const fn segment(&self) -> Option<&Segment> {
        match &self.content {
            Content::Tcp(segment) => Some(segment),
            Content::Saratoga(_) => None,
        }
    }

    /// Whether memory of its own belongs to it.
    #[inline]
    pub(crate) const fn holds_memory(&self) -> bool {
        let Content::Tcp(segment) = &self.content else {
            return true;
        };
        segment.options.is_some() || matches!(segment.payload, Payload::Bytes(_))
    }

    /// Whether it carries data of its flow.
    pub(crate) fn has_data(&self) -> bool {
        match &self.content {
            Content::Tcp(segment) => !segment.payload.is_empty(),
            Content::Saratoga(frame) => matches!(&**frame, Frame::Data(data) if data.len > 0),
        }
    }
}

// Tens of thousands may be on their way.
const _: () = assert!(size_of::<Packet>() <= 56);

/// One end of a flow's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndId(pub(crate) u32);

impl EndId {
    /// The end of flow number `flow` (in the order of the scenario) that connects.
    pub const fn opener(flow: usize) -> Self {
        Self(2 * flow as u32)
    }

    /// The end of flow number `flow` that is connected to.
    pub const fn acceptor(flow: usize) -> Self {
        Self(2 * flow as u32 + 1)
    }

    /// The other end of its connection.
    pub const fn peer(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The number of its flow, in the order of the scenario.
    pub const fn flow(self) -> usize {
        (self.0 >> 1) as usize
    }

    /// Whether it is the end that connects.
    pub const fn opens(self) -> bool {
        self.0 & 1 == 0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// No host: what a proxy makes has none before the engine puts it.
pub(crate) const NOWHERE: u16 = (1 << HOST_BITS) - 1;
/// Bits of a host's number; a scenario has at most 2,048 hosts.
const HOST_BITS: u32 = 14;

impl Length for Packet {
    fn length(&self) -> Bytes {
        Bytes(u64::from(self.len))
    }
}

impl bentpipe_pep::Packet for Packet {
    type Endpoint = EndId;
    type Host = EndId;

    fn host(end: EndId) -> EndId {
        end
    }

    #[inline]
    fn view(&self) -> Option<SegmentView<'_, EndId>> {
        let segment = Packet::segment(self)?;
        Some(SegmentView {
            source: self.to.peer(),
            destination: self.to,
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            // A packet has at most 65,535 bytes.
            payload: segment.payload.len() as u32,
            sack: segment.sack(),
        })
    }

    #[inline]
    fn wire_length(&self) -> Bytes {
        self.length()
    }
}

impl bentpipe_pep::BuildPacket for Packet {
    fn segment(&self) -> Option<Segment> {
        Packet::segment(self).cloned()
    }

    fn is_plain(&self) -> bool {
        true
    }

    fn ip_header(&self) -> Option<u16> {
        // A scenario has one IP version.
        None
    }

    fn ecn(&self) -> Ecn {
        Packet::ecn(self)
    }

    fn with_ecn(mut self, ecn: Ecn) -> Self {
        self.set_ecn(ecn);
        self
    }

    fn build(_: EndId, to: EndId, segment: Segment, length: Bytes) -> Option<Self> {
        let nowhere = (NOWHERE, Ecn::NotCapable);
        // Links have an MTU of at most 65,535 bytes.
        let len = length.0 as u16;
        Some(Self::new(Content::Tcp(segment), to, nowhere, len))
    }
}
