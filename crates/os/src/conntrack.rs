//! What the kernel's connection tracking remembers of a connection, taken from it
//! (linux/netfilter/nfnetlink_conntrack.h).

use bentpipe_sockets::netfilter::{self, CHANGE, GENERAL, NESTED, REQUEST};
use bentpipe_sockets::netlink_message::{
    NLMSG_ERROR, attributes, message, nest, put, refusal, u32_at,
};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// NFNL_SUBSYS_CTNETLINK with IPCTNL_MSG_CT_NEW, IPCTNL_MSG_CT_GET and IPCTNL_MSG_CT_DELETE.
const NEW: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
/// CTA_TUPLE_ORIG, CTA_TUPLE_REPLY and CTA_STATUS; within the tuples CTA_TUPLE_IP and CTA_TUPLE_PROTO.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const STATUS: u16 = 3;
/// IPS_SEQ_ADJUST: a helper has changed the length of what is said, and conntrack shifts sequence numbers since.
const SHIFTED: u32 = 1 << 6;
const ADDRESSES: u16 = 1;
const PROTOCOL: u16 = 2;
/// CTA_PROTO_NUM, CTA_PROTO_SRC_PORT, CTA_PROTO_DST_PORT.
const NUMBER: u16 = 1;
const SOURCE_PORT: u16 = 2;
const DESTINATION_PORT: u16 = 3;
const TCP: u8 = 6;

/// Speaks to the connection tracking of the namespace it was opened in, from any thread.
#[derive(Debug)]
pub struct Conntrack {
    socket: OwnedFd,
}

impl Conntrack {
    /// Opens it for the namespace of the calling thread (CAP_NET_ADMIN).
    ///
    /// # Errors
    /// Without descriptors.
    pub fn open() -> io::Result<Self> {
        let socket = netfilter::open()?;
        Ok(Self { socket })
    }

    /// Has the TCP connection that `from` began to `to`, by their addresses before any translation, forgotten:
    /// the next packet between them begins a new one.
    ///
    /// # Errors
    /// `NotFound` where it is not tracked; the kernel may have no conntrack that can be asked.
    pub fn forget(&self, from: SocketAddr, to: SocketAddr) -> io::Result<()> {
        netfilter::request(&self.socket, &about(DELETE, CHANGE, from, to))
    }

    /// What becomes of the packets that are forwarded from `from` to `to`, as they are in the forward hook: their destination is
    /// translated before it, their source behind it. `None` where no such connection is tracked, or both ends of it are translated.
    /// Asks for connections of no zone.
    ///
    /// # Errors
    /// The kernel has no conntrack that can be asked.
    pub fn translation(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Option<Translation>> {
        // Tuples are of packets as they come in. Those of one direction come in as they are in the forward hook, unless both
        // ends are translated; what leaves is what those of the other direction answer.
        for (came_from, came_to) in [(from, to), (to, from)] {
            let Some((tuples, status)) = self.find(came_from, came_to)? else {
                continue;
            };
            let ours = tuples
                .iter()
                .position(|tuple| *tuple == (came_from, came_to));
            let Some(ours) = ours else {
                continue;
            };
            let answered = if came_from == from { 1 - ours } else { ours };
            let (back_from, back_to) = tuples[answered];
            return Ok(Some(Translation {
                leaves_as: (back_to, back_from),
                shifted: status & SHIFTED != 0,
            }));
        }
        Ok(None)
    }

    /// The connection one of whose directions is from `from` to `to`.
    fn find(&self, from: SocketAddr, to: SocketAddr) -> io::Result<Option<Known>> {
        send(
            &self.socket,
            &about(GET, REQUEST, from, to),
            SendFlags::empty(),
        )?;
        let mut buffer = [0; 4096];
        let length = loop {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => break length,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        match message(&buffer[..length]) {
            Some((NEW, body, _)) => Ok(connection(body.get(GENERAL..).unwrap_or_default())),
            Some((NLMSG_ERROR, body, _)) => match refusal(body) {
                Some(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(None),
            },
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// What becomes of a packet of a tracked connection on its way through this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Source and destination with which it leaves.
    pub leaves_as: (SocketAddr, SocketAddr),
    /// Its sequence numbers may leave as others.
    pub shifted: bool,
}

/// A connection as conntrack has it: its two tuples, each a source and a destination, and its status.
type Known = ([(SocketAddr, SocketAddr); 2], u32);

fn connection(answer: &[u8]) -> Option<Known> {
    let (mut tuples, mut status) = ([None; 2], 0);
    for (kind, value) in attributes(answer) {
        match kind & !NESTED {
            ORIGINAL => tuples[0] = tuple(value),
            REPLY => tuples[1] = tuple(value),
            STATUS => status = u32::from_be(u32_at(value, 0)?),
            _ => {}
        }
    }
    let [original, reply] = tuples;
    Some(([original?, reply?], status))
}

/// Source and destination of a tuple.
fn tuple(bytes: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let inside = |bytes, wanted| {
        attributes(bytes).find_map(|(kind, value)| (kind & !NESTED == wanted).then_some(value))
    };
    let (ip, ports) = (inside(bytes, ADDRESSES)?, inside(bytes, PROTOCOL)?);
    let ip = |v4, v6| -> Option<IpAddr> {
        match (inside(ip, v4), inside(ip, v6)) {
            (Some(octets), _) => Some(<[u8; 4]>::try_from(octets).ok()?.into()),
            (None, octets) => Some(<[u8; 16]>::try_from(octets?).ok()?.into()),
        }
    };
    let port = |kind| Some(u16::from_be_bytes(inside(ports, kind)?.try_into().ok()?));
    if inside(ports, NUMBER)? != [TCP] {
        return None;
    }
    // CTA_IP_V4_SRC, CTA_IP_V6_SRC; the next is the destination.
    let source = SocketAddr::new(ip(1, 3)?, port(SOURCE_PORT)?);
    Some((source, SocketAddr::new(ip(2, 4)?, port(DESTINATION_PORT)?)))
}

/// A message about the connection that is from `from` to `to` in one direction.
fn about(kind: u16, flags: u16, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    // NFPROTO_IPV4, NFPROTO_IPV6.
    let family = if from.is_ipv4() { 2 } else { 10 };
    let mut message = Vec::new();
    netfilter::put(&mut message, (kind, flags), (family, 0), |bytes| {
        put_tuple(bytes, ORIGINAL, from, to);
    });
    message
}

fn put_tuple(bytes: &mut Vec<u8>, kind: u16, from: SocketAddr, to: SocketAddr) {
    // CTA_IP_V4_SRC, CTA_IP_V6_SRC, of which the next is the destination.
    let source = if from.is_ipv4() { 1 } else { 3 };
    nest(bytes, kind | NESTED, |tuple| {
        nest(tuple, ADDRESSES | NESTED, |ip| {
            address(ip, source, from.ip());
            address(ip, source + 1, to.ip());
        });
        nest(tuple, PROTOCOL | NESTED, |ports| {
            put(ports, NUMBER, &[TCP]);
            put(ports, SOURCE_PORT, &from.port().to_be_bytes());
            put(ports, DESTINATION_PORT, &to.port().to_be_bytes());
        });
    });
}

fn address(bytes: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => put(bytes, kind, &address.octets()),
        IpAddr::V6(address) => put(bytes, kind, &address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_is_no_connection() {
        for [client, server, outside] in [
            ["10.0.0.2:700", "192.0.2.1:80", "198.51.100.9:4000"],
            ["[fd00::2]:700", "[2001:db8::1]:80", "[2001:db8::9]:4000"],
        ] {
            let [client, server, outside]: [SocketAddr; 3] =
                [client, server, outside].map(|end| end.parse().unwrap());
            let mut answer = Vec::new();
            put(&mut answer, STATUS, &SHIFTED.to_be_bytes());
            put_tuple(&mut answer, ORIGINAL, client, server);
            put_tuple(&mut answer, REPLY, server, outside);
            let whole = Some(([(client, server), (server, outside)], SHIFTED));
            assert_eq!(connection(&answer), whole);
            for length in 0..answer.len() {
                assert_eq!(connection(&answer[..length]), None, "{length}");
            }
        }
    }
}
