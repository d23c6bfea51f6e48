//! Requests for tunnels and their answers.

use crate::endpoint::{Closed, Event, OpenError, Side, TunnelId};
use crate::http3::engine_id;
use crate::tunnel_stream::{Phase, Stream};
use bentpipe_connect_tcp::{
    DialError, Framing, Refusal, Request, Target, fields, status_field, udp_fields,
};
use bentpipe_quic::{self as quic, Code, ConnectionId, Direction, End, Quic, StreamRef};
use h3wire::{FieldRef, H3Code};
use std::net::SocketAddr;

impl<Q: Quic> Side<Q> {
    pub(crate) fn asked(&mut self, tunnel: TunnelId, request: Result<Request, Refusal>) {
        let Some(stream) = self.stream(tunnel) else {
            return;
        };
        match request {
            Ok(request) => {
                stream.phase = Phase::Dialling;
                stream.frame_by(request.framing);
                if request.framing == Framing::Datagrams {
                    self.adopt_strays(tunnel);
                }
                self.events.push_back(Event::Asked(tunnel, request));
            }
            Err(refusal) => {
                stream.phase = Phase::Refused;
                self.respond(tunnel, refusal.status(), None, true);
            }
        }
    }

    /// Near: the far side has answered.
    pub(crate) fn answered(&mut self, tunnel: TunnelId, answer: Result<(), DialError>) {
        let Some(stream) = self.stream(tunnel) else {
            return;
        };
        stream.phase = Phase::Open;
        self.events.push_back(Event::Answered(tunnel, answer));
        self.hand_early(tunnel);
        if answer.is_err()
            && let Some(http) = self.connections.get_mut(&tunnel.connection)
        {
            http.streams.remove(&tunnel.stream.0);
            // Where the answer was all of it, there is nothing left to cancel.
            let _ = http
                .engine
                .abort(engine_id(tunnel.stream), H3Code::REQUEST_CANCELLED);
        }
    }

    /// Near: asks for a tunnel.
    pub(crate) fn ask(
        &mut self,
        connection: ConnectionId,
        target: &Target,
        client: Option<SocketAddr>,
        udp: bool,
    ) -> Result<TunnelId, OpenError> {
        let http = { self.connections.get_mut(&connection) }.ok_or(OpenError::NotReady)?;
        if http.going {
            return Err(OpenError::GoingAway);
        }
        let template = { self.templates.first() }.filter(|_| http.ready);
        let template = template.ok_or(OpenError::NotReady)?;
        let (fields, framing) = if udp {
            let template = { template.for_udp() }.filter(|_| http.takes_datagrams());
            udp_fields(&template.ok_or(OpenError::NotReady)?, target, client)
        } else {
            fields(template, target, client)
        };
        let stream = { self.quic.open(connection, Direction::Both) }.map_err(|why| match why {
            quic::Unopened::Limited => OpenError::Limited,
            quic::Unopened::Gone => OpenError::NotReady,
        })?;
        let fields: Vec<_> = { fields.iter() }
            .map(|(name, value)| FieldRef::new(name.as_bytes(), value.as_bytes()))
            .collect();
        if { &mut http.engine }
            .send_headers(engine_id(stream), &fields, false)
            .is_err()
        {
            let stream = StreamRef { connection, stream };
            let _ = self
                .quic
                .end(stream, End::Reset(Code(H3Code::INTERNAL_ERROR.0)));
            return Err(OpenError::NotReady);
        }
        http.streams
            .insert(stream.0, Stream::new(Phase::Asking, framing));
        self.settle(connection);
        Ok(StreamRef { connection, stream })
    }

    /// Far: the driver has dialled, or has not.
    pub(crate) fn answer(
        &mut self,
        tunnel: TunnelId,
        why: Option<DialError>,
    ) -> Result<(), Closed> {
        let stream = self.stream(tunnel).ok_or(Closed)?;
        if stream.phase != Phase::Dialling {
            return Err(Closed);
        }
        stream.phase = match why {
            None => Phase::Open,
            Some(_) => Phase::Refused,
        };
        let status = why.map_or(200, DialError::status);
        let said = status_field(self.name, why);
        self.respond(tunnel, status, Some(said), why.is_some());
        // What came meanwhile.
        match why {
            None => {
                self.hand_early(tunnel);
                self.events.push_back(Event::Readable(tunnel));
            }
            Some(_) => self.receive(tunnel),
        }
        Ok(())
    }

    pub(crate) fn respond(
        &mut self,
        tunnel: TunnelId,
        status: u16,
        said: Option<String>,
        ends: bool,
    ) {
        let Some(http) = self.connections.get_mut(&tunnel.connection) else {
            return;
        };
        let status = status.to_string();
        let mut fields = vec![FieldRef::new(b":status", status.as_bytes())];
        if let Some(said) = &said {
            fields.push(FieldRef::new(b"proxy-status", said.as_bytes()));
        }
        let capsules = { http.streams.get(&tunnel.stream.0) }
            .is_some_and(|stream| stream.framing != Framing::Bare);
        if capsules && !ends {
            fields.push(FieldRef::new(b"capsule-protocol", b"?1"));
        }
        // It is refused where the stream has ended meanwhile, which is told by itself.
        let _ = http
            .engine
            .send_headers(engine_id(tunnel.stream), &fields, ends);
        self.settle(tunnel.connection);
    }
}
