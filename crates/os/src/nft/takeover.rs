//! Keeps the kernel's hands off the frames of interfaces, while a program carries them in its place.
//!
//! A program that reads frames ([`bentpipe_sockets::packet::PacketSocket`]) gets copies; the kernel goes on with the frames themselves: to
//! a bridge, to its own addresses, to routing. The rules here drop them behind the place where the copies are made. They
//! do so for [`LIFE`] after each time that the program said that it is there: one that hangs, is stopped or frozen says so no
//! longer, and one that is killed takes the table with it. Then the kernel carries the frames, if it has a way for them: a
//! bridge whose ports the interfaces are.
//!
//! As in [`super::switch`] a datagram to ourselves renews an element of a set, here in the ingress hook of `lo`, for a table of
//! the family netdev, which sees frames of all kinds, has no other hook.

use super::{LIFE, NftError, OwnerTable, TableFamily};
use bentpipe_sockets::socket;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Before the rules of others.
const PLACE: i32 = -1000;
/// The upper bits of the datagrams' mark.
const MARK: u32 = 0x6275_0000;
/// To whom the datagrams go; they never arrive.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// Interfaces whose frames are a program's. With the value it all goes.
#[derive(Debug)]
pub struct Takeover {
    table: OwnerTable,
    hold: UdpSocket,
}

impl Takeover {
    /// Takes over `interfaces` of the calling thread's namespace (CAP_NET_ADMIN), from the first [`Takeover::hold`] on.
    ///
    /// # Errors
    /// No such interface; no nft; a kernel that does not filter there.
    pub fn load(interfaces: &[&str]) -> Result<Self, NftError> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        // Two programs of one namespace would have to have the same mark to renew each other's element: they do not share a set.
        let mark = MARK | serial & 0xffff;
        let body = body(interfaces, mark);
        let refused = |source| NftError::Io {
            doing: "make a socket that says that we are there".to_owned(),
            source,
        };
        let open = || {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_nonblocking(true)?;
            socket::set_mark(&socket, mark)?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self {
            hold: open().map_err(refused)?,
            table: OwnerTable::load(TableFamily::Netdev, "bridge", &body)?,
        })
    }

    /// The program is there, and carries the frames for [`LIFE`] more.
    ///
    /// # Errors
    /// The interface `lo` is off.
    pub fn hold(&self) -> io::Result<()> {
        self.hold.send_to(&[], NOBODY).map(drop)
    }

    /// Whether the table is there: somebody may have killed the process that holds it.
    pub fn is_there(&self) -> bool {
        self.table.is_held()
    }
}

fn body(interfaces: &[&str], mark: u32) -> String {
    let names: Vec<_> = interfaces
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    format!(
        "\
set attended {{
  type mark; size 4; flags dynamic, timeout;
}}
chain hold {{
  type filter hook ingress device \"lo\" priority {PLACE}; policy accept;
  meta mark {mark:#x} update @attended {{ meta mark timeout {}ms }} drop
}}
chain take {{
  type filter hook ingress devices = {{ {} }} priority {PLACE}; policy accept;
  meta mark & 0 ^ {mark:#x} @attended drop
}}
",
        LIFE.as_millis(),
        names.join(", ")
    )
}
