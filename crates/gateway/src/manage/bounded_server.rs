//! A small server: a bounded number of clients of each rank, each with a thread of low priority. Whoever
//! finds no seat is turned away at once; whoever needs none is served at the door.

use bentpipe_os::sched;
use bentpipe_sockets::socket;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long to wait when the kernel refuses a client, most often for want of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// Where clients come in.
pub(super) trait Door: AsFd + Send + 'static {
    type Stream: Write + Send + 'static;
    fn welcome(&self) -> io::Result<Self::Stream>;
}

impl Door for UnixListener {
    type Stream = UnixStream;
    fn welcome(&self) -> io::Result<UnixStream> {
        Ok(self.accept()?.0)
    }
}

impl Door for TcpListener {
    type Stream = TcpStream;
    fn welcome(&self) -> io::Result<TcpStream> {
        Ok(self.accept()?.0)
    }
}

/// What a client is given at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// It has all that it wanted.
    Served,
    /// A seat of one of two ranks, of which neither takes the other's.
    Seat(Rank),
}

/// Whose seats they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Anybody's.
    Common,
    /// Those of clients that must not be kept out by the others.
    Reserved,
}

/// A server at work. Dropping it closes the door; clients that are seated finish.
#[derive(Debug)]
pub(super) struct Seats {
    door: OwnedFd,
    doorkeeper: Option<JoinHandle<()>>,
}

impl Seats {
    /// Serves at most `seats` clients of `door` of each rank at a time by `serve`, those to whom `greet`
    /// gives a seat; those beyond get `full` and the door. `greet` waits for nobody.
    pub(super) fn open<D: Door>(
        name: &str,
        door: D,
        (seats, full): (usize, &'static [u8]),
        greet: impl Fn(&mut D::Stream) -> Greeting + Send + 'static,
        serve: impl Fn(D::Stream) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let handle = door.as_fd().try_clone_to_owned()?;
        let serve = Arc::new(serve);
        let taken = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let client = format!("{name}-client");
        let doorkeeper = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                sched::yield_to_others();
                loop {
                    let mut stream = match door.welcome() {
                        Ok(stream) => stream,
                        // Closed: see `drop`.
                        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                        Err(_) => {
                            thread::sleep(RETRY);
                            continue;
                        }
                    };
                    let taken = match greet(&mut stream) {
                        Greeting::Served => continue,
                        Greeting::Seat(rank) => &taken[rank as usize],
                    };
                    if taken.load(Ordering::Relaxed) >= seats {
                        // A new connection has room for it, unless its client has gone.
                        let _ = stream.write_all(full);
                        continue;
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                    let seat = Seat(Arc::clone(taken));
                    let serve = Arc::clone(&serve);
                    // Without a thread the client is turned away, its seat free again.
                    let _ = thread::Builder::new().name(client.clone()).spawn(move || {
                        let _seat = seat;
                        serve(stream);
                    });
                }
            })?;
        Ok(Self {
            door: handle,
            doorkeeper: Some(doorkeeper),
        })
    }
}

/// One client's; free again when dropped.
struct Seat(Arc<AtomicUsize>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let closed = socket::stop_listening(&self.door);
        if let (Ok(()), Some(doorkeeper)) = (closed, self.doorkeeper.take()) {
            // It returns nothing, and its panic has been told already.
            let _ = doorkeeper.join();
        }
    }
}
