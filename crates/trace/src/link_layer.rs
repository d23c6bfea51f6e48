//! What stands before the IP header: the link types of captures (tcpdump.org/linktypes.html).

/// A link type, as captures number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkType(pub i32);

impl LinkType {
    /// BSD's loopback: the address family in the byte order of the host.
    pub const NULL: Self = Self(0);
    /// Ethernet, with VLAN tags.
    pub const ETHERNET: Self = Self(1);
    /// OpenBSD's loopback: the address family in network order.
    pub const LOOP: Self = Self(108);
    /// IP without a header of the link.
    pub const RAW: Self = Self(101);
    /// Linux "any", version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// Linux "any", version 2.
    pub const LINUX_SLL2: Self = Self(276);
    /// IPv4 alone.
    pub const IPV4: Self = Self(228);
    /// IPv6 alone.
    pub const IPV6: Self = Self(229);
    /// What RAW is called in the files of some systems.
    const RAW_AS_DLT: [Self; 2] = [Self(12), Self(14)];

    /// Whether frames of this type can be read.
    pub fn is_known(self) -> bool {
        let known = [
            Self::NULL,
            Self::ETHERNET,
            Self::LOOP,
            Self::RAW,
            Self::LINUX_SLL,
            Self::LINUX_SLL2,
            Self::IPV4,
            Self::IPV6,
        ];
        known.contains(&self) || Self::RAW_AS_DLT.contains(&self)
    }

    /// Where the IP header begins in `frame`; nothing when something else is in it, or too little was kept.
    pub fn ip(self, frame: &[u8]) -> Option<usize> {
        match self {
            Self::RAW | Self::IPV4 | Self::IPV6 => Some(0),
            Self::NULL | Self::LOOP => Some(4),
            Self::ETHERNET => ethernet(frame, 12),
            Self::LINUX_SLL => ethernet(frame, 14),
            Self::LINUX_SLL2 => is_ip(protocol(frame, 0)?).then_some(20),
            other => Self::RAW_AS_DLT.contains(&other).then_some(0),
        }
    }
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad, and the number that both had before.
const VLANS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

fn is_ip(protocol: u16) -> bool {
    matches!(protocol, IPV4 | IPV6)
}

fn protocol(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// Behind the protocol at `at` and the VLAN tags after it.
fn ethernet(frame: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match protocol(frame, at)? {
            vlan if VLANS.contains(&vlan) => at += 4,
            other => return is_ip(other).then_some(at + 2),
        }
    }
}
