//! The TCP of other processes in a namespace: sock_diag(7), asked over netlink. So the lab sees what
//! the gateway's legs do without asking the gateway.

use bentpipe_base::{Bytes, Rate};
use bentpipe_os::tcp::Info;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const IPPROTO_TCP: u8 = 6;
/// `INET_DIAG_INFO`: `struct tcp_info`.
const INFO: u16 = 2;
/// Connections with data to send or acknowledge: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT,
/// LAST_ACK, CLOSING, by the numbers of tcp_states.h.
const STATES: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
const HEADER: usize = 16;
/// `struct inet_diag_msg`, before its attributes.
const MESSAGE: usize = 72;

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) info: Info,
}

/// A way to ask for the connections of one namespace.
pub(crate) struct Diag {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens it for the namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(Self {
            socket,
            buffer: vec![0; 64 * 1024],
        })
    }

    /// The connections of one address family.
    pub(crate) fn connections(&mut self, v6: bool) -> io::Result<Vec<Connection>> {
        rustix::net::send(&self.socket, &request(v6), SendFlags::empty())?;
        let mut found = Vec::new();
        loop {
            let length =
                match rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty()) {
                    Ok((length, _)) => length,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                };
            let mut rest = &self.buffer[..length];
            while let Some((kind, body, next)) = message(rest) {
                match kind {
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => {
                        let code = u32_at(body, 0).unwrap_or(0) as i32;
                        return Err(io::Error::from_raw_os_error(-code));
                    }
                    SOCK_DIAG_BY_FAMILY => found.extend(connection(body)),
                    _ => {}
                }
                rest = next;
            }
        }
    }
}

/// `struct inet_diag_req_v2` behind its header: all sockets, with their `tcp_info`.
fn request(v6: bool) -> [u8; HEADER + 56] {
    let family = if v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let mut request = [0; HEADER + 56];
    request[0..4].copy_from_slice(&(HEADER as u32 + 56).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    request[16] = family.as_raw() as u8;
    request[17] = IPPROTO_TCP;
    request[18] = 1 << (INFO - 1);
    request[20..24].copy_from_slice(&STATES.to_ne_bytes());
    request
}

/// The first netlink message in `bytes`: its type, its body, and what comes after it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    let kind = u16_at(bytes, 4)?;
    let body = bytes.get(HEADER..length)?;
    let next = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body, next))
}

fn connection(body: &[u8]) -> Option<Connection> {
    let v6 = i32::from(*body.first()?) == i32::from(AddressFamily::INET6.as_raw());
    let address = |at: usize| -> Option<IpAddr> {
        if v6 {
            let bytes: [u8; 16] = body.get(at..at + 16)?.try_into().ok()?;
            return Some(bytes.into());
        }
        let bytes: [u8; 4] = body.get(at..at + 4)?.try_into().ok()?;
        Some(bytes.into())
    };
    let port = |at: usize| Some(u16::from_be_bytes(body.get(at..at + 2)?.try_into().ok()?));
    let mut attributes = body.get(MESSAGE..)?;
    let mut info = None;
    while let Some(length) = u16_at(attributes, 0).filter(|length| *length >= 4) {
        if u16_at(attributes, 2)? == INFO {
            info = Some(tcp_info(attributes.get(4..usize::from(length))?));
        }
        let next = usize::from(length).next_multiple_of(4);
        attributes = attributes.get(next..).unwrap_or_default();
    }
    Some(Connection {
        local: SocketAddr::new(address(8)?, port(4)?),
        peer: SocketAddr::new(address(24)?, port(6)?),
        info: info?,
    })
}

/// The fields of `struct tcp_info` that results use; the offsets are ABI.
fn tcp_info(raw: &[u8]) -> Info {
    let u32_of = |at| u32_at(raw, at).unwrap_or(0);
    let u64_of = |at: usize| {
        let bytes = raw.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let micros = |at| Duration::from_micros(u64::from(u32_of(at)));
    let rate = |at| Rate::from_bits_per_sec(u64_of(at).saturating_mul(8));
    Info {
        state: raw.first().copied().unwrap_or(0),
        ca_state: raw.get(1).copied().unwrap_or(0),
        mss: Bytes(u32_of(16).into()),
        unacked: u32_of(24),
        lost: u32_of(32),
        rtt: micros(68),
        ssthresh: u32_of(76),
        cwnd: u32_of(80),
        total_retrans: u32_of(100),
        pacing_rate: rate(104),
        bytes_acked: Bytes(u64_of(120)),
        bytes_received: Bytes(u64_of(128)),
        not_sent: Bytes(u32_of(144).into()),
        min_rtt: micros(148),
        delivery_rate: rate(160),
        bytes_sent: Bytes(u64_of(200)),
        bytes_retrans: Bytes(u64_of(208)),
        ..Info::default()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_seen_from_outside_as_from_inside() {
        for (address, v6) in [("127.0.0.1:0", false), ("[::1]:0", true)] {
            let listener = TcpListener::bind(address).unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(&[7; 50_000]).unwrap();
            far.read_exact(&mut [0; 50_000]).unwrap();
            far.write_all(b"x").unwrap();
            near.read_exact(&mut [0; 1]).unwrap();
            let local = near.local_addr().unwrap();
            let found = Diag::open().unwrap().connections(v6).unwrap();
            let seen = found.iter().find(|seen| seen.local == local).unwrap();
            assert_eq!(seen.peer, listener.local_addr().unwrap());
            let inside = bentpipe_os::tcp::info(&near).unwrap();
            assert_eq!(seen.info.bytes_acked, inside.bytes_acked);
            assert_eq!(seen.info.bytes_sent, Bytes(50_000));
            assert_eq!((seen.info.cwnd, seen.info.rtt), (inside.cwnd, inside.rtt));
            assert_eq!((seen.info.mss, seen.info.state), (inside.mss, inside.state));
        }
    }

    #[test]
    fn truncated_answers_are_left_out() {
        assert!(message(&[0; 10]).is_none());
        assert!(message(&[200, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_none());
        assert!(connection(&[2; 80]).is_none());
        assert!(connection(&[]).is_none());
    }
}
