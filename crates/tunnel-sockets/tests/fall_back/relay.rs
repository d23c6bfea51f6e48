//! What stands between the two ends: it delays, and drops what a test wants dropped.

use super::support::loopback;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What the relay lets through, and whether it is to end.
#[derive(Default)]
pub(super) struct Gates {
    pub(super) no_udp: AtomicBool,
    pub(super) no_tcp: AtomicBool,
    /// Of ten thousand datagrams so many are lost, each way.
    pub(super) loss: AtomicU32,
    /// Datagrams towards the near end that are beyond so many kbit/s are lost; 0: none are.
    pub(super) policer: AtomicU32,
    pub(super) over: AtomicBool,
}

impl Gates {
    pub(super) fn set(gate: &AtomicBool, on: bool) {
        gate.store(on, Ordering::SeqCst);
    }

    fn is(gate: &AtomicBool) -> bool {
        gate.load(Ordering::SeqCst)
    }

    fn waits(result: &io::Result<usize>) -> bool {
        result
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }
}

const TICK: Option<Duration> = Some(Duration::from_millis(20));

/// What is sent into it is handed to `out` after `delay`, in order.
fn line(delay: Duration, mut out: impl FnMut(&[u8]) + Send + 'static) -> Sender<Vec<u8>> {
    let (entry, waiting) = channel::<(Instant, Vec<u8>)>();
    let (sender, received) = channel::<Vec<u8>>();
    thread::spawn(move || {
        for data in received {
            // The other end of it is over where the test is.
            let _ = entry.send((Instant::now() + delay, data));
        }
    });
    thread::spawn(move || {
        for (due, data) in waiting {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            out(&data);
        }
    });
    sender
}

/// A token bucket.
#[derive(Default)]
struct Policer {
    bits: f64,
    filled: Option<Instant>,
}

impl Policer {
    /// 20 ms at 10 Mbit/s.
    const DEPTH: f64 = 2e5;

    /// Whether a datagram of so many bytes is within so many kbit/s, headers of IP and UDP included.
    fn passes(&mut self, length: usize, kbps: u32) -> bool {
        let now = Instant::now();
        let since = self
            .filled
            .replace(now)
            .map_or(1.0, |at| (now - at).as_secs_f64());
        self.bits = (self.bits + since * f64::from(kbps) * 1e3).min(Self::DEPTH);
        let size = (length + 28) as f64 * 8.0;
        let passes = self.bits >= size;
        if passes {
            self.bits -= size;
        }
        passes
    }
}

/// Carries UDP and TCP of one near end to the far end at `far`, each with a delay each way.
pub(super) fn relay(gates: &Arc<Gates>, far: SocketAddr, delay: Duration) -> SocketAddr {
    // Somebody may have the TCP port of that number.
    let (front, address, listener) = loop {
        let front = UdpSocket::bind(loopback()).unwrap();
        let address = front.local_addr().unwrap();
        if let Ok(listener) = TcpListener::bind(address) {
            break (Arc::new(front), address, listener);
        }
    };
    let back = Arc::new(UdpSocket::bind(loopback()).unwrap());
    back.connect(far).unwrap();
    let client = Arc::new(std::sync::Mutex::new(None::<SocketAddr>));
    for socket in [&front, &back] {
        socket.set_read_timeout(TICK).unwrap();
    }
    for from_front in [true, false] {
        let (front, back) = (Arc::clone(&front), Arc::clone(&back));
        let (client, gates) = (Arc::clone(&client), Arc::clone(gates));
        let [front_out, back_out] = [Arc::clone(&front), Arc::clone(&back)];
        let known = Arc::clone(&client);
        let way = line(delay, move |data| {
            // What the other end does not take is lost, as any datagram may be.
            let _ = if from_front {
                back_out.send(data)
            } else {
                let peer = known.lock().unwrap().unwrap();
                front_out.send_to(data, peer)
            };
        });
        thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            let mut chance = 1_u32;
            let mut policer = Policer::default();
            while !Gates::is(&gates.over) {
                let received = if from_front {
                    front.recv_from(&mut buffer).map(|(length, peer)| {
                        *client.lock().unwrap() = Some(peer);
                        length
                    })
                } else {
                    back.recv(&mut buffer)
                };
                let Ok(length) = received else { continue };
                chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let lost = (chance >> 8) % 10_000 < gates.loss.load(Ordering::SeqCst);
                let rate = gates.policer.load(Ordering::SeqCst);
                let beyond = !from_front && rate > 0 && !policer.passes(length, rate);
                if lost || beyond || Gates::is(&gates.no_udp) {
                    continue;
                }
                way.send(buffer[..length].to_vec()).unwrap();
            }
        });
    }
    listener.set_nonblocking(true).unwrap();
    let gates = Arc::clone(gates);
    thread::spawn(move || {
        while !Gates::is(&gates.over) {
            let Ok((near, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            near.set_nonblocking(false).unwrap();
            let far = TcpStream::connect(far).unwrap();
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let gates = Arc::clone(&gates);
                thread::spawn(move || carry(from, to, delay, &gates));
            }
        }
    });
    address
}

fn carry(mut from: TcpStream, to: TcpStream, delay: Duration, gates: &Gates) {
    let mut writer = to.try_clone().unwrap();
    let way = line(delay, move |data| {
        // Who has gone wants no more.
        let _ = writer.write_all(data);
    });
    from.set_read_timeout(TICK).unwrap();
    let mut buffer = vec![0; 65_536];
    while !Gates::is(&gates.over) {
        if Gates::is(&gates.no_tcp) {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                if way.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
            result if Gates::waits(&result) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
