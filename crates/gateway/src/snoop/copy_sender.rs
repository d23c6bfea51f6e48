//! How copies leave: as the packet itself was forwarded, though they are packets of this machine.
//!
//! They have the addresses that conntrack gave to the packet behind the queue (it is asked; what goes by it as a packet of this machine would
//! be translated once more where the packet's own direction is not), the mark of split connections, by which conntrack
//! leaves them alone and they go past closed output chains ([`crate::filter_chain_skipper`]), the interface by which the packet left,
//! and the router to which its route goes, whatever rules of routing say of the machine's own. Where something that leaves
//! is encrypted by IPsec, nothing is sent again, for what decides about that is the packet's own path.

use super::held::Held;
use bentpipe_base::Instant;
use bentpipe_gateway_config::LegId;
use bentpipe_interception::Marks;
use bentpipe_os::conntrack::Conntrack;
use bentpipe_os::ipsec;
use bentpipe_os::neighbour::Routes;
use bentpipe_sockets::raw_ip::{RawIp, Way};
use bentpipe_sockets::timer;
use std::cell::Cell;
use std::io;
use std::time::Duration;

/// How often it is asked whether there is IPsec.
const TICK: Duration = Duration::from_secs(1);

/// Sends copies.
pub(super) struct CopySender {
    raw: RawIp,
    routes: Routes,
    conntrack: Conntrack,
    marks: Marks,
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
    pub(super) fn open(marks: Marks) -> Result<Self, String> {
        let raw = RawIp::open()
            .map_err(|error| format!("no raw socket ({error}; it wants CAP_NET_RAW)"))?;
        let routes = Routes::open().map_err(|error| format!("no routes ({error})"))?;
        let conntrack = Conntrack::open().map_err(|error| format!("no conntrack ({error})"))?;
        Ok(Self {
            raw,
            routes,
            conntrack,
            marks,
            encrypts: Cell::new((false, Instant::ZERO)),
        })
    }

    /// Sends a copy, which goes to `leg`.
    pub(super) fn send(&self, held: &Held, leg: LegId) -> Result<(), NotSent> {
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

    fn attempt(&self, held: &Held, leg: LegId) -> io::Result<()> {
        let forwarded = held.forwarded().ok_or(io::ErrorKind::InvalidInput)?;
        let way = Way {
            interface: forwarded.leaves_by,
            router: self.routes.router_of(&forwarded)?,
            mark: self.marks.leg(leg),
        };
        let (mut source, mut destination) = (forwarded.from, forwarded.to);
        // Where conntrack cannot be asked, nothing is known to be translated.
        if let Ok(Some(known)) = self.conntrack.translation(source, destination) {
            if known.shifted {
                return Err(io::Error::other("conntrack changes its sequence numbers"));
            }
            (source, destination) = known.leaves_as;
        }
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
