//! Vectors of buffers, from C and back.

use super::load;
use crate::errno::{Answer, Errno};
use core::ffi::c_int;
use libc::{iovec, msghdr, size_t};

/// Linux `UIO_MAXIOV`.
const MOST: usize = 1_024;

/// `count` buffers at `pointer`.
///
/// # Safety
/// `pointer` is null, or points to `count` of them.
pub(super) unsafe fn vectors(pointer: *const iovec, count: usize) -> Answer<Vec<iovec>> {
    if count > MOST {
        return Err(Errno(libc::EMSGSIZE));
    }
    // SAFETY: within what the caller says is there.
    (0..count)
        .map(|at| unsafe { load(pointer.wrapping_add(at)) })
        .collect()
}

/// As [`vectors`], with the count of readv(2).
///
/// # Safety
/// As there.
pub(super) unsafe fn counted(pointer: *const iovec, count: c_int) -> Answer<Vec<iovec>> {
    let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: as the caller says.
    unsafe { vectors(pointer, count) }
}

/// The buffers of a message.
///
/// # Safety
/// `message` is null, or points to one with its buffers.
pub(super) unsafe fn of_message(message: *const msghdr) -> Answer<Vec<iovec>> {
    // SAFETY: as the caller says.
    let header = unsafe { load(message)? };
    // SAFETY: as the caller says.
    unsafe { vectors(header.msg_iov, header.msg_iovlen as usize) }
}

/// All octets of `vectors`, one after the other.
///
/// # Safety
/// Each vector's buffer is null or as long as it says.
pub(super) unsafe fn gather(vectors: &[iovec]) -> Answer<Vec<u8>> {
    let mut bytes = Vec::new();
    for vector in vectors {
        if vector.iov_len == 0 {
            continue;
        }
        if vector.iov_base.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller says that these octets are there.
        bytes.extend_from_slice(unsafe {
            core::slice::from_raw_parts(vector.iov_base.cast::<u8>(), vector.iov_len)
        });
    }
    Ok(bytes)
}

/// The room of `vectors`, in octets.
pub(super) fn room(vectors: &[iovec]) -> size_t {
    let lengths = vectors.iter().map(|vector| vector.iov_len);
    lengths.fold(0, size_t::saturating_add)
}

/// Spreads `bytes` over `vectors`, which have room for them.
///
/// # Safety
/// Each vector's buffer is null or as long as it says.
pub(super) unsafe fn scatter(mut bytes: &[u8], vectors: &[iovec]) -> Answer<()> {
    for vector in vectors {
        let (part, rest) = bytes.split_at(bytes.len().min(vector.iov_len));
        if part.is_empty() {
            continue;
        }
        if vector.iov_base.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller says that there is so much room.
        unsafe {
            vector
                .iov_base
                .cast::<u8>()
                .copy_from(part.as_ptr(), part.len())
        };
        bytes = rest;
    }
    Ok(())
}
