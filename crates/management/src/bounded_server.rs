//! A small server for the operator's side: it serves a bounded number of clients of each class at a time, each in a
//! thread of low priority.
//!
//! A client that finds no free slot is turned away at once. What can be answered without waiting is answered by the
//! thread that accepts, and takes no slot. So a client that hangs or floods costs its own slot, and nothing of the
//! flows.

use bentpipe_process::sched;
use bentpipe_sockets::socket;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long to wait when the kernel refuses a client, most often for want of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// A listening socket, of whichever family.
pub(crate) trait Acceptor: AsFd + Send + 'static {
    type Stream: Write + Send + 'static;
    fn accept_client(&self) -> io::Result<Self::Stream>;
}

impl Acceptor for UnixListener {
    type Stream = UnixStream;
    fn accept_client(&self) -> io::Result<UnixStream> {
        Ok(self.accept()?.0)
    }
}

impl Acceptor for TcpListener {
    type Stream = TcpStream;
    fn accept_client(&self) -> io::Result<TcpStream> {
        Ok(self.accept()?.0)
    }
}

/// What becomes of a client that has just been accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Triage {
    /// It has its answer already.
    Served,
    /// It takes a slot of its class; neither class can use up the slots of the other.
    Serve(ClientClass),
}

/// Which clients a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientClass {
    /// Any client.
    Common,
    /// Clients that the others must not keep out.
    Reserved,
}

/// A server at work. Dropping it closes its listener; clients that have a slot finish.
#[derive(Debug)]
pub struct BoundedServer {
    listener: OwnedFd,
    accept_thread: Option<JoinHandle<()>>,
}

impl BoundedServer {
    /// Serves by `serve` those clients of `listener` to which `triage` gives a slot, at most `slots` of each class at
    /// a time. A client beyond that is sent `full` and closed. `triage` must not wait for the client.
    pub(crate) fn open<D: Acceptor>(
        name: &str,
        listener: D,
        (slots, full): (usize, &'static [u8]),
        triage: impl Fn(&mut D::Stream) -> Triage + Send + 'static,
        serve: impl Fn(D::Stream) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let handle = listener.as_fd().try_clone_to_owned()?;
        let serve = Arc::new(serve);
        let taken = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let client = format!("{name}-client");
        let accept_thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                sched::yield_to_others();
                loop {
                    let mut stream = match listener.accept_client() {
                        Ok(stream) => stream,
                        // Closed: see `drop`.
                        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                        Err(_) => {
                            thread::sleep(RETRY);
                            continue;
                        }
                    };
                    let taken = match triage(&mut stream) {
                        Triage::Served => continue,
                        Triage::Serve(class) => &taken[class as usize],
                    };
                    if taken.load(Ordering::Relaxed) >= slots {
                        // A new connection has room for it, unless its client has gone.
                        let _ = stream.write_all(full);
                        continue;
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                    let slot = Slot(Arc::clone(taken));
                    let serve = Arc::clone(&serve);
                    // The thread gets its client only when it runs: where the kernel gives none, the client is told, and
                    // its slot is free again.
                    let (given, client_of) = mpsc::sync_channel(1);
                    let serves = move || {
                        let _slot = slot;
                        if let Ok(stream) = client_of.recv() {
                            serve(stream);
                        }
                    };
                    match thread::Builder::new().name(client.clone()).spawn(serves) {
                        Ok(_) => {
                            let _ = given.send(stream);
                        }
                        Err(_) => {
                            let _ = stream.write_all(full);
                        }
                    }
                }
            })?;
        Ok(Self {
            listener: handle,
            accept_thread: Some(accept_thread),
        })
    }
}

/// The slot of one client; it is free again when dropped.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for BoundedServer {
    fn drop(&mut self) {
        let closed = socket::stop_listening(&self.listener);
        if let (Ok(()), Some(accept_thread)) = (closed, self.accept_thread.take()) {
            // It returns nothing, and its panic has been told already.
            let _ = accept_thread.join();
        }
    }
}
