//! What only a far end does: it dials.

use crate::dial::failure;
use crate::driver::{Driver, Part};
use crate::flow::Phase;
use bentpipe_connect_tcp::{DialError, Host, Request};
use bentpipe_sockets::socket::{self, Dial};
use bentpipe_tunnel::TunnelId;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};

impl Driver {
    /// Far: a tunnel is asked for.
    pub(crate) fn asked(&mut self, tunnel: TunnelId, request: Request) {
        let Part::Far { far, resolver, .. } = &self.part else {
            return;
        };
        if self.side.tunnels(tunnel.connection) > far.tunnels {
            return self.refuse(tunnel, DialError::Limit);
        }
        let port = request.target.port;
        match request.target.host {
            Host::Address(address) => self.dial(tunnel, [(address, port).into()].into()),
            Host::Name(name) => {
                if let Err(why) = resolver.ask(tunnel, name, port) {
                    self.refuse(tunnel, why);
                }
            }
        }
    }

    pub(crate) fn refuse(&mut self, tunnel: TunnelId, why: DialError) {
        // Who has given up meanwhile wants no answer.
        let _ = self.side.refuse(tunnel, why);
    }

    /// Far: dials the first of these that may be reached, and the next where that fails.
    pub(crate) fn dial(&mut self, tunnel: TunnelId, mut addresses: VecDeque<SocketAddr>) {
        let Part::Far { far, .. } = &self.part else {
            return;
        };
        addresses.retain(|&address| far.policy.allows(address));
        let until = std::time::Instant::now() + far.dial_timeout;
        let mut why = DialError::Prohibited;
        while let Some(address) = addresses.pop_front() {
            let begun = socket::stream(address).and_then(|fd| {
                let dial = socket::connect(&fd, address)?;
                Ok((TcpStream::from(fd), dial))
            });
            match begun {
                Ok((socket, Dial::Pending | Dial::Connected)) => {
                    if let Part::Far {
                        candidates, dials, ..
                    } = &mut self.part
                    {
                        candidates.insert(tunnel, addresses);
                        dials.insert((until, tunnel));
                    }
                    if self.admit(socket, tunnel, Phase::Dialling(until)).is_err() {
                        self.abort(tunnel);
                        self.refuse(tunnel, DialError::Internal);
                    }
                    return;
                }
                Err(error) => why = failure(&error),
            }
        }
        self.refuse(tunnel, why);
    }

    /// Far: something happened to a socket that dials.
    pub(crate) fn dialled(&mut self, token: u64) {
        let Some(flow) = self.flows.get_mut(&token) else {
            return;
        };
        let tunnel = flow.tunnel;
        match socket::take_error(&flow.socket) {
            Err(error) => self.dial_failed(tunnel, failure(&error)),
            // It still dials.
            Ok(()) if socket::peer_address(&flow.socket).is_err() => {}
            Ok(()) => {
                flow.phase = Phase::Open;
                if let Part::Far { candidates, .. } = &mut self.part {
                    candidates.remove(&tunnel);
                }
                if self.side.accept(tunnel).is_err() {
                    return self.abort(tunnel);
                }
                self.ready.push(token);
            }
        }
    }

    pub(crate) fn dial_failed(&mut self, tunnel: TunnelId, why: DialError) {
        let rest = match &mut self.part {
            Part::Far { candidates, .. } => candidates.remove(&tunnel).unwrap_or_default(),
            Part::Near { .. } => VecDeque::new(),
        };
        self.abort(tunnel);
        if rest.is_empty() {
            self.refuse(tunnel, why);
        } else {
            self.dial(tunnel, rest);
        }
    }

    pub(crate) fn end_late_dials(&mut self) {
        let now = std::time::Instant::now();
        while let Part::Far { dials, .. } = &mut self.part
            && dials.first().is_some_and(|(until, _)| *until <= now)
            && let Some((until, tunnel)) = dials.pop_first()
        {
            if { self.flow(tunnel) }.is_some_and(|flow| flow.phase == Phase::Dialling(until)) {
                self.dial_failed(tunnel, DialError::Timeout);
            }
        }
    }
}
