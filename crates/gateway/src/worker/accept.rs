//! New flows: accept, dial on, and what becomes of the dial.

use super::{LISTENER, Worker};
use crate::dial::{Dialled, dial};
use crate::flow::{Flow, Phase, Side};
use crate::legs::Which;
use bentpipe_os::epoll::{Event, Interest};
use bentpipe_os::socket::{self, Dial};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Connections accepted before flows that stand have their turn.
const ACCEPT_BATCH: usize = 64;

impl Worker {
    /// Takes the connections that wait at a listener.
    pub(super) fn on_clients(&mut self, number: usize) {
        for _ in 0..ACCEPT_BATCH {
            let Some(listener) = self.listeners.get(number) else {
                return;
            };
            let (address, leg) = (listener.address, listener.leg);
            match socket::accept(&listener.socket) {
                Ok((near, client)) => self.on_client(near, client, address, leg),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Idle pipes are a luxury now.
                Err(error) if socket::is_exhausted(&error) && self.tools.pool.trim() > 0 => {}
                Err(error) if socket::is_exhausted(&error) => {
                    self.shared.out_of_descriptors();
                    return self.set_accepting(false);
                }
                // This client has gone meanwhile: the next one.
                Err(_) => {}
            }
        }
    }

    fn on_client(&mut self, near: OwnedFd, client: SocketAddr, door: SocketAddr, leg: Which) {
        self.counters.accepted.one();
        // Whatever ends here, ends by a reset: accepted sockets abort on close.
        if !self.shared.has_room() {
            // Intercepted before the suspension took hold, and one too many: better a reset than
            // silence.
            return self.counters.starved.one();
        }
        let Ok(server) = socket::local_address(&near) else {
            return self.counters.reset.one();
        };
        if server == door {
            // Not intercepted but dialled straight to us: an open relay would serve it.
            return self.counters.direct.one();
        }
        match dial(&self.legs[leg.other() as usize], client, server) {
            Ok(dialled) => self.on_dialled(near, dialled, leg),
            Err(error) => self.on_no_dial(client, server, &error),
        }
    }

    fn on_dialled(&mut self, near: OwnedFd, dialled: Dialled, leg: Which) {
        if dialled.other_port {
            self.counters.other_port.one();
        }
        if dialled.control_lost {
            self.counters.other_control.one();
            self.shared.control_lost();
        }
        let begun = dialled.begun;
        let flow = Flow::new(near, dialled.socket, leg, Phase::Dialling);
        let index = self.flows.insert(flow);
        self.shared.flow_began();
        if !self.watch(index, Side::Far) {
            return;
        }
        if begun == Dial::Connected {
            self.open(index);
        }
    }

    fn on_no_dial(&mut self, client: SocketAddr, server: SocketAddr, error: &io::Error) {
        if socket::is_exhausted(error) {
            self.counters.starved.one();
            self.shared.out_of_descriptors();
            return;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => self.counters.refused.one(),
            _ => self.counters.unreachable.one(),
        }
        tracing::debug!(%client, %server, %error, "the far side cannot be dialled");
    }

    /// The far side of a dialling flow has something to say.
    pub(super) fn on_answer(&mut self, index: u32, event: Event) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        if event.failed() || event.hung_up() {
            match socket::take_error(flow.socket(Side::Far)) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.counters.refused.one();
                }
                _ => self.counters.unreachable.one(),
            }
            return self.drop_flow(index);
        }
        if event.writable() && self.open(index) && event.readable() {
            // The server spoke first, and edge-triggered events come once.
            self.on_open(index, Side::Far, event);
        }
    }

    /// Both legs stand: from now on the client is listened to.
    fn open(&mut self, index: u32) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        flow.phase = Phase::Open;
        self.counters.connected.one();
        self.watch(index, Side::Near)
    }

    /// Registers a socket of a flow; without that the flow cannot live.
    fn watch(&mut self, index: u32, side: Side) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        let token = u64::from(index) << 1 | side as u64;
        let interest = Interest::READ | Interest::WRITE | Interest::PEER_CLOSED | Interest::EDGE;
        let result = self.epoll.add(flow.socket(side), token, interest);
        if let Err(error) = result {
            tracing::warn!(%error, "cannot watch a connection: it is reset");
            self.counters.starved.one();
            self.drop_flow(index);
            return false;
        }
        true
    }

    /// Accepts again once there may be descriptors again.
    pub(super) fn reconsider_accepting(&mut self) {
        if !self.accepting && !self.shared.is_exhausted() {
            self.set_accepting(true);
        }
    }

    fn set_accepting(&mut self, accepting: bool) {
        let interest = if accepting {
            Interest::READ
        } else {
            Interest::NONE
        };
        for (number, listener) in self.listeners.iter().enumerate() {
            let token = LISTENER + number as u64;
            if let Err(error) = self.epoll.modify(listener.socket.as_fd(), token, interest) {
                tracing::warn!(%error, "cannot watch a listener");
            }
        }
        self.accepting = accepting;
    }
}
