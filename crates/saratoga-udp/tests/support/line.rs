//! What lies between a client and a server, and sees the session that passes.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Whom a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// Clients talk to its address as if it were the server's; the server hears them from one port of 127.0.0.1. Stopped when
/// dropped.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Line {
    /// With a delay on each side: what the server says to a client that is gone reaches the next.
    pub(crate) fn delayed(server: SocketAddr, delay: Duration) -> Self {
        Self::new(server, delay, |_, _| true)
    }

    /// A NAT, delayed on each side, that gives another port after each `lasts` datagrams of the clients; and how often it
    /// did.
    pub(crate) fn moving(
        server: SocketAddr,
        delay: Duration,
        lasts: usize,
    ) -> (Self, Arc<AtomicUsize>) {
        let moves = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&moves);
        let mut sent = 0;
        let moved = move || {
            sent += 1;
            let moves = sent % lasts == 0;
            counted.fetch_add(usize::from(moves), Ordering::Relaxed);
            moves
        };
        (
            Self::with(server, delay, None, |_, _| true, moved, |_, _| ()),
            moves,
        )
    }

    /// What goes over it each way may be changed, and comes with a right checksum of UDP all the same.
    pub(crate) fn damaging(
        server: SocketAddr,
        delay: Duration,
        damage: impl FnMut(Way, &mut [u8]) + Send + 'static,
    ) -> Self {
        Self::with(server, delay, None, |_, _| true, || false, damage)
    }

    /// What goes to the server comes there a second time, so much later.
    #[allow(dead_code, reason = "not all tests need it")]
    pub(crate) fn repeating(server: SocketAddr, later: Duration) -> Self {
        let passes = |_: &[u8], _| true;
        Self::with(
            server,
            Duration::ZERO,
            Some(later),
            passes,
            || false,
            |_, _| (),
        )
    }

    /// For the first client that asks for something and nobody else; and what tells the Id of its session, and where it is.
    pub(crate) fn of_one(server: SocketAddr) -> (Self, Receiver<(u32, SocketAddr)>) {
        let (tell, first) = mpsc::channel();
        let mut client = None;
        let line = Self::new(server, Duration::ZERO, move |octets, peer| {
            // The session of a REQUEST that asks for something.
            if octets[0] == 0x21 && octets[3] != 0 && client.is_none() {
                let id = u32::from_be_bytes(octets[4..8].try_into().unwrap());
                client = Some(peer);
                tell.send((id, peer)).unwrap();
            }
            client == Some(peer)
        });
        (line, first)
    }

    /// For what `passes` of the clients' datagrams: answers go to the last whose did.
    fn new(
        server: SocketAddr,
        delay: Duration,
        passes: impl FnMut(&[u8], SocketAddr) -> bool + Send + 'static,
    ) -> Self {
        Self::with(server, delay, None, passes, || false, |_, _| ())
    }

    /// The same, but the server hears from another port after each datagram that `moves`, both what `damage` has made of
    /// it, and the server all of it `again` so much later.
    fn with(
        server: SocketAddr,
        delay: Duration,
        again: Option<Duration>,
        mut passes: impl FnMut(&[u8], SocketAddr) -> bool + Send + 'static,
        mut moves: impl FnMut() -> bool + Send + 'static,
        mut damage: impl FnMut(Way, &mut [u8]) + Send + 'static,
    ) -> Self {
        let [near, mut far] = [(); 2].map(|()| open());
        let address = near.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut client) = ([0; 70_000], None);
            let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
            let mut copies = VecDeque::new();
            while !asked.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(100));
                while let Ok((len, from)) = near.recv_from(&mut buffer) {
                    if passes(&buffer[..len], from) {
                        client = Some(from);
                        up.push_back((Instant::now() + delay, buffer[..len].to_vec()));
                        let copy = again.map(|again| Instant::now() + delay + again);
                        copies.extend(copy.map(|at| (at, buffer[..len].to_vec())));
                    }
                }
                while let Ok((len, from)) = far.recv_from(&mut buffer) {
                    if from == server {
                        down.push_back((Instant::now() + delay, buffer[..len].to_vec()));
                    }
                }
                while let Some(octets) = due(&mut copies) {
                    let _ = far.send_to(&octets, server);
                }
                while let Some(mut octets) = due(&mut up) {
                    damage(Way::ToServer, &mut octets);
                    let _ = far.send_to(&octets, server);
                    if moves() {
                        far = open();
                    }
                }
                while let Some(mut octets) = due(&mut down) {
                    damage(Way::ToClient, &mut octets);
                    // The one that is gone may have been the last.
                    let _ = client.map(|client| near.send_to(&octets, client));
                }
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

fn open() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The next datagram of one way, when it has taken its time.
fn due(way: &mut VecDeque<(Instant, Vec<u8>)>) -> Option<Vec<u8>> {
    way.front().filter(|(at, _)| *at <= Instant::now())?;
    way.pop_front().map(|(_, octets)| octets)
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
