//! Connections that the host opens: from which address and port, and with what configuration.

use crate::host::{Host, largest_segment};
use crate::table::{ConnectionId, Owner};
use crate::{Tuple, isn};
use bentpipe_base::Instant;
use bentpipe_tcp::{self as tcp, Connection};
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use thiserror::Error;

/// The least segment that a peer can ask for, options counted to it: smaller ones would cost us more than the peer
/// (Linux `TCP_MIN_SND_MSS`; CVE-2019-11479).
const LEAST_PEER_MSS: u16 = 48;

/// No connection could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConnectError {
    /// The host has no address of the family of the destination, or not the one that was asked for.
    #[error("no address of this host to reach {0} from: give it one of that family")]
    NoAddress(IpAddr),
    /// All ports towards the destination are in use.
    #[error("all ports towards {0} are in use: close connections, or widen the range of ports")]
    NoPort(SocketAddr),
    /// The port that was asked for is in use towards the destination.
    #[error("port {0} is in use towards that destination")]
    PortInUse(u16),
    /// No host has the destination's address, or nobody its port (RFC 9293, section 3.9.1.1, MUST-46).
    #[error("{0} is no address of a host's port: it is unspecified, of many, or its port is 0")]
    NoHost(SocketAddr),
    /// There are as many connections as there may be.
    #[error("there are {0} connections already, as many as the host may have")]
    TooMany(usize),
}

impl Host {
    /// Opens a connection to `to`, from the address and port `from`: unspecified and 0 where the host shall choose.
    ///
    /// # Errors
    /// No address, no port, no destination, or too many connections.
    pub fn connect(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        config: &Arc<tcp::Config>,
        now: Instant,
    ) -> Result<ConnectionId, ConnectError> {
        if self.table.len() >= self.config.connections {
            return Err(ConnectError::TooMany(self.table.len()));
        }
        if crate::input::belongs_to_nobody(to.ip()) || to.port() == 0 {
            return Err(ConnectError::NoHost(to));
        }
        let local = self
            .source(from.ip(), to.ip())
            .ok_or(ConnectError::NoAddress(to.ip()))?;
        let (table, time_waits) = (&self.table, &self.time_waits);
        let free = |port| {
            let tuple = Tuple {
                local: SocketAddr::new(local, port),
                remote: to,
            };
            tuple.local != to && table.find(&tuple).is_none() && !time_waits.contains(&tuple)
        };
        let port = match from.port() {
            0 => {
                let (secret, range) = (&self.secret, &self.config.ports);
                let port = self.ports.choose(secret, range, local, to, free);
                port.ok_or(ConnectError::NoPort(to))?
            }
            port if free(port) => port,
            port => return Err(ConnectError::PortInUse(port)),
        };
        let tuple = Tuple {
            local: SocketAddr::new(local, port),
            remote: to,
        };
        let config = self.fitted(config, to.ip());
        let iss = isn::initial(&self.secret, &tuple, now);
        let mut connection = Connection::connect(config, iss, now);
        connection.set_clock(isn::clock_offset(&self.secret, &tuple));
        let path = self.paths.get(to.ip(), self.config.mtu, now);
        let most = largest_segment(path, tuple.ip_header());
        let cookies = &self.server_cookies;
        cookies.prepare(&mut connection, &tuple, most, now);
        let id = self.table.insert(tuple, connection, Owner::Application);
        self.wake(id);
        Ok(id)
    }

    /// The address to reach `to` from.
    fn source(&self, asked: IpAddr, to: IpAddr) -> Option<IpAddr> {
        let fits = |address: &&IpAddr| {
            address.is_ipv4() == to.is_ipv4() && (asked.is_unspecified() || **address == asked)
        };
        self.addresses.iter().find(fits).copied()
    }

    /// `config` for a peer of the family of `address`: headers as they are there, and segments that the interface takes.
    pub(crate) fn fitted(&self, config: &Arc<tcp::Config>, address: IpAddr) -> Arc<tcp::Config> {
        let header = if address.is_ipv4() { 20 } else { 40 };
        let most = largest_segment(self.config.mtu, header);
        if config.ip_header == header
            && config.mss <= most
            && config.least_peer_mss >= LEAST_PEER_MSS
        {
            return Arc::clone(config);
        }
        Arc::new(tcp::Config {
            ip_header: header,
            mss: config.mss.min(most),
            least_peer_mss: config.least_peer_mss.max(LEAST_PEER_MSS),
            ..tcp::Config::clone(config)
        })
    }
}
