//! A proxy, a near end, and between them a link in the place of a satellite's: datagrams of real sockets through the machines of
//! `bentpipe-link`, in wall time.

#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_base::{Bytes, Instant, Probability, Rate};
use bentpipe_cc::LinkParams;
use bentpipe_connect_tcp::Template;
use bentpipe_gateway_config::QuicPath;
use bentpipe_link::channel::PacketError;
use bentpipe_link::queue::DropTail;
use bentpipe_link::{Direction, Limit, Settings};
use bentpipe_proxy::{Config, Proxy};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_tunnel_sockets::{Driver, Handle, Link, Near, make_identity, read_identity};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// Headers of IP and UDP, which a link carries too.
const HEADERS: u64 = 28;

/// What the link is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) mbps: u64,
    pub(crate) round_trip: Duration,
    pub(crate) loss: f64,
    /// The overhead of forward error correction, as the keys of both ends say it.
    pub(crate) fec: &'static str,
}

/// 10 Mbit/s and 600 ms, packets lost each way.
pub(crate) fn geo(loss: f64) -> Path {
    Path {
        mbps: 10,
        round_trip: Duration::from_millis(600),
        loss,
        fec: "off",
    }
}

/// Carries datagrams between whoever sends to `near` and the far end, until it is dropped.
struct Satellite {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Satellite {
    fn start(path: Path, near: UdpSocket, far_end: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || carry(path, &near, far_end, &told));
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Satellite {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

fn carry(path: Path, near: &UdpSocket, far_end: SocketAddr, stop: &AtomicBool) {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    far.connect(far_end).unwrap();
    let epoll = Epoll::new().unwrap();
    for (socket, token) in [(near, 0), (&far, 1)] {
        socket.set_nonblocking(true).unwrap();
        epoll.add(socket, token, Interest::READ).unwrap();
    }
    let rate = Rate::from_bits_per_sec(path.mbps * 1_000_000);
    let way = |name: &str| {
        let settings = Settings {
            rate: Some(rate),
            delay: path.round_trip / 2,
            queue: DropTail::new(Limit::Bytes(Bytes(750_000))).into(),
            channels: vec![Box::new(PacketError::new(
                Probability::new(path.loss).unwrap(),
            ))],
            ..Settings::default()
        };
        Direction::new(settings, 1, name, bentpipe_base::Silent)
    };
    let mut ways = [way("up"), way("down")];
    let began = std::time::Instant::now();
    let now = || Instant::ZERO + began.elapsed();
    let mut client = None::<SocketAddr>;
    let mut buffer = vec![0; 65_536];
    let mut events = Events::with_capacity(2);
    while !stop.load(Ordering::Relaxed) {
        while let Ok((len, from)) = near.recv_from(&mut buffer) {
            client = Some(from);
            ways[0].push(buffer[..len].to_vec(), Bytes(len as u64 + HEADERS), now());
        }
        while let Ok(len) = far.recv(&mut buffer) {
            ways[1].push(buffer[..len].to_vec(), Bytes(len as u64 + HEADERS), now());
        }
        while let Some((_, datagram)) = ways[0].deliver(now()) {
            let _ = far.send(&datagram);
        }
        while let Some((_, datagram)) = ways[1].deliver(now()) {
            let _ = client.map(|client| near.send_to(&datagram, client));
        }
        let due = ways.iter().filter_map(Direction::deadline).min();
        let wait = due.map_or(Duration::from_millis(50), |due| due.since(now()));
        epoll
            .wait(&mut events, Some(wait.min(Duration::from_millis(50))))
            .unwrap();
    }
}

/// Both ends at work.
pub(crate) struct Pair {
    pub(crate) proxy: Proxy,
    pub(crate) near: Near,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    satellite: Option<Satellite>,
    _folder: TempDir,
}

impl Pair {
    /// Over `path`, or, without one, over loopback itself; what both ends are told is `told`.
    pub(crate) fn new(path: Option<Path>, told: Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let keys = ["near.key", "far.key"].map(|name| make_identity(&file(name)).unwrap().public());
        let free = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let text = format!(
            "listen = \"{free}\"\nidentity = \"{}\"\nclients = [\"{}\"]\ncontrol = \"off\"\n[link]\nrate = \"{}Mbit/s\"\n\
             round_trip = \"{}ms\"\nloss = {}\nfec = \"{}\"\n[[policy]]\nto = \"127.0.0.1\"\naction = \"allow\"\n",
            file("far.key").display(),
            keys[0],
            told.mbps,
            told.round_trip.as_millis(),
            told.loss,
            told.fec,
        );
        std::fs::write(file("proxy.toml"), &text).unwrap();
        let config = Config::parse("proxy.toml", &text).unwrap();
        let proxy = Proxy::start(&config, &file("proxy.toml")).unwrap();
        let (peer, satellite) = match path {
            None => (free, None),
            Some(path) => {
                let near = UdpSocket::bind("127.0.0.1:0").unwrap();
                let peer = near.local_addr().unwrap();
                (peer, Some(Satellite::start(path, near, free)))
            }
        };
        let link = Link {
            params: LinkParams::of_rate(Rate::from_bits_per_sec(told.mbps * 1_000_000)),
            path: QuicPath {
                round_trip: told.round_trip,
                loss: Probability::new(told.loss).unwrap(),
                fec: config.link.path.fec,
                ..QuicPath::default()
            },
            control: None,
        };
        let identity = read_identity(&file("near.key")).unwrap();
        let quic = link.config(identity, vec![keys[1]], false).unwrap();
        let template = Template::of_authority("far.example").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let (driver, near) = Driver::near(&quic, any, peer, template).unwrap();
        let handle = driver.handle();
        let thread = thread::spawn(move || driver.run().map(drop).unwrap());
        let pair = Self {
            proxy,
            near,
            handle,
            thread: Some(thread),
            satellite,
            _folder: folder,
        };
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while !pair.near.is_up() {
            assert!(
                std::time::Instant::now() < until,
                "the far end is not reached"
            );
            thread::sleep(Duration::from_millis(1));
        }
        pair
    }

    /// A listener whose connections are carried to `target`, as a gateway would those that it intercepts.
    pub(crate) fn entrance(&self, target: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let near = self.near.clone();
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                near.carry(socket, target.into(), Box::new(()));
            }
        });
        address
    }

    /// A client's end of a connection to `target`.
    pub(crate) fn connect(&self, target: SocketAddr) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        self.near
            .carry(listener.accept().unwrap().0, target.into(), Box::new(()));
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        client
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().unwrap().join();
        drop(self.satellite.take());
        assert!(ended.is_ok() || thread::panicking());
    }
}
