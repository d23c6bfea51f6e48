//! Flows whose satellite leg is a tunnel, and not a connection of the kernel's TCP: they leave the worker with the client's accepted
//! socket.
//!
//! End to end, a client's SYN is held until the far end of the tunnel has dialled, as for a dial of ours; the answer comes
//! by [`Shared::tell_tunnel_answer`]. Early, the accepted socket is handed on, and what the client says leaves at once.

use crate::flow_guard::FlowGuard;
use crate::worker_coordination::Shared;
use bentpipe_base::Instant;
use bentpipe_gateway_config::Ends;
use bentpipe_sockets::tcp;
use std::any::Any;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a tunnelled flow holds until it ends.
pub type Keep = Box<dyn Any + Send>;

/// Why there is no tunnel to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTunnel {
    /// The far end of the tunnels is not reached.
    Down,
    /// The server refuses.
    Refused,
    /// It gives no answer.
    Silent,
    /// There is no way to it, or the far end dials nobody there.
    Unreachable,
}

/// Carries flows over the satellite by tunnels.
pub trait Tunnels: fmt::Debug + Send + Sync {
    /// Whether it can at present. It is asked once for each connection.
    fn is_up(&self) -> bool;

    /// How many tunnels were asked for whose far end has not dialled yet, and how many of these carry connections of `client`.
    fn awaited(&self, client: IpAddr) -> (usize, usize);

    /// Carries a client's connection to `server`, and resets it where that fails; `keep` is dropped when it has ended.
    fn carry(&self, client: OwnedFd, server: SocketAddr, keep: Keep);

    /// Asks for a tunnel between `ends`. `answer` is called from another thread, unless the tunnel is dropped before.
    fn ask(&self, ends: Ends, answer: Answer) -> Box<dyn Tunnel>;
}

/// Is told whether the far end has dialled.
pub type Answer = Box<dyn FnOnce(Result<(), NoTunnel>) + Send>;

/// A tunnel that was asked for. Dropping it gives it up.
pub trait Tunnel: fmt::Debug + Send {
    /// Carries a client's connection on it.
    fn join(self: Box<Self>, client: OwnedFd, keep: Keep);
}

/// The most dials of the far end that are under way when a SYN is answered early, and the most of one client: beyond that the SYN is
/// held. The far end dials for 256 at a time, and what is answered early can only be reset where it does not dial; what is held
/// passes then.
const DIALS_OF_ALL: usize = 192;
const DIALS_OF_ONE: usize = 64;

/// The tunnels of a gateway, and how they are used.
#[derive(Clone, Debug)]
pub struct TunnelPlan {
    /// What carries.
    pub tunnels: Arc<dyn Tunnels>,
    /// Whether SYNs are answered before the far end has dialled.
    pub early: bool,
    /// Whether clients are refused while there are no tunnels; otherwise their connections pass end to end.
    pub refuses: bool,
}

impl TunnelPlan {
    /// Whether a SYN of `client` is answered before the far end has dialled.
    pub(crate) fn answers_early(&self, client: IpAddr) -> bool {
        self.early && {
            let (all, own) = self.tunnels.awaited(client);
            all < DIALS_OF_ALL && own < DIALS_OF_ONE
        }
    }
}

/// What the far end has said to a held SYN.
#[derive(Debug)]
pub(crate) struct TunnelAnswer {
    pub(crate) ends: Ends,
    /// When the SYN came: a later one between the same ends is another.
    pub(crate) begun: Instant,
    pub(crate) result: Result<(), NoTunnel>,
}

/// The far side of a SYN that is held or let in.
#[derive(Debug)]
pub(crate) enum FarSide {
    /// A socket that dials, or has.
    Socket(OwnedFd),
    /// A tunnel, whose far end dials, or has.
    Tunnel(Box<dyn Tunnel>),
}

impl FarSide {
    /// Asks for a tunnel for the SYN between `ends` that came at `begun`; `worker` is told of the answer.
    pub(crate) fn ask(
        tunnels: &dyn Tunnels,
        (ends, begun): (Ends, Instant),
        shared: &Arc<Shared>,
        worker: usize,
    ) -> Self {
        let shared = Arc::clone(shared);
        let answer = move |result| {
            let answer = TunnelAnswer {
                ends,
                begun,
                result,
            };
            shared.tell_tunnel_answer(worker, answer);
        };
        Self::Tunnel(tunnels.ask(ends, Box::new(answer)))
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Socket(socket) => Some(socket.as_fd()),
            Self::Tunnel(_) => None,
        }
    }

    /// Whether a dial of ours has had no answer yet.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.socket().is_some_and(tcp::is_unanswered)
    }

    /// Whether a dial of ours was answered for a connection that stands.
    pub(crate) fn is_challenged(&self) -> bool {
        self.socket().is_some_and(tcp::is_challenged)
    }
}

impl Shared {
    /// Counts a flow that leaves the worker, until what this gives is dropped.
    pub(crate) fn keep_flow(self: &Arc<Self>, client: SocketAddr) -> Keep {
        Box::new(FlowGuard::new(self, client.ip()))
    }
}
