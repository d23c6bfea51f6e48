//! The listening sockets: for each leg and address family one address on loopback, shared by all
//! workers.
//!
//! They are on loopback, because a wildcard listener would own its port on every address, and the gateway could not
//! dial from a client's address with that source port. From outside they are reached by interception alone; a
//! connection from this machine is recognised by its destination and reset.

use crate::handshake::LONGEST_BACKLOG;
use crate::socket_policy::{LegPolicies, SocketPolicy};
use bentpipe_gateway_config::LegId;
use bentpipe_interception::{ListenAddresses, Marks};
use bentpipe_sockets::{socket, tcp};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thiserror::Error;

/// How often the kernel repeats its answer to a SYN (TCP_SYNCNT), so that a SYN that is not confirmed is forgotten
/// after 15 s. The default is a minute, in which a flood of forged SYNs fills the queue four times as full.
const ANSWERS: u32 = 3;

/// One listening socket.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// Its address on loopback.
    pub address: SocketAddr,
    /// The leg by which its connections come in.
    pub leg: LegId,
    /// Their profile: see `LegPolicies::of`.
    pub profile: usize,
}

/// All listeners, by worker. They stay open until the last worker has ended: the kernel numbers those that share a
/// port in the order in which they began, and one that goes would give its number to another.
pub type Listeners = Arc<[Vec<Arc<Listener>>]>;

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
    /// All ports that the kernel may choose are taken.
    #[error(
        "no port of {0} is free: `net.ipv4.ip_local_port_range` leaves too few, widen it or choose a `port`"
    )]
    NoPort(IpAddr),
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
pub fn open(
    leg_id: LegId,
    (legs, profile): (&LegPolicies, usize),
    port: u16,
    workers: usize,
) -> Result<(ListenAddresses, Vec<Vec<Listener>>), ListenError> {
    let leg = &legs.of(profile)[leg_id as usize];
    let mut lists: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let addresses = ListenAddresses {
        v4: open_address(leg_id, leg, v4, &mut lists)?,
        v6: if has(v6) {
            Some(open_address(leg_id, leg, v6, &mut lists)?)
        } else {
            tracing::info!("this machine has no IPv6: IPv6 connections pass unsplit");
            None
        },
    };
    for listener in lists.iter_mut().flatten() {
        listener.profile = profile;
    }
    Ok((addresses, lists))
}

/// Whether the machine has that address at all, whatever the port.
fn has(address: SocketAddr) -> bool {
    let any_port = SocketAddr::new(address.ip(), 0);
    socket::stream(any_port).is_ok_and(|socket| socket::bind(&socket, any_port).is_ok())
}

/// Opens one address for all workers; returns it with its port.
fn open_address(
    leg_id: LegId,
    leg: &SocketPolicy,
    mut address: SocketAddr,
    lists: &mut [Vec<Listener>],
) -> Result<SocketAddr, ListenError> {
    if address.port() != 0 {
        // The address is bound without SO_REUSEPORT first. With it the kernel would admit us beside another gateway of
        // the same user, and distribute connections to both.
        let refuse = |source| refused(address, leg_id, source);
        let probe = socket::stream(address).map_err(refuse)?;
        socket::bind(&probe, address).map_err(refuse)?;
    }
    for list in &mut *lists {
        let refuse = |source| refused(address, leg_id, source);
        let socket = socket::stream(address).map_err(refuse)?;
        socket::set_reuse_port(&socket, true).map_err(refuse)?;
        socket::save_syns(&socket).map_err(refuse)?;
        socket::set_syn_retries(&socket, ANSWERS).map_err(refuse)?;
        leg.apply(&socket, address).map_err(refuse)?;
        socket::bind(&socket, address).map_err(refuse)?;
        address = socket::local_address(&socket).map_err(refuse)?;
        list.push(Listener {
            socket,
            address,
            leg: leg_id,
            profile: 0,
        });
    }
    for listener in lists.iter().flat_map(|list| list.last()) {
        socket::listen(&listener.socket, LONGEST_BACKLOG)
            .map_err(|source| refused(address, leg_id, source))?;
        // A client has to show first that it is there. A kernel without Fast Open needs no telling.
        let _ = tcp::refuse_fast_open(&listener.socket);
    }
    if let Some(listener) = lists.first().and_then(|list| list.last()) {
        let (flag, worker) = Marks::steering();
        socket::steer_by_mark(&listener.socket, flag, worker)
            .map_err(|source| refused(address, leg_id, source))?;
    }
    Ok(address)
}

/// [`bentpipe_interception::DecoyListener::open`] has failed.
pub fn no_decoy(source: io::Error) -> ListenError {
    refused((Ipv4Addr::LOCALHOST, 0).into(), LegId::Lan, source)
}

fn refused(address: SocketAddr, leg: LegId, source: io::Error) -> ListenError {
    match source.kind() {
        io::ErrorKind::AddrInUse if address.port() == 0 => ListenError::NoPort(address.ip()),
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
