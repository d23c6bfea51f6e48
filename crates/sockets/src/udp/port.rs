//! Lets a server and listeners to multicast groups share one UDP port.
//!
//! Sockets of one user may share a port if all of them have SO_REUSEPORT. A server's socket gets that option only after
//! it is bound, so that a second server is refused. Sockets of different users may share a port if all have
//! SO_REUSEADDR, but then anybody could take a server's datagrams. So a server's socket has that option only while it
//! is being bound beside listeners that are there already.

use super::Udp;
use crate::socket::{bind, set_reuse_address, set_reuse_port};
use rustix::process::Uid;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket that is bound to a port.
struct Holder {
    address: IpAddr,
    user: u32,
}

impl Udp {
    /// A socket for a server on `address`. Its port is shared only with listeners to groups that use
    /// [`Self::bind_group`], earlier or later. All addresses of both families are those of IPv4 where there is no IPv6.
    ///
    /// # Errors
    /// What the kernel says, such as an address in use.
    pub fn bind_server(address: SocketAddr) -> io::Result<Self> {
        match Self::bind_server_at(address) {
            Err(error) if is_without_ipv6(&error) && address.ip() == Ipv6Addr::UNSPECIFIED => {
                Self::bind_server_at((Ipv4Addr::UNSPECIFIED, address.port()).into())
            }
            bound => bound,
        }
    }

    fn bind_server_at(address: SocketAddr) -> io::Result<Self> {
        let udp = match Self::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && servers(address)?.is_empty() => {
                let udp = Self::open(address)?;
                set_reuse_address(&udp.fd, true)?;
                bind(&udp.fd, address)?;
                set_reuse_address(&udp.fd, false)?;
                // Another server may have been bound at the same moment.
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
        // The port belongs to the user who has it, so this socket is given to that user where the kernel allows it.
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

/// Whether `error` says that there is no IPv6: not in this kernel, not for this process, or no address of it.
fn is_without_ipv6(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    matches!(
        errno,
        Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL)
    )
}

/// The sockets that have the port of `address`, without listeners to groups.
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
