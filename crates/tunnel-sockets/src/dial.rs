//! Names of targets, and what a dial's failure is called.

use bentpipe_connect_tcp::DialError;
use bentpipe_sockets::epoll::Waker;
use bentpipe_tunnel::TunnelId;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Threads that ask the system's resolver, which answers one question at a time.
const RESOLVERS: usize = 4;
/// Questions that may wait for them.
const QUESTIONS: usize = 256;

/// What the resolver said of a tunnel's target.
pub(crate) struct Resolved {
    pub(crate) tunnel: TunnelId,
    pub(crate) found: Result<Vec<SocketAddr>, DialError>,
}

/// Threads that resolve names.
pub(crate) struct Resolver {
    questions: SyncSender<(TunnelId, String, u16)>,
    pub(crate) answers: Receiver<Resolved>,
}

impl Resolver {
    /// Starts them; `waker` is told of each answer. They end with it.
    pub(crate) fn start(waker: &Arc<Waker>) -> io::Result<Self> {
        let (questions, asked) = sync_channel(QUESTIONS);
        let asked = Arc::new(Mutex::new(asked));
        let (told, answers) = channel();
        for nth in 0..RESOLVERS {
            let (asked, told, waker) = (Arc::clone(&asked), told.clone(), Arc::clone(waker));
            let name = format!("resolver-{nth}");
            thread::Builder::new()
                .name(name)
                .spawn(move || answer(&asked, &told, &waker))?;
        }
        Ok(Self { questions, answers })
    }

    /// Asks for a name; whether there was room for the question.
    pub(crate) fn ask(&self, tunnel: TunnelId, name: String, port: u16) -> Result<(), DialError> {
        match self.questions.try_send((tunnel, name, port)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(DialError::DnsTimeout),
            Err(TrySendError::Disconnected(_)) => Err(DialError::Internal),
        }
    }
}

fn answer(
    asked: &Mutex<Receiver<(TunnelId, String, u16)>>,
    told: &Sender<Resolved>,
    waker: &Waker,
) {
    loop {
        // A thread that panicked has left nothing half done.
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((tunnel, name, port)) = next else {
            return;
        };
        let found = (name.as_str(), port).to_socket_addrs();
        let found = found.map(Vec::from_iter).unwrap_or_default();
        let found = if found.is_empty() {
            Err(DialError::Dns)
        } else {
            Ok(found)
        };
        if told.send(Resolved { tunnel, found }).is_err() {
            return;
        }
        waker.wake();
    }
}

/// What the kernel's error of a dial is called.
pub(crate) fn failure(error: &io::Error) -> DialError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => DialError::Refused,
        io::ErrorKind::TimedOut => DialError::Timeout,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown
        | io::ErrorKind::AddrNotAvailable => DialError::Unroutable,
        io::ErrorKind::PermissionDenied => DialError::Prohibited,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => DialError::Terminated,
        _ => DialError::Internal,
    }
}
