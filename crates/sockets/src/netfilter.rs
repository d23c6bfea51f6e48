//! Builds plain messages to netfilter's subsystems (linux/netfilter/nfnetlink.h).

use crate::netlink_message::{self, HEADER, NLMSG_ERROR, message, refusal};
use rustix::net::{RecvFlags, SendFlags, netlink, recv, send};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// NLM_F_REQUEST.
pub const REQUEST: u16 = 1;
/// The same with NLM_F_ACK.
pub const CHANGE: u16 = REQUEST | 4;
/// NLA_F_NESTED: this attribute holds attributes.
pub const NESTED: u16 = 0x8000;

/// The length of `struct nfgenmsg`, before the attributes.
pub const GENERAL: usize = 4;

/// A socket to netfilter in the calling thread's namespace.
pub fn open() -> io::Result<OwnedFd> {
    netlink_message::open(Some(netlink::NETFILTER), 0)
}

/// Appends a message: `kind` is subsystem and command, `family` a NFPROTO, `resource` what the
/// subsystem takes it for.
pub fn put(
    bytes: &mut Vec<u8>,
    (kind, flags): (u16, u16),
    (family, resource): (u8, u16),
    attributes: impl FnOnce(&mut Vec<u8>),
) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEADER]);
    let [high, low] = resource.to_be_bytes();
    bytes.extend_from_slice(&[family, 0, high, low]);
    attributes(bytes);
    let header = netlink_message::header(bytes.len() - start, kind, flags);
    bytes[start..start + HEADER].copy_from_slice(&header);
}

/// Sends messages, and waits for nothing: the kernel has answered all when the sending returns. Fails with the
/// first error among the answers.
pub fn request(socket: impl AsFd, messages: &[u8]) -> io::Result<()> {
    send(&socket, messages, SendFlags::empty())?;
    let mut buffer = [0; 8192];
    let mut result = Ok(());
    let mut overrun = Ok(());
    loop {
        let length = match recv(&socket, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) => length,
            Err(rustix::io::Errno::AGAIN) => return result.and(overrun),
            Err(rustix::io::Errno::INTR) => continue,
            // Some of the answers are lost; an error among the others is more precise than this one.
            Err(errno @ rustix::io::Errno::NOBUFS) => {
                overrun = Err(errno.into());
                continue;
            }
            Err(errno) => return Err(errno.into()),
        };
        let mut rest = &buffer[..length];
        while let Some((kind, body, next)) = message(rest) {
            if kind == NLMSG_ERROR
                && result.is_ok()
                && let Some(error) = refusal(body)
            {
                result = Err(error);
            }
            rest = next;
        }
    }
}
