//! One connection with its source and its sink. Files are read and written by threads of their own, so that a blocked
//! pipe never delays packets.

use anyhow::Context;
use bentpipe_base::Instant;
use bentpipe_host::{ConnectionId, Host};
use bentpipe_sockets::epoll::Waker;
use bentpipe_tcp::{Counters, Gauges, State};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Bytes that are read from a file at once.
const CHUNK: usize = 1 << 16;
/// Chunks that wait between a thread and the connection.
const CHUNKS: usize = 16;
/// How long a SYN that may carry data waits for a source that has none yet.
const PATIENCE: Duration = Duration::from_secs(1);

/// The file or standard input that is sent.
pub(super) struct Source {
    input: Box<dyn Read + Send>,
}

impl Source {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self {
                input: Box::new(io::stdin()),
            });
        }
        let name = path.display();
        let file = File::open(path).with_context(|| format!("cannot read `{name}`"))?;
        if file.metadata().is_ok_and(|about| about.is_dir()) {
            anyhow::bail!("`{name}` is a directory: give a file, or a `tar` of it to `-`");
        }
        Ok(Self {
            input: Box::new(file),
        })
    }
}

/// The file or standard output to which received bytes are written.
pub(super) struct Sink {
    output: Box<dyn Write + Send>,
}

impl Sink {
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self {
                output: Box::new(io::stdout()),
            });
        }
        let name = path.display();
        let file = File::create(path).with_context(|| format!("cannot write `{name}`"))?;
        Ok(Self {
            output: Box::new(file),
        })
    }
}

/// The error that a reading or writing thread met, if any.
type Trouble = Arc<Mutex<Option<io::Error>>>;

/// Chunks of the source, and what the connection has not taken of one.
struct Reading {
    chunks: Receiver<Bytes>,
    chunk: Bytes,
}

/// Chunks for the sink, each in the pieces that came, and one for which there was no room.
struct Writing {
    chunks: Option<SyncSender<Vec<Bytes>>>,
    waits: Option<Vec<Bytes>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// A connection on its way.
pub(super) struct Stream {
    pub(super) id: ConnectionId,
    pub(super) peer: SocketAddr,
    source: Option<Source>,
    sink: Option<Sink>,
    reading: Option<Reading>,
    writing: Option<Writing>,
    trouble: Trouble,
    /// There is a source, and the connection has not been closed for sending yet.
    sends: bool,
    closed: bool,
    pub(super) received: u64,
    /// When the connection was established.
    pub(super) connected: Option<Instant>,
    /// Its counters and gauges when it was last looked at.
    pub(super) counters: Counters,
    pub(super) gauges: Gauges,
    /// Both ends speak SCPS-TP.
    pub(super) scps: bool,
}

impl Stream {
    pub(super) fn new(
        id: ConnectionId,
        peer: SocketAddr,
        source: Option<Source>,
        sink: Option<Sink>,
    ) -> Self {
        Self {
            id,
            peer,
            source,
            sink,
            reading: None,
            writing: None,
            trouble: Trouble::default(),
            sends: false,
            closed: false,
            received: 0,
            connected: None,
            counters: Counters::default(),
            gauges: Gauges::default(),
            scps: false,
        }
    }

    /// Starts the threads; each rings `waker` when there is something to do.
    pub(super) fn start(&mut self, waker: &Arc<Waker>) {
        if let Some(source) = self.source.take() {
            self.sends = true;
            let (sender, chunks) = sync_channel(CHUNKS);
            let (waker, trouble) = (Arc::clone(waker), Arc::clone(&self.trouble));
            thread::spawn(move || {
                note(&trouble, feed(source.input, &sender, &waker));
                drop(sender);
                waker.wake();
            });
            self.reading = Some(Reading {
                chunks,
                chunk: Bytes::new(),
            });
        }
        if let Some(sink) = self.sink.take() {
            let (sender, chunks) = sync_channel(CHUNKS);
            let (waker, trouble) = (Arc::clone(waker), Arc::clone(&self.trouble));
            let thread = thread::spawn(move || {
                note(&trouble, drain(sink.output, &chunks, &waker));
                waker.wake();
            });
            self.writing = Some(Writing {
                chunks: Some(sender),
                waits: None,
                thread: Some(thread),
            });
        }
    }

    /// Waits a little for the first bytes of the source, so that they can go with the SYN.
    pub(super) fn await_chunk(&mut self) {
        if let Some(reading) = &mut self.reading
            && let Ok(chunk) = reading.chunks.recv_timeout(PATIENCE)
        {
            reading.chunk = chunk;
        }
    }

    /// What reading or writing a file met.
    pub(super) fn trouble(&self) -> Option<io::Error> {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.take()
    }

    /// Moves what can be moved; whether all is done.
    pub(super) fn step(&mut self, host: &mut Host, now: Instant) -> bool {
        self.send(host);
        self.receive(host);
        let Some(connection) = host.connection_mut(self.id) else {
            return true;
        };
        // The connection is closed only after its handshake, because closing it earlier would abandon it with all data
        // written (RFC 9293, section 3.10.4).
        if self.reading.is_none() && self.sends && connection.state() != State::SynSent {
            self.sends = false;
            self.closed = true;
            connection.close(now);
        }
        self.counters = *connection.counters();
        self.gauges = connection.gauges();
        self.scps = connection.speaks_scps();
        let state = connection.state();
        let stands = !matches!(state, State::SynSent | State::SynReceived);
        if stands && self.connected.is_none() {
            self.connected = Some(now);
        }
        let peer_done = matches!(
            state,
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait | State::Closed
        );
        let drained = connection.readable() == 0;
        if peer_done && drained && self.is_written() {
            // Dropping the channel tells the writing thread that the stream has ended.
            if let Some(writing) = &mut self.writing {
                writing.chunks = None;
            }
            if self.reading.is_none() && !self.closed {
                self.closed = true;
                if let Some(connection) = host.connection_mut(self.id) {
                    connection.close(now);
                }
            }
        }
        // A sender is done when all data is acknowledged, whether the peer closes or not.
        let sent = self.closed && matches!(state, State::FinWait2);
        let over = matches!(state, State::TimeWait | State::Closed);
        (over && drained && self.is_written()) || (sent && self.writing.is_none())
    }

    fn is_written(&self) -> bool {
        self.writing
            .as_ref()
            .is_none_or(|writing| writing.waits.is_none())
    }

    /// Waits until the thread has written all.
    pub(super) fn join(&mut self) {
        if let Some(mut writing) = self.writing.take() {
            writing.chunks = None;
            if let Some(thread) = writing.thread.take() {
                // The thread has noted its error, if it met one.
                let _ = thread.join();
            }
        }
    }

    fn send(&mut self, host: &mut Host) {
        let Some(reading) = &mut self.reading else {
            return;
        };
        loop {
            if reading.chunk.is_empty() {
                match reading.chunks.try_recv() {
                    Ok(chunk) => reading.chunk = chunk,
                    Err(TryRecvError::Empty) => return,
                    Err(TryRecvError::Disconnected) => break,
                }
            }
            let Some(connection) = host.connection_mut(self.id) else {
                return;
            };
            if connection.write_bytes(&mut reading.chunk) == 0 {
                return;
            }
        }
        self.reading = None;
    }

    fn receive(&mut self, host: &mut Host) {
        loop {
            if let Some(writing) = &mut self.writing
                && let Some(chunk) = writing.waits.take()
                && let Some(chunks) = &writing.chunks
                && let Err(TrySendError::Full(chunk)) = chunks.try_send(chunk)
            {
                writing.waits = Some(chunk);
                return;
            }
            let waits = host.connection(self.id).map_or(0, |c| c.readable());
            if waits == 0 {
                return;
            }
            let Some(connection) = host.connection_mut(self.id) else {
                return;
            };
            let (mut chunk, mut room) = (Vec::new(), CHUNK);
            while room > 0
                && let Some(bytes) = connection.read_bytes(room)
            {
                room -= bytes.len();
                chunk.push(bytes);
            }
            self.received += (CHUNK - room) as u64;
            if let Some(writing) = &mut self.writing {
                writing.waits = Some(chunk);
            }
        }
    }
}

fn note(trouble: &Trouble, result: io::Result<()>) {
    if let Err(error) = result {
        let mut trouble = trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.get_or_insert(error);
    }
}

/// Reads until the end, or until nobody wants more.
fn feed(mut input: impl Read, chunks: &SyncSender<Bytes>, waker: &Waker) -> io::Result<()> {
    loop {
        let mut chunk = vec![0; CHUNK];
        match input.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(got) => chunk.truncate(got),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        if chunks.send(chunk.into()).is_err() {
            return Ok(());
        }
        waker.wake();
    }
}

/// Writes until no more comes.
fn drain(mut output: impl Write, chunks: &Receiver<Vec<Bytes>>, waker: &Waker) -> io::Result<()> {
    while let Ok(chunk) = chunks.recv() {
        write_all(&mut output, &chunk)?;
        waker.wake();
    }
    output.flush()
}

/// Writes all of `pieces` in as few calls as they fit.
fn write_all(output: &mut impl Write, pieces: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        match output.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
