//! What an operator changes in a running proxy, and what he bounds: reload, limits by key, idle flows.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::Rate;
use bentpipe_cc::LinkParams;
use bentpipe_connect_tcp::{DialError, Template};
use bentpipe_gateway_config::QuicPath;
use bentpipe_management::control_protocol::{self, Request};
use bentpipe_proxy::{Config, Proxy, Status};
use bentpipe_quic::PublicKey;
use bentpipe_tunnel_sockets::{
    Driver, Handle, Link, Near, NoTunnel, Ticket, make_identity, read_identity,
};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
const OPEN: &str = "[[policy]]\nto = \"127.0.0.1\"\naction = \"allow\"\n";

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A proxy with a configuration that the test writes anew, and the keys of two clients.
struct Bed {
    proxy: Proxy,
    address: SocketAddr,
    key: PublicKey,
    clients: [PublicKey; 2],
    folder: TempDir,
}

impl Bed {
    fn new(rest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| make_identity(&folder.path().join(name)).unwrap().public();
        let key = make("far.key");
        let clients = [make("0.key"), make("1.key")];
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let file = folder.path().join("proxy.toml");
        let text = text(&folder, address, &clients, rest);
        std::fs::write(&file, &text).unwrap();
        let config = Config::parse("proxy.toml", &text).unwrap();
        Self {
            proxy: Proxy::start(&config, &file).unwrap(),
            address,
            key,
            clients,
            folder,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Has it read a configuration that serves `clients`; what it says of that.
    fn reload(&self, clients: &[PublicKey], rest: &str) -> Result<(), String> {
        self.reload_text(&text(&self.folder, self.address, clients, rest))
    }

    fn reload_text(&self, text: &str) -> Result<(), String> {
        std::fs::write(self.file("proxy.toml"), text).unwrap();
        let control = self.file("control");
        let answer = control_protocol::ask("proxy", &control, &Request::Reload);
        answer.map(drop).map_err(|error| error.to_string())
    }

    fn status(&self) -> Status {
        self.proxy.status().unwrap()
    }

    /// The near end of client number `number`.
    fn near(&self, number: usize) -> NearEnd {
        let link = Link {
            params: LinkParams::of_rate(Rate::from_bits_per_sec(100_000_000)),
            path: QuicPath {
                round_trip: Duration::from_millis(20),
                ..QuicPath::default()
            },
            control: None,
        };
        let identity = read_identity(&self.file(&format!("{number}.key"))).unwrap();
        let quic = link.config(identity, vec![self.key], false).unwrap();
        let template = Template::of_authority("far.example").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let (driver, near) = Driver::near(&quic, any, self.address, template).unwrap();
        NearEnd {
            near,
            handle: driver.handle(),
            thread: Some(thread::spawn(move || driver.run().map(drop).unwrap())),
        }
    }

    /// One that is connected.
    fn connected(&self, number: usize) -> NearEnd {
        let near = self.near(number);
        until("the far end is not reached", || near.near.is_up());
        near
    }
}

fn text(folder: &TempDir, address: SocketAddr, clients: &[PublicKey], rest: &str) -> String {
    let clients: Vec<_> = clients.iter().map(|key| format!("\"{key}\"")).collect();
    format!(
        "listen = \"{address}\"\nidentity = \"{0}/far.key\"\nclients = [{1}]\ncontrol = \"{0}/control\"\n\
         [link]\nrate = \"100Mbit/s\"\nround_trip = \"20ms\"\n{rest}",
        folder.path().display(),
        clients.join(", "),
    )
}

struct NearEnd {
    near: Near,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

type Answers = Receiver<Result<(), NoTunnel>>;

impl NearEnd {
    fn ask(&self, target: SocketAddr) -> (Ticket, Answers) {
        let (told, answers) = channel();
        let client = SocketAddr::from(([192, 0, 2, 7], 40_000));
        let ticket = self.near.ask(target.into(), client, move |answer| {
            // The test may have looked for long enough.
            let _ = told.send(answer);
        });
        (ticket, answers)
    }

    /// Asks for a tunnel, and what the far end says.
    fn answer(&self, target: SocketAddr) -> (Ticket, Result<(), NoTunnel>) {
        let (ticket, answers) = self.ask(target);
        (ticket, answers.recv_timeout(PATIENCE).unwrap())
    }

    /// A client's connection to `target`.
    fn connect(&self, target: SocketAddr) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let carried = listener.accept().unwrap().0;
        self.near.carry(carried, target.into(), Box::new(()));
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    fn last_loss(&self) -> String {
        self.handle.status(PATIENCE).unwrap().last_loss
    }
}

impl Drop for NearEnd {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// A server that says back what it hears.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut writer = socket.try_clone().unwrap();
                // A reset ends it as well.
                let _ = std::io::copy(&mut socket, &mut writer);
            });
        }
    });
    address
}

fn says_back(client: &mut TcpStream) -> bool {
    let mut heard = [0; 4];
    client.write_all(b"ping").is_ok() && client.read_exact(&mut heard).is_ok() && &heard == b"ping"
}

fn is_reset(client: &mut TcpStream) -> bool {
    let read = client.read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

const REFUSED: Result<(), NoTunnel> = Err(NoTunnel::Dial(DialError::Limit));

/// New policies are for new tunnels, and a client who is not listed any more is cut off; nobody else notices.
#[test]
fn a_reload_changes_what_is_new_and_cuts_off_who_is_gone() {
    let bed = Bed::new(OPEN);
    let server = echo();
    let nears = [bed.connected(0), bed.connected(1)];
    let mut clients = nears.each_ref().map(|near| near.connect(server));
    assert!(clients.iter_mut().all(says_back));

    bed.reload(&bed.clients, "").unwrap();
    let (_, answer) = nears[0].answer(server);
    assert_eq!(answer, Err(NoTunnel::Dial(DialError::Prohibited)));
    assert!(clients.iter_mut().all(says_back), "what stands has stayed");

    bed.reload(&bed.clients[..1], OPEN).unwrap();
    assert!(is_reset(&mut clients[1]));
    assert!(says_back(&mut clients[0]));
    until("it is not told", || {
        nears[1].last_loss().contains("not trust")
    });
    assert!(!nears[1].near.is_up());
    assert_eq!(nears[0].answer(server).1, Ok(()));

    // Listed again it is let in again.
    bed.reload(&bed.clients, OPEN).unwrap();
    until("it is not let in again", || nears[1].near.is_up());
    assert!(says_back(&mut nears[1].connect(server)));
}

/// A mistake, or a change that takes a restart, changes nothing at all.
#[test]
fn a_reload_that_is_refused_leaves_everything() {
    let bed = Bed::new(OPEN);
    let server = echo();
    let near = bed.connected(0);
    let mut client = near.connect(server);
    assert!(says_back(&mut client));
    let error = bed
        .reload(&bed.clients[1..], "[limits]\ndials = 0\n")
        .unwrap_err();
    assert!(error.contains("from 1 to 65536"), "{error}");
    let rest = "[limits]\nconnections = 7\n";
    let error = bed.reload(&bed.clients[1..], rest).unwrap_err();
    assert!(error.contains("`connections`"), "{error}");
    let error = bed.reload_text("listen = 1").unwrap_err();
    assert!(error.contains("proxy.toml"), "{error}");
    assert!(says_back(&mut client) && near.near.is_up());
    assert_eq!(near.answer(server).1, Ok(()));
    assert_eq!(bed.status().tunnels.connections.len(), 1);
}

#[test]
fn tunnels_are_limited_by_key() {
    let bed = Bed::new(&format!("[limits]\ntunnels = 3\n{OPEN}"));
    let server = echo();
    let nears = [bed.connected(0), bed.connected(1)];
    let mut held: Vec<_> = (0..3).map(|_| nears[0].answer(server)).collect();
    assert!(held.iter().all(|(_, answer)| *answer == Ok(())));
    // A connection allows no more streams than that: who wants another waits for the first that ends.
    let (ticket, answers) = nears[0].ask(server);
    assert!(answers.recv_timeout(Duration::from_millis(300)).is_err());
    // By a second connection of the same key neither; another key has its own.
    let second = bed.connected(0);
    assert_eq!(second.answer(server).1, REFUSED);
    assert_eq!(nears[1].answer(server).1, Ok(()));
    held.pop();
    assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), Ok(()));
    drop(ticket);
    let mut third = None;
    until("its room is not given to the second", || {
        let (ticket, answer) = second.answer(server);
        third = Some(ticket);
        answer == Ok(())
    });
    // More room by a reload.
    let more = format!("[limits]\ntunnels = 4\n{OPEN}");
    bed.reload(&bed.clients, &more).unwrap();
    let both = [second.answer(server), second.answer(server)];
    assert_eq!((both[0].1, both[1].1), (Ok(()), REFUSED));
}

/// A listener whose queue is full, so that dials to it have no answer.
fn silent() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queued.push(one);
    }
    (listener, queued)
}

#[test]
fn dials_are_limited_by_key_and_end() {
    let bed = Bed::new(&format!("[limits]\ndials = 2\ndial = \"3s\"\n{OPEN}"));
    let (listener, _queued) = silent();
    let target = listener.local_addr().unwrap();
    let nears = [bed.connected(0), bed.connected(1)];
    let asked = [nears[0].ask(target), nears[0].ask(target)];
    until("they are not dialled", || {
        bed.status().tunnels.dialling == 2
    });
    assert_eq!(nears[0].answer(target).1, REFUSED);
    assert_eq!(nears[0].answer(echo()).1, REFUSED);
    assert_eq!(nears[1].answer(echo()).1, Ok(()));
    for (_, answers) in &asked {
        let late = Err(NoTunnel::Dial(DialError::Timeout));
        assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), late);
    }
    assert_eq!(nears[0].answer(echo()).1, Ok(()));
}

#[test]
fn connections_are_limited_by_key() {
    let bed = Bed::new(&format!("[limits]\nclient_connections = 1\n{OPEN}"));
    let server = echo();
    let first = bed.connected(0);
    let second = bed.near(0);
    until("the second is let in", || {
        second.last_loss().contains("as many connections as it may")
    });
    assert!(!second.near.is_up());
    let other = bed.connected(1);
    assert_eq!(other.answer(server).1, Ok(()));
    assert_eq!(first.answer(server).1, Ok(()));
    // Its place is free when it ends.
    drop(first);
    until("it is not let in", || second.near.is_up());
}

#[test]
fn idle_flows_are_reset_and_others_are_not() {
    let bed = Bed::new(OPEN);
    let server = echo();
    let near = bed.connected(0);
    let [mut used, mut unused] = [(); 2].map(|()| near.connect(server));
    assert!(says_back(&mut used) && says_back(&mut unused));
    // It is for flows that stand too.
    bed.reload(&bed.clients, &format!("[limits]\nidle = \"2s\"\n{OPEN}"))
        .unwrap();
    let counted = |bed: &Bed| bed.status().tunnels.counters.reset;
    assert_eq!(counted(&bed), 0);
    let end = Instant::now() + PATIENCE;
    unused
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    while !is_reset(&mut unused) {
        assert!(Instant::now() < end, "the idle flow stays");
        assert!(says_back(&mut used));
    }
    assert!(says_back(&mut used));
    assert_eq!(counted(&bed), 1);
}
