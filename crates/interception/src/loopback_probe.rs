//! Probes whether looped SYNs come back: opens a connection over `lo` between two addresses that nobody has, with a mark
//! like that of looped SYNs. An operator's rules that drop or divert what comes by `lo` do so to this one too. It uses no
//! nft table, because when a table is removed the kernel drops the SYNs that a gateway holds.

use crate::foreign_marks::ForeignMarks;
use crate::mark::Marks;
use bentpipe_os::netlink::{Family, Mark, Netlink, NetlinkError};
use bentpipe_os::owner::{Owner, OwnerError};
use bentpipe_sockets::socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Addresses of documentation (RFC 5737, RFC 3849): where it comes from, where it goes.
const ENDS: [(Family, &str, &str); 2] = [
    (Family::V4, "192.0.2.1:0", "192.0.2.2:0"),
    (Family::V6, "[2001:db8::1]:0", "[2001:db8::2]:0"),
];
/// The table that it is led by: one that no gateway of this process has.
const SLOT: u8 = 3;
/// How long the probe may take: it arrives at once, unless the machine is busy.
const PATIENCE: Duration = Duration::from_millis(300);

/// The probe could not be made.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// Our own process is unknown.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// No rules or routes for it.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// It cannot be begun.
    #[error("cannot connect over `lo` ({0}): see the kernel's reason")]
    Io(#[from] io::Error),
}

/// The families of which a SYN over `lo` does not arrive, in the calling thread's namespace.
///
/// # Errors
/// See [`ProbeError`]. Where IPv6 cannot be tried it is left out.
pub fn lost_over_loopback() -> Result<Vec<Family>, ProbeError> {
    let mark = Marks::new(Owner::current()?, &ForeignMarks::default()).for_any_worker();
    let mut lost = Vec::new();
    for (family, from, to) in ENDS {
        let ends = [from, to].map(|end| end.parse().ok());
        let [Some(from), Some(to)] = ends else {
            continue;
        };
        match arrives(family, mark, from, to) {
            Ok(true) => {}
            Ok(false) => lost.push(family),
            Err(_) if family == Family::V6 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lost)
}

fn arrives(
    family: Family,
    mark: u32,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<bool, ProbeError> {
    let netlink = Netlink::open()?;
    let _led = netlink.turn_back(family, Mark::exact(mark), SLOT)?;
    let listener = transparent(to, mark)?;
    socket::listen(&listener, 1)?;
    let to = socket::local_address(&listener)?;
    let syn = transparent(from, mark)?;
    // A rule that leads it elsewhere may let it fail here: then it does not arrive either.
    let _ = socket::connect(&syn, to);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if socket::accept(&listener).is_ok() {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(false)
}

/// A socket at an address that nobody has.
fn transparent(address: SocketAddr, mark: u32) -> io::Result<OwnedFd> {
    let socket = socket::stream(address)?;
    socket::set_transparent(&socket, address)?;
    socket::set_mark(&socket, mark)?;
    // Neither end waits in TIME_WAIT.
    socket::abort_on_close(&socket, true)?;
    socket::bind(&socket, address)?;
    Ok(socket)
}
