//! HTTP/3 on the connections of an endpoint: h3wire's engine, its actions carried out, its events acted on.

use crate::endpoint::{Event, Role, Side, TunnelId};
use crate::remembered_settings::Beginnings;
use crate::tunnel_stream::{PIECE, Phase, Stream};
use bentpipe_connect_tcp::{DialError, Framing, Request};
use bentpipe_quic::{self as quic, Code, ConnectionId, Direction, End, Quic, StreamId, StreamRef};
use bytes::{Buf, Bytes};
use h3wire::{Action, Config, Connection, H3Code, HeaderBlockId, HeadersKind, Recv, UniKind};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Most of a request's or an answer's fields, encoded.
const FIELDS_MAX: usize = 16 * 1024;

/// The HTTP/3 of one connection.
pub(crate) struct Http {
    pub(crate) engine: Connection,
    /// The peer's address.
    pub(crate) peer: SocketAddr,
    /// Near: the peer's SETTINGS are remembered ones, and its own have not come.
    pub(crate) beginnings: Option<Box<Beginnings>>,
    /// Then the stream on which they came.
    pub(crate) control: Option<u64>,
    /// Streams of one way that wait for the peer to allow them.
    unopened: Vec<UniKind>,
    /// Near: the peer opens tunnels.
    pub(crate) ready: bool,
    /// The peer takes no more.
    pub(crate) going: bool,
    /// The tunnels, by their streams.
    pub(crate) streams: BTreeMap<u64, Stream>,
    /// Far: HTTP Datagrams that came before their request, with its stream.
    pub(crate) strays: VecDeque<(u64, Bytes)>,
}

/// How an engine is set up.
pub(crate) fn engine_config(role: Role) -> Config {
    let mut config = Config::default();
    config.max_encoded_field_section_size = FIELDS_MAX;
    config.max_field_section_size = Some(FIELDS_MAX as u64);
    config.enable_connect_protocol = role == Role::Far;
    // What it adds is drawn by chance, and so would lengths be in virtual time.
    config.grease = false;
    config.h3_datagram = true;
    config
}

impl Http {
    pub(crate) fn new(role: Role, peer: SocketAddr) -> Self {
        let config = engine_config(role);
        let role = match role {
            Role::Near => h3wire::Role::Client,
            Role::Far => h3wire::Role::Server,
        };
        Self {
            engine: Connection::new(role, config),
            peer,
            beginnings: None,
            control: None,
            unopened: Vec::new(),
            ready: false,
            going: false,
            streams: BTreeMap::new(),
            strays: VecDeque::new(),
        }
    }

    /// Whether the peer takes HTTP Datagrams.
    pub(crate) fn takes_datagrams(&self) -> bool {
        { self.engine.peer_settings() }.is_some_and(|settings| settings.h3_datagram)
    }
}

pub(crate) fn engine_id(stream: StreamId) -> h3wire::StreamId {
    h3wire::StreamId(stream.0)
}

fn is_one_way(stream: StreamId) -> bool {
    stream.0 & 2 != 0
}

impl<Q: Quic> Side<Q> {
    /// After anything that was done to a connection's engine: its events are acted on, its actions carried out, its bytes
    /// written.
    pub(crate) fn settle(&mut self, connection: ConnectionId) {
        self.act_on_events(connection);
        self.carry_out(connection);
        self.write_out(connection);
        // The last byte written may be what an action waited for.
        self.carry_out(connection);
    }

    pub(crate) fn carry_out(&mut self, connection: ConnectionId) {
        let Some(http) = self.connections.get_mut(&connection) else {
            return;
        };
        let mut kinds = core::mem::take(&mut http.unopened);
        while let Some(action) = http.engine.poll_action() {
            let on = |stream: h3wire::StreamId| StreamRef {
                connection,
                stream: StreamId(stream.0),
            };
            // What has ended already needs no ending.
            let _ = match action {
                Action::OpenUni(kind) => {
                    kinds.push(kind);
                    Ok(())
                }
                Action::ResetStream { stream, code } => {
                    self.quic.end(on(stream), End::Reset(Code(code.0)))
                }
                Action::StopSending { stream, code } => {
                    self.quic.end(on(stream), End::Stop(Code(code.0)))
                }
                Action::FinishStream(stream) => self.quic.end(on(stream), End::Finish),
                Action::CloseConnection { code, reason } => {
                    let peer = http.peer;
                    self.quic.close(connection, Code(code.0), reason, self.now);
                    self.connections.remove(&connection);
                    self.events.push_back(Event::Lost {
                        connection,
                        peer,
                        reason: format!("the peer broke HTTP/3: {reason}"),
                        may_return: false,
                    });
                    return;
                }
            };
        }
        for kind in kinds {
            match self.quic.open(connection, Direction::One) {
                Ok(stream) => {
                    // A fresh stream of ours is what the engine asked for.
                    let _ = http.engine.bind_uni(kind, engine_id(stream));
                }
                Err(_) => http.unopened.push(kind),
            }
        }
    }

    /// Writes the engine's own bytes: fields and control streams.
    pub(crate) fn write_out(&mut self, connection: ConnectionId) {
        let Some(http) = self.connections.get_mut(&connection) else {
            return;
        };
        let streams: Vec<_> = http.engine.sendable().collect();
        for id in streams {
            let stream = StreamRef {
                connection,
                stream: StreamId(id.0),
            };
            while let Some(bytes) = http.engine.poll_send(id) {
                let mut bytes = Bytes::copy_from_slice(bytes);
                match self.quic.write(stream, &mut bytes) {
                    Ok(written @ 1..) => {
                        // No more was written than it offered.
                        let _ = http.engine.sent(id, written);
                    }
                    _ => break,
                }
            }
        }
    }

    fn act_on_events(&mut self, connection: ConnectionId) {
        while let Some(http) = self.connections.get_mut(&connection)
            && let Some(event) = http.engine.poll_event()
        {
            let on = |stream: h3wire::StreamId| StreamRef {
                connection,
                stream: StreamId(stream.0),
            };
            match event {
                h3wire::Event::Headers {
                    stream,
                    block,
                    kind,
                } => self.fields_came(on(stream), block, kind),
                h3wire::Event::Finished(stream) => {
                    let tunnel = on(stream);
                    let broken =
                        { self.stream(tunnel) }.is_some_and(|found| found.take_end().is_err());
                    if broken {
                        self.abort(tunnel);
                    }
                    self.close_if_done(tunnel);
                }
                h3wire::Event::StreamAborted { stream, .. } => self.gone(on(stream)),
                h3wire::Event::SendStopped {
                    stream,
                    code: H3Code::NO_ERROR,
                } if self.role == Role::Near => self.unheard(on(stream)),
                h3wire::Event::SendStopped { stream, .. } => {
                    // Nobody reads what TCP sends: the connection is of no more use.
                    self.abort(on(stream));
                }
                h3wire::Event::PeerSettings => self.settings_came(connection),
                h3wire::Event::GoAway { .. } => {
                    http.going = true;
                    if self.role == Role::Near {
                        self.events.push_back(Event::GoingAway(connection));
                    }
                }
                h3wire::Event::UniStream { .. } | h3wire::Event::Closed { .. } => {}
            }
        }
    }

    /// The fields of a request, or of an answer.
    fn fields_came(&mut self, tunnel: TunnelId, block: HeaderBlockId, kind: HeadersKind) {
        let Some(http) = self.connections.get_mut(&tunnel.connection) else {
            return;
        };
        let Ok(found) = http.engine.headers(block) else {
            return;
        };
        match kind {
            HeadersKind::Request => {
                let fields = found.all().map(|field| (field.name, field.value));
                let request = Request::read(fields, &self.templates);
                http.engine.release(block);
                self.asked(tunnel, request);
            }
            HeadersKind::Response => {
                let status = found.pseudo().status.unwrap_or_default();
                let said = { found.iter() }.filter(|field| field.name == b"proxy-status");
                let error = DialError::of_answer(status, said.map(|field| field.value));
                http.engine.release(block);
                let answer = if (200..300).contains(&status) {
                    Ok(())
                } else {
                    Err(error)
                };
                self.answered(tunnel, answer);
            }
            HeadersKind::Informational | HeadersKind::Trailers => http.engine.release(block),
        }
    }

    /// The peer has opened a stream.
    pub(crate) fn opened(&mut self, stream: StreamRef) {
        if !is_one_way(stream.stream)
            && self.role == Role::Far
            && let Some(http) = self.connections.get_mut(&stream.connection)
        {
            let new = Stream::new(Phase::Asking, Framing::Bare);
            http.streams.insert(stream.stream.0, new);
        }
    }

    /// Something came on a stream.
    pub(crate) fn receive(&mut self, stream: StreamRef) {
        while self.wants_eagerly(stream) && self.take(stream, PIECE) {}
        // A look that takes nothing shows an end at once.
        let more = self.stream(stream).is_some() && self.take(stream, 0);
        let readable =
            |found: &mut Stream| found.phase == Phase::Open && (more || !found.inbox.is_empty());
        if self.stream(stream).is_some_and(readable) {
            self.events.push_back(Event::Readable(stream));
        }
    }

    /// Whether what comes is taken unasked: what the engine needs, and what nobody reads.
    pub(crate) fn wants_eagerly(&mut self, stream: StreamRef) -> bool {
        if is_one_way(stream.stream) {
            return true;
        }
        self.stream(stream).is_some_and(|found| {
            let carries = matches!(found.phase, Phase::Open | Phase::Dialling)
                && found.framing != Framing::Datagrams;
            !found.ended && (!carries || found.final_seen)
        })
    }

    /// Reads once, at most so many bytes; whether there may be more.
    pub(crate) fn take(&mut self, stream: StreamRef, most: usize) -> bool {
        match self.quic.read(stream, most) {
            Ok(quic::Read::Data(data)) if data.is_empty() => true,
            Ok(quic::Read::Data(data)) => {
                self.feed(stream, data, false);
                true
            }
            Ok(quic::Read::Finished) => {
                self.feed(stream, Bytes::new(), true);
                false
            }
            Ok(quic::Read::Reset(code)) => {
                if let Some(http) = self.connections.get_mut(&stream.connection) {
                    // Where that ends the connection there is an action for it.
                    let id = http.engine_id(stream.stream);
                    let _ = http.engine.stream_reset_received(id, H3Code(code.0));
                }
                self.settle(stream.connection);
                false
            }
            Ok(quic::Read::Blocked) | Err(quic::Closed) => false,
        }
    }

    /// Gives the engine what came.
    pub(crate) fn feed(&mut self, stream: StreamRef, mut data: Bytes, ends: bool) {
        if is_one_way(stream.stream) && self.take_beginning(stream, &data, ends) {
            return;
        }
        loop {
            let Some(http) = self.connections.get_mut(&stream.connection) else {
                return;
            };
            let id = http.engine_id(stream.stream);
            let Ok(taken) = http.engine.recv(id, &data, ends) else {
                break;
            };
            match taken {
                Recv::Body { consumed, range } => {
                    let body = data.slice(range);
                    data.advance(consumed);
                    let found = http.streams.get_mut(&stream.stream.0);
                    if found.is_some_and(|found| found.take_in(body).is_err()) {
                        self.abort(stream);
                        return;
                    }
                    self.capsules_came(stream);
                }
                Recv::Consumed(consumed)
                | Recv::Frame { consumed, .. }
                | Recv::Raw { consumed, .. } => data.advance(consumed),
                // Blocks are released as their events are acted on.
                Recv::Paused => {}
            }
            self.act_on_events(stream.connection);
            if data.is_empty() {
                break;
            }
        }
        self.settle(stream.connection);
        self.close_if_done(stream);
    }

    /// The peer wants no more of a stream.
    pub(crate) fn stopped(&mut self, stream: StreamRef, code: Code) {
        if let Some(http) = self.connections.get_mut(&stream.connection) {
            // Where that ends the connection there is an action for it.
            let _ = http
                .engine
                .stop_sending_received(engine_id(stream.stream), H3Code(code.0));
            self.settle(stream.connection);
        }
    }
}
