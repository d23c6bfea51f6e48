//! Dials the far leg from the client's own address and port.

use crate::socket_policy::SocketPolicy;
use bentpipe_gateway_config::{Ends, SynOptions};
use bentpipe_os::neighbour::{Neighbour, Routes, Sent};
use bentpipe_sockets::socket::{self, Dial};
use bentpipe_sockets::tcp;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// A dial on its way.
pub(crate) struct Dialled {
    pub(crate) socket: OwnedFd,
    /// The server has accepted already.
    pub(crate) answered: bool,
    /// The server sees another port than the client's, which was in use (by an earlier connection of the same four numbers, in
    /// TIME_WAIT) or not allowed to us.
    pub(crate) other_port: bool,
    /// The leg's congestion control is no longer in the kernel.
    pub(crate) control_lost: bool,
}

/// For whom a server is dialled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DialFor {
    /// A client whose SYN is held.
    Held,
    /// A client that is accepted. Where SYNs are held, its dial has one of these priorities, [`bentpipe_interception::Marks::proven`].
    Accepted(Option<[u32; 2]>),
}

/// Begins a connection between `ends` under the policy of `leg`, with what the client's SYN asks of the way;
/// with `tracked`, conntrack sees it, and may translate its address.
pub(crate) fn dial(
    leg: &SocketPolicy,
    ends: Ends,
    service: SynOptions,
    tracked: bool,
    whom: DialFor,
) -> io::Result<Dialled> {
    match attempt(leg, ends, service, tracked, whom) {
        Err(error) if port_taken(&error) => {
            let (mut any_port, server) = ends;
            any_port.set_port(0);
            let mut dialled = attempt(leg, (any_port, server), service, tracked, whom)?;
            dialled.other_port = true;
            Ok(dialled)
        }
        other => other,
    }
}

fn attempt(
    leg: &SocketPolicy,
    (client, server): Ends,
    service: SynOptions,
    tracked: bool,
    whom: DialFor,
) -> io::Result<Dialled> {
    let socket = socket::stream(server)?;
    let control_lost = !leg.apply_to_dial(&socket, server)?;
    if tracked {
        socket::set_mark(&socket, leg.tracked)?;
        if let Some(rate) = leg.tracked_ceiling {
            tcp::set_max_pacing_rate(&socket, rate)?;
        }
    }
    if service.class != 0 {
        socket::set_traffic_class(&socket, server, service.class)?;
    }
    if service.fragments {
        socket::allow_fragments(&socket)?;
    }
    if let Some(size) = leg.segment_for(service) {
        tcp::set_max_segment(&socket, size)?;
    }
    let proven = match whom {
        DialFor::Held => None,
        DialFor::Accepted(proven) => {
            // The client's first bytes acknowledge the answer ([`crate::worker`]'s `withheld_acks`).
            tcp::set_quick_ack(&socket, false)?;
            proven
        }
    };
    socket::bind(&socket, client)?;
    let without_ecn = leg.without_ecn.filter(|_| !service.ecn);
    let tag = proven.map_or(without_ecn, |[usual, without]| {
        Some(without_ecn.map_or(usual, |_| without))
    });
    let begun = match tag {
        None => socket::connect(&socket, server)?,
        Some(tag) => {
            let usual = socket::priority(&socket)?;
            socket::set_priority(&socket, tag)?;
            let begun = socket::connect(&socket, server)?;
            socket::set_priority(&socket, usual)?;
            begun
        }
    };
    let answered = begun == Dial::Connected || socket::is_answered(&socket);
    Ok(Dialled {
        socket,
        answered,
        other_port: false,
        control_lost,
    })
}

/// The neighbour to which the packets of `dialled` go, a connection begun to `server`. Where that does not answer, the kernel tells
/// only the address that was dialled from, the client's.
pub(crate) fn next_hop(
    routes: &Routes,
    dialled: impl AsFd,
    server: SocketAddr,
) -> Option<Neighbour> {
    let ask = || {
        routes.next_hop(&Sent {
            from: socket::local_address(&dialled)?,
            to: server,
            mark: socket::mark(&dialled)?,
            class: socket::traffic_class(&dialled, server)?,
        })
    };
    ask().unwrap_or_else(|error| {
        tracing::debug!(%server, %error, "the kernel does not tell by which neighbour a dial goes");
        None
    })
}

fn port_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::AddrInUse
            // The port is below 1024, and the process lacks CAP_NET_BIND_SERVICE.
            | io::ErrorKind::PermissionDenied
    )
}
