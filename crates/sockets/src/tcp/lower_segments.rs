//! Sends smaller segments on a connection that stands. TCP_MAXSEG does that before a connection is made, and does nothing
//! afterwards.
//!
//! What can be changed afterwards is what the other end has said, as whoever restores a connection of another machine tells it
//! to the kernel (TCP_REPAIR of linux/tcp.h; it takes CAP_NET_ADMIN). The kernel does not go by a smaller MSS at once, but of
//! IPv4 it does when IP options are set, and be it none.
//!
//! Of IPv6 it does so only when the other end has offered a larger window than ever before. There the largest window is made smaller
//! too, to one segment of the new size; then nothing larger leaves before the other end has answered the probe with
//! which a repair ends, and that answer offers the window again. So what is sent first waits for a round trip.

use super::set_u32;
use crate::socket::{get_raw, set_raw};
use rustix::net::{AddressFamily, sockopt};
use std::io;
use std::os::fd::AsFd;

/// TCPOPT_MAXSEG of the kernel's net/tcp.h.
const MAXSEG: u32 = 2;
/// The places in `struct tcp_repair_window`: the window that the other end offers, and the largest that it has offered.
const WINDOWS: [usize; 2] = [1, 2];
const FIELDS: usize = 5;
/// How a repair ends: TCP_REPAIR_OFF, which probes the other end's window, and TCP_REPAIR_OFF_NO_WP (-1).
const WITH_PROBE: u32 = 0;
const QUIETLY: u32 = u32::MAX;

/// Has connection `socket`, on which nothing was sent yet, send segments of at most `size` bytes of payload, options included.
///
/// # Errors
/// Where something was sent already, or the other end has said its end, or without CAP_NET_ADMIN. Nothing has changed then.
pub fn lower_segments(socket: impl AsFd, size: u16) -> io::Result<()> {
    // A repair takes this option from the socket.
    let reused = sockopt::socket_reuseaddr(&socket)?;
    let is_ipv4 = sockopt::socket_domain(&socket)? == AddressFamily::INET;
    set_u32(&socket, libc::SOL_TCP, libc::TCP_REPAIR, 1)?;
    let option: Vec<u8> = [MAXSEG, size.into()].map(u32::to_ne_bytes).concat();
    let mut changed = set_raw(&socket, libc::SOL_TCP, libc::TCP_REPAIR_OPTIONS, &option);
    if !is_ipv4 {
        changed = changed.and_then(|()| narrow_window(&socket, size.into()));
    }
    let end = if is_ipv4 { QUIETLY } else { WITH_PROBE };
    let ended = set_u32(&socket, libc::SOL_TCP, libc::TCP_REPAIR, end);
    sockopt::set_socket_reuseaddr(&socket, reused)?;
    changed.and(ended)?;
    if is_ipv4 {
        set_raw(&socket, libc::SOL_IP, libc::IP_OPTIONS, &[])?;
    }
    Ok(())
}

fn narrow_window(socket: impl AsFd, size: u32) -> io::Result<()> {
    let mut window = [0; 4 * FIELDS];
    get_raw(&socket, libc::SOL_TCP, libc::TCP_REPAIR_WINDOW, &mut window)?;
    let (fields, _) = window.as_chunks_mut::<4>();
    for field in WINDOWS {
        let before = u32::from_ne_bytes(fields[field]);
        fields[field] = before.min(size).to_ne_bytes();
    }
    set_raw(&socket, libc::SOL_TCP, libc::TCP_REPAIR_WINDOW, &window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::{info, largest_segment};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Segments that a peer gets are no larger, and nothing is lost; also where the peer has spoken first.
    #[test]
    fn segments_are_smaller_from_the_first_on() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(host) else {
                continue;
            };
            let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut socket, _) = listener.accept().unwrap();
            peer.write_all(b"a request").unwrap();
            socket.read_exact(&mut [0; 9]).unwrap();
            sockopt::set_socket_reuseaddr(&socket, true).unwrap();
            if let Err(error) = lower_segments(&socket, 1000) {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                return;
            }
            assert!(sockopt::socket_reuseaddr(&socket).unwrap());
            if host.starts_with("127") {
                // At once, and nothing waits for a round trip.
                assert_eq!(largest_segment(&socket).unwrap(), 1000);
                let window = info(&socket).unwrap().peer_window;
                assert!(window.0 > 10_000, "{window:?}");
            }
            socket.write_all(&[7; 300_000]).unwrap();
            let mut read = vec![0; 300_000];
            peer.read_exact(&mut read).unwrap();
            assert!(read.iter().all(|byte| *byte == 7));
            assert_eq!(largest_segment(&socket).unwrap(), 1000);
            let sent = info(&socket).unwrap();
            assert!(sent.data_segs_out >= 300, "{sent:?}");
        }
    }

    #[test]
    fn what_has_sent_already_goes_on_as_it_was() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"x").unwrap();
        peer.read_exact(&mut [0]).unwrap();
        let before = largest_segment(&socket).unwrap();
        lower_segments(&socket, 1000).unwrap_err();
        socket.write_all(&[7; 100_000]).unwrap();
        peer.read_exact(&mut vec![0; 100_000]).unwrap();
        assert!(largest_segment(&socket).unwrap() >= before);
        let until = Instant::now() + Duration::from_secs(10);
        while crate::tcp::unacknowledged(&socket).unwrap().0 > 0 {
            assert!(Instant::now() < until);
        }
    }
}
