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
/// NUD_FAILED: all solicitations stayed without answer.
const FAILED: u16 = 0x20;
/// The length of `struct ndmsg` and of `rtmsg`.
const BODY: usize = 12;
/// NDA_DST and RTA_DST, and the other attributes of a route: RTA_SRC, RTA_IIF, RTA_OIF, RTA_GATEWAY, RTA_MARK,
/// RTA_ENCAP_TYPE, RTA_IP_PROTO, RTA_SPORT and RTA_DPORT.
const DESTINATION: u16 = 1;
const SOURCE: u16 = 2;
const ARRIVES_BY: u16 = 3;
const LEAVES_BY: u16 = 4;
const GATEWAY: u16 = 5;
const MARK: u16 = 16;
const ENCAPSULATION: u16 = 21;
const PROTOCOL: u16 = 27;
const SOURCE_PORT: u16 = 28;
const TO_PORT: u16 = 29;
const TCP: u8 = 6;

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

    /// The addresses that did not answer, since the last time. Where the kernel had to drop changes
    /// because they were not taken in time, those are missing.
    pub fn failed(&mut self) -> io::Result<Vec<IpAddr>> {
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
                if kind == RTM_NEWNEIGH && u16_at(body, 8) == Some(FAILED) {
                    failed.extend(address(body, DESTINATION));
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

/// The neighbour by which packets go to `to`: a router, or `to` itself. `None` when there is no
/// route. Asks in the calling thread's namespace; rules on the source address are not considered.
pub fn next_hop(to: IpAddr) -> io::Result<Option<IpAddr>> {
    let socket = open(None, 0)?;
    let mut buffer = [0; 8192];
    let length = ask(&socket, &mut route_request(to), &mut buffer)?;
    Ok(match message(&buffer[..length]) {
        Some((RTM_NEWROUTE, body, _)) => Some(address(body, GATEWAY).unwrap_or(to)),
        // An error: there is none.
        _ => None,
    })
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

    /// The router to which the kernel forwards `packet`. `None` where there is none, because the destination is on that link or
    /// routes have changed since it was forwarded; and where the route does more than name a router of the same family (it
    /// encapsulates, say).
    ///
    /// # Errors
    /// What the socket fails with.
    pub fn router_of(&self, packet: &Forwarded) -> io::Result<Option<IpAddr>> {
        let mut request = route_request(packet.to.ip());
        request[18] = request[17];
        put_address(&mut request, SOURCE, packet.from.ip());
        put(&mut request, ARRIVES_BY, &packet.arrives_by.to_ne_bytes());
        put(&mut request, MARK, &packet.mark.to_ne_bytes());
        put(&mut request, PROTOCOL, &[TCP]);
        put(&mut request, SOURCE_PORT, &packet.from.port().to_be_bytes());
        put(&mut request, TO_PORT, &packet.to.port().to_be_bytes());
        let mut buffer = [0; 8192];
        let length = ask(&self.socket, &mut request, &mut buffer)?;
        let Some((RTM_NEWROUTE, body, _)) = message(&buffer[..length]) else {
            return Ok(None);
        };
        let has = |wanted| {
            attributes(body.get(BODY..).unwrap_or_default()).any(|(kind, _)| kind == wanted)
        };
        let leaves = attributes(body.get(BODY..).unwrap_or_default())
            .find(|(kind, _)| *kind == LEAVES_BY)
            .and_then(|(_, value)| u32_at(value, 0));
        let plain = leaves == Some(packet.leaves_by) && !has(ENCAPSULATION);
        Ok(address(body, GATEWAY).filter(|_| plain))
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
    request[16] = family.as_raw() as u8;
    request[17] = bits;
    put_address(&mut request, DESTINATION, to);
    request
}

fn put_address(bytes: &mut Vec<u8>, kind: u16, address: IpAddr) {
    match address {
        IpAddr::V4(address) => put(bytes, kind, &address.octets()),
        IpAddr::V6(address) => put(bytes, kind, &address.octets()),
    }
}

/// The address in the attribute `wanted` of a message whose first byte is its family.
pub(crate) fn address(body: &[u8], wanted: u16) -> Option<IpAddr> {
    let (_, value) = attributes(body.get(BODY..)?).find(|(kind, _)| *kind == wanted)?;
    match value.len() {
        4 => Some(<[u8; 4]>::try_from(value).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(value).ok()?.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need;
    use crate::netlink::{Prefix, Route, Veth, VethEnd};
    use crate::netns::Netns;
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    #[test]
    fn a_silent_neighbour_is_told_and_routes_name_their_neighbour() {
        need!(Root);
        let [near, far] = ["near", "far"].map(|label| Netns::create(label).unwrap());
        let end = |netns| VethEnd {
            netns,
            name: "eth0",
        };
        let veth = Veth::create(end(&near), end(&far)).unwrap();
        let netlink = near.netlink().unwrap();
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        netlink.add_address("eth0", prefix("10.9.0.1/24")).unwrap();
        veth.set_up().unwrap();
        let router: IpAddr = "10.9.0.7".parse().unwrap();
        let beyond = Route::via(prefix("10.10.0.0/16"), router);
        netlink.add_route(&beyond).unwrap();

        near.run(|| {
            let ask = |to: &str| next_hop(to.parse().unwrap()).unwrap();
            assert_eq!(ask("10.9.0.8"), Some("10.9.0.8".parse().unwrap()));
            assert_eq!(ask("10.10.1.1"), Some(router));
            assert_eq!(ask("192.0.2.1"), None);

            let mut neighbours = Neighbours::watch().unwrap();
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(b"anybody?", "10.10.1.1:9").unwrap();
            let until = Instant::now() + Duration::from_secs(15);
            let mut failed = Vec::new();
            while failed.is_empty() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
                failed = neighbours.failed().unwrap();
            }
            assert_eq!(failed, [router]);
        })
        .unwrap();
    }
}
