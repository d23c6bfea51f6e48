//! The listening sockets: for each leg and address family one address on loopback, shared by all
//! workers.
//!
//! On loopback, because a wildcard listener would own its port on every address: a client whose
//! source port equals ours could not be dialled for. From outside nobody reaches them but by
//! interception; from this machine a connection to them is told by its destination and thrown out.

use crate::legs::{Legs, Prepared};
use bentpipe_os::socket;
use bentpipe_policy::Which;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use thiserror::Error;

/// Connections that may wait for a worker.
const BACKLOG: u32 = 4096;

/// Where interception delivers connections that came in by one leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doors {
    pub(crate) v4: SocketAddr,
    /// `None` where this machine has no IPv6.
    pub(crate) v6: Option<SocketAddr>,
}

/// One listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: OwnedFd,
    pub(crate) address: SocketAddr,
    /// The leg by which its connections come in.
    pub(crate) leg: Which,
    /// Their profile: see [`Legs::of`].
    pub(crate) profile: usize,
}

/// A listening socket could not be made.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Another program has the port.
    #[error(
        "port {port} of {address} is in use by another program (`ss -ltnp` shows which): choose another `port`, or leave it out"
    )]
    PortInUse {
        /// The loopback address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// The kernel refused the socket.
    #[error("cannot listen on {address} for the {leg} leg ({source}): {next}")]
    Refused {
        /// Where.
        address: SocketAddr,
        /// For which leg.
        leg: &'static str,
        /// Why not.
        source: io::Error,
        /// What to do.
        next: &'static str,
    },
}

/// Opens the sockets of one leg and profile for `workers` workers, beginning at `port` or, when 0, at
/// a port of the kernel's choice. Returns one list a worker.
pub(crate) fn open(
    which: Which,
    (legs, profile): (&Legs, usize),
    port: u16,
    workers: usize,
) -> Result<(Doors, Vec<Vec<Listener>>), ListenError> {
    let leg = &legs.of(profile)[which as usize];
    let mut lists: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let doors = Doors {
        v4: door(which, leg, v4, &mut lists)?,
        v6: if has(v6) {
            Some(door(which, leg, v6, &mut lists)?)
        } else {
            tracing::info!("this machine has no IPv6: IPv6 connections pass unsplit");
            None
        },
    };
    for listener in lists.iter_mut().flatten() {
        listener.profile = profile;
    }
    Ok((doors, lists))
}

/// Whether the machine has that address at all, whatever the port.
fn has(address: SocketAddr) -> bool {
    let any_port = SocketAddr::new(address.ip(), 0);
    socket::stream(any_port).is_ok_and(|socket| socket::bind(&socket, any_port).is_ok())
}

/// Opens one address for all workers; returns it with its port.
fn door(
    which: Which,
    leg: &Prepared,
    mut address: SocketAddr,
    lists: &mut [Vec<Listener>],
) -> Result<SocketAddr, ListenError> {
    if address.port() != 0 {
        // Alone first: SO_REUSEPORT would let us in beside another gateway of the same user, and
        // the kernel would deal its connections to both.
        let refuse = |source| refused(address, which, source);
        let probe = socket::stream(address).map_err(refuse)?;
        socket::bind(&probe, address).map_err(refuse)?;
    }
    for list in &mut *lists {
        let refuse = |source| refused(address, which, source);
        let socket = socket::stream(address).map_err(refuse)?;
        socket::set_reuse_port(&socket, true).map_err(refuse)?;
        socket::save_syns(&socket).map_err(refuse)?;
        leg.apply(&socket, address).map_err(refuse)?;
        socket::bind(&socket, address).map_err(refuse)?;
        address = socket::local_address(&socket).map_err(refuse)?;
        list.push(Listener {
            socket,
            address,
            leg: which,
            profile: 0,
        });
    }
    for listener in lists.iter().flat_map(|list| list.last()) {
        socket::listen(&listener.socket, BACKLOG)
            .map_err(|source| refused(address, which, source))?;
    }
    Ok(address)
}

fn refused(address: SocketAddr, leg: Which, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::PortInUse {
            address: address.ip(),
            port: address.port(),
        },
        kind => ListenError::Refused {
            address,
            leg: leg.name(),
            next: match kind {
                io::ErrorKind::PermissionDenied => "run as root (CAP_NET_ADMIN)",
                io::ErrorKind::AddrNotAvailable => {
                    "bring loopback up with this address (`ip link set lo up`)"
                }
                io::ErrorKind::NotFound => "the congestion control has gone: start again",
                _ => "see the kernel's reason",
            },
            source,
        },
    }
}
