//! Builds and parses plain netlink messages (netlink(7), linux/netlink.h), for requests that `netlink-packet-route`
//! does not support.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, send,
    socket_with,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The length of `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// The kind of an answer that is an error, or an acknowledgement.
pub const NLMSG_ERROR: u16 = 2;
/// The kind of what ends a list.
const NLMSG_DONE: u16 = 3;

/// A socket of `protocol`, rtnetlink where it is `None`, that hears of `groups` (a mask).
pub fn open(protocol: Option<rustix::net::Protocol>, groups: u32) -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE is protocol 0.
        protocol,
    )?;
    bind(&socket, &netlink::SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Asks for a list by `request` (NLM_F_DUMP), and hands type and body of each message of the answer to `each`. What is longer than
/// `buffer` is cut off.
///
/// # Errors
/// Where the kernel refuses, or the socket fails.
pub fn dump(
    socket: impl AsFd,
    request: &[u8],
    buffer: &mut [u8],
    mut each: impl FnMut(u16, &[u8]),
) -> io::Result<()> {
    send(&socket, request, SendFlags::empty())?;
    loop {
        let length = match recv(&socket, &mut *buffer, RecvFlags::empty()) {
            Ok((length, _)) => length,
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let mut rest = &buffer[..length];
        while let Some((kind, body, next)) = message(rest) {
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return refusal(body).map_or(Ok(()), Err),
                _ => each(kind, body),
            }
            rest = next;
        }
    }
}

/// The most datagrams of [`receive_many`].
pub const MANY: usize = 32;

/// Takes up to [`MANY`] datagrams that have come, without waiting, by one system call (recvmmsg(2)): each into its
/// part of `slots`, of which there are [`MANY`] of one size, and its length into `lengths`. What is longer is cut
/// off.
pub fn receive_many(
    socket: &OwnedFd,
    slots: &mut [u8],
    lengths: &mut Vec<usize>,
) -> io::Result<()> {
    let size = slots.len() / MANY;
    // SAFETY: all fields of an iovec and of a mmsghdr are numbers and pointers, for which zero is a value.
    let (mut parts, mut headers): ([libc::iovec; MANY], [libc::mmsghdr; MANY]) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    for ((slot, part), header) in slots
        .chunks_exact_mut(size.max(1))
        .zip(&mut parts)
        .zip(&mut headers)
    {
        part.iov_base = slot.as_mut_ptr().cast();
        part.iov_len = slot.len();
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: the descriptor is borrowed for the call; the kernel writes into the slots no more than their
    // lengths, and slots, parts and headers outlive the call.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            MANY as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let come = headers.iter().take(count);
    lengths.extend(come.map(|header| (header.msg_len as usize).min(size)));
    Ok(())
}

/// The header of a message of `length` bytes, header included.
pub fn header(length: usize, kind: u16, flags: u16) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0..4].copy_from_slice(&(length as u32).to_ne_bytes());
    header[4..6].copy_from_slice(&kind.to_ne_bytes());
    header[6..8].copy_from_slice(&flags.to_ne_bytes());
    header
}

/// The first message in `bytes`: its type, its body, and what comes after it.
pub fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    let kind = u16_at(bytes, 4)?;
    let body = bytes.get(HEADER..length)?;
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, next))
}

/// Attributes (`struct nlattr`, `rtattr`) by type and value, up to the first that is cut off.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)?;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// What the body of an NLMSG_ERROR says: the error, or `None` where it acknowledges.
pub fn refusal(body: &[u8]) -> Option<io::Error> {
    let code = u32_at(body, 0).unwrap_or(0) as i32;
    (code != 0).then(|| io::Error::from_raw_os_error(code.wrapping_neg()))
}

/// Appends an attribute.
pub fn put(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nest(bytes, kind, |bytes| bytes.extend_from_slice(value));
}

/// Appends an attribute whose value `inside` writes; netfilter's nested ones have `NESTED` in
/// their kind.
pub fn nest(bytes: &mut Vec<u8>, kind: u16, inside: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    inside(bytes);
    let length = (bytes.len() - start) as u16;
    bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// The number at byte `at`, in the machine's order.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The number at byte `at`, in the machine's order.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_left_out() {
        assert!(message(&[0; 10]).is_none());
        assert!(message(&header(200, 20, 0)).is_none());
        let mut bytes = header(21, 20, 0).to_vec();
        bytes.extend([1, 2, 3, 4, 5, 0, 0, 0, 9]);
        assert_eq!(message(&bytes), Some((20, &[1, 2, 3, 4, 5][..], &[9][..])));
        assert!(message(&header(3, 20, 0)).is_none(), "shorter than itself");
    }

    #[test]
    fn a_refusal_is_any_code_but_0() {
        let code = |code: i32| refusal(&code.to_ne_bytes()).map(|error| error.raw_os_error());
        assert_eq!(code(0), None);
        assert_eq!(code(-22), Some(Some(22)));
        assert!(code(i32::MIN).is_some(), "has no negative");
        assert!(refusal(&[]).is_none());
    }

    #[test]
    fn attributes_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        put(&mut bytes, 3, b"abcde");
        nest(&mut bytes, 9, |inner| put(inner, 1, &[7]));
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found[0], (3, &b"abcde"[..]));
        assert_eq!(found[1].0, 9);
        let inner: Vec<_> = attributes(found[1].1).collect();
        assert_eq!(inner, [(1, &[7][..])]);
    }

    #[test]
    fn attributes_are_told_apart_and_none_is_read_for_ever() {
        let one = [[6u16, 7].map(u16::to_ne_bytes).concat(), vec![1, 2, 0, 0]].concat();
        let two = [4u16, 8].map(u16::to_ne_bytes).concat();
        let whole = [one, two.clone()].concat();
        let found: Vec<_> = attributes(&whole).collect();
        assert_eq!(found, [(7, &[1, 2][..]), (8, &[][..])]);
        assert_eq!(attributes(&whole[..5]).count(), 0, "cut off");
        assert_eq!(attributes(&[0; 64]).count(), 0, "of no length");
    }
}
