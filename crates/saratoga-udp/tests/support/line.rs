//! What lies between a client and a server, and sees the session that passes.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
        mut passes: impl FnMut(&[u8], SocketAddr) -> bool + Send + 'static,
    ) -> Self {
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
            let (mut up, mut down) = (VecDeque::new(), VecDeque::new());
            while !asked.load(Ordering::Relaxed) {
                while let Ok((len, from)) = near.recv_from(&mut buffer) {
                    if passes(&buffer[..len], from) {
                        client = Some(from);
                        up.push_back((Instant::now() + delay, buffer[..len].to_vec()));
                    }
                }
                while let Ok((len, from)) = far.recv_from(&mut buffer) {
                    if from == server {
                        down.push_back((Instant::now() + delay, buffer[..len].to_vec()));
                    }
                }
                for (way, socket, to) in [(&mut up, &far, Some(server)), (&mut down, &near, client)]
                {
                    while way.front().is_some_and(|(at, _)| *at <= Instant::now())
                        && let Some((_, octets)) = way.pop_front()
                    {
                        // The one that is gone may have been the last.
                        let _ = to.map(|to| socket.send_to(&octets, to));
                    }
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

impl Drop for Line {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
