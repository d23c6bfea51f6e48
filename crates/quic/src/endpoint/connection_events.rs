//! What the stack tells of a connection: acted on, and passed on to the driver.

use super::{Endpoint, words};
use crate::connection::Connection;
use crate::keys::{self, PublicKey};
use crate::protection::is_agreed;
use crate::stack_interface::{Code, ConnectionId, Direction, Event, StreamId, StreamRef};
use bentpipe_base::Instant;
use quinn_proto::{ConnectionError, Dir, StreamEvent};
use std::collections::VecDeque;

/// Why a connection is closed whose peer would have been trusted when it began.
const NOT_TRUSTED_ANY_MORE: &str = "the key is not trusted any more";
/// And one whose peer has forgotten its ticket, and takes less than when it gave it.
const TAKES_LESS: &str = "the peer takes less than when it gave its ticket";

impl Endpoint {
    /// After anything that was done to a connection: what it tells is passed on, and it is asked for datagrams.
    pub(super) fn settle(&mut self, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let mut drained = false;
        while let Some(event) = connection.stack.poll_endpoint_events() {
            drained |= event.is_drained();
            if let Some(answer) = self.stack.handle_event(connection.handle, event) {
                connection.stack.handle_event(answer);
            }
        }
        while let Some(connection) = self.connections.get_mut(&id)
            && let Some(event) = connection.stack.poll()
        {
            match event {
                quinn_proto::Event::HandshakeDataReady => self.agreed(id),
                quinn_proto::Event::Connected => self.connected(id, now),
                event => tell(id, connection, event, &mut self.events),
            }
        }
        if drained {
            self.forget(id);
        } else {
            self.touch(id);
        }
    }

    /// A handshake has agreed on a protocol.
    fn agreed(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if let Some(config) = self.fec
            && is_agreed(connection.stack.crypto_session())
        {
            connection.protect(config);
            // Nobody takes an address from a connection before he has shown his key.
            self.protected.entry(connection.peer).or_insert(id);
        }
        let accepts = connection.stack.side().is_server() && !connection.stack.is_closed();
        if !accepts {
            return;
        }
        if connection.stack.has_0rtt() {
            self.tell_connected(id);
        } else {
            self.events.push_back(Event::Early {
                connection: id,
                peer: connection.peer,
            });
        }
    }

    /// A handshake is through.
    fn connected(&mut self, id: ConnectionId, now: Instant) {
        // Who is trusted may have changed since the handshake began.
        let trusted = self.is_trusted(id);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.connected = true;
        if let Some(protection) = &mut connection.protection {
            protection.begin();
            self.protected.insert(connection.peer, id);
        }
        let refused = if !trusted {
            Some(NOT_TRUSTED_ANY_MORE)
        } else if !connection.settle_early_data() {
            Some(TAKES_LESS)
        } else {
            None
        };
        match refused {
            Some(reason) => {
                connection.close(Code(0), reason, self.base, now);
                self.events.push_back(Event::Lost {
                    connection: id,
                    peer: connection.stack.remote_address(),
                    reason: reason.to_owned(),
                    may_return: false,
                });
            }
            None => self.tell_connected(id),
        }
    }

    fn tell_connected(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let shown = keys::shown_by(connection.stack.crypto_session().peer_identity());
        let key = PublicKey::of_handshake(shown.as_deref());
        // TLS lets nobody through that has shown none.
        if let Some(key) = key
            && !core::mem::replace(&mut connection.told, true)
        {
            self.events.push_back(Event::Connected {
                connection: id,
                peer: connection.stack.remote_address(),
                key,
            });
        }
    }
}

/// Passes on what a connection tells.
fn tell(
    id: ConnectionId,
    connection: &mut Connection,
    event: quinn_proto::Event,
    events: &mut VecDeque<Event>,
) {
    let stream = |stream: quinn_proto::StreamId| StreamRef {
        connection: id,
        stream: StreamId(stream.into()),
    };
    let direction = |dir| match dir {
        Dir::Bi => Direction::Both,
        Dir::Uni => Direction::One,
    };
    events.push_back(match event {
        quinn_proto::Event::ConnectionLost { reason } => {
            connection.connected = true;
            Event::Lost {
                connection: id,
                peer: connection.stack.remote_address(),
                reason: words(&reason),
                may_return: matches!(reason, ConnectionError::TimedOut | ConnectionError::Reset),
            }
        }
        quinn_proto::Event::Stream(StreamEvent::Opened { dir }) => {
            while let Some(opened) = connection.stack.streams().accept(dir) {
                events.push_back(Event::Opened(stream(opened)));
            }
            return;
        }
        quinn_proto::Event::Stream(StreamEvent::Readable { id }) => Event::Readable(stream(id)),
        quinn_proto::Event::Stream(StreamEvent::Writable { id }) => Event::Writable(stream(id)),
        quinn_proto::Event::Stream(StreamEvent::Finished { id }) => Event::Delivered(stream(id)),
        quinn_proto::Event::Stream(StreamEvent::Stopped { id, error_code }) => {
            Event::Stopped(stream(id), Code(error_code.into_inner()))
        }
        quinn_proto::Event::Stream(StreamEvent::Available { dir }) => {
            Event::Available(id, direction(dir))
        }
        quinn_proto::Event::DatagramReceived => {
            while let Some(data) = connection.stack.datagrams().recv() {
                events.push_back(Event::Datagram(id, data));
            }
            return;
        }
        quinn_proto::Event::HandshakeDataReady
        | quinn_proto::Event::Connected
        | quinn_proto::Event::DatagramsUnblocked => return,
    });
}
