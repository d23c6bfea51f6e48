//! One connection of HTTP/2 over TLS: it is polled by its driver's thread, and by no runtime.

use super::Settings;
use super::http2_tunnel::Http2Tunnel;
use super::tls_pipe::TlsPipe;
use super::wakes::{CONNECTION, Wakes};
use crate::datagram::DatagramCounters;
use crate::endpoint::{Closed, Event, OpenError, Role, TunnelId};
use crate::tunnel_stream::Phase;
use bentpipe_connect_tcp::{
    DialError, Field, Framing, Request, Target, fields, status_field, udp_fields,
};
use bentpipe_quic::{ConnectionId, PublicKey, StreamId, StreamRef};
use bytes::Bytes;
use core::pin::Pin;
use core::task::{Context, Poll};
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::server::{Handshake, SendResponse};
use h2::{Ping, PingPong, Reason, RecvStream};
use http::{HeaderMap, Method, Response, Uri};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

type ClientParts = (SendRequest<Bytes>, h2::client::Connection<TlsPipe, Bytes>);
type Asking = dyn Future<Output = Result<ClientParts, h2::Error>> + Send;

/// How far it has come.
enum State {
    /// TLS shakes hands.
    Tls,
    Asking(Pin<Box<Asking>>),
    Client(Box<ClientParts>),
    Greeting(Box<Handshake<TlsPipe, Bytes>>),
    Server(Box<h2::server::Connection<TlsPipe, Bytes>>),
}

/// One connection.
pub(super) struct Http2Connection {
    id: ConnectionId,
    peer: SocketAddr,
    pub(super) pipe: TlsPipe,
    state: State,
    pings: Option<PingPong>,
    pub(super) wakes: Arc<Wakes>,
    pub(super) tunnels: BTreeMap<u64, Http2Tunnel>,
    /// Near: the peer opens tunnels; it takes no more; it allows no more at present.
    ready: bool,
    going: bool,
    full: bool,
    /// Bytes that came.
    pub(super) received: u64,
}

impl Http2Connection {
    pub(super) fn new(id: ConnectionId, peer: SocketAddr, tls: rustls::Connection) -> Self {
        let wakes = Arc::<Wakes>::default();
        wakes.ring(CONNECTION);
        Self {
            id,
            peer,
            pipe: TlsPipe::new(tls),
            state: State::Tls,
            pings: None,
            wakes,
            tunnels: BTreeMap::new(),
            ready: false,
            going: false,
            full: false,
            received: 0,
        }
    }

    pub(super) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Whether its handshakes are through.
    pub(super) const fn stands(&self) -> bool {
        matches!(self.state, State::Client(_) | State::Server(_))
    }

    /// Does all that there is to do.
    ///
    /// # Errors
    /// Why it is gone.
    pub(super) fn work(
        &mut self,
        settings: &Settings,
        datagrams: &mut DatagramCounters,
        events: &mut VecDeque<Event>,
    ) -> Result<(), String> {
        loop {
            let woken = self.wakes.take();
            if woken.is_empty() {
                self.tell_room(events);
                return Ok(());
            }
            self.drive(settings, events)?;
            for number in woken.into_iter().filter(|number| *number != CONNECTION) {
                self.turn(number, datagrams, events);
            }
        }
    }

    fn drive(&mut self, settings: &Settings, events: &mut VecDeque<Event>) -> Result<(), String> {
        let waker = self.wakes.waker(CONNECTION);
        let context = &mut Context::from_waker(&waker);
        let words = |error: h2::Error| format!("HTTP/2: {error}");
        loop {
            match &mut self.state {
                State::Tls => {
                    if self.pipe.with(|tls| tls.is_handshaking()) {
                        return Ok(());
                    }
                    let key = self.pipe.with(|tls| {
                        let spoken = tls.alpn_protocol().map(<[u8]>::to_vec);
                        let key = PublicKey::of_handshake(tls.peer_certificates());
                        key.filter(|_| spoken.as_deref() == Some(super::ALPN))
                    });
                    let key = key.ok_or("the peer does not speak HTTP/2 there")?;
                    let connection = self.id;
                    let peer = self.peer;
                    events.push_back(Event::Connected {
                        connection,
                        peer,
                        key,
                    });
                    let pipe = self.pipe.clone();
                    self.state = match settings.role {
                        Role::Near => {
                            let builder = settings.client();
                            State::Asking(Box::pin(async move { builder.handshake(pipe).await }))
                        }
                        Role::Far => State::Greeting(Box::new(settings.server().handshake(pipe))),
                    };
                }
                State::Asking(asking) => match asking.as_mut().poll(context) {
                    Poll::Ready(Ok((requests, mut connection))) => {
                        self.pings = connection.ping_pong();
                        self.state = State::Client(Box::new((requests, connection)));
                    }
                    Poll::Ready(Err(error)) => return Err(words(error)),
                    Poll::Pending => return Ok(()),
                },
                State::Greeting(greeting) => match Pin::new(greeting).poll(context) {
                    Poll::Ready(Ok(mut connection)) => {
                        self.pings = connection.ping_pong();
                        self.state = State::Server(Box::new(connection));
                    }
                    Poll::Ready(Err(error)) => return Err(words(error)),
                    Poll::Pending => return Ok(()),
                },
                State::Client(parts) => {
                    let (requests, connection) = &mut **parts;
                    if let Poll::Ready(ended) = Pin::new(connection).poll(context) {
                        return Err(ended.map_or_else(words, |()| "the peer closed it".to_owned()));
                    }
                    match requests.poll_ready(context) {
                        Poll::Ready(Err(_)) if !self.going => {
                            self.going = true;
                            events.push_back(Event::GoingAway(self.id));
                        }
                        _ => {}
                    }
                    if !self.ready && requests.is_extended_connect_protocol_enabled() {
                        self.ready = true;
                        events.push_back(Event::Ready(self.id));
                    }
                    break;
                }
                State::Server(connection) => match connection.poll_accept(context) {
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        self.asked(request, respond, settings, events);
                    }
                    Poll::Ready(Some(Err(error))) => return Err(words(error)),
                    Poll::Ready(None) => return Err("the peer closed it".to_owned()),
                    Poll::Pending => break,
                },
            }
        }
        if let Some(pings) = &mut self.pings {
            // Who waits for an answer sees that something has come.
            let _ = pings.poll_pong(context);
        }
        Ok(())
    }

    /// Far: a request has come.
    fn asked(
        &mut self,
        request: http::Request<RecvStream>,
        respond: SendResponse<Bytes>,
        settings: &Settings,
        events: &mut VecDeque<Event>,
    ) {
        let number = u64::from(respond.stream_id().as_u32());
        let id = self.tunnel(number);
        let read = read_request(&request, settings);
        let (framing, refusal) = match &read {
            Ok(asked) => (asked.framing, None),
            Err(refusal) => (Framing::Bare, Some(refusal.status())),
        };
        let waker = self.wakes.waker(number);
        let mut tunnel = Http2Tunnel::new(Phase::Dialling, framing, waker);
        tunnel.body = Some(request.into_body());
        tunnel.respond = Some(respond);
        if tunnel.reset_by_peer().is_some() {
            // It came with its request: nobody is dialled.
            return;
        }
        if let Some(status) = refusal {
            return respond_with(&mut tunnel, status, None, true);
        }
        self.tunnels.insert(number, tunnel);
        self.wakes.ring(number);
        if let Ok(asked) = read {
            events.push_back(Event::Asked(id, asked));
        }
    }

    pub(super) const fn tunnel(&self, number: u64) -> TunnelId {
        StreamRef {
            connection: self.id,
            stream: StreamId(number),
        }
    }

    /// A stream was woken.
    fn turn(
        &mut self,
        number: u64,
        datagrams: &mut DatagramCounters,
        events: &mut VecDeque<Event>,
    ) {
        let id = self.tunnel(number);
        let Some(tunnel) = self.tunnels.get_mut(&number) else {
            return;
        };
        if let Some(response) = &mut tunnel.response {
            let waker = tunnel.waker.clone();
            match Pin::new(response).poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => return self.gone(number, events),
                Poll::Ready(Ok(answer)) => {
                    tunnel.response = None;
                    let (head, body) = answer.into_parts();
                    if !head.status.is_success() {
                        let said = said(&head.headers);
                        let why = DialError::of_answer(head.status.as_u16(), said);
                        self.tunnels.remove(&number);
                        events.push_back(Event::Answered(id, Err(why)));
                        return;
                    }
                    tunnel.body = Some(body);
                    tunnel.state.phase = Phase::Open;
                    events.push_back(Event::Answered(id, Ok(())));
                }
            }
        }
        match tunnel.reset_by_peer() {
            // What it has said is whole, and some of it may be unread.
            Some(Reason::NO_ERROR) if matches!(self.state, State::Client(_)) => tunnel.unheard(),
            Some(_) => return self.gone(number, events),
            None => {}
        }
        if !self.take_datagrams(number, datagrams, events) {
            return self.gone(number, events);
        }
        let Some(tunnel) = self.tunnels.get_mut(&number) else {
            return;
        };
        let readable = tunnel.fetch();
        if readable.is_err() {
            return self.gone(number, events);
        }
        if readable.is_ok_and(|readable| readable) && tunnel.state.phase == Phase::Open {
            events.push_back(Event::Readable(id));
        }
        let flushed = tunnel.flush();
        if flushed && tunnel.state.starved && !tunnel.state.finishing {
            tunnel.state.starved = false;
            events.push_back(Event::Writable(id));
        }
        self.end_if_over(number, events);
    }

    /// A tunnel was reset by the peer, or broke the protocol.
    pub(super) fn gone(&mut self, number: u64, events: &mut VecDeque<Event>) {
        if let Some(mut tunnel) = self.tunnels.remove(&number) {
            tunnel.cancel();
            events.push_back(Event::Reset(self.tunnel(number)));
        }
    }

    pub(super) fn end_if_over(&mut self, number: u64, events: &mut VecDeque<Event>) {
        if { self.tunnels.get_mut(&number) }.is_some_and(Http2Tunnel::close_if_done) {
            self.tunnels.remove(&number);
            events.push_back(Event::Done(self.tunnel(number)));
        }
    }

    /// Near: tells where there is room again.
    fn tell_room(&mut self, events: &mut VecDeque<Event>) {
        if !self.full {
            return;
        }
        let waker = self.wakes.waker(CONNECTION);
        if let State::Client(parts) = &mut self.state
            && has_room(&parts.0, self.tunnels.len())
            && let Poll::Ready(Ok(())) = parts.0.poll_ready(&mut Context::from_waker(&waker))
        {
            self.full = false;
            events.push_back(Event::Room(self.id));
        }
    }

    /// Near: asks for a tunnel.
    pub(super) fn open(
        &mut self,
        (target, client): (&Target, Option<SocketAddr>),
        settings: &Settings,
        udp: bool,
    ) -> Result<TunnelId, OpenError> {
        let State::Client(parts) = &mut self.state else {
            return Err(OpenError::NotReady);
        };
        if !self.ready {
            return Err(OpenError::NotReady);
        }
        let (requests, _) = &mut **parts;
        let waker = self.wakes.waker(CONNECTION);
        match requests.poll_ready(&mut Context::from_waker(&waker)) {
            Poll::Ready(Ok(())) if has_room(requests, self.tunnels.len()) => {}
            Poll::Ready(Err(_)) => return Err(OpenError::GoingAway),
            Poll::Ready(Ok(())) | Poll::Pending => {
                self.full = true;
                return Err(OpenError::Limited);
            }
        }
        let template = settings.templates.first().ok_or(OpenError::NotReady)?;
        let (fields, framing) = if udp {
            let template = template.for_udp().ok_or(OpenError::NotReady)?;
            udp_fields(&template, target, client)
        } else {
            fields(template, target, client)
        };
        let request = write_request(&fields).ok_or(OpenError::NotReady)?;
        let (response, send): (ResponseFuture, _) =
            { requests.send_request(request, false) }.map_err(|_| OpenError::NotReady)?;
        let number = u64::from(send.stream_id().as_u32());
        let waker = self.wakes.waker(number);
        let mut tunnel = Http2Tunnel::new(Phase::Asking, framing, waker);
        tunnel.response = Some(response);
        tunnel.send = Some(send);
        self.tunnels.insert(number, tunnel);
        self.wakes.ring(number);
        Ok(self.tunnel(number))
    }

    /// Far: the driver has dialled, or has not.
    pub(super) fn answer(
        &mut self,
        number: u64,
        why: Option<DialError>,
        settings: &Settings,
    ) -> Result<(), Closed> {
        let tunnel = self.tunnels.get_mut(&number).ok_or(Closed)?;
        if tunnel.state.phase != Phase::Dialling {
            return Err(Closed);
        }
        let status = why.map_or(200, DialError::status);
        let said = status_field(settings.name, why);
        respond_with(tunnel, status, Some(said), why.is_some());
        if why.is_some() {
            self.tunnels.remove(&number);
        } else {
            tunnel.state.phase = Phase::Open;
        }
        // What came meanwhile is looked for.
        self.wakes.ring(number);
        Ok(())
    }

    /// Asks the peer for a sign of life.
    pub(super) fn ping(&mut self) {
        if let Some(pings) = &mut self.pings {
            // One that is under way does as well.
            let _ = pings.send_ping(Ping::opaque());
        }
        self.wakes.ring(CONNECTION);
    }

    /// Bytes that may wait unread on all its tunnels.
    pub(super) fn set_window(&mut self, window: u32) {
        match &mut self.state {
            State::Client(parts) => parts.1.set_target_window_size(window),
            State::Server(connection) => connection.set_target_window_size(window),
            _ => return,
        }
        self.wakes.ring(CONNECTION);
    }

    /// Far: takes no more tunnels; those that stand go on.
    pub(super) fn shut_down(&mut self) {
        if let State::Server(connection) = &mut self.state {
            connection.graceful_shutdown();
            self.wakes.ring(CONNECTION);
        }
    }
}

/// Near: whether the peer allows one more tunnel than there are. The stack would take one beyond that, and ask for it only when another ends.
fn has_room(requests: &SendRequest<Bytes>, tunnels: usize) -> bool {
    tunnels < requests.current_max_send_streams()
}

/// What a request asks for.
fn read_request(
    request: &http::Request<RecvStream>,
    settings: &Settings,
) -> Result<Request, bentpipe_connect_tcp::Refusal> {
    let uri = request.uri();
    let protocol = request.extensions().get::<Protocol>();
    let path = uri.path_and_query().map(http::uri::PathAndQuery::as_str);
    let pseudo = [
        (":method", Some(request.method().as_str())),
        (":protocol", protocol.map(Protocol::as_str)),
        (":scheme", uri.scheme_str()),
        (
            ":authority",
            uri.authority().map(http::uri::Authority::as_str),
        ),
        (":path", path),
    ];
    let pseudo =
        { pseudo.iter() }.filter_map(|(name, value)| Some((name.as_bytes(), (*value)?.as_bytes())));
    let others = { request.headers().iter() }
        .map(|(name, value)| -> Field<'_> { (name.as_str().as_bytes(), value.as_bytes()) });
    Request::read(pseudo.chain(others), &settings.templates)
}

/// The request of these fields.
fn write_request(fields: &[(&'static str, String)]) -> Option<http::Request<()>> {
    let mut uri = Uri::builder();
    let mut request = http::Request::builder().method(Method::CONNECT);
    for (name, value) in fields {
        match *name {
            ":method" => {}
            ":protocol" => request = request.extension(Protocol::from(value.as_str())),
            ":scheme" => uri = uri.scheme(value.as_str()),
            ":authority" => uri = uri.authority(value.as_str()),
            ":path" => uri = uri.path_and_query(value.as_str()),
            name => request = request.header(name, value),
        }
    }
    request.uri(uri.build().ok()?).body(()).ok()
}

fn said(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    { headers.get_all("proxy-status").iter() }.map(http::HeaderValue::as_bytes)
}

/// Far: answers a request.
fn respond_with(tunnel: &mut Http2Tunnel, status: u16, said: Option<String>, ends: bool) {
    let Some(mut respond) = tunnel.respond.take() else {
        return;
    };
    let mut answer = Response::builder().status(status);
    if let Some(said) = said {
        answer = answer.header("proxy-status", said);
    }
    if tunnel.state.framing != Framing::Bare && !ends {
        answer = answer.header("capsule-protocol", "?1");
    }
    // It is refused where the stream has ended meanwhile, which is told by itself.
    if let Ok(answer) = answer.body(()) {
        tunnel.send = respond.send_response(answer, ends).ok();
    }
}
