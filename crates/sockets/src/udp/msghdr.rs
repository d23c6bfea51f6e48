//! What a `msghdr` has beside the octets: the peer's address, and control messages. See recvmsg(2) and cmsg(3).

use std::net::{IpAddr, SocketAddr};

/// Room for two control messages: an `int`, and an address of the host.
pub(super) const CONTROL: usize = 128;

/// An address as the kernel takes it.
pub(crate) struct Name {
    pub(crate) storage: libc::sockaddr_storage,
    pub(crate) len: libc::socklen_t,
}

impl Name {
    pub(crate) fn of(address: SocketAddr) -> Self {
        // SAFETY: sockaddr_storage is plain integers; all zeros is valid.
        let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
        let len = match address {
            SocketAddr::V4(address) => {
                let name = libc::sockaddr_in {
                    sin_family: libc::AF_INET as _,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(address.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is large and aligned enough for every address.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(name) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                let name = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as _,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: address.ip().octets(),
                    },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(name) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Self {
            storage,
            len: len as _,
        }
    }
}

/// The address that the kernel gave, if it is one of IPv4 or IPv6.
pub(super) fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what it is, and the storage is large enough for it.
            let name = unsafe { (&raw const *name).cast::<libc::sockaddr_in>().read() };
            let ip = name.sin_addr.s_addr.to_ne_bytes();
            Some((ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let name = unsafe { (&raw const *name).cast::<libc::sockaddr_in6>().read() };
            let ip = name.sin6_addr.s6_addr.into();
            let port = u16::from_be(name.sin6_port);
            let address = std::net::SocketAddrV6::new(ip, port, 0, name.sin6_scope_id);
            Some(address.into())
        }
        _ => None,
    }
}

/// Control messages of a call.
#[derive(Default)]
pub(super) struct ControlMessages {
    /// Aligned as their headers want it.
    pub(super) octets: [u64; CONTROL / 8],
    pub(super) len: usize,
}

impl ControlMessages {
    /// Adds one, of at most 32 octets; there is room for two.
    pub(super) fn push(&mut self, level: libc::c_int, kind: libc::c_int, content: &[u8]) {
        let len = content.len() as libc::c_uint;
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute.
        let (space, whole) = unsafe { (libc::CMSG_SPACE(len), libc::CMSG_LEN(len)) };
        assert!(self.len + space as usize <= CONTROL, "two messages fit");
        // SAFETY: `space` octets behind `len`, which is a sum of spaces and so aligned, are within `octets`
        // as was just checked; a header and `content` take no more.
        unsafe {
            let header = self
                .octets
                .as_mut_ptr()
                .cast::<u8>()
                .add(self.len)
                .cast::<libc::cmsghdr>();
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = whole as _;
            libc::CMSG_DATA(header).copy_from_nonoverlapping(content.as_ptr(), content.len());
        }
        self.len += space as usize;
    }

    /// What goes to `to` leaves from the address `from` of this host, where one is given and is of its family.
    pub(super) fn push_source(&mut self, to: SocketAddr, from: Option<IpAddr>) {
        match (to, from) {
            // struct in_pktinfo: no interface, our address, and one that is not looked at.
            (SocketAddr::V4(_), Some(IpAddr::V4(from))) => {
                let info = [[0; 4], from.octets(), [0; 4]].concat();
                self.push(libc::SOL_IP, libc::IP_PKTINFO, &info);
            }
            // struct in6_pktinfo: our address, and no interface.
            (SocketAddr::V6(to), Some(from)) => {
                let own = match from {
                    IpAddr::V4(from) => from.to_ipv6_mapped(),
                    IpAddr::V6(from) => from,
                };
                // A group's link is in the peer's address.
                if own.to_ipv4_mapped().is_some() == to.ip().to_ipv4_mapped().is_some() {
                    let info = [&own.octets()[..], &[0; 4]].concat();
                    self.push(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info);
                }
            }
            (SocketAddr::V4(_), Some(IpAddr::V6(_))) | (_, None) => {}
        }
    }
}

/// What the kernel says beside a datagram.
#[derive(Default)]
pub(super) struct AncillaryData {
    /// The length of the pieces that it has put together.
    pub(super) segment: Option<usize>,
    /// To which address of this host it came.
    pub(super) at: Option<IpAddr>,
}

impl AncillaryData {
    pub(super) fn of(message: &libc::msghdr) -> Self {
        let mut ancillary = Self::default();
        // SAFETY: the kernel has filled `msg_control` up to `msg_controllen` with whole headers and their
        // content, within the buffer that the caller still holds.
        unsafe {
            let mut header = libc::CMSG_FIRSTHDR(&raw const *message);
            while !header.is_null() {
                let content = libc::CMSG_DATA(header);
                match ((*header).cmsg_level, (*header).cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let value = content.cast::<libc::c_int>().read_unaligned();
                        ancillary.segment = usize::try_from(value).ok();
                    }
                    (libc::SOL_IP, libc::IP_PKTINFO) => {
                        let info = content.cast::<libc::in_pktinfo>().read_unaligned();
                        ancillary.at = Some(info.ipi_spec_dst.s_addr.to_ne_bytes().into());
                    }
                    (libc::SOL_IPV6, libc::IPV6_PKTINFO) => {
                        let info = content.cast::<libc::in6_pktinfo>().read_unaligned();
                        ancillary.at = Some(info.ipi6_addr.s6_addr.into());
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(&raw const *message, header);
            }
        }
        ancillary.at = ancillary
            .at
            .filter(|at| !at.is_multicast() && !at.is_unspecified());
        ancillary
    }
}
