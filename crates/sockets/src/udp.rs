//! UDP in batches: one system call sends many datagrams of one length (UDP_SEGMENT, "GSO"), and one
//! receives many of one peer (UDP_GRO). See udp(7).

mod connected;
pub(crate) mod msghdr;
mod port;

pub use connected::{connected, is_too_long};

use crate::socket::{self, set_raw, set_u32};
use bentpipe_base::Bytes;
use msghdr::{AncillaryData, CONTROL, ControlMessages, Name};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Octets that one call sends at most: what an IP packet holds.
pub const BATCH: usize = 65_000;
/// Datagrams that one call sends at most (UDP_MAX_SEGMENTS).
pub const SEGMENTS: usize = 64;
/// Octets that one call receives at most.
pub const RECEIVE: usize = 65_536;

/// Octets of a datagram that goes in fragments, where the path carries no packet of its length, at most.
const FRAGMENTED: usize = 1200;

/// The size of the send buffer.
const SEND: Bytes = Bytes(8 << 20);
/// The size of the receive buffer: several times as much as a sender of ours keeps in flight to a near peer.
const KEEP: Bytes = Bytes(16 << 20);
/// A socket that sends and receives batches of datagrams, and never blocks.
#[derive(Debug)]
pub struct Udp {
    fd: OwnedFd,
    /// The kernel cuts batches into datagrams; without, each goes by itself.
    segments: AtomicBool,
    /// The kernel has said that a packet was too long for its path.
    too_long: AtomicBool,
}

/// Datagrams that came together: all of one length but the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Octets of all.
    pub len: usize,
    /// Octets of each.
    pub segment: usize,
    /// Who sent them.
    pub from: SocketAddr,
    /// To which address of this host, where the socket is bound to none: an answer comes from it.
    pub at: Option<IpAddr>,
}

impl Udp {
    /// A socket on `address`, with buffers for a few milliseconds of a fast line.
    ///
    /// # Errors
    /// What the kernel says, such as an address in use.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let udp = Self::open(address)?;
        socket::bind(&udp.fd, address)?;
        Ok(udp)
    }

    /// A socket that is bound to nothing yet, to be bound to `address`.
    fn open(address: SocketAddr) -> io::Result<Self> {
        let (family, flags) = match address {
            SocketAddr::V4(_) => (AddressFamily::INET, SocketFlags::CLOEXEC),
            SocketAddr::V6(_) => (AddressFamily::INET6, SocketFlags::CLOEXEC),
        };
        let flags = flags | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
        socket::set_send_buffer(&fd, SEND)?;
        socket::set_receive_buffer(&fd, KEEP)?;
        set_fragments(&fd, false)?;
        // Without it datagrams come one by one.
        let _ = set_u32(&fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        if address.ip().is_unspecified() {
            tell_addresses(&fd, address)?;
        }
        Ok(Self {
            fd,
            segments: AtomicBool::new(true),
            too_long: AtomicBool::new(false),
        })
    }

    /// Connects the socket to `peer`, and receives from it alone. If nothing listens there, the next call fails with
    /// `ConnectionRefused`.
    ///
    /// # Errors
    /// What the kernel says, such as that there is no way to it.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        Ok(rustix::net::connect(&self.fd, &peer)?)
    }

    /// Joins the multicast `group` on the link of interface number `interface`.
    ///
    /// # Errors
    /// What the kernel says, such as an interface without that family.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => {
                let any = Ipv4Addr::UNSPECIFIED;
                Ok(rustix::net::sockopt::set_ip_add_membership_with_ifindex(
                    &self.fd, &group, &any, interface,
                )?)
            }
            IpAddr::V6(group) => Ok(rustix::net::sockopt::set_ipv6_add_membership(
                &self.fd, &group, interface,
            )?),
        }
    }

    /// The socket's own address.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        socket::local_address(&self.fd)
    }

    /// Sends `datagrams` to `to`, cut into pieces of `segment` octets of which the last may be
    /// shorter; at most [`BATCH`] octets and [`SEGMENTS`] pieces. No router may fragment them. What is longer than the path
    /// takes, as far as the kernel knows, goes in fragments if it has no more than 1200 octets, and not at all otherwise.
    ///
    /// # Errors
    /// `WouldBlock` when the socket's buffer is full: all are to be sent again. EMSGSIZE for what is too long. Otherwise
    /// what the kernel says.
    pub fn send(&self, datagrams: &[u8], segment: usize, to: SocketAddr) -> io::Result<()> {
        self.send_from(datagrams, segment, to, None)
    }

    /// As [`Self::send`], from the address `from` of this host where one is given: that at which the peer was
    /// heard ([`Received::at`]).
    ///
    /// # Errors
    /// As there.
    pub fn send_from(
        &self,
        datagrams: &[u8],
        segment: usize,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<()> {
        let cut = datagrams.len() > segment;
        let mut refused = false;
        if cut && self.segments.load(Ordering::Relaxed) {
            match self.send_known(datagrams, Some(segment as u16), to, from) {
                // Neither network card nor kernel can segment the batch, or the address is invalid.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) => {
                    refused = true;
                }
                // They are longer than a path of theirs takes now.
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {}
                sent => return sent,
            }
        }
        for datagram in datagrams.chunks(segment.max(1)) {
            match self.send_known(datagram, None, to, from) {
                Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                    if datagram.len() > FRAGMENTED {
                        return Err(error);
                    }
                    self.send_in_fragments(datagram, to, from)?;
                }
                sent => sent?,
            }
            // If the datagrams can be sent one by one, it was the segmentation that was refused.
            if refused {
                self.segments.store(false, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether the kernel has said since the last call that a packet was too long for its path: [`path_mtu`] tells more.
    pub fn was_too_long(&self) -> bool {
        self.too_long.swap(false, Ordering::Relaxed)
    }

    /// Sends, once more if what the kernel says may be of an earlier packet: that it was too long.
    fn send_known(
        &self,
        octets: &[u8],
        segment: Option<u16>,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<()> {
        match self.send_one(octets, segment, to, from) {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => {
                self.too_long.store(true, Ordering::Relaxed);
                self.send_one(octets, segment, to, from)
            }
            sent => sent,
        }
    }

    fn send_in_fragments(
        &self,
        datagram: &[u8],
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<()> {
        set_fragments(&self.fd, true)?;
        let sent = self.send_one(datagram, None, to, from);
        set_fragments(&self.fd, false)?;
        sent
    }

    fn send_one(
        &self,
        octets: &[u8],
        segment: Option<u16>,
        to: SocketAddr,
        from: Option<IpAddr>,
    ) -> io::Result<()> {
        let name = Name::of(to);
        let mut control = ControlMessages::default();
        if let Some(segment) = segment {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        control.push_source(to, from);
        let mut part = libc::iovec {
            iov_base: octets.as_ptr().cast_mut().cast(),
            iov_len: octets.len(),
        };
        // SAFETY: msghdr is plain integers and pointers; all zeros is valid.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = (&raw const name.storage).cast_mut().cast();
        message.msg_namelen = name.len;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if control.len > 0 {
            message.msg_control = control.octets.as_mut_ptr().cast();
            message.msg_controllen = control.len as _;
        }
        // SAFETY: everything that `message` points to outlives the call, which only reads it.
        match unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) }
        {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Receives what came together, into `buffer`; `None` when there is nothing. What comes from port 0, which
    /// no answer reaches, is passed over.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        loop {
            match self.receive_one(buffer)? {
                Some(received) if received.from.port() == 0 => {}
                received => return Ok(received),
            }
        }
    }

    fn receive_one(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        let mut control = [0u64; CONTROL / 8];
        // SAFETY: sockaddr_storage is plain integers; all zeros is valid.
        let mut name: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: as above.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = size_of_val(&name) as _;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL as _;
        // SAFETY: all buffers of `message` outlive the call, and their lengths are theirs.
        let len =
            unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        if len == -1 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let len = len as usize;
        let from = msghdr::address(&name).ok_or(io::ErrorKind::InvalidData)?;
        let ancillary = AncillaryData::of(&message);
        let segment = ancillary.segment.filter(|&segment| segment > 0);
        Ok(Some(Received {
            len,
            segment: segment.unwrap_or(len.max(1)),
            from,
            at: ancillary.at,
        }))
    }

    /// Has the kernel tell what ICMP says of this socket's datagrams: a call fails with it once, such as with `ConnectionRefused`
    /// where nothing listens, and the socket is readable until [`Self::drop_errors`].
    ///
    /// # Errors
    /// What the kernel says.
    pub fn hear_errors(&self) -> io::Result<()> {
        // A socket of IPv6 may have IPv4 peers.
        set_u32(&self.fd, libc::SOL_IP, libc::IP_RECVERR, 1)?;
        match self.local_address()? {
            SocketAddr::V4(_) => Ok(()),
            SocketAddr::V6(_) => set_u32(&self.fd, libc::SOL_IPV6, libc::IPV6_RECVERR, 1),
        }
    }

    /// Drops what ICMP has said, which would fill the receive buffer.
    pub fn drop_errors(&self) {
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        while rustix::net::recv(&self.fd, &mut [0; 64], flags).is_ok() {}
    }

    /// Sends multicast by interface number `interface` from now on, whatever the routes say.
    ///
    /// # Errors
    /// What the kernel says, such as an interface that is gone.
    pub fn send_groups_by(&self, interface: u32) -> io::Result<()> {
        let index = interface.to_ne_bytes();
        match self.local_address()? {
            SocketAddr::V4(_) => {
                // struct ip_mreqn: two addresses that are not looked at, and the index.
                let mut request = [0; 12];
                request[8..].copy_from_slice(&index);
                set_raw(&self.fd, libc::SOL_IP, libc::IP_MULTICAST_IF, &request)
            }
            SocketAddr::V6(_) => set_raw(&self.fd, libc::SOL_IPV6, libc::IPV6_MULTICAST_IF, &index),
        }
    }

    /// Lets beacons reach only the local link.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn keep_local(&self) -> io::Result<()> {
        let hops = 1i32.to_ne_bytes();
        match self.local_address()? {
            SocketAddr::V4(_) => set_raw(&self.fd, libc::SOL_IP, libc::IP_MULTICAST_TTL, &hops),
            SocketAddr::V6(_) => {
                set_raw(&self.fd, libc::SOL_IPV6, libc::IPV6_MULTICAST_HOPS, &hops)
            }
        }
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Octets of the largest IP packet that goes to `to` whole, as far as the kernel knows: the route's, the
/// interface's, or what a router on the way has said.
///
/// # Errors
/// What the kernel says, such as that there is no way to `to`.
pub fn path_mtu(to: SocketAddr) -> io::Result<u32> {
    // An IPv4 peer of an IPv6 socket is reached by IPv4.
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    // Sends nothing: a connected datagram socket has a route, and no more.
    let flags = SocketFlags::CLOEXEC;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?;
    rustix::net::connect(&fd, &to)?;
    Ok(match to {
        SocketAddr::V4(_) => rustix::net::sockopt::ip_mtu(&fd)?,
        SocketAddr::V6(_) => rustix::net::sockopt::ipv6_mtu(&fd)?,
    })
}

/// The numbers and names of the interfaces of this network namespace, but the loopback.
///
/// # Errors
/// What the kernel says.
pub fn interfaces() -> io::Result<Vec<(u32, String)>> {
    // SAFETY: takes nothing; what it gives is freed below.
    let first = unsafe { libc::if_nameindex() };
    if first.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: an array that ends with a name of null, each name a C string.
    unsafe {
        while !(*next).if_name.is_null() {
            let name = core::ffi::CStr::from_ptr((*next).if_name);
            if name != c"lo" {
                found.push(((*next).if_index, name.to_string_lossy().into_owned()));
            }
            next = next.add(1);
        }
        libc::if_freenameindex(first);
    }
    Ok(found)
}

/// Whether packets that are longer than their path takes go in fragments. Where they do not, all have IPv4's DF, which the
/// kernel otherwise leaves out of batches (`__ip_make_skb` compares the length of a whole batch): routers would fragment these
/// and drop what goes alone.
fn set_fragments(fd: &OwnedFd, fragments: bool) -> io::Result<()> {
    let value = if fragments {
        libc::IP_PMTUDISC_WANT
    } else {
        libc::IP_PMTUDISC_DO
    } as u32;
    // A socket of IPv6 may have IPv4 peers.
    set_u32(fd, libc::SOL_IP, libc::IP_MTU_DISCOVER, value)?;
    match socket::local_address(fd)? {
        SocketAddr::V4(_) => Ok(()),
        SocketAddr::V6(_) => set_u32(fd, libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER, value),
    }
}

/// Lets the kernel tell to which address of the host each datagram came.
fn tell_addresses(fd: &OwnedFd, like: SocketAddr) -> io::Result<()> {
    match like {
        SocketAddr::V4(_) => set_u32(fd, libc::SOL_IP, libc::IP_PKTINFO, 1),
        SocketAddr::V6(_) => set_u32(fd, libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_port_is_told_and_forgotten() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let near = Udp::bind(address.parse().unwrap()).unwrap();
            near.hear_errors().unwrap();
            let to = { Udp::bind(address.parse().unwrap()).unwrap() }
                .local_address()
                .unwrap();
            near.send(b"anybody", 7, to).unwrap();
            let mut buffer = vec![0; RECEIVE];
            let error = near.receive(&mut buffer).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            near.drop_errors();
            assert!(near.receive(&mut buffer).unwrap().is_none());
            // Only for a while, since the kernel's queue of what ICMP has said is a part of the receive buffer.
            near.send(b"anybody", 7, to).unwrap();
        }
    }

    #[test]
    fn batches_arrive_as_the_datagrams_they_were_cut_into() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let near = Udp::bind(address.parse().unwrap()).unwrap();
            let far = Udp::bind(address.parse().unwrap()).unwrap();
            let to = far.local_address().unwrap();
            let sent: Vec<u8> = (0..10_500).map(|i| (i % 251) as u8).collect();
            near.send(&sent, 1000, to).unwrap();
            let mut buffer = vec![0; RECEIVE];
            let (mut got, mut count) = (Vec::new(), 0);
            while let Some(received) = far.receive(&mut buffer).unwrap() {
                assert_eq!(received.from, near.local_address().unwrap());
                for datagram in buffer[..received.len].chunks(received.segment) {
                    count += 1;
                    assert_eq!(datagram.len(), if count == 11 { 500 } else { 1000 });
                    got.extend_from_slice(datagram);
                }
            }
            assert_eq!(count, 11);
            assert_eq!(got, sent);
            assert!(path_mtu(to).unwrap() > 1500, "the loopback's");
            near.send(b"", 1000, to).unwrap();
            near.send(b"one", 1000, to).unwrap();
            let received = far.receive(&mut buffer).unwrap().unwrap();
            assert!(received.len == 3, "an empty batch is no datagram");
        }
    }

    /// Nothing can be sent to port 0.
    #[test]
    fn an_address_that_is_none_does_not_end_batches_for_all() {
        let near = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(
            near.send(&[7; 3000], 1000, "127.0.0.1:0".parse().unwrap())
                .is_err()
        );
        assert!(near.segments.load(Ordering::Relaxed));
    }

    /// The answer comes from the address that was asked, whichever the route would choose.
    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        for (bound, asked) in [
            ("0.0.0.0:0", "127.0.0.7"),
            ("[::]:0", "127.0.0.7"),
            ("[::]:0", "::1"),
        ] {
            let server = Udp::bind(bound.parse().unwrap()).unwrap();
            let port = server.local_address().unwrap().port();
            let asked: IpAddr = asked.parse().unwrap();
            let own = match asked {
                IpAddr::V4(_) => "127.0.0.1:0",
                IpAddr::V6(_) => "[::1]:0",
            };
            let client = Udp::bind(own.parse().unwrap()).unwrap();
            client
                .send(b"question", 8, SocketAddr::new(asked, port))
                .unwrap();
            let mut buffer = vec![0; RECEIVE];
            let received = server.receive(&mut buffer).unwrap().unwrap();
            let at = received.at.unwrap();
            assert_eq!(at.to_canonical(), asked);
            server
                .send_from(&[7; 5000], 1000, received.from, Some(at))
                .unwrap();
            let answer = client.receive(&mut buffer).unwrap().unwrap();
            assert_eq!((answer.from.ip(), answer.segment), (asked, 1000));
            assert_eq!(answer.len, 5000);
        }
    }

    #[test]
    fn nothing_that_listens_is_heard_of() {
        let nobody = Udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = nobody.local_address().unwrap();
        drop(nobody);
        let client = Udp::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        client.connect(to).unwrap();
        client.send(b"x", 1, to).unwrap();
        let refused = client.receive(&mut vec![0; RECEIVE]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
