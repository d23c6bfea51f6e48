//! Neighbours that do not answer.
//!
//! A transparent dial to a host that is down hears nothing of it: the kernel's own "host
//! unreachable" goes to the address the dial came from, which is another machine's. So whoever
//! dials transparently watches the neighbour table (rtnetlink(7)) instead.

use crate::message::{HEADER, attributes, header, message, open, u16_at};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, recv, send};
use std::io;
use std::net::IpAddr;
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
/// NDA_DST and RTA_DST, and RTA_GATEWAY.
const DESTINATION: u16 = 1;
const GATEWAY: u16 = 5;

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
    send(&socket, &route_request(to), SendFlags::empty())?;
    let mut buffer = [0; 8192];
    let length = loop {
        match recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((length, _)) => break length,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    };
    Ok(match message(&buffer[..length]) {
        Some((RTM_NEWROUTE, body, _)) => Some(address(body, GATEWAY).unwrap_or(to)),
        // An error: there is none.
        _ => None,
    })
}

/// `struct rtmsg` with a destination, behind its header.
fn route_request(to: IpAddr) -> Vec<u8> {
    let (family, octets) = match to {
        IpAddr::V4(to) => (AddressFamily::INET, to.octets().to_vec()),
        IpAddr::V6(to) => (AddressFamily::INET6, to.octets().to_vec()),
    };
    let length = HEADER + BODY + 4 + octets.len();
    let mut request = vec![0; HEADER + BODY];
    // NLM_F_REQUEST.
    request[..HEADER].copy_from_slice(&header(length, RTM_GETROUTE, 1));
    request[16] = family.as_raw() as u8;
    request[17] = (octets.len() * 8) as u8;
    request.extend((4 + octets.len() as u16).to_ne_bytes());
    request.extend(DESTINATION.to_ne_bytes());
    request.extend(octets);
    request
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
