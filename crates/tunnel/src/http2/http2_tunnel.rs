//! One tunnel on a stream of HTTP/2.

use crate::endpoint::{Closed, Read};
use crate::tunnel_stream::{PIECE, Phase, Stream};
use bentpipe_connect_tcp::Framing;
use bytes::Bytes;
use core::task::{Context, Poll, Waker};
use h2::client::ResponseFuture;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};

/// The stream was reset, or its peer broke the protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone;

/// One tunnel.
pub(crate) struct Http2Tunnel {
    pub(crate) state: Stream,
    pub(crate) waker: Waker,
    /// Near, until the answer comes.
    pub(crate) response: Option<ResponseFuture>,
    /// Far, until the answer is given.
    pub(crate) respond: Option<SendResponse<Bytes>>,
    pub(crate) send: Option<SendStream<Bytes>>,
    pub(crate) body: Option<RecvStream>,
    /// What was taken of the body and is not read yet: it holds the window.
    chunk: Bytes,
}

impl Http2Tunnel {
    pub(crate) fn new(phase: Phase, framing: Framing, waker: Waker) -> Self {
        Self {
            state: Stream::new(phase, framing),
            waker,
            response: None,
            respond: None,
            send: None,
            body: None,
            chunk: Bytes::new(),
        }
    }

    /// Looks for what has come; whether there is something to read.
    pub(crate) fn fetch(&mut self) -> Result<bool, Gone> {
        let waker = self.waker.clone();
        let context = &mut Context::from_waker(&waker);
        while self.chunk.is_empty()
            && !self.state.ended
            && let Some(body) = &mut self.body
        {
            match body.poll_data(context) {
                Poll::Ready(Some(Ok(data))) => self.chunk = data,
                Poll::Ready(Some(Err(_))) if !self.state.unheard => return Err(Gone),
                Poll::Ready(_) => self.state.take_end().map_err(|_| Gone)?,
                Poll::Pending => break,
            }
        }
        if self.state.final_seen && !self.chunk.is_empty() {
            // Behind the last byte nothing may come but the end of the stream.
            self.take_chunk()?;
        }
        Ok(!self.chunk.is_empty() || !self.state.inbox.is_empty())
    }

    fn take_chunk(&mut self) -> Result<(), Gone> {
        let chunk = core::mem::take(&mut self.chunk);
        if let Some(body) = &mut self.body {
            // No more is given back than has come.
            let _ = body.flow_control().release_capacity(chunk.len());
        }
        self.state.take_in(chunk).map_err(|_| Gone)
    }

    /// Of UDP: takes all that has come, for nobody waits to read it.
    pub(crate) fn take_all(&mut self) -> Result<(), Gone> {
        while self.fetch()? && !self.chunk.is_empty() {
            self.take_chunk()?;
        }
        Ok(())
    }

    pub(crate) fn read(&mut self) -> Result<Read, Gone> {
        loop {
            if self.state.phase != Phase::Open {
                return Ok(Read::Blocked);
            }
            if let Some(read) = self.state.inbox.pop_front() {
                if read == Read::Final {
                    self.state.final_read = true;
                    self.fetch()?;
                }
                return Ok(read);
            }
            if !self.fetch()? {
                return Ok(Read::Blocked);
            }
            if !self.chunk.is_empty() {
                self.take_chunk()?;
            }
        }
    }

    /// Why its peer has reset it, if it has.
    pub(crate) fn reset_by_peer(&mut self) -> Option<Reason> {
        let waker = self.waker.clone();
        let context = &mut Context::from_waker(&waker);
        let told = match (&mut self.send, &mut self.respond) {
            (Some(send), _) => send.poll_reset(context),
            (None, Some(respond)) => respond.poll_reset(context),
            (None, None) => Poll::Pending,
        };
        match told {
            Poll::Ready(reason) => Some(reason.unwrap_or(Reason::INTERNAL_ERROR)),
            Poll::Pending => None,
        }
    }

    /// Near: the far end has said all that it will, and wants to hear no more (RFC 9113, section 8.1).
    pub(crate) fn unheard(&mut self) {
        self.state.unheard = true;
        self.state.outbox.clear();
        self.finish_if_asked();
    }

    /// Hands on what is left; whether HTTP/2 has all of it.
    pub(crate) fn flush(&mut self) -> bool {
        let waker = self.waker.clone();
        let context = &mut Context::from_waker(&waker);
        let Some(send) = &mut self.send else {
            return self.state.outbox.is_empty();
        };
        while let Some(part) = self.state.outbox.front_mut() {
            send.reserve_capacity(part.len());
            let room = send.capacity().min(part.len());
            if room == 0 {
                match send.poll_capacity(context) {
                    Poll::Ready(Some(Ok(_))) => continue,
                    _ => return false,
                }
            }
            if send.send_data(part.split_to(room), false).is_err() {
                return false;
            }
            if part.is_empty() {
                self.state.outbox.pop_front();
            }
        }
        self.finish_if_asked();
        true
    }

    pub(crate) fn write(&mut self, data: &mut Bytes, near: bool) -> Result<usize, Closed> {
        let carries =
            self.state.phase == Phase::Open || (near && self.state.phase == Phase::Asking);
        if !carries || self.state.finishing {
            return Err(Closed);
        }
        if self.state.unheard {
            // As on HTTP/3: the client shall have all that the server said before it closed.
            let dropped = data.split_off(0).len();
            let open = !self.state.final_read;
            return { open }.then_some(dropped).ok_or(Closed);
        }
        let mut written = 0;
        while !data.is_empty() {
            if !self.flush() {
                self.state.starved = true;
                break;
            }
            let length = data.len().min(PIECE);
            let capsule = self.state.framing.header(length as u64, false);
            self.state.put(&[], &capsule, data.split_to(length));
            written += length;
        }
        self.flush();
        Ok(written)
    }

    fn finish_if_asked(&mut self) {
        if !self.state.finishing || self.state.final_sent || !self.state.outbox.is_empty() {
            return;
        }
        self.state.final_sent = true;
        if self.state.has_final() {
            let last = self.state.framing.header(0, true);
            self.state.put(&[], &last, Bytes::new());
            self.flush();
        }
    }

    /// Ends our direction where that is due, as on HTTP/3; whether the tunnel is over.
    pub(crate) fn close_if_done(&mut self) -> bool {
        if self.state.may_close()
            && let Some(send) = &mut self.send
        {
            self.state.closed = self.state.unheard || send.send_data(Bytes::new(), true).is_ok();
        }
        self.chunk.is_empty() && self.state.is_over()
    }

    /// TCP's RST.
    pub(crate) fn cancel(&mut self) {
        if let Some(send) = &mut self.send {
            send.send_reset(Reason::CONNECT_ERROR);
        } else if let Some(respond) = &mut self.respond {
            respond.send_reset(Reason::CONNECT_ERROR);
        }
    }
}
