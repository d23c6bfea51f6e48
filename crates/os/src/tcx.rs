//! BPF programs at an interface (TCX, Linux 6.6): they stay as long as a descriptor is open, and go with a process
//! that is killed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Which packets of an interface a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Those that leave by it.
    Leaving,
    /// Those that arrive by it.
    Arriving,
}

/// bpf(2), linux/bpf.h.
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_TCX_EGRESS: u32 = 47;

/// The part of `union bpf_attr` that creates a link. The kernel takes what is left out for zeros.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// A program at an interface, until this is dropped.
#[derive(Debug)]
pub struct Attached {
    _link: OwnedFd,
}

impl Attached {
    /// Puts `program`, which is of type `tc`, to the interface of that `index` in the calling thread's namespace, behind
    /// those that are there.
    ///
    /// # Errors
    /// `InvalidInput` before Linux 6.6; `NotFound` or `ENODEV` without such an interface; `PermissionDenied` without
    /// CAP_BPF and CAP_NET_ADMIN.
    pub fn new(program: BorrowedFd<'_>, index: u32, direction: Direction) -> io::Result<Self> {
        let attributes = LinkCreate {
            program: program.as_raw_fd().cast_unsigned(),
            interface: index,
            attach_type: match direction {
                Direction::Leaving => BPF_TCX_EGRESS,
                Direction::Arriving => BPF_TCX_INGRESS,
            },
            flags: 0,
        };
        let size = size_of::<LinkCreate>();
        // SAFETY: the kernel reads `size` bytes of the attributes, which live through the call.
        let answer =
            unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, &raw const attributes, size) };
        let link = i32::try_from(answer).ok().filter(|link| *link >= 0);
        let link = link.ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the kernel has made a descriptor of its own for us.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        Ok(Self { _link: link })
    }
}
