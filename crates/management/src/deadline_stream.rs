//! A deadline for all reads and writes of a client together, so that one that trickles its bytes gets no more time than
//! one that hangs.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A connection whose single reads and writes can be bounded in time.
pub(crate) trait Bounded: Read + Write {
    fn bound(&self, patience: Duration) -> io::Result<()>;
}

impl Bounded for &UnixStream {
    fn bound(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl Bounded for &TcpStream {
    fn bound(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// A connection all of whose reads and writes together are bounded.
pub(crate) struct DeadlineStream<S> {
    stream: S,
    until: Instant,
}

impl<S: Bounded> DeadlineStream<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            until: Instant::now() + patience,
        }
    }

    /// From now on it has `patience`.
    pub(crate) fn extend(&mut self, patience: Duration) {
        self.until = Instant::now() + patience;
    }

    /// The connection, with what is left of the time.
    fn stream(&mut self) -> io::Result<&mut S> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.bound(left)?;
        Ok(&mut self.stream)
    }
}

impl<S: Bounded> Read for DeadlineStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream()?.read(buffer)
    }
}

impl<S: Bounded> Write for DeadlineStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream()?.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_trickles_has_no_more_time_than_who_hangs() {
        for trickles in [false, true] {
            let (near, far) = UnixStream::pair().unwrap();
            let trickle = std::thread::spawn(move || {
                for _ in 0..20 {
                    std::thread::sleep(Duration::from_millis(20));
                    // Nobody may listen any more.
                    let _ = trickles && (&far).write(b"x").is_ok();
                }
            });
            let begun = Instant::now();
            let mut deadline = DeadlineStream::new(&near, Duration::from_millis(100));
            let error = deadline.read_to_end(&mut Vec::new()).unwrap_err();
            let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
            assert!(kinds.contains(&error.kind()), "{error}");
            assert!(begun.elapsed() < Duration::from_millis(300));
            trickle.join().unwrap();
        }
    }
}
