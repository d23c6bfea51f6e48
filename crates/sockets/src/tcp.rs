//! What the kernel tells about a TCP connection (TCP_INFO), and the options of tcp(7).

mod lower_segments;

pub use lower_segments::lower_segments;

use crate::socket::{get_raw, set_raw, set_u32};
use bentpipe_base::{Bytes, Rate};
use rustix::net::sockopt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The state of one connection, as of `struct tcp_info` in linux/tcp.h. Fields that the running
/// kernel does not know are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The state number of tcp_states.h: 1 is established.
    pub state: u8,
    /// Recovery state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Probes (keep-alive, closed window) that have not been answered.
    pub probes: u8,
    /// Smoothed round-trip time (SRTT).
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// Smallest round-trip time within the kernel's window (5 min by default).
    pub min_rtt: Duration,
    /// Retransmission timeout at present.
    pub rto: Duration,
    /// Congestion window, in segments of `mss`.
    pub cwnd: u32,
    /// Slow-start threshold, in segments; `None`: none is set (2^31-1 and more, as the kernel says it).
    pub ssthresh: Option<u32>,
    /// Payload of a segment sent.
    pub mss: Bytes,
    /// Segments in flight, not acknowledged.
    pub unacked: u32,
    /// Segments retransmitted and not yet acknowledged.
    pub retrans: u32,
    /// Segments retransmitted since the start.
    pub total_retrans: u32,
    /// Segments deemed lost at present.
    pub lost: u32,
    /// Segments acknowledged out of order (SACK) at present.
    pub sacked: u32,
    /// Time since the last acknowledgement, with or without payload, that is no repetition of old segments.
    pub last_ack_received: Duration,
    /// Payload acknowledged by the peer.
    pub bytes_acked: Bytes,
    /// Payload received in order.
    pub bytes_received: Bytes,
    /// Payload sent, retransmissions included.
    pub bytes_sent: Bytes,
    /// Payload sent again.
    pub bytes_retrans: Bytes,
    /// Payload written that has not been sent yet.
    pub not_sent: Bytes,
    /// Segments sent, with and without payload.
    pub segs_out: u32,
    /// Segments received, with and without payload.
    pub segs_in: u32,
    /// Payload segments sent.
    pub data_segs_out: u32,
    /// Rate at which the latest ACKs showed delivery.
    pub delivery_rate: Rate,
    /// Rate at which the connection is paced; the maximum when it is not.
    pub pacing_rate: Rate,
    /// Time with unacknowledged data.
    pub busy: Duration,
    /// Part of `busy` in which the peer's window was the limit.
    pub rwnd_limited: Duration,
    /// Part of `busy` in which the send buffer was the limit.
    pub sndbuf_limited: Duration,
    /// Window that the peer offers.
    pub peer_window: Bytes,
    /// Window that we offer.
    pub own_window: Bytes,
    /// Retransmission timeouts since the start.
    pub total_rto: u16,
}

/// Reads the state of connection `socket`.
pub fn info(socket: impl AsFd) -> io::Result<Info> {
    let mut raw = [0; 512];
    let filled = get_raw(socket, libc::SOL_TCP, libc::TCP_INFO, &mut raw)?;
    Ok(Info::parse(&raw[..filled]))
}

/// Whether connection `socket` is closed: both ends have acknowledged everything, or it has failed.
pub fn is_over(socket: impl AsFd) -> bool {
    // TCP_CLOSE of tcp_states.h.
    info(socket).is_ok_and(|info| info.state == 7)
}

/// The largest segment that the other end of connection `socket` takes, in bytes of payload without options: what it said itself, or
/// less where the path's MTU, as far as it is known, or an option of ours has it.
pub fn largest_segment(socket: impl AsFd) -> io::Result<u16> {
    let mut raw = [0; 20];
    let filled = get_raw(socket, libc::SOL_TCP, libc::TCP_INFO, &mut raw)?;
    // TCPI_OPT_TIMESTAMPS: that option takes 12 bytes of each.
    let option = if raw[5] & 1 == 1 { 12 } else { 0 };
    let mss = Info::parse(&raw[..filled]).mss.0 + option;
    Ok(u16::try_from(mss).unwrap_or(u16::MAX))
}

/// Whether connection `socket` has been begun and nothing has been heard from the other end (SYN-SENT).
pub fn is_unanswered(socket: impl AsFd) -> bool {
    // TCP_SYN_SENT of tcp_states.h.
    info(socket).is_ok_and(|info| info.state == 2)
}

/// Whether connection `socket` has been begun and the other end has sent something, but neither accepted nor refused: a
/// challenge ACK, for what it has with the same addresses and ports (RFC 5961, section 4.2).
pub fn is_challenged(socket: impl AsFd) -> bool {
    info(socket).is_ok_and(|info| info.state == 2 && info.segs_in > 0)
}

impl Info {
    /// Takes the fields out of the kernel's bytes; the offsets are ABI and only ever grow.
    pub fn parse(raw: &[u8]) -> Self {
        let u8_at = |at: usize| raw.get(at).copied().unwrap_or(0);
        let u16_at = |at: usize| {
            raw.get(at..at + 2)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u16::from_ne_bytes)
        };
        let u32_at = |at: usize| {
            raw.get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u32::from_ne_bytes)
        };
        let u64_at = |at: usize| {
            raw.get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok())
                .map_or(0, u64::from_ne_bytes)
        };
        let micros = |value: u32| Duration::from_micros(u64::from(value));
        // u64::MAX stands for "not paced"; saturating keeps it the largest.
        let rate = |bytes: u64| Rate::from_bits_per_sec(bytes.saturating_mul(8));
        Self {
            state: u8_at(0),
            ca_state: u8_at(1),
            probes: u8_at(3),
            rto: micros(u32_at(8)),
            mss: Bytes(u32_at(16).into()),
            unacked: u32_at(24),
            sacked: u32_at(28),
            lost: u32_at(32),
            retrans: u32_at(36),
            last_ack_received: Duration::from_millis(u32_at(56).into()),
            rtt: micros(u32_at(68)),
            rtt_variation: micros(u32_at(72)),
            ssthresh: Some(u32_at(76)).filter(|segments| *segments < i32::MAX as u32),
            cwnd: u32_at(80),
            total_retrans: u32_at(100),
            pacing_rate: rate(u64_at(104)),
            bytes_acked: Bytes(u64_at(120)),
            bytes_received: Bytes(u64_at(128)),
            segs_out: u32_at(136),
            segs_in: u32_at(140),
            not_sent: Bytes(u32_at(144).into()),
            min_rtt: micros(u32_at(148)),
            data_segs_out: u32_at(156),
            delivery_rate: rate(u64_at(160)),
            busy: Duration::from_micros(u64_at(168)),
            rwnd_limited: Duration::from_micros(u64_at(176)),
            sndbuf_limited: Duration::from_micros(u64_at(184)),
            bytes_sent: Bytes(u64_at(200)),
            bytes_retrans: Bytes(u64_at(208)),
            peer_window: Bytes(u32_at(228).into()),
            own_window: Bytes(u32_at(232).into()),
            total_rto: u16_at(240),
        }
    }
}

/// TCP_INQ of linux/tcp.h, an option and the type of its control message.
pub(crate) const TCP_INQ: libc::c_int = 36;

/// Has [`crate::socket::receive_and_rest`] told whether more is left. A listener hands it on.
pub fn tell_rest(socket: impl AsFd) -> io::Result<()> {
    set_u32(socket, libc::SOL_TCP, TCP_INQ, 1)
}

/// Whether the connection has not ended by itself or by an error: an error that a call gave is then that
/// call's own and not the connection's.
pub fn stands(socket: impl AsFd) -> bool {
    const CLOSED: u8 = 7;
    info(socket).is_ok_and(|info| info.state != CLOSED)
}

/// Payload (and FIN) that the peer has not acknowledged yet, in bytes.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<Bytes> {
    queued(socket, libc::TIOCOUTQ)
}

/// Payload (and FIN) that has not been sent yet, in bytes: there is no room for it in the peer's window, or in the network.
pub fn unsent(socket: impl AsFd) -> io::Result<Bytes> {
    // SIOCOUTQNSD of linux/sockios.h.
    queued(socket, 0x894b)
}

fn queued(socket: impl AsFd, which: libc::Ioctl) -> io::Result<Bytes> {
    let mut count: libc::c_int = 0;
    // SAFETY: TIOCOUTQ and SIOCOUTQNSD write one int to `count`, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), which, &raw mut count) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(Bytes(u64::try_from(count).unwrap_or(0)))
}

/// The congestion control of `socket`.
pub fn congestion(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// Gives `socket` the congestion control `name`. `NotFound` when the kernel has none of that name,
/// `PermissionDenied` when it is not allowed to this user.
pub fn set_congestion(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// The congestion controls that the kernel offers now (of the calling thread's network namespace).
pub fn available_congestion() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The congestion control that sockets have unless told otherwise (in the calling thread's network
/// namespace).
pub fn default_congestion() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")?;
    Ok(text.trim().to_owned())
}

/// Whether sockets ask for ECN when they connect (`net.ipv4.tcp_ecn` is 1, RFC 3168; in the calling
/// thread's network namespace).
pub fn asks_for_ecn() -> io::Result<bool> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn")?;
    Ok(text.trim() == "1")
}

/// Reports the socket as writable only while less than `size` is unsent: what waits, waits where it
/// can still be held back.
pub fn set_notsent_lowat(socket: impl AsFd, size: Bytes) -> io::Result<()> {
    let size = u32::try_from(size.0).unwrap_or(u32::MAX);
    set_u32(socket, libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, size)
}

/// Segments no larger than `size`, sent and asked for, TCP options included; 0: as the MTU has it. To
/// be set before the connection is; later, see [`lower_segments()`].
pub fn set_max_segment(socket: impl AsFd, size: Bytes) -> io::Result<()> {
    let size = u32::try_from(size.0).unwrap_or(u32::MAX);
    set_u32(socket, libc::SOL_TCP, libc::TCP_MAXSEG, size)
}

/// Has a listener take no data in SYNs (TCP Fast Open, RFC 7413), where `net.ipv4.tcp_fastopen` has every listener do so.
pub fn refuse_fast_open(listener: impl AsFd) -> io::Result<()> {
    set_u32(listener, libc::SOL_TCP, libc::TCP_FASTOPEN, 0)
}

/// Paces the socket at no more than `rate` of payload, whatever its congestion control wants.
pub fn set_max_pacing_rate(socket: impl AsFd, rate: Rate) -> io::Result<()> {
    let bytes = rate.bytes_per_sec().to_ne_bytes();
    set_raw(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes)
}

/// Takes back [`set_max_pacing_rate`].
pub fn lift_max_pacing_rate(socket: impl AsFd) -> io::Result<()> {
    let none = u64::MAX.to_ne_bytes();
    set_raw(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &none)
}

/// With `true`, sends small segments at once (no Nagle).
pub fn set_no_delay(socket: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, on)?)
}

/// With `true`, acknowledges at once for a while; the kernel goes back by itself.
pub fn set_quick_ack(socket: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_quickack(socket, on)?)
}

/// Breaks the connection when sent data stays unacknowledged for `time`; zero is the kernel's own
/// limit (about 15 min).
pub fn set_user_timeout(socket: impl AsFd, time: Duration) -> io::Result<()> {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    set_u32(socket, libc::SOL_TCP, libc::TCP_USER_TIMEOUT, millis)
}

/// Probes an idle connection after `idle`, then every `interval`, and breaks it when `count` probes
/// stay without answer.
pub fn set_keepalive(
    socket: impl AsFd,
    idle: Duration,
    interval: Duration,
    count: u32,
) -> io::Result<()> {
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, idle)?;
    sockopt::set_tcp_keepintvl(&socket, interval)?;
    Ok(sockopt::set_tcp_keepcnt(&socket, count)?)
}

/// Probes a connection that has been idle for `time`, where [`crate::socket::set_keepalive`] is on; how
/// often, and how many probes may stay without answer, are the kernel's `net.ipv4.tcp_keepalive_intvl`
/// and `_probes` (75 s and 9).
pub fn set_keepalive_after(socket: impl AsFd, time: Duration) -> io::Result<()> {
    Ok(sockopt::set_tcp_keepidle(socket, time)?)
}

/// How long after a probe without an answer the next one follows, and how many there are.
pub fn keepalive_repetition(socket: impl AsFd) -> io::Result<(Duration, u32)> {
    let interval = sockopt::tcp_keepintvl(&socket)?;
    Ok((interval, sockopt::tcp_keepcnt(&socket)?))
}

/// Has the next probe follow `interval` after one without an answer.
pub fn set_keepalive_interval(socket: impl AsFd, interval: Duration) -> io::Result<()> {
    Ok(sockopt::set_tcp_keepintvl(socket, interval)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn info_counts_what_was_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 50_000]).unwrap();
        far.read_exact(&mut [0; 50_000]).unwrap();
        far.write_all(b"x").unwrap();
        near.read_exact(&mut [0; 1]).unwrap();

        let sent = info(&near).unwrap();
        assert_eq!(sent.state, 1);
        // The SYN counts as one byte acknowledged.
        assert_eq!(sent.bytes_acked, Bytes(50_001));
        assert_eq!(sent.bytes_sent, Bytes(50_000));
        assert_eq!(sent.bytes_received, Bytes(1));
        assert!(sent.cwnd >= 2 && sent.mss > Bytes(500), "{sent:?}");
        assert!(sent.rtt > Duration::ZERO && sent.rtt < Duration::from_secs(1));
        assert!(sent.min_rtt <= sent.rtt && sent.data_segs_out > 0);
        assert_eq!(info(&far).unwrap().bytes_received, Bytes(50_000));
        assert_eq!(unacknowledged(&near).unwrap(), Bytes(0));
    }

    #[test]
    fn what_a_stalled_peer_does_not_read_stays_unacknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[0; 65_536]) {
            written += count as u64;
        }
        let waiting = unacknowledged(&near).unwrap();
        assert!(
            waiting > Bytes(0) && waiting < Bytes(written),
            "{waiting} of {written}"
        );
        let unsent = unsent(&near).unwrap();
        assert!(unsent > Bytes(0) && unsent <= waiting, "{unsent} unsent");
    }

    #[test]
    fn a_short_answer_of_an_old_kernel_leaves_zeros() {
        let info = Info::parse(&[1; 104]);
        assert_eq!(info.cwnd, 0x0101_0101);
        assert_eq!((info.bytes_acked, info.total_rto), (Bytes(0), 0));
    }

    #[test]
    fn congestion_control_and_pacing_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_congestion(&near, "reno").unwrap();
        assert_eq!(congestion(&near).unwrap(), "reno");
        let error = set_congestion(&near, "no_such_control").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let available = available_congestion().unwrap();
        assert!(available.contains(&"reno".to_owned()));
        assert!(available.contains(&default_congestion().unwrap()));

        set_max_pacing_rate(&near, Rate::from_bits_per_sec(8_000_000)).unwrap();
        set_notsent_lowat(&near, Bytes(32_000)).unwrap();
        set_user_timeout(&near, Duration::from_secs(30)).unwrap();
        let minute = Duration::from_secs(60);
        set_keepalive(&near, minute, minute, 3).unwrap();
        let mut value = [0; 4];
        get_raw(&near, libc::SOL_TCP, libc::TCP_NOTSENT_LOWAT, &mut value).unwrap();
        assert_eq!(u32::from_ne_bytes(value), 32_000);
    }

    #[test]
    fn a_paced_socket_sends_at_the_pace() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        set_max_pacing_rate(&near, Rate::from_bits_per_sec(80_000_000)).unwrap();
        let start = crate::timer::now();
        let reader = std::thread::spawn(move || far.read_exact(&mut vec![0; 3_000_000]));
        near.write_all(&vec![0; 3_000_000]).unwrap();
        reader.join().unwrap().unwrap();
        let took = crate::timer::now() - start;
        // 3 MB at 10 MB/s, less the unpaced first packets (loopback segments reach 64 kB).
        assert!(took > Duration::from_millis(150), "took {took:?}");
    }
}
