//! Socket addresses, from C and back.

use super::{load, store};
use crate::errno::{Answer, Errno};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use libc::{sockaddr, sockaddr_in, sockaddr_in6, socklen_t};

/// The address at `pointer`, of `length` octets.
///
/// # Safety
/// `pointer` is null, or points to `length` octets.
pub(super) unsafe fn read(pointer: *const sockaddr, length: socklen_t) -> Answer<SocketAddr> {
    let length = length as usize;
    if length < size_of::<libc::sa_family_t>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the family lies within what the caller says is there; null is refused.
    let family = unsafe { load(pointer.cast::<libc::sa_family_t>())? };
    match i32::from(family) {
        libc::AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: it is that long.
            let address = unsafe { load(pointer.cast::<sockaddr_in>())? };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Ok((ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: it is that long.
            let address = unsafe { load(pointer.cast::<sockaddr_in6>())? };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            let port = u16::from_be(address.sin6_port);
            match ip.to_ipv4_mapped() {
                Some(ip) => Ok((ip, port).into()),
                None => Ok(SocketAddrV6::new(ip, port, 0, 0).into()),
            }
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno(libc::EINVAL)),
        _ => Err(Errno(libc::EAFNOSUPPORT)),
    }
}

/// Writes `address` where the caller wants it, cut to its room, and its whole length.
///
/// # Safety
/// `pointer` is null, or `length` points to the octets of room that it points to.
pub(super) unsafe fn write(
    address: SocketAddr,
    pointer: *mut sockaddr,
    length: *mut socklen_t,
) -> Answer<()> {
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: the caller hands over a length with the pointer.
    let room = unsafe { load(length)? } as usize;
    let mut octets = [0u8; size_of::<sockaddr_in6>()];
    let whole = match address {
        SocketAddr::V4(v4) => {
            octets[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            octets[2..4].copy_from_slice(&v4.port().to_be_bytes());
            octets[4..8].copy_from_slice(&v4.ip().octets());
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            octets[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            octets[2..4].copy_from_slice(&v6.port().to_be_bytes());
            octets[8..24].copy_from_slice(&v6.ip().octets());
            size_of::<sockaddr_in6>()
        }
    };
    // SAFETY: no more than the room is written, and `octets` is as long as the longer address.
    unsafe {
        pointer
            .cast::<u8>()
            .copy_from(octets.as_ptr(), whole.min(room))
    };
    // SAFETY: the length is there, it was read.
    unsafe { store(length, whole as socklen_t) }
}
