//! The ECN field of the IP header (RFC 3168, section 5), in headers and in the bytes of a packet.

use crate::Ip;

/// What the two lower bits of the traffic class say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not-ECT: who congests drops it.
    #[default]
    NotCapable = 0,
    /// ECT(1): the transport heeds marks, by rules of its own (RFC 9331).
    Capable1 = 1,
    /// ECT(0): the transport heeds marks as it heeds losses.
    Capable0 = 2,
    /// CE: congestion experienced.
    Marked = 3,
}

impl Ecn {
    /// The field in a traffic class: its lower two bits.
    pub const fn of_traffic_class(class: u8) -> Self {
        match class & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Marked,
        }
    }

    /// `class` with these two bits in place of its own.
    pub const fn in_traffic_class(self, class: u8) -> u8 {
        class & !3 | self as u8
    }

    /// Whether a queue may mark the packet in place of dropping it.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotCapable)
    }
}

impl Ip {
    /// The ECN field.
    pub const fn ecn(&self) -> Ecn {
        Ecn::of_traffic_class(match self {
            Self::V4(ip) => ip.traffic_class,
            Self::V6(ip) => ip.traffic_class,
        })
    }

    /// Sets the ECN field.
    pub fn set_ecn(&mut self, ecn: Ecn) {
        let class = match self {
            Self::V4(ip) => &mut ip.traffic_class,
            Self::V6(ip) => &mut ip.traffic_class,
        };
        *class = ecn.in_traffic_class(*class);
    }
}

/// The ECN field of the IP packet in `bytes`; `None` where that is none.
pub fn ecn_of(bytes: &[u8]) -> Option<Ecn> {
    let class = match *bytes.first_chunk::<2>()? {
        [first, class] if first >> 4 == 4 => class,
        [first, second] if first >> 4 == 6 => first << 4 | second >> 4,
        _ => return None,
    };
    Some(Ecn::of_traffic_class(class))
}

/// Sets CE in the IP packet in `bytes`, if it is capable of that, and mends the header's checksum (RFC 1624, equation 3);
/// whether it was.
pub fn mark(bytes: &mut [u8]) -> bool {
    if !ecn_of(bytes).is_some_and(Ecn::is_capable) {
        return false;
    }
    if bytes[0] >> 4 == 6 {
        bytes[1] |= (Ecn::Marked as u8) << 4;
        return true;
    }
    let Some(header) = bytes.first_chunk_mut::<20>() else {
        return false;
    };
    let before = u16::from_be_bytes([header[0], header[1]]);
    header[1] |= Ecn::Marked as u8;
    let after = u16::from_be_bytes([header[0], header[1]]);
    let sum = u16::from_be_bytes([header[10], header[11]]);
    let sum = u32::from(!sum) + u32::from(!before) + u32::from(after);
    // Two folds suffice for three words.
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    true
}
