//! Interfaces, addresses, routes and policy rules, by rtnetlink (rtnetlink(7), RFC 3549).
//!
//! A [`Netlink`] speaks to the namespace of the thread that opened it, from whatever thread it is
//! used later. Every call waits for the kernel's answer.
//!
//! Messages are built by `netlink-packet-route`, the crate under `rtnetlink`; `rtnetlink` itself is
//! not used, because its connection needs an async runtime: guards are dropped anywhere, also
//! inside an async task, where waiting for another runtime (or dropping one) panics. The kernel
//! answers each request within the `send`, so a blocking socket loses nothing.

mod diversion;
mod link;
mod offload;
mod route;
mod rule;
mod transport;
mod watch;

pub use bentpipe_base::{Family, ParsePrefixError, Prefix};
pub use diversion::{Diversion, TurnedBack};
pub use link::{LinkPoint, LinkStats, Veth, VethEnd};
pub use route::{Route, RouteGuard};
pub use rule::{Mark, Rule, RuleAction, RuleGuard, Table};
pub use watch::Watch;

pub(crate) use rule::owner_metric;

use crate::owner::OwnerError;
use netlink_packet_route::RouteNetlinkMessage;
use std::io;
use std::sync::Arc;
use thiserror::Error;
use transport::Transport;

/// A connection to the kernel's routing tables and interfaces in one namespace. Cheap to clone;
/// keeps the namespace alive.
#[derive(Clone, Debug)]
pub struct Netlink {
    transport: Arc<Transport>,
}

/// The kernel refused a change or a question about interfaces, addresses, routes or rules.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// No socket.
    #[error("cannot open a netlink socket ({0}): does this kernel have networking?")]
    Open(#[source] io::Error),
    /// The kernel's answer was an error.
    #[error("cannot {doing} ({source}){}", hint(.source))]
    Refused {
        /// What was asked.
        doing: String,
        /// Why not.
        source: io::Error,
    },
    /// There is no such interface.
    #[error("there is no interface `{0}`: `ip link` shows those there are")]
    NoInterface(String),
    /// No interface can have this name.
    #[error("`{0}` cannot name an interface: 1 to 15 characters without `/`, `:` and spaces")]
    BadName(String),
    /// A value the kernel's message cannot hold.
    #[error("cannot {doing}: {why}")]
    BadValue {
        /// What was asked.
        doing: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Our own name is unknown.
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => ": run as root (CAP_NET_ADMIN)",
        Some(libc::EEXIST) => ": it is there already",
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            ": no interface has an address in the gateway's network"
        }
        Some(libc::ENETDOWN) => ": the interface is down",
        Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT) => ": the kernel was built without it",
        _ => "",
    }
}

impl Netlink {
    /// Opens a connection into the calling thread's namespace.
    ///
    /// # Errors
    /// Fails when no netlink socket can be made.
    pub fn open() -> Result<Self, NetlinkError> {
        let transport = Transport::open().map_err(NetlinkError::Open)?;
        Ok(Self {
            transport: Arc::new(transport),
        })
    }

    fn change(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        doing: impl Fn() -> String,
    ) -> Result<(), NetlinkError> {
        self.transport
            .change(message, flags)
            .map_err(|source| NetlinkError::Refused {
                doing: doing(),
                source,
            })
    }

    fn list(
        &self,
        message: &RouteNetlinkMessage,
        doing: &str,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        self.transport
            .list(message)
            .map_err(|source| NetlinkError::Refused {
                doing: doing.to_owned(),
                source,
            })
    }

    /// Nothing for IPv6 where the kernel has none.
    fn list_family(
        &self,
        family: Family,
        message: RouteNetlinkMessage,
        doing: &str,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        match self.list(&message, doing) {
            Err(NetlinkError::Refused { source, .. })
                if family == Family::V6
                    && matches!(
                        source.raw_os_error(),
                        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
                    ) =>
            {
                Ok(Vec::new())
            }
            result => result,
        }
    }
}
