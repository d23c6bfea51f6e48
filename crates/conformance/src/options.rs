//! Socket options: what `setsockopt` was told, and what `getsockopt` tells.

use crate::errno::{Answer, Errno};
use bentpipe_tcp as tcp;
use core::ffi::c_int;
use std::time::Duration;

/// The options of one socket; an accepted one has its listener's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) reuse_address: bool,
    pub(crate) no_delay: bool,
    /// `TCP_CORK`.
    pub(crate) cork: bool,
    /// `TCP_MAXSEG`, 0 where it was not set.
    pub(crate) max_segment: c_int,
    /// `SO_SNDBUF` as it is told: twice what was asked for.
    pub(crate) send_buffer: c_int,
    /// `SO_RCVBUF`, as it is told.
    pub(crate) receive_buffer: c_int,
    /// `SO_LINGER` in seconds.
    pub(crate) linger: Option<c_int>,
    pub(crate) keep_alive: bool,
    /// `TCP_KEEPIDLE`, in seconds.
    pub(crate) keep_idle: c_int,
    /// `TCP_USER_TIMEOUT`, in milliseconds; 0: not set.
    pub(crate) user_timeout: c_int,
    /// `TCP_NOTSENT_LOWAT`; 0: not set.
    pub(crate) not_sent_low_at: u32,
    /// `TCP_FASTOPEN`: how many connections may be opened early; 0: none.
    pub(crate) fast_open: c_int,
    /// `TCP_INQ`.
    pub(crate) in_queue: bool,
    /// `IP_TOS`.
    pub(crate) type_of_service: c_int,
    /// `IP_MTU_DISCOVER`. No router is on the way here, so that it is told and changes nothing.
    pub(crate) mtu_discovery: c_int,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reuse_address: false,
            no_delay: false,
            cork: false,
            max_segment: 0,
            send_buffer: 4 << 20,
            receive_buffer: 131_072,
            linger: None,
            keep_alive: false,
            keep_idle: 7_200,
            user_timeout: 0,
            not_sent_low_at: 0,
            fast_open: 0,
            in_queue: false,
            type_of_service: 0,
            mtu_discovery: libc::IP_PMTUDISC_WANT,
        }
    }
}

impl Options {
    /// `base` as these options change it.
    pub(crate) fn configure(&self, base: &tcp::Config) -> tcp::Config {
        let seconds = |seconds: c_int| Duration::from_secs(seconds.max(1) as u64);
        let max = u16::try_from(self.max_segment).unwrap_or(0);
        tcp::Config {
            mss: if max > 0 { base.mss.min(max) } else { base.mss },
            nagle: !self.no_delay,
            keep_alive: self.keep_alive.then(|| seconds(self.keep_idle)),
            user_timeout: self.user_timeout(),
            ..base.clone()
        }
    }

    /// How long a peer may acknowledge nothing.
    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        (self.user_timeout > 0).then(|| Duration::from_millis(self.user_timeout as u64))
    }

    /// `setsockopt` of an `int`, or of what begins with one (`SO_LINGER` has two).
    pub(crate) fn set(&mut self, level: c_int, name: c_int, value: &[c_int]) -> Answer<()> {
        let Some(&first) = value.first() else {
            return Err(Errno(libc::EINVAL));
        };
        let on = first != 0;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => self.reuse_address = on,
            (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => {
                // Linux counts its own memory too, and has a least.
                self.send_buffer = first.clamp(0, c_int::MAX / 2).saturating_mul(2).max(4_608);
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
                self.receive_buffer = first.clamp(0, c_int::MAX / 2).saturating_mul(2).max(2_304);
            }
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keep_alive = on,
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let &[_, seconds, ..] = value else {
                    return Err(Errno(libc::EINVAL));
                };
                self.linger = on.then_some(seconds.max(0));
            }
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => self.no_delay = on,
            (libc::IPPROTO_TCP, libc::TCP_CORK) => self.cork = on,
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
                if first != 0 && !(88..=32_767).contains(&first) {
                    return Err(Errno(libc::EINVAL));
                }
                self.max_segment = first;
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) if (1..=32_767).contains(&first) => {
                self.keep_idle = first;
            }
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) if first >= 0 => self.user_timeout = first,
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => return Err(Errno(libc::EINVAL)),
            (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => self.not_sent_low_at = first as u32,
            (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) if first >= 0 => self.fast_open = first,
            (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => return Err(Errno(libc::EINVAL)),
            (libc::IPPROTO_TCP, TCP_INQ) => self.in_queue = on,
            (libc::IPPROTO_IP, libc::IP_TOS) => self.type_of_service = first & 0xff,
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
                if (libc::IP_PMTUDISC_DONT..=libc::IP_PMTUDISC_OMIT).contains(&first) =>
            {
                self.mtu_discovery = first;
            }
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) | (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => {
                return Err(Errno(libc::EINVAL));
            }
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        }
        Ok(())
    }

    /// `getsockopt` of an `int`, or of two; the state of the connection is not an option.
    pub(crate) fn get(&self, level: c_int, name: c_int) -> Answer<Vec<c_int>> {
        let flag = |on: bool| vec![c_int::from(on)];
        Ok(match (level, name) {
            (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) => flag(self.reuse_address),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => vec![self.send_buffer],
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => vec![self.receive_buffer],
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => flag(self.keep_alive),
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                vec![c_int::from(self.linger.is_some()), self.linger.unwrap_or(0)]
            }
            (libc::SOL_SOCKET, libc::SO_TYPE) => vec![libc::SOCK_STREAM],
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => vec![libc::IPPROTO_TCP],
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) => flag(self.no_delay),
            (libc::IPPROTO_TCP, libc::TCP_CORK) => flag(self.cork),
            (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => vec![match self.max_segment {
                0 => 536,
                set => set,
            }],
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => vec![self.keep_idle],
            (libc::IPPROTO_TCP, libc::TCP_FASTOPEN) => vec![self.fast_open],
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => vec![self.user_timeout],
            (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => vec![self.not_sent_low_at as c_int],
            (libc::IPPROTO_TCP, TCP_INQ) => flag(self.in_queue),
            (libc::IPPROTO_IP, libc::IP_TOS) => vec![self.type_of_service],
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => vec![self.mtu_discovery],
            _ => return Err(Errno(libc::ENOPROTOOPT)),
        })
    }
}

/// `TCP_INQ` of linux/tcp.h, which libc does not name everywhere.
const TCP_INQ: c_int = 36;
