//! UDP flows (CONNECT-UDP, RFC 9298), of a far end a connected socket each, and a tunnel; those of a near end are in `client_udp`. Nothing is kept of what either cannot take at
//! once; it is dropped, as it may be on any way, and counted.

use crate::client_udp::ClientFlows;
use crate::dial::failure;
use crate::driver::{Driver, Part};
use crate::far_end::{Candidates, is_own, is_taken};
use bentpipe_connect_tcp::DialError;
use bentpipe_quic::ConnectionId;
use bentpipe_sockets::epoll::{Epoll, Interest};
use bentpipe_sockets::udp::{self, is_too_long};
use bentpipe_tunnel::{NotSent, Read, TunnelId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Datagrams of a socket before others have their turn.
const ROUNDS: usize = 32;

/// A UDP flow.
#[derive(Debug)]
struct UdpFlow {
    socket: UdpSocket,
    tunnel: TunnelId,
    /// When a datagram last went either way.
    active: Instant,
}

/// What became of UDP at this end, in datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UdpStatus {
    /// Flows at present.
    pub flows: usize,
    /// From tunnels to sockets.
    pub out: u64,
    /// From sockets into tunnels.
    pub into: u64,
    /// Dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Flows that ICMP ended.
    pub unreachable: u64,
    /// Flows that ended since nothing went either way.
    pub idle: u64,
    /// Near: datagrams of clients that found no tunnel, and passed end to end or were refused.
    pub passed: u64,
}

/// The UDP flows of a driver.
#[derive(Debug, Default)]
pub(crate) struct UdpFlows {
    by_token: BTreeMap<u64, UdpFlow>,
    tokens: BTreeMap<TunnelId, u64>,
    out: u64,
    pub(crate) into: u64,
    /// What servers' paths do not take, and what a socket had no room for.
    too_long: u64,
    full: u64,
    unreachable: u64,
    idle: u64,
    /// Near: those of clients.
    pub(crate) clients: Option<ClientFlows>,
}

impl UdpFlows {
    fn add(&mut self, epoll: &Epoll, token: u64, flow: UdpFlow) -> io::Result<()> {
        epoll.add(&flow.socket, token, Interest::READ)?;
        self.tokens.insert(flow.tunnel, token);
        self.by_token.insert(token, flow);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_token.is_empty() && self.clients.as_ref().is_none_or(ClientFlows::is_empty)
    }

    pub(crate) fn has_token(&self, token: u64) -> bool {
        self.by_token.contains_key(&token) || self.is_of_clients(token)
    }

    fn is_of_clients(&self, token: u64) -> bool {
        { self.clients.as_ref() }.is_some_and(|clients| clients.token() == token)
    }

    /// Near: how long until the port of clients is to be told whether there are tunnels.
    pub(crate) fn attend_in(&self) -> Option<Duration> {
        self.clients.as_ref().map(ClientFlows::attend_in)
    }

    pub(crate) fn has(&self, tunnel: TunnelId) -> bool {
        self.tokens.contains_key(&tunnel) || { self.clients.as_ref() }
            .is_some_and(|it| it.has(tunnel))
    }

    /// The flow is no more; whether it was.
    pub(crate) fn forget(&mut self, tunnel: TunnelId) -> bool {
        if { self.clients.as_mut() }.is_some_and(|clients| clients.forget(tunnel)) {
            return true;
        }
        let token = self.tokens.remove(&tunnel);
        token.is_some_and(|token| self.by_token.remove(&token).is_some())
    }

    /// A connection is gone.
    pub(crate) fn forget_all(&mut self, lost: ConnectionId) {
        self.tokens.retain(|tunnel, _| tunnel.connection != lost);
        self.by_token
            .retain(|_, flow| flow.tunnel.connection != lost);
        { self.clients.iter_mut() }.for_each(|clients| clients.forget_all(lost));
    }

    fn idle_for(&self, time: Duration) -> Vec<TunnelId> {
        let late = { self.by_token.values() }.filter(|flow| flow.active.elapsed() >= time);
        late.map(|flow| flow.tunnel).collect()
    }
}

impl Driver {
    /// How UDP stands.
    pub(crate) fn udp_status(&self) -> UdpStatus {
        let (flows, counted) = (&self.udp_flows, self.side.datagrams());
        UdpStatus {
            flows: flows.by_token.len() + flows.clients.as_ref().map_or(0, ClientFlows::len),
            out: flows.out,
            into: flows.into,
            dropped: BTreeMap::from([
                ("too_long", counted.too_long + flows.too_long),
                ("full", counted.full + flows.full),
                ("unknown_context", counted.unknown_context),
                ("unwanted", counted.unwanted),
                ("malformed", counted.malformed),
            ]),
            unreachable: flows.unreachable,
            idle: flows.idle,
            passed: flows.clients.as_ref().map_or(0, |clients| clients.passed),
        }
    }

    /// Far: opens a socket to the first of these that may be reached.
    pub(crate) fn dial_udp(&mut self, tunnel: TunnelId, candidates: Candidates) {
        let Part::Far(serving) = &self.part else {
            return;
        };
        let policy = &serving.far.policy;
        let mut why = DialError::Prohibited;
        let (client, rest) = (candidates.client, candidates.rest);
        for address in { rest.into_iter() }.filter(|&one| policy.allows(one, is_own)) {
            let source = self.source(tunnel, client, address);
            let begun = match udp::connected(address, source) {
                Err(error) if source.is_some() && is_taken(&error) => {
                    udp::connected(address, None).map(|socket| (socket, None))
                }
                begun => begun.map(|socket| (socket, source)),
            };
            match begun {
                Ok((socket, source)) => {
                    self.counters.from_clients += u64::from(source.is_some());
                    return self.begin_udp(tunnel, socket);
                }
                Err(error) => why = failure(&error),
            }
        }
        self.refuse(tunnel, why);
    }

    fn begin_udp(&mut self, tunnel: TunnelId, socket: UdpSocket) {
        let token = self.new_token();
        let active = Instant::now();
        let flow = UdpFlow {
            socket,
            tunnel,
            active,
        };
        if self.udp_flows.add(&self.epoll, token, flow).is_err() {
            return self.refuse(tunnel, DialError::Internal);
        }
        self.counters.opened += 1;
        if self.side.accept(tunnel).is_err() {
            self.udp_flows.forget(tunnel);
        }
    }

    /// A payload has come by a tunnel.
    pub(crate) fn udp_came(&mut self, tunnel: TunnelId, payload: &[u8]) {
        let flows = &mut self.udp_flows;
        if let Some(clients) = &mut flows.clients {
            match clients.answer(tunnel, payload) {
                Some(true) => flows.out += 1,
                Some(false) => flows.full += 1,
                None => {}
            }
            return;
        }
        let token = flows.tokens.get(&tunnel);
        let Some(flow) = token.and_then(|token| flows.by_token.get_mut(token)) else {
            return;
        };
        flow.active = Instant::now();
        match flow.socket.send(payload) {
            Ok(_) => flows.out += 1,
            Err(error) if is_too_long(&error) => flows.too_long += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => flows.full += 1,
            Err(error) => self.end_unreachable(tunnel, &error),
        }
    }

    /// Something has come to the socket of a UDP flow.
    pub(crate) fn pump_udp(&mut self, token: u64) {
        if self.udp_flows.is_of_clients(token) {
            return self.pump_clients();
        }
        for _ in 0..ROUNDS {
            let Some(flow) = self.udp_flows.by_token.get_mut(&token) else {
                return;
            };
            let tunnel = flow.tunnel;
            match flow.socket.recv(&mut self.buffer) {
                Ok(length) => {
                    flow.active = Instant::now();
                    match self.side.send_udp(tunnel, &self.buffer[..length]) {
                        Ok(()) => self.udp_flows.into += 1,
                        // The side counts them.
                        Err(NotSent::TooLong(_) | NotSent::Full) => {}
                        Err(NotSent::Closed) => return self.end_udp(tunnel),
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_too_long(&error) => self.udp_flows.too_long += 1,
                Err(error) => return self.end_unreachable(tunnel, &error),
            }
        }
    }

    /// The kernel says that a socket is of no more use, as where ICMP says so: the request ends with it (RFC 9298, section 3.1).
    fn end_unreachable(&mut self, tunnel: TunnelId, error: &io::Error) {
        tracing::debug!(%error, "a UDP flow ends");
        self.udp_flows.unreachable += 1;
        self.end_udp(tunnel);
    }

    fn end_udp(&mut self, tunnel: TunnelId) {
        if self.udp_flows.forget(tunnel) {
            self.side.reset(tunnel);
        }
    }

    /// Something has come on the stream of a UDP flow: its end, since payloads are told by themselves.
    pub(crate) fn udp_readable(&mut self, tunnel: TunnelId) {
        if self.side.read(tunnel) == Ok(Read::Final) {
            self.udp_flows.forget(tunnel);
            // Where it is gone already there is nothing to end.
            let _ = self.side.finish(tunnel);
            self.counters.ended += 1;
        }
    }

    /// Ends the UDP flows on which nothing went for too long.
    pub(crate) fn end_idle_udp(&mut self) {
        let late = match (&self.part, &mut self.udp_flows.clients) {
            (Part::Far(serving), _) => self.udp_flows.idle_for(serving.far.udp_idle),
            (Part::Near(_), Some(clients)) => clients.end_idle(),
            (Part::Near(_), None) => return,
        };
        for tunnel in late {
            self.udp_flows.idle += 1;
            self.udp_flows.forget(tunnel);
            self.side.reset(tunnel);
        }
    }
}
