//! A near end of ours, whose far end is another's.

use crate::bed::*;
use crate::servers::*;
use bentpipe_base::Rate;
use bentpipe_cc::LinkParams;
use bentpipe_connect_tcp::{DialError, Template};
use bentpipe_gateway_config::QuicPath;
use bentpipe_quic::PublicKey;
use bentpipe_tunnel_sockets::{
    CertificateFiles, ClientDatagram, ClientPort, ClientVerdict, Driver, Handle, Link, Near,
    NoTunnel, UdpBounds, UdpEnds, make_identity, read_certificate_key, read_identity,
};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown as Half, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub(super) fn until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Another's proxy, with a certificate.
pub(super) struct FarEnd {
    pub(super) running: Running,
    port: u16,
    pub(super) key: PublicKey,
    identity: PathBuf,
}

impl FarEnd {
    /// A program that is given its certificate, the key of that and `rest`, and prints its port first; what is needed is made in `folder`.
    pub(super) fn start(mut command: Command, folder: &Path, rest: &[&str]) -> Self {
        issue(folder, &authority(folder, "servers"), "server");
        let identity = folder.join("identity");
        make_identity(&identity).unwrap();
        command
            .args(["server.crt", "server.key"].map(|name| folder.join(name)))
            .args(rest);
        let mut running = Running::start(&mut command);
        Self {
            port: running.line().parse().unwrap(),
            running,
            key: read_certificate_key(&folder.join("server.crt"))
                .unwrap()
                .unwrap(),
            identity,
        }
    }
}

/// Clients' UDP, for one server, as a socket of loopback has it.
struct LoopbackPort {
    socket: UdpSocket,
    server: SocketAddr,
}

impl ClientPort for LoopbackPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn attend(&mut self, _up: bool) {}

    fn admits(&self) -> bool {
        true
    }

    fn receive(
        &mut self,
        judge: &mut dyn FnMut(&ClientDatagram<'_>) -> ClientVerdict,
    ) -> io::Result<()> {
        let mut buffer = [0; 2048];
        while let Ok((len, client)) = self.socket.recv_from(&mut buffer) {
            judge(&ClientDatagram {
                ends: UdpEnds {
                    client,
                    server: self.server,
                },
                interface: 1,
                payload: &buffer[..len],
            });
        }
        Ok(())
    }

    fn answer(&mut self, ends: UdpEnds, _interface: u32, payload: &[u8]) -> io::Result<()> {
        self.socket.send_to(payload, ends.client).map(drop)
    }
}

pub(super) struct NearEnd {
    pub(super) near: Near,
    pub(super) handle: Handle,
    thread: Option<JoinHandle<()>>,
    /// Where clients' UDP goes, if it is carried.
    pub(super) udp: Option<SocketAddr>,
}

fn target(port: &str) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()))
}

impl NearEnd {
    /// One that expects `key`, shows a certificate if it has one, and carries its clients' UDP to `udp_server`, a port.
    pub(super) fn start(
        far: &FarEnd,
        key: PublicKey,
        shown: Option<&CertificateFiles>,
        udp_server: Option<&str>,
    ) -> Self {
        let link = Link {
            params: LinkParams::of_rate(Rate::from_bits_per_sec(100_000_000)),
            path: QuicPath {
                round_trip: Duration::from_millis(20),
                ..QuicPath::default()
            },
            control: None,
        };
        let identity = read_identity(&far.identity).unwrap();
        let shown = shown.map(|files| files.read(&identity).unwrap());
        let mut quic = link.config(identity, vec![key], false).unwrap();
        quic.certificates = shown;
        let template = Template::of_authority("localhost").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], far.port));
        let (mut driver, near) = Driver::near(&quic, any, peer, template).unwrap();
        let udp = udp_server.map(|server| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            let address = socket.local_addr().unwrap();
            let port = LoopbackPort {
                socket,
                server: target(server),
            };
            let bounds = UdpBounds {
                flows: 16,
                idle: PATIENCE,
                asks_again: false,
            };
            driver.carry_udp(Box::new(port), bounds).unwrap();
            address
        });
        let handle = driver.handle();
        let thread = thread::spawn(move || driver.run().map(drop).unwrap());
        Self {
            near,
            handle,
            thread: Some(thread),
            udp,
        }
    }

    /// What the far end says of a dial.
    pub(super) fn ask(&self, port: &str) -> Result<(), NoTunnel> {
        let (told, answers) = channel();
        let client = SocketAddr::from(([192, 0, 2, 7], 40_000));
        let ticket = self.near.ask(target(port).into(), client, move |answer| {
            let _ = told.send(answer);
        });
        let answer = answers.recv_timeout(PATIENCE).unwrap();
        drop(ticket);
        answer
    }

    /// A client's end of a connection to `port`.
    pub(super) fn connect(&self, port: &str) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let carried = listener.accept().unwrap().0;
        self.near.carry(carried, target(port).into(), Box::new(()));
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// There and back, half-closes, resets both ways, a dial that is refused.
    pub(super) fn carries_tcp(&self) {
        until("the far end is not reached", || self.near.is_up());
        // More than its windows.
        let sent: Vec<u8> = (0..2_000_000).map(|n: u32| (n % 251) as u8).collect();
        let client = self.connect(&echo());
        let mut got = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                (&client).write_all(&sent).unwrap();
                client.shutdown(Half::Write).unwrap();
            });
            (&client).read_to_end(&mut got).unwrap();
        });
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        // A server's reset is the client's, and a client's the server's.
        let mut client = self.connect(&resetting());
        client.write_all(b"x").unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let (port, ends) = watching();
        let mut client = self.connect(&port);
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        let now = socket2::SockRef::from(&client);
        now.set_linger(Some(Duration::ZERO)).unwrap();
        drop(client);
        let end = ends.recv_timeout(PATIENCE).unwrap();
        assert_eq!(end, Some(ErrorKind::ConnectionReset));
        assert_eq!(self.ask(&closed()), Err(NoTunnel::Dial(DialError::Refused)));
    }
}

impl Drop for NearEnd {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || thread::panicking());
    }
}
