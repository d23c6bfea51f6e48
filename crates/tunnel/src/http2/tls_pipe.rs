//! TLS over bytes in memory: what HTTP/2 reads and writes in the place of a socket.

use super::settings_count::SettingsCount;
use bytes::{Buf, BytesMut};
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that wait for the socket, after which HTTP/2 waits.
const UNSENT: usize = 256 << 10;
/// Bytes that HTTP/2 has not read, after which the socket is not read either: HTTP/2 reads nothing while its answers do not leave.
const UNREAD: usize = 256 << 10;
/// Bytes that are read of TLS at once.
const READ: usize = 16 << 10;

/// One end of it: HTTP/2's, and its driver's.
#[derive(Clone)]
pub(crate) struct TlsPipe(Arc<Mutex<Inner>>);

struct Inner {
    tls: rustls::Connection,
    received: BytesMut,
    settings: SettingsCount,
    /// The socket was not read, for want of room.
    left_unread: bool,
    /// The peer's side has ended.
    ended: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl TlsPipe {
    pub(crate) fn new(mut tls: rustls::Connection) -> Self {
        tls.set_buffer_limit(Some(UNSENT));
        let settings = SettingsCount::new(matches!(tls, rustls::Connection::Server(_)));
        Self(Arc::new(Mutex::new(Inner {
            tls,
            received: BytesMut::new(),
            settings,
            left_unread: false,
            ended: false,
            reader: None,
            writer: None,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics midway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at TLS itself.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut rustls::Connection) -> T) -> T {
        look(&mut self.inner().tls)
    }

    /// Whether the socket was left unread, and there is room now for what it has.
    pub(crate) fn has_room_again(&self) -> bool {
        let inner = self.inner();
        inner.left_unread && inner.received.len() < UNREAD
    }

    /// Takes what `socket` has, once; whether it may have more, and there is room for it.
    ///
    /// # Errors
    /// What the socket says, and what TLS says of the peer, as `InvalidData`.
    pub(crate) fn receive(&self, socket: &mut dyn Read) -> io::Result<bool> {
        let mut inner = self.inner();
        let inner = &mut *inner;
        inner.left_unread = inner.received.len() >= UNREAD;
        if inner.left_unread {
            return Ok(false);
        }
        match inner.tls.read_tls(socket) {
            Ok(0) => inner.ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        let state = { inner.tls.process_new_packets() }
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        inner.ended |= state.peer_has_closed();
        let mut left = state.plaintext_bytes_to_read();
        while left > 0 {
            let before = inner.received.len();
            inner.received.resize(before + left.min(READ), 0);
            let read = inner.tls.reader().read(&mut inner.received[before..]);
            let read = read.unwrap_or(0);
            inner.received.truncate(before + read);
            inner
                .settings
                .hear(&inner.received[before..])
                .map_err(|_| {
                    let why = "the peer changes its settings again and again";
                    io::Error::new(io::ErrorKind::InvalidData, why)
                })?;
            left = if read == 0 { 0 } else { left - read };
        }
        inner.reader.take().into_iter().for_each(Waker::wake);
        Ok(!inner.ended)
    }

    /// Writes what waits for `socket`, until it takes no more.
    ///
    /// # Errors
    /// What the socket says.
    pub(crate) fn send(&self, socket: &mut dyn Write) -> io::Result<()> {
        let mut inner = self.inner();
        let mut has_room = false;
        while inner.tls.wants_write() {
            match inner.tls.write_tls(socket) {
                Ok(0) => break,
                Ok(_) => has_room = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if has_room {
            inner.writer.take().into_iter().for_each(Waker::wake);
        }
        Ok(())
    }
}

impl AsyncRead for TlsPipe {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        if inner.received.is_empty() && !inner.ended {
            inner.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let taken = inner.received.len().min(buffer.remaining());
        buffer.put_slice(&inner.received[..taken]);
        inner.received.advance(taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsPipe {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.inner();
        match inner.tls.writer().write(data) {
            Ok(0) if !data.is_empty() => {
                inner.writer = Some(context.waker().clone());
                Poll::Pending
            }
            written => Poll::Ready(written),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().tls.send_close_notify();
        Poll::Ready(Ok(()))
    }
}
