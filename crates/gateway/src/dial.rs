//! Dialling on: the far leg, from the client's own address and port.

use crate::legs::Prepared;
use bentpipe_os::neighbour;
use bentpipe_os::socket::{self, Dial};
use bentpipe_policy::Service;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

/// A dial on its way.
pub(crate) struct Dialled {
    pub(crate) socket: OwnedFd,
    pub(crate) begun: Dial,
    /// The client's port was taken (an earlier connection of the same four numbers waits out its
    /// TIME_WAIT), or may not be had: the server sees another one.
    pub(crate) other_port: bool,
    /// The leg's congestion control has gone from the kernel.
    pub(crate) control_lost: bool,
}

/// Begins a connection from `client` to `server` under the policy of `leg`, with what the
/// client's SYN asks of the way.
pub(crate) fn dial(
    leg: &Prepared,
    client: SocketAddr,
    server: SocketAddr,
    service: Service,
) -> io::Result<Dialled> {
    match attempt(leg, client, server, service) {
        Err(error) if port_taken(&error) => {
            let mut any_port = client;
            any_port.set_port(0);
            let mut dialled = attempt(leg, any_port, server, service)?;
            dialled.other_port = true;
            Ok(dialled)
        }
        other => other,
    }
}

fn attempt(
    leg: &Prepared,
    client: SocketAddr,
    server: SocketAddr,
    service: Service,
) -> io::Result<Dialled> {
    let socket = socket::stream(server)?;
    let control_lost = match leg.apply_to_dial(&socket, server) {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    if service.class != 0 {
        socket::set_traffic_class(&socket, server, service.class)?;
    }
    socket::bind(&socket, client)?;
    let begun = match leg.without_ecn.filter(|_| !service.ecn) {
        None => socket::connect(&socket, server)?,
        Some(tag) => {
            let usual = socket::priority(&socket)?;
            socket::set_priority(&socket, tag)?;
            let begun = socket::connect(&socket, server)?;
            socket::set_priority(&socket, usual)?;
            begun
        }
    };
    Ok(Dialled {
        socket,
        begun,
        other_port: false,
        control_lost,
    })
}

/// Whether `server` is, or is reached by, one of the neighbours `silent`. The kernel says that a
/// neighbour does not answer only to the address that was dialled from, the client's.
pub(crate) fn is_behind(silent: &[IpAddr], server: IpAddr) -> bool {
    silent.contains(&server)
        || neighbour::next_hop(server)
            .ok()
            .flatten()
            .is_some_and(|hop| silent.contains(&hop))
}

fn port_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::AddrInUse
            // One below 1024, without CAP_NET_BIND_SERVICE.
            | io::ErrorKind::PermissionDenied
    )
}
