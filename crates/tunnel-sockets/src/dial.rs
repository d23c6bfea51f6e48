//! Names of targets, and what a dial's failure is called.

use bentpipe_connect_tcp::DialError;
use bentpipe_quic::PublicKey;
use bentpipe_sockets::epoll::Waker;
use bentpipe_sockets::socket;
use bentpipe_tunnel::TunnelId;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Threads that ask the system's resolver, which answers one question at a time, and how many of them one client may hold.
const RESOLVERS: usize = 16;
const RESOLVERS_OF_A_CLIENT: usize = 4;
/// Questions of one client that may wait for them.
const QUESTIONS: usize = 256;

/// What the resolver said of a tunnel's target.
pub(crate) struct Resolved {
    pub(crate) tunnel: TunnelId,
    pub(crate) found: Result<Vec<SocketAddr>, DialError>,
}

/// A name and a port that a tunnel is to reach.
struct Question {
    tunnel: TunnelId,
    name: String,
    port: u16,
}

/// What one client asks.
#[derive(Default)]
struct OfClient {
    waiting: VecDeque<Question>,
    /// Threads that ask for it.
    under_way: usize,
}

/// What is asked.
#[derive(Default)]
struct Asked {
    clients: BTreeMap<PublicKey, OfClient>,
    over: bool,
}

impl Asked {
    /// The next question: of those who may have one more thread, the client's who has fewest.
    fn next(&mut self) -> Option<(PublicKey, Question)> {
        let next = { self.clients.iter_mut() }
            .filter(|(_, of)| !of.waiting.is_empty() && of.under_way < RESOLVERS_OF_A_CLIENT)
            .min_by_key(|(_, of)| of.under_way);
        let (&key, of) = next?;
        let question = of.waiting.pop_front()?;
        of.under_way += 1;
        Some((key, question))
    }

    /// A client's question is answered.
    fn answered(&mut self, key: PublicKey) {
        if let Some(of) = self.clients.get_mut(&key) {
            of.under_way -= 1;
            if of.under_way == 0 && of.waiting.is_empty() {
                self.clients.remove(&key);
            }
        }
    }
}

/// Questions, and what wakes the threads that are to ask them.
#[derive(Default)]
struct Board {
    asked: Mutex<Asked>,
    changed: Condvar,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        // A thread that panicked has left nothing half done.
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads that resolve names. Whose names nobody answers for holds some of them, and not those of other clients.
pub(crate) struct Resolver {
    board: Arc<Board>,
    pub(crate) answers: Receiver<Resolved>,
}

impl Resolver {
    /// Starts them; `waker` is told of each answer. They end with it.
    pub(crate) fn start(waker: &Arc<Waker>) -> io::Result<Self> {
        let board = Arc::<Board>::default();
        let (told, answers) = channel();
        for nth in 0..RESOLVERS {
            let (board, told, waker) = (Arc::clone(&board), told.clone(), Arc::clone(waker));
            let name = format!("resolver-{nth}");
            thread::Builder::new()
                .name(name)
                .spawn(move || answer(&board, &told, &waker))?;
        }
        Ok(Self { board, answers })
    }

    /// Asks for a name for a client; whether there was room for the question.
    pub(crate) fn ask(
        &self,
        client: PublicKey,
        tunnel: TunnelId,
        name: String,
        port: u16,
    ) -> Result<(), DialError> {
        let mut asked = self.board.lock();
        let of = asked.clients.entry(client).or_default();
        if of.waiting.len() >= QUESTIONS {
            return Err(DialError::DnsTimeout);
        }
        of.waiting.push_back(Question { tunnel, name, port });
        self.board.changed.notify_one();
        Ok(())
    }

    /// Nobody waits for the answer to a tunnel's question any more.
    pub(crate) fn forget(&self, tunnel: TunnelId) {
        let mut asked = self.board.lock();
        asked.clients.retain(|_, of| {
            of.waiting.retain(|question| question.tunnel != tunnel);
            of.under_way > 0 || !of.waiting.is_empty()
        });
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.board.lock().over = true;
        self.board.changed.notify_all();
    }
}

fn answer(board: &Board, told: &Sender<Resolved>, waker: &Waker) {
    let mut asked = board.lock();
    while !asked.over {
        let Some((client, question)) = asked.next() else {
            asked = { board.changed.wait(asked) }.unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(asked);
        let Question { tunnel, name, port } = question;
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
        asked = board.lock();
        // The next of this client is asked by this thread, unless another has waited for it.
        asked.answered(client);
    }
}

/// What the kernel's error of a dial is called. Without descriptors or memory no more tunnels are to be asked for.
pub(crate) fn failure(error: &io::Error) -> DialError {
    if socket::is_exhausted(error) {
        return DialError::Limit;
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_descriptors_left_admits_no_more_tunnels() {
        use rustix::io::Errno;
        for (errno, why) in [
            (Errno::MFILE, DialError::Limit),
            (Errno::NOBUFS, DialError::Limit),
            (Errno::CONNREFUSED, DialError::Refused),
            (Errno::INVAL, DialError::Internal),
        ] {
            assert_eq!(failure(&errno.into()), why);
        }
    }
}
