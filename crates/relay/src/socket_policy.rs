//! Puts a leg's policy on a socket: its mark, congestion control, pacing, buffers and segment size.

use bentpipe_base::{Bytes, Rate};
use bentpipe_gateway_config::{Leg, SynOptions};
use bentpipe_sockets::{socket, tcp};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

/// The policy of one leg, resolved against what this kernel offers, such as its congestion controls.
#[derive(Clone, Debug)]
pub struct SocketPolicy {
    /// The mark of its sockets.
    pub mark: u32,
    /// The mark in its place on dialled sockets whose packets conntrack is to see.
    pub tracked: u32,
    /// A ceiling on the pacing of those, where others have none.
    pub tracked_ceiling: Option<Rate>,
    /// The congestion control to set; `None` leaves the kernel's default.
    pub control: Option<String>,
    /// Whether that is the kernel's default anyway: sockets are born with it.
    pub usual_control: bool,
    /// A ceiling on the pacing of each socket, for controls that do not know the link's rate.
    pub ceiling: Option<Rate>,
    /// Where sockets ask for ECN: the priority of SYNs that are not to, because their clients did not.
    pub without_ecn: Option<u32>,
    /// When idle connections are probed, if not at the kernel's own time.
    pub keepalive: Option<Duration>,
    /// The policy as it is configured.
    pub leg: Leg,
}

/// The policies of both legs, and those of flows that have a profile.
#[derive(Debug)]
pub struct LegPolicies {
    /// The policies of flows without a profile, by [`LegId`](bentpipe_gateway_config::LegId).
    pub plain: [SocketPolicy; 2],
    /// The policies of each profile, in the order of the configuration.
    pub profiles: Vec<[SocketPolicy; 2]>,
}

impl LegPolicies {
    /// The policies of profile number `profile`, counted from 1; 0 means no profile.
    pub(crate) fn of(&self, profile: usize) -> &[SocketPolicy; 2] {
        match profile.checked_sub(1) {
            None => &self.plain,
            // A listener has one of the profiles that the gateway began with, and a reload leaves their number.
            Some(place) => &self.profiles[place],
        }
    }

    /// Enables keep-alive: sockets probe peers of which nothing was heard for `time`.
    pub fn probe_after(&mut self, time: Duration) {
        for legs in self.profiles.iter_mut().chain([&mut self.plain]) {
            for leg in legs {
                leg.keepalive = Some(time);
            }
        }
    }
}

impl SocketPolicy {
    /// Sets everything of the policy on a listening socket: what it accepts inherits it.
    pub(crate) fn apply(&self, socket: impl AsFd, like: SocketAddr) -> io::Result<()> {
        self.apply_to_rest(&socket)?;
        self.probe(&socket)?;
        if self.apply_to_dial(socket, like)? {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    /// Sets what a socket needs before it connects. Returns whether it has the leg's congestion control, whose kernel module may
    /// have been unloaded. The other options are errors where they fail: without them the answer would go elsewhere.
    pub(crate) fn apply_to_dial(&self, socket: impl AsFd, like: SocketAddr) -> io::Result<bool> {
        socket::set_transparent(&socket, like)?;
        socket::set_mark(&socket, self.mark)?;
        socket::set_reuse_address(&socket, true)?;
        socket::abort_on_close(&socket, true)?;
        socket::set_urgent_inline(&socket)?;
        socket::set_receive_buffer(&socket, booked(self.leg.receive_buffer))?;
        if let Some(size) = self.leg.mss {
            tcp::set_max_segment(&socket, size)?;
        }
        if let Some(rate) = self.ceiling {
            tcp::set_max_pacing_rate(&socket, rate)?;
        }
        match &self.control {
            Some(control) if !self.usual_control => {
                match tcp::set_congestion(&socket, bentpipe_bpf::kernel_name(control)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                    other => other.map(|()| true),
                }
            }
            _ => Ok(true),
        }
    }

    /// The largest segment that a dial for a client's SYN asks for and sends, where that is not the leg's own:
    /// what the SYN says. A host says what it can receive itself, so it sends nothing larger either; less than
    /// that is a rule of the operator's (`tcp option maxseg size set`, TCPMSS), for a path that swallows
    /// larger ones.
    pub(crate) fn segment_for(&self, service: SynOptions) -> Option<Bytes> {
        let size = Bytes(service.mss.filter(|size| *size > 0)?.into());
        let usual = self.leg.mss.unwrap_or(LARGEST_SEGMENT);
        (size < usual).then_some(size.max(SMALLEST_SEGMENT))
    }

    /// The largest segment that the far side of `dialled` takes, a connection over this leg, where it or the path has it so. The key
    /// `mss` concerns no other leg.
    pub(crate) fn segment_beyond(&self, dialled: impl AsFd) -> Option<u16> {
        let size = tcp::largest_segment(dialled).ok()?;
        (self.leg.mss != Some(Bytes(size.into()))).then_some(size)
    }

    /// Sets what matters after the first bytes either way: a dialled socket does without until there is
    /// more, and most short connections never have more. (Nagle's algorithm holds back no first
    /// segment, and the first bytes fit into any buffer.)
    pub(crate) fn apply_to_rest(&self, socket: impl AsFd) -> io::Result<()> {
        tcp::tell_rest(&socket)?;
        tcp::set_no_delay(&socket, true)?;
        socket::set_send_buffer(&socket, booked(self.leg.send_buffer))?;
        match self.leg.notsent_lowat {
            Some(size) => tcp::set_notsent_lowat(&socket, size),
            None => Ok(()),
        }
    }

    /// Has a connection probed that has been idle for long.
    pub(crate) fn probe(&self, socket: impl AsFd) -> io::Result<()> {
        socket::set_keepalive(&socket, true)?;
        match self.keepalive {
            Some(time) => tcp::set_keepalive_after(&socket, time),
            None => Ok(()),
        }
    }

    /// Gives a socket that bytes come in by, or go out by, as little room as a flow goes on with; or what
    /// the policy says again. What waits there already stays.
    pub(crate) fn resize(&self, socket: impl AsFd, end: End, shrunk: bool) -> io::Result<()> {
        let size = |usual: Bytes| {
            if shrunk {
                booked(usual.min(SHRUNK))
            } else {
                booked(usual)
            }
        };
        match end {
            End::Receives => socket::set_receive_buffer(socket, size(self.leg.receive_buffer)),
            End::Sends => socket::set_send_buffer(socket, size(self.leg.send_buffer)),
        }
    }

    /// Like [`SocketPolicy::apply`], on a listening socket that had another policy before: what this one
    /// leaves to the kernel is the kernel's again.
    pub(crate) fn renew(&self, socket: impl AsFd, like: SocketAddr) -> io::Result<()> {
        tcp::set_notsent_lowat(&socket, Bytes(u64::MAX))?;
        tcp::lift_max_pacing_rate(&socket)?;
        tcp::set_max_segment(&socket, Bytes(0))?;
        if self.control.is_none() || self.usual_control {
            tcp::set_congestion(&socket, &tcp::default_congestion()?)?;
        }
        self.apply(socket, like)
    }
}

/// The segment sizes that the kernel accepts: TCP_MIN_MSS to MAX_TCP_WINDOW.
const SMALLEST_SEGMENT: Bytes = Bytes(88);
const LARGEST_SEGMENT: Bytes = Bytes(32_767);
/// The size of the buffers of a shrunk flow.
const SHRUNK: Bytes = Bytes(128 << 10);

/// What a socket does in one direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Receives,
    Sends,
}

/// The value of SO_SNDBUF or SO_RCVBUF with which a buffer never holds more than `size`. The kernel doubles the value
/// to allow for overhead, but large segments have next to none, and would fill the double with payload.
fn booked(size: Bytes) -> Bytes {
    Bytes(size.0 / 2)
}
