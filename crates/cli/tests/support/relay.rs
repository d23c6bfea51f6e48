//! A line with delay between a client and a server on this host: datagrams, each passed on later.

use bentpipe_base::Bytes;
use bentpipe_sockets::socket::set_receive_buffer;
use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clients talk to its address as if it were the server's. It ends when dropped.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A datagram under way: when it arrives, its content, the client, and whether it goes there.
type UnderWay = (Instant, Vec<u8>, SocketAddr, bool);

impl Relay {
    /// A line to `server` with `delay` each way.
    pub(crate) fn new(server: &str, delay: Duration) -> Self {
        let server: SocketAddr = server.parse().unwrap();
        let near = roomy();
        near.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let address = near.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut line: VecDeque<UnderWay> = VecDeque::new();
            let mut far: BTreeMap<SocketAddr, UdpSocket> = BTreeMap::new();
            let mut buffer = vec![0; 65_536];
            while !asked.load(Ordering::Relaxed) {
                // Who sends something each millisecond does not keep the rest waiting.
                let until = Instant::now() + Duration::from_millis(1);
                while Instant::now() < until
                    && let Ok((len, client)) = near.recv_from(&mut buffer)
                {
                    let due = Instant::now() + delay;
                    line.push_back((due, buffer[..len].to_vec(), client, false));
                }
                for (client, socket) in &far {
                    while let Ok(len) = socket.recv(&mut buffer) {
                        let due = Instant::now() + delay;
                        line.push_back((due, buffer[..len].to_vec(), *client, true));
                    }
                }
                while line.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
                    let (_, octets, client, back) = line.pop_front().unwrap();
                    // Who is gone hears nothing.
                    let _ = if back {
                        near.send_to(&octets, client)
                    } else {
                        let socket = far.entry(client).or_insert_with(|| {
                            let socket = roomy();
                            socket.set_nonblocking(true).unwrap();
                            socket.connect(server).unwrap();
                            socket
                        });
                        socket.send(&octets)
                    };
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

/// A socket with room for what comes at once: as a line, it loses nothing.
fn roomy() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    set_receive_buffer(&socket, Bytes(4 << 20)).unwrap();
    socket
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
