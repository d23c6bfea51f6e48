//! The TCP segment in a frame, of which the end may not have been kept.

use crate::Frame;
use etherparse::{IpNumber, LaxIpSlice, TcpOptionElement, TcpOptionsIterator};
use std::net::SocketAddr;

/// The shortest TCP header.
const HEADER: usize = 20;

/// What a segment says, as far as it was kept.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// Its first sequence number.
    pub sequence: u32,
    /// The next that its sender expects, if it has ACK.
    pub acknowledgement: u32,
    /// Its flags.
    pub flags: Flags,
    /// The window, not scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// Bytes of data.
    pub length: u32,
    /// How many of them were kept.
    pub kept: u32,
    /// Its options.
    pub options: Options,
}

/// The flags of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// FIN.
    pub const FIN: Self = Self(0x01);
    /// SYN.
    pub const SYN: Self = Self(0x02);
    /// RST.
    pub const RST: Self = Self(0x04);
    /// PSH.
    pub const PSH: Self = Self(0x08);
    /// ACK.
    pub const ACK: Self = Self(0x10);
    /// URG.
    pub const URG: Self = Self(0x20);

    /// Whether `flag` is set.
    pub const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// The options of a segment that matter here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub window_scale: Option<u8>,
    /// Whether it permits SACK.
    pub sack_permitted: bool,
    /// Whether it has timestamps.
    pub timestamps: bool,
    sacks: [(u32, u32); 4],
    sack_count: u8,
}

impl Options {
    /// SACK blocks, first and last sequence number.
    pub fn sacks(&self) -> &[(u32, u32)] {
        &self.sacks[..usize::from(self.sack_count)]
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut options = Self::default();
        // What follows an option that is wrong, or was not kept, is not known.
        for option in TcpOptionsIterator::from_slice(bytes).map_while(Result::ok) {
            match option {
                TcpOptionElement::MaximumSegmentSize(mss) => options.mss = Some(mss),
                TcpOptionElement::WindowScale(scale) => options.window_scale = Some(scale),
                TcpOptionElement::SelectiveAcknowledgementPermitted => {
                    options.sack_permitted = true
                }
                TcpOptionElement::Timestamp(..) => options.timestamps = true,
                TcpOptionElement::SelectiveAcknowledgement(first, more) => {
                    let blocks = [Some(first), more[0], more[1], more[2]];
                    options.sack_count = 0;
                    for block in blocks.into_iter().flatten() {
                        options.sacks[usize::from(options.sack_count)] = block;
                        options.sack_count += 1;
                    }
                }
                TcpOptionElement::Noop => {}
            }
        }
        options
    }
}

/// What was found in a frame.
#[derive(Clone, Debug)]
pub enum Dissected {
    /// A segment of TCP.
    Segment(Segment),
    /// Something else than TCP over IP.
    Other,
    /// A fragment of an IP packet behind the first.
    Fragment,
    /// So little was kept that the ports or sequence numbers are not in it.
    TooShort,
    /// TCP whose lengths contradict each other.
    Malformed,
    /// A link type that is not known here.
    UnknownLink,
}

impl Segment {
    /// The segment in `frame`.
    pub fn dissect(frame: &Frame<'_>) -> Dissected {
        if !frame.link.is_known() {
            return Dissected::UnknownLink;
        }
        let Some(begin) = frame.link.ip(frame.data) else {
            return Dissected::Other;
        };
        let Some(bytes) = frame.data.get(begin..).filter(|bytes| !bytes.is_empty()) else {
            return Dissected::TooShort;
        };
        let Ok((ip, _)) = LaxIpSlice::from_slice(bytes) else {
            return match bytes.len() < 40 {
                true => Dissected::TooShort,
                false => Dissected::Malformed,
            };
        };
        let original = (frame.original as usize).saturating_sub(begin);
        let (addresses, length, first) = match &ip {
            LaxIpSlice::Ipv4(ip) => {
                let header = ip.header();
                // Segmentation offload leaves the length of the whole open.
                let total = match usize::from(header.total_len()) {
                    0 => original,
                    total => total,
                };
                let headers = usize::from(header.ihl()) * 4;
                let source = header.source_addr().into();
                let destination = header.destination_addr().into();
                let first = header.fragments_offset().value() == 0;
                ((source, destination), total.checked_sub(headers), first)
            }
            LaxIpSlice::Ipv6(ip) => {
                let header = ip.header();
                let total = match usize::from(header.payload_length()) {
                    0 => original.saturating_sub(40),
                    total => total,
                };
                let source = header.source_addr().into();
                let destination = header.destination_addr().into();
                let first = !ip.is_payload_fragmented();
                let extensions = ip.extensions().slice().len();
                ((source, destination), total.checked_sub(extensions), first)
            }
        };
        if ip.payload_ip_number() != IpNumber::TCP {
            return Dissected::Other;
        }
        if !first {
            return Dissected::Fragment;
        }
        match length {
            Some(length) => Self::of_tcp(addresses, ip.payload().payload, length),
            None => Dissected::Malformed,
        }
    }

    /// Of a TCP header in `tcp`, which with its data has `length` bytes.
    fn of_tcp(
        (source, destination): (std::net::IpAddr, std::net::IpAddr),
        tcp: &[u8],
        length: usize,
    ) -> Dissected {
        let Some(header) = tcp.get(..HEADER) else {
            return match length < HEADER {
                true => Dissected::Malformed,
                false => Dissected::TooShort,
            };
        };
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let offset = usize::from(header[12] >> 4) * 4;
        let Some(data) = length.checked_sub(offset).filter(|_| offset >= HEADER) else {
            return Dissected::Malformed;
        };
        let options = &tcp[HEADER..offset.min(tcp.len())];
        let kept = tcp.len().saturating_sub(offset).min(data);
        Dissected::Segment(Self {
            source: SocketAddr::new(source, half(0)),
            destination: SocketAddr::new(destination, half(2)),
            sequence: word(4),
            acknowledgement: word(8),
            flags: Flags(header[13]),
            window: half(14),
            urgent: half(18),
            // No IP packet is that long: jumbograms say their length in an option.
            length: u32::try_from(data).unwrap_or(u32::MAX).min(1 << 24),
            kept: u32::try_from(kept).unwrap_or(u32::MAX).min(1 << 24),
            options: Options::parse(options),
        })
    }
}
