//! Whole frames of an interface, read beside the kernel and sent past it: packet(7).
//!
//! The kernel goes on with each frame that is read here as if nobody had read it: `nft::Takeover` of `bentpipe-os` keeps it from
//! that. What this machine itself sends is not read. Packets that the interface has put together from several (GRO), or
//! that a virtual interface has not cut up (GSO), come as one, behind a virtio header that says so.

use rustix::net::{RecvFlags, SendFlags, netdevice, sockopt};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Frames that one call takes.
const MANY: usize = 32;
/// The virtio header before each frame (`struct virtio_net_hdr`), and the two addresses that a frame begins with.
const VIRTIO: usize = 10;
const ADDRESSES: usize = 12;
/// Bytes of a VLAN tag, for which room is left behind the addresses.
const TAG: usize = 4;
/// The longest IP packet, its virtio header and its own.
const SLOT: usize = VIRTIO + ADDRESSES + TAG + 2 + 65_535;
/// What may wait to be read: 8 MiB are some 3,500 frames of 1,500 bytes by the kernel's books.
const RECEIVE_BUFFER: usize = 8 << 20;
/// Room for one control message with `struct tpacket_auxdata`, aligned as the kernel wants it.
const CONTROL: usize = 8;
/// Which libc does not have (linux/if_packet.h).
const PACKET_IGNORE_OUTGOING: i32 = 23;
/// `tp_status` of a frame from which a VLAN tag was taken, and whose tag has a protocol.
const VLAN_VALID: u32 = 1 << 4;
const VLAN_TPID_VALID: u32 = 1 << 6;

/// An interface's frames.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    slots: Box<[u8]>,
    /// Where each frame that the last call took begins in its slot, and where it ends.
    frames: Vec<(usize, usize)>,
}

impl PacketSocket {
    /// The most frames that one [`PacketSocket::receive`] takes.
    pub const BATCH: usize = MANY;

    /// Reads all frames that come to `interface` of the calling thread's namespace from now on, those for other machines
    /// included (CAP_NET_RAW).
    ///
    /// # Errors
    /// There is no such interface, or without the right to.
    pub fn open(interface: &str) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // With protocol 0 nothing comes before all is set.
        // SAFETY: socket(2) has no memory of ours.
        let socket = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given it to us, and nobody else has it.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let index = netdevice::name_to_index(&socket, interface)?;
        for option in [
            libc::PACKET_VNET_HDR,
            libc::PACKET_AUXDATA,
            PACKET_IGNORE_OUTGOING,
        ] {
            set(&socket, option, &1i32)?;
        }
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER))?;
        let index = index as i32;
        // SAFETY: all-zero is a value of both.
        let (mut all, mut at): (libc::packet_mreq, libc::sockaddr_ll) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        all.mr_ifindex = index;
        all.mr_type = libc::PACKET_MR_PROMISC as u16;
        set(&socket, libc::PACKET_ADD_MEMBERSHIP, &all)?;
        at.sll_family = libc::AF_PACKET as u16;
        at.sll_protocol = protocol;
        at.sll_ifindex = index;
        let length = size_of_val(&at) as libc::socklen_t;
        // SAFETY: `at` is a whole address and outlives the call.
        let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), length) };
        if bound < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            socket,
            slots: vec![0; MANY * SLOT].into(),
            frames: Vec::with_capacity(MANY),
        })
    }

    /// Takes frames that have come, for [`PacketSocket::frames`], all by one system call; returns how many.
    ///
    /// # Errors
    /// The interface is gone. That it was switched off is none: nothing comes.
    pub fn receive(&mut self) -> io::Result<usize> {
        self.frames.clear();
        // SAFETY: all fields of these are numbers and pointers, for which zero is a value.
        let (mut parts, mut headers): ([[libc::iovec; 2]; MANY], [libc::mmsghdr; MANY]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut control = [[0u64; CONTROL]; MANY];
        for (((slot, parts), header), control) in self
            .slots
            .chunks_exact_mut(SLOT)
            .zip(&mut parts)
            .zip(&mut headers)
            .zip(&mut control)
        {
            // The addresses end where a tag may have to be put back; the rest comes behind that place.
            let (head, rest) = slot.split_at_mut(VIRTIO + ADDRESSES);
            let rest = &mut rest[TAG..];
            parts[0].iov_base = head.as_mut_ptr().cast();
            parts[0].iov_len = head.len();
            parts[1].iov_base = rest.as_mut_ptr().cast();
            parts[1].iov_len = rest.len();
            header.msg_hdr.msg_iov = parts.as_mut_ptr();
            header.msg_hdr.msg_iovlen = 2;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = size_of_val(control) as _;
        }
        // SAFETY: the kernel writes into slots and control buffers no more than their lengths; these, parts and headers
        // outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                MANY as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ENETDOWN) => Ok(0),
                _ => Err(error),
            };
        };
        let slots = self.slots.chunks_exact_mut(SLOT);
        for (slot, header) in slots.zip(&headers[..count]) {
            let length = header.msg_len as usize;
            if length < VIRTIO + ADDRESSES {
                self.frames.push((0, 0));
                continue;
            }
            let tag = tag(&header.msg_hdr);
            let begins = close_gap(slot, tag);
            self.frames.push((begins, (length + TAG).min(SLOT)));
        }
        Ok(count)
    }

    /// The frames that [`PacketSocket::receive`] took: each a virtio header and what was on the wire, its VLAN tag included.
    /// Empty: it was no frame.
    pub fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let slots = self.slots.chunks_exact(SLOT).zip(&self.frames);
        slots.map(|(slot, &(begins, ends))| slot.get(begins..ends).unwrap_or_default())
    }

    /// Takes all that waits, and forgets it; returns how many frames that were.
    ///
    /// # Errors
    /// As [`PacketSocket::receive`].
    pub fn discard(&self) -> io::Result<u64> {
        let mut count = 0;
        // The kernel refuses less room than for the virtio header.
        let mut head = [0u8; VIRTIO];
        loop {
            match rustix::net::recv(&self.socket, &mut head[..], RecvFlags::empty()) {
                Ok(_) => count += 1,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NETDOWN) => return Ok(count),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a frame behind a virtio header, which is all zero where the frame is whole and has its checksums.
    ///
    /// # Errors
    /// The kernel has no room for it, the interface takes none so long, is switched off or gone ([`PacketSocket::is_gone`]).
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.socket, frame, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Whether an error of [`PacketSocket::send`] says that the interface was removed.
    pub fn is_gone(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV))
    }

    /// How many frames came and found no room since the last time that this was asked.
    ///
    /// # Errors
    /// What getsockopt(2) fails with.
    pub fn take_overrun(&self) -> io::Result<u64> {
        // SAFETY: two numbers.
        let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&stats) as libc::socklen_t;
        // SAFETY: the kernel writes no more than `length` bytes into `stats`, which outlives the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stats.tp_drops.into())
    }
}

impl AsFd for PacketSocket {
    /// Readable while frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is `length` bytes, and outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            std::ptr::from_ref(value).cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The VLAN tag that the kernel took out of a frame.
fn tag(header: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: the kernel has filled in the control buffer of this header, which lives.
    let control = unsafe { libc::CMSG_FIRSTHDR(header).as_ref() }?;
    let kind = (control.cmsg_level, control.cmsg_type);
    let room = control.cmsg_len as usize;
    // SAFETY: CMSG_LEN does arithmetic alone.
    let whole = unsafe { libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) } as usize;
    if kind != (libc::SOL_PACKET, libc::PACKET_AUXDATA) || room < whole {
        return None;
    }
    // SAFETY: the message holds a whole `tpacket_auxdata`, as its length says; it need not be aligned.
    let aux: libc::tpacket_auxdata = unsafe {
        libc::CMSG_DATA(control)
            .cast::<libc::tpacket_auxdata>()
            .read_unaligned()
    };
    if aux.tp_status & VLAN_VALID == 0 {
        return None;
    }
    let protocol = match aux.tp_status & VLAN_TPID_VALID {
        0 => libc::ETH_P_8021Q as u16,
        _ => aux.tp_vlan_tpid,
    };
    let [a, b] = protocol.to_be_bytes();
    let [c, d] = aux.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

/// Puts `tag` behind the addresses, or moves what is before the gap up to what is behind; returns where the header begins.
fn close_gap(slot: &mut [u8], tag: Option<[u8; TAG]>) -> usize {
    let head = VIRTIO + ADDRESSES;
    match tag {
        Some(tag) => {
            slot[head..head + TAG].copy_from_slice(&tag);
            0
        }
        None => {
            slot.copy_within(..head, TAG);
            TAG
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_put_back_where_it_was() {
        let slot: Vec<u8> = (0..40).collect();
        let mut with = slot.clone();
        assert_eq!(close_gap(&mut with, Some([0x81, 0, 0, 7])), 0);
        assert_eq!(with[..22], slot[..22]);
        assert_eq!(with[22..27], [0x81, 0, 0, 7, 26]);
        let mut without = slot.clone();
        assert_eq!(close_gap(&mut without, None), 4);
        assert_eq!(without[4..26], slot[..22]);
        assert_eq!(without[26], 26);
    }
}
