//! Neighbours that do not answer.
//!
//! A transparent dial to a host that is down hears nothing of it: the kernel's own "host
//! unreachable" goes to the address the dial came from, which is another machine's. So whoever
//! dials transparently watches the neighbour table (rtnetlink(7)) instead.

use bentpipe_sockets::netlink_message::{
    HEADER, attributes, header, message, open, put, u16_at, u32_at,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const RTM_NEWNEIGH: u16 = 28;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
/// RTMGRP_NEIGH: changes of the neighbour table.
const GROUP: u32 = 4;
/// The index of `lo` in every namespace.
const LOOPBACK: u32 = 1;
/// NUD_FAILED: all solicitations stayed without answer, or somebody has the entry deleted.
const FAILED: u16 = 0x20;
/// `nlmsg_pid` in the header of a message.
const ON_BEHALF_OF: usize = 12;
/// The length of `struct ndmsg` and of `rtmsg`.
const BODY: usize = 12;
/// NDA_DST and RTA_DST, and the other attributes of a route: RTA_SRC, RTA_IIF, RTA_OIF, RTA_GATEWAY, RTA_MARK,
/// RTA_VIA, RTA_ENCAP_TYPE, RTA_IP_PROTO, RTA_SPORT and RTA_DPORT.
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const ARRIVES_BY: u16 = 3;
const LEAVES_BY: u16 = 4;
const GATEWAY: u16 = 5;
const MARK: u16 = 16;
const VIA: u16 = 18;
const ENCAPSULATION: u16 = 21;
const PROTOCOL: u16 = 27;
const SOURCE_PORT: u16 = 28;
const TO_PORT: u16 = 29;
const TCP: u8 = 6;

/// A host or router on a link of this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its address, which another host behind another interface may have too.
    pub address: IpAddr,
    /// The index of the interface behind which it is.
    pub interface: u32,
}

/// A watch on the neighbours of a namespace; readable when one has changed.
#[derive(Debug)]
pub struct Neighbours {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Neighbours {
    /// Watches the neighbours of the calling thread's namespace, from now on.
    pub fn watch() -> io::Result<Self> {
        Ok(Self {
            socket: open(None, GROUP)?,
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Those that did not answer, since the last time. Where the kernel had to drop changes
    /// because they were not taken in time, those are missing. An entry that somebody deletes (`ip neigh flush`)
    /// is told of as failed too, but on behalf of that program, where the kernel's own finding is of nobody's.
    pub fn failed(&mut self) -> io::Result<Vec<Neighbour>> {
        let mut failed = Vec::new();
        loop {
            let length = match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN) => return Ok(failed),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let mut rest = &self.buffer[..length];
            while let Some((kind, body, next)) = message(rest) {
                let found_by_kernel = u32_at(rest, ON_BEHALF_OF) == Some(0);
                if kind == RTM_NEWNEIGH && found_by_kernel && u16_at(body, 8) == Some(FAILED) {
                    let address = address(body, DESTINATION);
                    failed.extend(address.zip(u32_at(body, 4)).map(Neighbour::from));
                }
                rest = next;
            }
        }
    }
}

impl AsFd for Neighbours {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<(IpAddr, u32)> for Neighbour {
    fn from((address, interface): (IpAddr, u32)) -> Self {
        Self { address, interface }
    }
}

/// A packet of TCP that this machine sends itself, as its routing sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its source, which another machine may have.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Its mark.
    pub mark: u32,
    /// Its traffic class.
    pub class: u8,
}

/// A packet of TCP that this machine forwards, as its routing sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Its source.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// The index of the interface by which it came.
    pub arrives_by: u32,
    /// The index of the interface by which it leaves.
    pub leaves_by: u32,
    /// Its mark.
    pub mark: u32,
}

/// Asks for routes in the namespace it was opened in, from any thread.
#[derive(Debug)]
pub struct Routes {
    socket: OwnedFd,
}

impl Routes {
    /// Opens it for the namespace of the calling thread.
    ///
    /// # Errors
    /// Without descriptors.
    pub fn open() -> io::Result<Self> {
        let socket = open(None, 0)?;
        Ok(Self { socket })
    }

    /// The neighbour to which the kernel sends `packet`: a router, or its destination. `None` where it has no route.
    ///
    /// # Errors
    /// What the socket fails with.
    pub fn next_hop(&self, packet: &Sent) -> io::Result<Option<Neighbour>> {
        let mut hop = self.hop_of(packet, None)?;
        if hop.is_none() && packet.from.is_ipv4() {
            // The kernel names no route for packets of its own whose source it does not have. Rules take what comes by `lo` for its own.
            hop = self.hop_of(packet, Some(LOOPBACK))?;
        }
        if hop.is_none() && packet.from.is_ipv4() {
            // With a strict rp_filter none comes by `lo`, but by where the source is.
            let back = self.ask(&mut route_request(packet.from.ip()), |body| {
                u32_of(body, LEAVES_BY)
            })?;
            hop = match back.flatten() {
                Some(back) => self.hop_of(packet, Some(back))?,
                None => None,
            };
        }
        Ok(hop)
    }

    fn hop_of(&self, packet: &Sent, arrives_by: Option<u32>) -> io::Result<Option<Neighbour>> {
        let mut request = request_between((packet.from, packet.to), packet.mark);
        // Without the bits of ECN, which are none of a route's.
        request[HEADER + 3] = packet.class & !3;
        if let Some(interface) = arrives_by {
            put(&mut request, ARRIVES_BY, &interface.to_ne_bytes());
        }
        let hop = self.ask(&mut request, |body| {
            let router = address(body, GATEWAY).or_else(|| router_of_another_family(body));
            let address = router.unwrap_or(packet.to.ip());
            u32_of(body, LEAVES_BY).map(|interface| Neighbour { address, interface })
        })?;
        Ok(hop.flatten())
    }

    /// The router to which the kernel forwards `packet`. `None` where there is none, because the destination is on that link or
    /// routes have changed since it was forwarded; and where the route does more than name a router of the same family (it
    /// encapsulates, say).
    ///
    /// # Errors
    /// What the socket fails with.
    pub fn router_of(&self, packet: &Forwarded) -> io::Result<Option<IpAddr>> {
        let mut request = request_between((packet.from, packet.to), packet.mark);
        put(&mut request, ARRIVES_BY, &packet.arrives_by.to_ne_bytes());
        let router = self.ask(&mut request, |body| {
            let encapsulates = attributes(body.get(BODY..).unwrap_or_default())
                .any(|(kind, _)| kind == ENCAPSULATION);
            let plain = u32_of(body, LEAVES_BY) == Some(packet.leaves_by) && !encapsulates;
            address(body, GATEWAY).filter(|_| plain)
        })?;
        Ok(router.flatten())
    }

    /// Asks for a route, and reads the answer with `read`. `None` where there is no route.
    fn ask<T>(&self, request: &mut [u8], read: impl Fn(&[u8]) -> T) -> io::Result<Option<T>> {
        let mut buffer = [0; 8192];
        let length = ask(&self.socket, request, &mut buffer)?;
        Ok(match message(&buffer[..length]) {
            Some((RTM_NEWROUTE, body, _)) => Some(read(body)),
            // An error: there is none.
            _ => None,
        })
    }
}

/// Sends a request, with the length that it has come to, and waits for the answer; returns its length.
fn ask(socket: &OwnedFd, request: &mut [u8], buffer: &mut [u8]) -> io::Result<usize> {
    // NLM_F_REQUEST.
    let header = header(request.len(), RTM_GETROUTE, 1);
    request[..HEADER].copy_from_slice(&header);
    send(socket, request, SendFlags::empty())?;
    loop {
        match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) => return Ok(length),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// `struct rtmsg` with a destination, behind room for its header.
fn route_request(to: IpAddr) -> Vec<u8> {
    let (family, bits) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, 32),
        IpAddr::V6(_) => (AddressFamily::INET6, 128),
    };
    let mut request = vec![0; HEADER + BODY];
    request[HEADER] = family.as_raw() as u8;
    request[HEADER + 1] = bits;
    put_address(&mut request, DESTINATION, to);
    request
}

/// The same for a packet of TCP with these ends and this mark.
fn request_between((from, to): (SocketAddr, SocketAddr), mark: u32) -> Vec<u8> {
    let mut request = route_request(to.ip());
    request[HEADER + 2] = request[HEADER + 1];
    put_address(&mut request, SOURCE, from.ip());
    put(&mut request, MARK, &mark.to_ne_bytes());
    put(&mut request, PROTOCOL, &[TCP]);
    put(&mut request, SOURCE_PORT, &from.port().to_be_bytes());
    put(&mut request, TO_PORT, &to.port().to_be_bytes());
    request
}

fn put_address(bytes: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => put(bytes, kind, &address.octets()),
        IpAddr::V6(address) => put(bytes, kind, &address.octets()),
    }
}

/// The router that has an address of another family than the route (RFC 5549): `struct rtvia` has its family before it.
fn router_of_another_family(body: &[u8]) -> Option<IpAddr> {
    let (_, via) = attributes(body.get(BODY..)?).find(|(kind, _)| *kind == VIA)?;
    ip_address(via.get(2..)?)
}

/// The address in the attribute `wanted` of a message whose first byte is its family.
pub(crate) fn address(body: &[u8], wanted: u16) -> Option<IpAddr> {
    let (_, value) = attributes(body.get(BODY..)?).find(|(kind, _)| *kind == wanted)?;
    ip_address(value)
}

fn ip_address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(<[u8; 4]>::try_from(value).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(value).ok()?.into()),
        _ => None,
    }
}

/// The number in the attribute `wanted` of such a message.
fn u32_of(body: &[u8], wanted: u16) -> Option<u32> {
    let (_, value) = attributes(body.get(BODY..)?).find(|(kind, _)| *kind == wanted)?;
    u32_at(value, 0)
}
