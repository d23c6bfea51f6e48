//! Reading and writing: ten calls of the table, two of the stack.

use super::message::{gather, room, scatter};
use crate::errno::{Answer, Errno, Progress};
use crate::stack::Stack;
use core::ffi::c_int;
use core::net::SocketAddr;
use libc::{iovec, ssize_t};

/// No single read or write is longer: as much as a buffer of ours holds, whatever the caller's room.
const MOST: usize = 64 << 20;

fn blocks(stack: &Stack, fd: c_int, flags: c_int) -> bool {
    let blocks = stack.at_once(|state| state.socket(fd).is_ok_and(|socket| socket.blocks));
    blocks && flags & libc::MSG_DONTWAIT == 0
}

fn finish(progress: Progress<usize>) -> Answer<ssize_t> {
    match progress {
        Progress::Done(answer) => answer.map(|length| length as ssize_t),
        Progress::Pending => Err(Errno(libc::EAGAIN)),
    }
}

/// Reads from `fd` into `vectors`.
///
/// # Safety
/// Each vector's buffer is null or as long as it says.
pub(super) unsafe fn receive(
    stack: &Stack,
    fd: c_int,
    vectors: &[iovec],
    flags: c_int,
) -> Answer<ssize_t> {
    let heeded = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;
    if flags & !heeded != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    if vectors
        .iter()
        .any(|v| v.iov_base.is_null() && v.iov_len > 0)
    {
        // Bytes are not taken from the connection to be lost.
        return Err(Errno(libc::EFAULT));
    }
    let mut buffer = vec![0; room(vectors).min(MOST)];
    let blocking = blocks(stack, fd, flags);
    let length = finish(stack.call(blocking, None, |state| state.read(fd, &mut buffer)))?;
    // SAFETY: as the caller says; no more is read than there is room.
    unsafe { scatter(&buffer[..length as usize], vectors)? };
    Ok(length)
}

/// Connects `fd` to `to` by TCP Fast Open. The octets of `vectors` go with the SYN, or behind the handshake where no cookie of the
/// server is known, for which a call that blocks waits.
///
/// # Safety
/// Each vector's buffer is null or as long as it says.
pub(super) unsafe fn send_first(
    stack: &Stack,
    fd: c_int,
    vectors: &[iovec],
    flags: c_int,
    to: SocketAddr,
) -> Answer<ssize_t> {
    // SAFETY: as the caller says.
    let bytes = unsafe { gather(vectors)? };
    if let Some(length) = stack.at_once(|state| state.connect_fast(fd, to, &bytes))? {
        return Ok(length as ssize_t);
    }
    let blocking = blocks(stack, fd, flags);
    match stack.call(blocking, None, |state| state.connect(fd, to, true)) {
        Progress::Done(answer) => answer?,
        Progress::Pending => return Err(Errno(libc::EINPROGRESS)),
    }
    // SAFETY: as the caller says.
    unsafe { send(stack, fd, vectors, flags) }
}

/// Writes the octets of `vectors` to `fd`. A blocking call goes on until all are taken.
///
/// # Safety
/// Each vector's buffer is null or as long as it says.
pub(super) unsafe fn send(
    stack: &Stack,
    fd: c_int,
    vectors: &[iovec],
    flags: c_int,
) -> Answer<ssize_t> {
    let heeded = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
    if flags & !heeded != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    // SAFETY: as the caller says.
    let bytes = unsafe { gather(vectors)? };
    let more = flags & libc::MSG_MORE != 0;
    let blocking = blocks(stack, fd, flags);
    let mut written = 0;
    let progress = stack.call(blocking, None, |state| {
        match state.write(fd, &bytes[written..], more) {
            Progress::Done(Ok(length)) => written += length,
            // What was taken before is told first.
            Progress::Done(Err(_)) if written > 0 => return Progress::value(written),
            Progress::Done(Err(errno)) => return Progress::Done(Err(errno)),
            Progress::Pending => {}
        }
        if written < bytes.len() {
            Progress::Pending
        } else {
            Progress::value(written)
        }
    });
    match progress {
        Progress::Pending if written > 0 => Ok(written as ssize_t),
        progress => finish(progress),
    }
}
