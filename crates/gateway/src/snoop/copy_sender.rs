//! How copies leave: as the packet itself was forwarded, though they are packets of this machine.
//!
//! They have the addresses that conntrack gave to the packet behind the queue (it is asked; what goes by it as a packet of this machine would
//! be translated once more where the packet's own direction is not), the mark of split connections, by which conntrack
//! leaves them alone and they go past closed output chains ([`crate::filter_chain_skipper`]), the interface by which the packet left,
//! and the router to which its route goes, whatever rules of routing say of the machine's own. Where something that leaves
//! is encrypted by IPsec, nothing is sent again, for what decides about that is the packet's own path.

use super::held_packet::HeldPacket;
use bentpipe_base::Instant;
use bentpipe_gateway_config::LegId;
use bentpipe_interception::Marks;
use bentpipe_os::conntrack::{Conntrack, Translation};
use bentpipe_os::ipsec;
use bentpipe_os::neighbour::Routes;
use bentpipe_sockets::raw_ip::{RawIp, Way};
use bentpipe_sockets::timer;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often it is asked whether there is IPsec.
const TICK: Duration = Duration::from_secs(1);

/// Sends copies.
pub(super) struct CopySender {
    raw: RawIp,
    routes: Routes,
    conntrack: Conntrack,
    marks: Marks,
    /// Whether addresses are translated in this namespace.
    translates: Arc<AtomicBool>,
    /// Whether something that leaves may be encrypted, and until when that is believed.
    encrypts: Cell<(bool, Instant)>,
}

/// Why a copy has not left.
#[derive(Debug)]
pub(super) enum NotSent {
    /// There is no room just now: it is as if the link had lost it.
    Busy,
    /// No copy of this connection will leave.
    Refused(String),
}

impl CopySender {
    /// Opens it for the calling thread's namespace.
    pub(super) fn open(marks: Marks, translates: Arc<AtomicBool>) -> Result<Self, String> {
        let raw = RawIp::open()
            .map_err(|error| format!("no raw socket ({error}; it wants CAP_NET_RAW)"))?;
        let routes = Routes::open().map_err(|error| format!("no routes ({error})"))?;
        let conntrack = Conntrack::open().map_err(|error| format!("no conntrack ({error})"))?;
        Ok(Self {
            raw,
            routes,
            conntrack,
            marks,
            translates,
            encrypts: Cell::new((false, Instant::ZERO)),
        })
    }

    /// Sends a copy, which goes to `leg`.
    pub(super) fn send(&self, held: &HeldPacket, leg: LegId) -> Result<(), NotSent> {
        if self.encrypts() {
            return Err(NotSent::Refused(
                "this machine has policies of IPsec".to_owned(),
            ));
        }
        self.attempt(held, leg).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => NotSent::Busy,
            _ => NotSent::Refused(error.to_string()),
        })
    }

    fn attempt(&self, held: &HeldPacket, leg: LegId) -> io::Result<()> {
        let forwarded = held.forwarded().ok_or(io::ErrorKind::InvalidInput)?;
        let way = Way {
            interface: forwarded.leaves_by,
            router: self.routes.router_of(&forwarded)?,
            mark: self.marks.leg(leg),
        };
        let own = (forwarded.from, forwarded.to);
        let known = self.conntrack.translation(own.0, own.1);
        let (source, destination) = leaves_as(own, known, self.translates.load(Ordering::Relaxed))?;
        self.raw.send(&held.between(source, destination)?, &way)
    }

    fn encrypts(&self) -> bool {
        let (mut encrypts, until) = self.encrypts.get();
        let now = timer::now();
        if now >= until {
            // What cannot be asked is not known to be clear.
            encrypts = ipsec::policies_out().map_or(true, |count| count > 0);
            self.encrypts.set((encrypts, now + TICK));
        }
        encrypts
    }
}

/// Source and destination with which a packet of the forward hook leaves, which has its `own` there; `known` is what conntrack says
/// of it. Where nobody `translates` addresses, those that it does not know leave as they are. Where somebody does, it may be asked in
/// vain (the kernel has no CONFIG_NF_CT_NETLINK), or for a connection of a zone, or both of whose ends are translated.
///
/// # Errors
/// It is not known how the packet left.
fn leaves_as(
    own: (SocketAddr, SocketAddr),
    known: io::Result<Option<Translation>>,
    translates: bool,
) -> io::Result<(SocketAddr, SocketAddr)> {
    match known {
        Ok(Some(known)) if known.shifted => {
            Err(io::Error::other("conntrack changes its sequence numbers"))
        }
        Ok(Some(known)) => Ok(known.leaves_as),
        _ if !translates => Ok(own),
        Ok(None) => Err(io::Error::other(
            "addresses are translated here, and conntrack does not know this connection",
        )),
        Err(error) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("addresses are translated here, and conntrack cannot be asked ({error})"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_translated_otherwise_does_not_leave() {
        let ends = |from: &str, to: &str| (from.parse().unwrap(), to.parse().unwrap());
        let own = ends("10.0.0.2:700", "192.0.2.1:80");
        let public = ends("198.51.100.9:700", "192.0.2.1:80");
        let known = |shifted| {
            Ok(Some(Translation {
                leaves_as: public,
                shifted,
            }))
        };
        for translates in [true, false] {
            assert_eq!(leaves_as(own, known(false), translates).unwrap(), public);
            assert!(leaves_as(own, known(true), translates).is_err());
        }
        let cannot = || Err(io::ErrorKind::InvalidInput.into());
        for unknown in [|| Ok(None), cannot] {
            assert_eq!(leaves_as(own, unknown(), false).unwrap(), own);
            let error = leaves_as(own, unknown(), true).unwrap_err();
            assert_ne!(error.kind(), io::ErrorKind::WouldBlock);
            assert!(error.to_string().contains("translated here"), "{error}");
        }
    }
}
