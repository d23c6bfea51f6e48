//! Bytes from socket to socket without a copy through user space: splice(2) over borrowed pipes.
//!
//! A pipe costs two descriptors and its buffers, so a [`Pool`] lends one only while data waits in
//! it. A pipe that comes back with bytes in it is closed, never lent again: the next borrower
//! would send another flow's data.

use rustix::pipe::{PipeFlags, SpliceFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A pipe, and how many bytes wait in it. The kernel makes none longer than 2^31 bytes (fcntl(2)), and 32 bits for both
/// figures keep what lends a pipe small.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: u32,
    capacity: u32,
}

impl Pipe {
    /// A pipe of about `capacity` bytes. Where the kernel refuses that much
    /// (`fs.pipe-max-size`, `fs.pipe-user-pages-soft`) it keeps its default of 64 KiB.
    pub fn new(capacity: usize) -> io::Result<Self> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let granted = rustix::pipe::fcntl_setpipe_size(&write, capacity)
            .or_else(|_| rustix::pipe::fcntl_getpipe_size(&write))?;
        Ok(Self {
            read,
            write,
            held: 0,
            capacity: u32::try_from(granted).unwrap_or(u32::MAX),
        })
    }

    /// Bytes that wait in the pipe.
    pub fn held(&self) -> usize {
        self.held as usize
    }

    /// Bytes the pipe was sized for: a page for each of its slots. A slot takes one piece of a segment, however
    /// short, with the page that it lies in: this is what a pipe may keep from others, whatever waits in it.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Moves at most `limit` bytes from socket `from` into the pipe. 0 and `WouldBlock` say neither that
    /// the stream has ended nor that it is empty: splice(2) does not pass an urgent byte, and gives 0
    /// before one once the peer has closed. Only a read tells.
    pub fn fill(&mut self, from: impl AsFd, limit: usize) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let limit = limit.min((u32::MAX - self.held) as usize);
        let moved = rustix::io::retry_on_intr(|| {
            rustix::pipe::splice(&from, None, &self.write, None, limit, flags)
        })?;
        // At most the limit.
        self.held += moved as u32;
        Ok(moved)
    }

    /// Copies what waits in the pipe into `buffer`, as far as it fits: the pages it lay in are free then.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&self.read, &mut *buffer))?;
        self.held = self
            .held
            .saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        Ok(count)
    }

    /// Moves what waits in the pipe to socket `to`, as far as it takes it. `WouldBlock` when it
    /// takes nothing.
    ///
    /// Never flagged SPLICE_F_MORE: on the last bytes of a burst it holds them back for 200 ms.
    pub fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        if self.held == 0 {
            return Ok(0);
        }
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved = rustix::io::retry_on_intr(|| {
            rustix::pipe::splice(&self.read, None, &to, None, self.held(), flags)
        })?;
        if moved == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        // At most what was held.
        self.held -= moved as u32;
        Ok(moved)
    }
}

/// A bounded stock of pipes for one thread.
#[derive(Debug)]
pub struct Pool {
    idle: Vec<Pipe>,
    lent: usize,
    limit: usize,
    keep: usize,
    capacity: usize,
}

impl Pool {
    /// At most `limit` pipes of `capacity` bytes each, of which `keep` stay open while idle.
    pub fn new(limit: usize, keep: usize, capacity: usize) -> Self {
        Self {
            idle: Vec::with_capacity(keep),
            lent: 0,
            limit,
            keep,
            capacity,
        }
    }

    /// Lends an empty pipe. `Ok(None)` when all are lent; an error when the kernel gives no more
    /// (descriptors).
    pub fn borrow(&mut self) -> io::Result<Option<Pipe>> {
        if let Some(pipe) = self.idle.pop() {
            self.lent += 1;
            return Ok(Some(pipe));
        }
        if self.lent >= self.limit {
            return Ok(None);
        }
        let pipe = Pipe::new(self.capacity)?;
        self.lent += 1;
        Ok(Some(pipe))
    }

    /// Takes `pipe` back; with bytes in it, or beyond the number to keep, it is closed.
    pub fn give_back(&mut self, pipe: Pipe) {
        self.lent = self.lent.saturating_sub(1);
        if pipe.held == 0 && self.idle.len() < self.keep {
            self.idle.push(pipe);
        }
    }

    /// Changes the bounds and the size of pipes made from now on; those that wait are closed.
    pub fn resize(&mut self, limit: usize, keep: usize, capacity: usize) {
        self.trim();
        (self.limit, self.keep, self.capacity) = (limit, keep, capacity);
    }

    /// Closes the pipes that wait and returns how many they were.
    pub fn trim(&mut self) -> usize {
        let count = self.idle.len();
        self.idle.clear();
        count
    }

    /// Pipes lent at present.
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// Pipes open and waiting.
    pub fn idle(&self) -> usize {
        self.idle.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_pass_in_order_and_the_end_is_seen() {
        let (mut source, from) = pair();
        let (to, mut sink) = pair();
        let text: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        source.write_all(&text).unwrap();
        drop(source);

        let mut pipe = Pipe::new(256 * 1024).unwrap();
        let mut moved = 0;
        while moved < text.len() {
            match pipe.fill(&from, 1 << 20) {
                Ok(0) => panic!("ended after {moved} bytes"),
                Ok(count) => moved += count,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            while pipe.held() > 0 {
                pipe.drain(&to).unwrap();
            }
        }
        assert_eq!(pipe.fill(&from, 1 << 20).unwrap(), 0);
        drop(to);
        let mut got = Vec::new();
        sink.read_to_end(&mut got).unwrap();
        assert!(got == text);
    }

    /// Before an urgent byte splice(2) says "nothing more", and "the end" once the peer has closed. A read
    /// passes it, and tells whether anything is left.
    #[test]
    fn an_urgent_byte_is_passed_by_a_read_alone() {
        use crate::socket::{Received, receive_and_rest, set_urgent_inline};
        let (mut source, from) = pair();
        from.set_nonblocking(true).unwrap();
        set_urgent_inline(&from).unwrap();
        crate::tcp::tell_rest(&from).unwrap();
        source.write_all(b"before").unwrap();
        rustix::net::send(&source, b"!", rustix::net::SendFlags::OOB).unwrap();
        let mut buffer = [0; 100];
        while !matches!(from.peek(&mut buffer), Ok(6)) {}
        let mut pipe = Pipe::new(64 * 1024).unwrap();
        assert_eq!(pipe.fill(&from, 1 << 20).unwrap(), 6);
        let stuck = pipe.fill(&from, 1 << 20).unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::WouldBlock);
        source.write_all(b"behind").unwrap();
        drop(source);
        while !matches!(pipe.fill(&from, 1 << 20), Ok(0)) {}
        let mut read = || receive_and_rest(&from, &mut buffer).unwrap();
        let (count, drained) = (7, false);
        assert_eq!(read(), Received { count, drained }, "the end is left");
        assert_eq!(read().count, 0);
        assert_eq!(&buffer[..7], b"!behind");
    }

    #[test]
    fn a_pipe_with_bytes_is_never_lent_again() {
        let (mut source, from) = pair();
        source.write_all(b"left over").unwrap();
        let mut pool = Pool::new(1, 1, 64 * 1024);
        let mut pipe = pool.borrow().unwrap().unwrap();
        assert!(pool.borrow().unwrap().is_none(), "the bound is one");
        from.set_nonblocking(false).unwrap();
        while pipe.held() == 0 {
            let _ = pipe.fill(&from, 4096);
        }
        pool.give_back(pipe);
        assert_eq!((pool.idle(), pool.lent()), (0, 0));
        let pipe = pool.borrow().unwrap().unwrap();
        assert_eq!(pipe.held(), 0);
        pool.give_back(pipe);
        assert_eq!((pool.idle(), pool.trim(), pool.idle()), (1, 1, 0));
    }
}
