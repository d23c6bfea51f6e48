//! One port for a server and for those who listen to groups at it.
//!
//! Sockets of one user meet at a port where all of them have SO_REUSEPORT. A server's has it once it is bound, so that a
//! second server is refused. Those of any user meet where all have SO_REUSEADDR, but then anybody could take a
//! server's datagrams: a server's has it while it is bound beside listeners that are there already, and no longer.

use super::Udp;
use crate::socket::{bind, set_reuse_address, set_reuse_port};
use rustix::process::Uid;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Who has a port.
struct Holder {
    address: IpAddr,
    user: u32,
}

impl Udp {
    /// A socket for a server on `address`, which nobody else has: but for who listens to groups at its port, now or
    /// later, by [`Self::bind_group`].
    ///
    /// # Errors
    /// What the kernel says, such as an address in use.
    pub fn bind_server(address: SocketAddr) -> io::Result<Self> {
        let udp = match Self::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && servers(address)?.is_empty() => {
                let udp = Self::open(address)?;
                set_reuse_address(&udp.fd, true)?;
                bind(&udp.fd, address)?;
                set_reuse_address(&udp.fd, false)?;
                // Another may have done the same meanwhile.
                if servers(address)?.len() > 1 {
                    return Err(error);
                }
                udp
            }
            bound => bound?,
        };
        set_reuse_port(&udp.fd, true)?;
        Ok(udp)
    }

    /// A socket that hears what is sent to the group `address`, once it has joined it by an interface. Others that do
    /// may have the port too, and a server: of this user, or where this process may own files of others (root) of any.
    ///
    /// # Errors
    /// What the kernel says; a server of another user.
    pub fn bind_group(address: SocketAddr) -> io::Result<Self> {
        let udp = Self::open(address)?;
        set_reuse_address(&udp.fd, true)?;
        set_reuse_port(&udp.fd, true)?;
        let bound = bind(&udp.fd, address);
        if !matches!(&bound, Err(error) if error.kind() == ErrorKind::AddrInUse) {
            return bound.map(|()| udp);
        }
        let Some(Holder { user, .. }) = servers(address)?.pop() else {
            return bound.map(|()| udp);
        };
        // The port is its user's: so is this socket, if the kernel lets it be.
        let given = rustix::fs::fchown(&udp.fd, Some(Uid::from_raw(user)), None);
        let bound = given.is_ok() && bind(&udp.fd, address).is_ok();
        if !bound {
            let port = address.port();
            let why = format!("user {user} has port {port}: do this as that user or as root");
            return Err(io::Error::new(ErrorKind::AddrInUse, why));
        }
        Ok(udp)
    }
}

/// Who has the port of `address`, but for listeners to groups.
fn servers(address: SocketAddr) -> io::Result<Vec<Holder>> {
    let mut found = Vec::new();
    for table in ["udp", "udp6"] {
        let text = match fs::read_to_string(format!("/proc/thread-self/net/{table}")) {
            // A kernel without IPv6.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text?,
        };
        let holders = text.lines().filter_map(|line| holder(line, address.port()));
        found.extend(holders.filter(|holder| !holder.address.is_multicast()));
    }
    Ok(found)
}

/// The socket of a line of /proc/net/udp, if it has `port`.
fn holder(line: &str, port: u16) -> Option<Holder> {
    let mut fields = line.split_whitespace().skip(1);
    let (address, own) = fields.next()?.split_once(':')?;
    (u16::from_str_radix(own, 16) == Ok(port)).then_some(())?;
    // Between them: the peer, the state, queues, timer and retransmissions.
    let user = fields.nth(5)?.parse().ok()?;
    // Words of 32 bits, each in the order of this machine.
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
    let address = match address.len() {
        8 => Ipv4Addr::from(word(0)?.to_ne_bytes()).into(),
        _ => {
            let mut octets = [0; 16];
            for (i, part) in octets.chunks_mut(4).enumerate() {
                part.copy_from_slice(&word(8 * i)?.to_ne_bytes());
            }
            Ipv6Addr::from(octets).into()
        }
    };
    Some(Holder { address, user })
}
