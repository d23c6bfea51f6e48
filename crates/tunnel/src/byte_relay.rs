//! The bytes of tunnels, and how they end.

use crate::endpoint::{Closed, Event, Read, Role, Side, TunnelId};
use crate::http3::engine_id;
use crate::tunnel_stream::{PIECE, Phase, Stream};
use bentpipe_connect_tcp::Framing;
use bentpipe_quic::{Code, End, Quic, StreamRef};
use bytes::Bytes;
use h3wire::H3Code;

impl<Q: Quic> Side<Q> {
    /// There is room again on a stream.
    pub(crate) fn resume(&mut self, stream: StreamRef) {
        self.write_out(stream.connection);
        self.carry_out(stream.connection);
        self.flush(stream);
        if let Some(found) = self.stream(stream)
            && found.starved
            && found.outbox.is_empty()
            && !found.finishing
        {
            found.starved = false;
            self.events.push_back(Event::Writable(stream));
        }
    }

    /// Hands on what is left of a frame; whether all of it is in the stack's hands.
    pub(crate) fn flush(&mut self, tunnel: TunnelId) -> bool {
        let Some(http) = self.connections.get_mut(&tunnel.connection) else {
            return false;
        };
        let Some(stream) = http.streams.get_mut(&tunnel.stream.0) else {
            return false;
        };
        while let Some(part) = stream.outbox.front_mut() {
            let Ok(written @ 1..) = self.quic.write(tunnel, part) else {
                return false;
            };
            // No more was written than the frame has.
            let _ = http.engine.data_written(engine_id(tunnel.stream), written);
            if part.is_empty() {
                stream.outbox.pop_front();
            }
        }
        self.finish_if_asked(tunnel);
        true
    }

    /// Writes as much of `data` as there is room for, and takes that off it; [`Event::Writable`] comes where that is not all.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn write(&mut self, tunnel: TunnelId, data: &mut Bytes) -> Result<usize, Closed> {
        let near = self.role == Role::Near;
        let mut written = 0;
        while !data.is_empty() {
            let http = { self.connections.get_mut(&tunnel.connection) }.ok_or(Closed)?;
            let stream = { http.streams.get_mut(&tunnel.stream.0) }.ok_or(Closed)?;
            let carries = stream.phase == Phase::Open || (near && stream.phase == Phase::Asking);
            if !carries || stream.finishing || stream.framing == Framing::Datagrams {
                return Err(Closed);
            }
            if stream.unheard {
                // A server that has closed resets who goes on, but its client shall have all that it said before.
                let dropped = data.split_off(0).len();
                let open = !stream.final_read;
                return { open }.then_some(written + dropped).ok_or(Closed);
            }
            let length = data.len().min(PIECE);
            let capsule = stream.framing.header(length as u64, false);
            let whole = capsule.len() + length;
            let frame =
                match { &mut http.engine }.send_data(engine_id(tunnel.stream), whole as u64, false)
                {
                    Ok(frame) => frame,
                    Err(h3wire::UsageError::Blocked) => {
                        stream.starved = true;
                        break;
                    }
                    Err(_) => return Err(Closed),
                };
            stream.put(frame.prefix(), &capsule, data.split_to(length));
            written += length;
            self.flush(tunnel);
        }
        Ok(written)
    }

    /// Reads the next bytes. What is not read holds the tunnel's window, so that the peer waits.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn read(&mut self, tunnel: TunnelId) -> Result<Read, Closed> {
        loop {
            let stream = self.stream(tunnel).ok_or(Closed)?;
            if stream.phase != Phase::Open {
                return Ok(Read::Blocked);
            }
            if let Some(read) = stream.inbox.pop_front() {
                if read == Read::Final {
                    stream.final_read = true;
                    // Behind it nothing comes but the end of the stream, which may be here.
                    while self.wants_eagerly(tunnel) && self.take(tunnel, PIECE) {}
                }
                self.close_if_done(tunnel);
                return Ok(read);
            }
            let more = !stream.ended && self.take(tunnel, PIECE);
            let stream = self.stream(tunnel).ok_or(Closed)?;
            if !more && stream.inbox.is_empty() {
                return Ok(Read::Blocked);
            }
        }
    }

    /// Nothing more is written: TCP's FIN.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn finish(&mut self, tunnel: TunnelId) -> Result<(), Closed> {
        let stream = self.stream(tunnel).ok_or(Closed)?;
        stream.finishing = true;
        self.flush(tunnel);
        Ok(())
    }

    /// The socket was reset behind what it has said: the peer gets that, and then the end of the stream without FINAL_DATA, for which it
    /// resets the tunnel. Whether it can be told so; where it cannot, the tunnel is to be reset at once.
    pub fn break_off(&mut self, tunnel: TunnelId) -> bool {
        let tells = self.stream(tunnel).is_some_and(Stream::break_off);
        if tells {
            self.flush(tunnel);
        }
        tells
    }

    /// The tunnel is given up: TCP's RST.
    pub fn reset(&mut self, tunnel: TunnelId) {
        if let Some(stream) = self.stream(tunnel) {
            let broken_off = stream.broken_off;
            self.forget(tunnel);
            self.cancel(tunnel);
            if broken_off {
                // To the engine a direction that has ended is done, but some of it may not have arrived.
                let code = Code(H3Code::CONNECT_ERROR.0);
                let _ = self.quic.end(tunnel, End::Reset(code));
            }
        }
    }

    pub(crate) fn finish_if_asked(&mut self, tunnel: TunnelId) {
        let Some(http) = self.connections.get_mut(&tunnel.connection) else {
            return;
        };
        let Some(stream) = http.streams.get_mut(&tunnel.stream.0) else {
            return;
        };
        if !stream.finishing || !stream.outbox.is_empty() {
            return;
        }
        if stream.has_final() && !stream.final_sent {
            let last = stream.framing.header(0, true);
            let id = engine_id(tunnel.stream);
            if let Ok(frame) = http.engine.send_data(id, last.len() as u64, false) {
                stream.final_sent = true;
                stream.put(frame.prefix(), &last, Bytes::new());
                self.flush(tunnel);
            }
        } else {
            stream.final_sent = true;
        }
        self.close_if_done(tunnel);
    }

    /// Ends our direction of the stream where that is due: with capsules once both sides have said that they have no more.
    pub(crate) fn close_if_done(&mut self, tunnel: TunnelId) {
        let Some(http) = self.connections.get_mut(&tunnel.connection) else {
            return;
        };
        let Some(stream) = http.streams.get_mut(&tunnel.stream.0) else {
            return;
        };
        if stream.may_close() {
            let id = engine_id(tunnel.stream);
            stream.closed = stream.unheard || http.engine.send_data(id, 0, true).is_ok();
            self.settle(tunnel.connection);
        }
        if let Some(stream) = self.stream(tunnel)
            && stream.is_over()
        {
            let carried = stream.phase == Phase::Open;
            self.forget(tunnel);
            if carried {
                self.events.push_back(Event::Done(tunnel));
            }
        }
    }

    /// Near: the far end has said all that it will of a tunnel, or is about to, and wants to hear no more: a refusal, or the rest of
    /// what a server sent that has closed.
    pub(crate) fn unheard(&mut self, tunnel: TunnelId) {
        let Some(stream) = self.stream(tunnel) else {
            return;
        };
        stream.unheard = true;
        stream.outbox.clear();
        let starved = core::mem::take(&mut stream.starved);
        if starved {
            self.events.push_back(Event::Writable(tunnel));
        }
        self.finish_if_asked(tunnel);
    }

    /// A tunnel broke the protocol, or its peer listens no more.
    pub(crate) fn abort(&mut self, tunnel: TunnelId) {
        self.gone(tunnel);
        self.cancel(tunnel);
    }

    pub(crate) fn cancel(&mut self, tunnel: TunnelId) {
        self.cancel_with(tunnel, H3Code::CONNECT_ERROR);
    }

    pub(crate) fn cancel_with(&mut self, tunnel: TunnelId, code: H3Code) {
        if let Some(http) = self.connections.get_mut(&tunnel.connection) {
            // What has ended already needs no cancelling.
            let _ = http.engine.abort(engine_id(tunnel.stream), code);
        }
        self.settle(tunnel.connection);
    }

    /// A tunnel has been reset.
    pub(crate) fn gone(&mut self, tunnel: TunnelId) {
        let role = self.role;
        let Some(stream) = self.stream(tunnel) else {
            return;
        };
        // Of the others the driver has not heard, or has heard the last.
        let known = role == Role::Near || matches!(stream.phase, Phase::Dialling | Phase::Open);
        self.forget(tunnel);
        if known {
            self.events.push_back(Event::Reset(tunnel));
        }
    }

    pub(crate) fn forget(&mut self, tunnel: TunnelId) {
        if let Some(http) = self.connections.get_mut(&tunnel.connection) {
            http.streams.remove(&tunnel.stream.0);
        }
    }
}
