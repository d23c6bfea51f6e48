//! What a proxy must know of a packet, whatever it is made of.

use bentpipe_base::{Bytes, Seq};
use bentpipe_wire::{Flags, SackBlock, Tcp, Transport};
use core::fmt::Debug;
use core::net::{IpAddr, SocketAddr};

/// A packet that a proxy can move, keep a copy of, and read if it is TCP in the clear.
///
/// A clone must be cheap: proxies keep one of each data segment under way.
pub trait Packet: Clone {
    /// One end of a connection: its address and port.
    type Endpoint: Copy + Ord + Debug;

    /// Its TCP segment, or `None` when it carries none that can be read (another protocol, a
    /// fragment, encrypted).
    fn view(&self) -> Option<View<'_, Self::Endpoint>>;

    /// Bytes on the wire, from the first of the IP header to the last of the payload.
    fn wire_length(&self) -> Bytes;
}

/// A TCP segment as proxies read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a, E> {
    /// Who sent it.
    pub source: E,
    /// Who shall get it.
    pub destination: E,
    /// Number of the first payload byte, or of the SYN.
    pub seq: Seq,
    /// The byte expected next; means something with [`Flags::ACK`].
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// Room at the receiver, before scaling.
    pub window: u16,
    /// Bytes of payload.
    pub payload: u32,
    /// SACK blocks, the latest first.
    pub sack: &'a [SackBlock],
}

impl<E> View<'_, E> {
    /// Sequence numbers that it takes: payload, SYN and FIN (RFC 9293, SEG.LEN).
    pub fn sequence_length(&self) -> u32 {
        let counts = |flag| u32::from(self.flags.contains(flag));
        self.payload
            .saturating_add(counts(Flags::SYN) + counts(Flags::FIN))
    }

    /// The number after its last.
    pub fn end(&self) -> Seq {
        self.seq + self.sequence_length()
    }
}

impl Packet for bentpipe_wire::Packet {
    type Endpoint = SocketAddr;

    fn view(&self) -> Option<View<'_, SocketAddr>> {
        let Transport::Tcp(tcp) = &self.transport else {
            return None;
        };
        let (source, destination): (IpAddr, IpAddr) = (self.ip.source(), self.ip.destination());
        Some(View {
            source: SocketAddr::new(source, tcp.source),
            destination: SocketAddr::new(destination, tcp.destination),
            seq: tcp.seq,
            ack: tcp.ack,
            flags: tcp.flags,
            window: tcp.window,
            payload: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
            sack: sack(tcp),
        })
    }

    fn wire_length(&self) -> Bytes {
        self.length()
    }
}

fn sack(tcp: &Tcp) -> &[SackBlock] {
    tcp.options
        .sack
        .as_deref()
        .map_or(&[], |blocks| blocks.as_slice())
}
