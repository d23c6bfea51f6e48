//! Classic BPF programs on sockets (linux/filter.h): one chooses among several listeners by the packet's mark, another
//! drops every packet, a third those without payload.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Has the kernel choose among listeners that share a port ([`super::set_reuse_port`]) by the packet's mark: one
/// with all bits of `flag` goes to the listener whose number, in the order in which they began to
/// listen, is in the bits of `number`; any other by a hash of the addresses. Set on one for all.
pub fn steer_by_mark(listener: impl AsFd, flag: u32, number: u32) -> io::Result<()> {
    // linux/filter.h: the accumulator is loaded with the mark, compared, masked and returned.
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN_ACCUMULATOR: u16 = 0x16;
    /// SKF_AD_OFF and SKF_AD_MARK.
    const MARK: u32 = 0xffff_f000 + 20;
    let mut steps = [
        step(LOAD, 0, MARK),
        step(AND, 0, flag),
        step(JUMP_IF_EQUAL, 1, flag),
        // No listener has this number, so that the kernel chooses one by its hash.
        step(RETURN, 0, u32::MAX),
        step(LOAD, 0, MARK),
        step(AND, 0, number),
        step(RETURN_ACCUMULATOR, 0, 0),
    ];
    attach(listener, libc::SO_ATTACH_REUSEPORT_CBPF, &mut steps)
}

/// Drops every packet for the socket.
pub fn drop_all_packets(socket: impl AsFd) -> io::Result<()> {
    attach(socket, libc::SO_ATTACH_FILTER, &mut [step(RETURN, 0, 0)])
}

/// Drops, from now on, what brings the connection nothing new: segments with no payload, or with one byte that nobody has
/// written (of which some systems make a keep-alive probe), but FIN, SYN and RST. Such probes thus stay without an answer.
/// The last byte of what was written comes with PSH.
pub fn drop_empty_segments(socket: impl AsFd) -> io::Result<()> {
    // linux/filter.h; a packet begins with its TCP header here. The header's length is in the upper half of byte 12, in
    // words of four bytes, and the flags are byte 13.
    const LOAD_BYTE: u16 = 0x30;
    const LOAD_LENGTH: u16 = 0x80;
    const SHIFT_RIGHT: u16 = 0x74;
    const TO_INDEX: u16 = 0x07;
    const SUBTRACT_INDEX: u16 = 0x1c;
    const JUMP_IF_GREATER: u16 = 0x25;
    const JUMP_IF_ANY: u16 = 0x45;
    const FIN_SYN_RST_PSH: u32 = 0x0f;
    let mut steps = [
        step(LOAD_BYTE, 0, 12),
        step(SHIFT_RIGHT, 0, 2),
        step(AND, 0, 0x3c),
        step(TO_INDEX, 0, 0),
        step(LOAD_LENGTH, 0, 0),
        step(SUBTRACT_INDEX, 0, 0),
        step(JUMP_IF_GREATER, 3, 1),
        step(LOAD_BYTE, 0, 13),
        step(JUMP_IF_ANY, 1, FIN_SYN_RST_PSH),
        step(RETURN, 0, 0),
        step(RETURN, 0, u32::MAX),
    ];
    attach(socket, libc::SO_ATTACH_FILTER, &mut steps)
}

/// Takes back [`drop_empty_segments`].
pub fn take_all_packets(socket: impl AsFd) -> io::Result<()> {
    super::set_u32(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0)
}

const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

/// A step of a classic BPF program, which skips `skip` steps where it compares and finds equal.
fn step(code: u16, skip: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: skip,
        jf: 0,
        k,
    }
}

fn attach(
    socket: impl AsFd,
    option: libc::c_int,
    steps: &mut [libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program during the call, and `steps` outlives it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
