//! TCP Fast Open as Linux offers it to programs: `TCP_FASTOPEN` of a socket that listens, `MSG_FASTOPEN` of one that connects,
//! `net.ipv4.tcp_fastopen` for all of them.

use crate::errno::{Answer, Errno};
use crate::socket::Kind;
use crate::stack::State;
use bentpipe_host::ListenerId;
use core::ffi::c_int;
use core::net::SocketAddr;

/// Bits of `net.ipv4.tcp_fastopen`.
const CLIENTS: u32 = 1;
const SERVERS: u32 = 2;

impl State {
    /// At most so many connections of `listener` are opened early.
    pub(crate) fn set_fast_open(&mut self, listener: ListenerId, most: c_int) {
        let allowed = self.fast_open & SERVERS != 0;
        let most = usize::try_from(most).unwrap_or(0);
        self.host
            .set_fast_open(listener, if allowed { most } else { 0 });
    }

    /// Connects to `to`. Where the server's cookie is known, what fits of `bytes` is written before the SYN leaves, and how much
    /// that is comes back; `None`: they have to wait for the handshake.
    pub(crate) fn connect_fast(
        &mut self,
        fd: c_int,
        to: SocketAddr,
        bytes: &[u8],
    ) -> Answer<Option<usize>> {
        if self.fast_open & CLIENTS == 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        if self.socket(fd)?.kind != Kind::Idle {
            return Err(Errno(libc::EISCONN));
        }
        let id = self.open_connection(fd, to, true)?;
        let local = self.host.tuple(id).map(|tuple| tuple.local.ip());
        let cookie = local.and_then(|local| self.host.server_cookie(local, to.ip()));
        if cookie.is_none() {
            return Ok(None);
        }
        let connection = self.host.connection_mut(id);
        Ok(connection.map(|connection| connection.write(bytes)))
    }
}
