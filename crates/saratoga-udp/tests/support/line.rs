//! What lies between a client and a server, and sees the session that passes.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clients talk to its address as if it were the server's; the server hears them from one port of 127.0.0.1.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    first: Receiver<(u32, SocketAddr)>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Line {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = near.local_addr().unwrap();
        for socket in [&near, &far] {
            let pause = Duration::from_micros(100);
            socket.set_read_timeout(Some(pause)).unwrap();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let (tell, first) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut client) = ([0; 70_000], None);
            while !asked.load(Ordering::Relaxed) {
                while let Ok((len, peer)) = near.recv_from(&mut buffer) {
                    // The session of a REQUEST that asks for something.
                    if buffer[0] == 0x21 && buffer[3] != 0 && client.is_none() {
                        let id = u32::from_be_bytes(buffer[4..8].try_into().unwrap());
                        client = Some(peer);
                        tell.send((id, peer)).unwrap();
                    }
                    if client == Some(peer) {
                        far.send_to(&buffer[..len], server).unwrap();
                    }
                }
                while let Ok((len, from)) = far.recv_from(&mut buffer) {
                    if let Some(client) = client.filter(|_| from == server) {
                        near.send_to(&buffer[..len], client).unwrap();
                    }
                }
            }
        });
        Self {
            address,
            first,
            stop,
            thread: Some(thread),
        }
    }

    /// The Id of the session that passes, and where its client is.
    pub(crate) fn first(&self) -> (u32, SocketAddr) {
        self.first.recv().unwrap()
    }
}

/// A way with a delay on each side, by which the server hears every client from the same port: what it says to one that is
/// gone reaches the next.
pub(crate) fn delayed(server: SocketAddr, delay: Duration) -> Delayed {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = near.local_addr().unwrap();
    for socket in [&near, &far] {
        let pause = Duration::from_micros(100);
        socket.set_read_timeout(Some(pause)).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let (mut buffer, mut client) = ([0; 70_000], None);
        let mut ways = [VecDeque::new(), VecDeque::new()];
        while !asked.load(Ordering::Relaxed) {
            for (way, socket) in ways.iter_mut().zip([&near, &far]) {
                while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                    if from != server {
                        client = Some(from);
                    }
                    way.push_back((Instant::now() + delay, buffer[..len].to_vec()));
                }
            }
            let now = Instant::now();
            let ends = [(&far, Some(server)), (&near, client)];
            for (way, (socket, to)) in ways.iter_mut().zip(ends) {
                while way.front().is_some_and(|(at, _)| *at <= now)
                    && let Some((_, octets)) = way.pop_front()
                {
                    // The one that is gone may have been the last.
                    let _ = to.map(|to| socket.send_to(&octets, to));
                }
            }
        }
    });
    Delayed {
        address,
        stop,
        thread: Some(thread),
    }
}

/// See [`delayed`].
pub(crate) struct Delayed {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Delayed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
