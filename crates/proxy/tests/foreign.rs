//! Others' clients of the proxy, and another's proxy for our near end: real programs over loopback, with certificates. Each is skipped where
//! its program is not there: `scripts/setup test`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "foreign/servers.rs"]
mod servers;

use bentpipe_base::Rate;
use bentpipe_cc::LinkParams;
use bentpipe_connect_tcp::{DialError, Template};
use bentpipe_gateway_config::QuicPath;
use bentpipe_management::Shutdown;
use bentpipe_proxy::{Config, Ending, Proxy};
use bentpipe_quic::PublicKey;
use bentpipe_tunnel_sockets::{
    Driver, Link, NoTunnel, make_identity, read_certificate_key, read_identity,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use servers::*;
use std::io::{BufRead as _, BufReader, ErrorKind, Lines, Read as _, Write as _};
use std::net::{Shutdown as Half, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// The first of `candidates` that is there, or a line that says what is skipped.
fn program(candidates: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = { candidates.iter() }
        .map(|name| root.join(name))
        .find(|path| path.exists());
    if found.is_none() {
        let words = format!(
            "SKIPPED: there is no {}: `scripts/setup test`\n",
            candidates.join(" nor ")
        );
        let _ = std::io::stderr().write_all(words.as_bytes());
    }
    found
}

/// The Python of `scripts/setup test`, which has aioquic, h2 and libcurl.
fn python() -> Option<PathBuf> {
    program(&["target/http3/bin/python"])
}

fn node() -> Option<PathBuf> {
    program(&["/usr/bin/node", "/usr/local/bin/node"])
}

fn script(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign");
    folder.join(name)
}

/// A program, killed when dropped.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    errors: Option<ChildStderr>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let errors = child.stderr.take();
        Self {
            child,
            lines,
            errors,
        }
    }

    /// One that listens at `port` of loopback soon.
    fn listening(command: &mut Command, port: u16) -> Self {
        let mut running = Self::start(command);
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = running.child.try_wait().unwrap();
            if ended.is_some() || Instant::now() > end {
                running.line();
            }
            thread::sleep(Duration::from_millis(10));
        }
        running
    }

    /// The next line that it prints; what it complains of, where it ends instead.
    fn line(&mut self) -> String {
        if let Some(line) = self.lines.next() {
            return line.unwrap();
        }
        let mut words = String::new();
        let errors = self.errors.take();
        errors.map(|mut errors| errors.read_to_string(&mut words));
        panic!("it ended: {words}");
    }

    /// All of its lines until `ready`.
    fn all(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line == "ready" => return lines,
                line => lines.push(line),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A proxy with a certificate of an authority, and a client's certificate that another vouches for.
struct Bed {
    proxy: Proxy,
    address: SocketAddr,
    folder: TempDir,
}

/// An authority, and in `folder` its certificate as `NAME.crt`.
fn authority(folder: &Path, name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let made = CertifiedIssuer::self_signed(params, key).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), made.pem()).unwrap();
    made
}

/// What it signs: `NAME.crt`, `NAME.key`, and both in `NAME.pem`.
fn issue(folder: &Path, authority: &CertifiedIssuer<'static, KeyPair>, name: &str) {
    let names = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap().pem();
    let key = key.serialize_pem();
    for (end, text) in [
        ("pem", format!("{certificate}{key}")),
        ("crt", certificate),
        ("key", key),
    ] {
        let file = folder.join(format!("{name}.{end}"));
        std::fs::write(&file, text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
    }
}

impl Bed {
    fn new(rest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        issue(path, &authority(path, "servers"), "server");
        let clients = authority(path, "clients");
        issue(path, &clients, "client");
        issue(path, &clients, "friend");
        make_identity(&path.join("identity")).unwrap();
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        // Without a rate no congestion control in BPF is loaded, which takes the kernel seconds to check.
        let text = format!(
            "listen = \"{address}\"\nidentity = \"{0}/identity\"\ncertificate = \"{0}/server.crt\"\ncertificate_key = \"{0}/server.key\"\n\
             client_authorities = \"{0}/clients.crt\"\ncontrol = \"{0}/control\"\n[link]\nround_trip = \"20ms\"\n\
             [[policy]]\nto = \"127.0.0.1\"\naction = \"allow\"\n{rest}",
            path.display(),
        );
        let file = path.join("proxy.toml");
        std::fs::write(&file, &text).unwrap();
        let config = Config::parse("proxy.toml", &text).unwrap();
        let proxy = Proxy::start(&config, &file).unwrap();
        Self {
            proxy,
            address,
            folder,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A client of HTTP/3 that does `what`.
    fn http3(&self, python: &Path, what: &[&str]) -> Running {
        self.client(python, "http3_client.py", what)
    }

    fn client(&self, interpreter: &Path, name: &str, what: &[&str]) -> Running {
        let mut command = Command::new(interpreter);
        command
            .arg(script(name))
            .arg(self.address.port().to_string())
            .args(["servers.crt", "client.crt", "client.key"].map(|name| self.file(name)))
            .args(what);
        Running::start(&mut command)
    }

    /// An address for an intermediary, and a client of HTTP/2 without TLS there, which does each of `whats`.
    fn by(&self, node: &Path, port: u16, what: &[&str]) -> Vec<String> {
        let mut command = Command::new(node);
        command
            .arg(script("http2_client.mjs"))
            .args([&port.to_string(), "-", "-", "-"])
            .args(what);
        Running::start(&mut command).all()
    }
}

#[test]
fn aioquic_asks_for_tunnels() {
    let Some(python) = python() else { return };
    let bed = Bed::new("");
    let run = |what: &[&str]| bed.http3(&python, what).all();
    let echoed = run(&["echo", &echo(), "1048576"]);
    assert_eq!(echoed, ["echoed connect-tcp-12", "echoed None"]);
    let got = run(&["download", &source(4_000_000), "4000000"]);
    assert_eq!(got, ["downloaded 4000000"]);
    // H3_CONNECT_ERROR (RFC 9114, section 4.4).
    assert_eq!(run(&["reset", &resetting()]), ["reset 0x10f"; 2]);
    let (port, ends) = watching();
    assert_eq!(run(&["abandon", &port]), ["abandoned"]);
    let end = ends.recv_timeout(PATIENCE).unwrap();
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    let refused = run(&["refused", &closed()]);
    assert!(
        refused[0].starts_with("502 ") && refused[0].contains("error=connection_refused"),
        "{refused:?}"
    );
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
    assert_eq!(run(&["udp", &port]), ["datagrams 10"]);
    // Whose certificate it is without its key: decrypt_error (RFC 8446, section 6.2).
    assert_eq!(run(&["stranger"]), ["refused 0x133"]);
}

/// A proxy that drains says so, carries what it has, and takes no more.
#[test]
fn aioquic_is_told_of_a_drain() {
    let Some(python) = python() else { return };
    let Bed {
        proxy,
        address,
        folder,
    } = Bed::new("");
    let file = |name: &str| folder.path().join(name);
    let mut command = Command::new(python);
    command
        .arg(script("http3_client.py"))
        .arg(address.port().to_string())
        .args(["servers.crt", "client.crt", "client.key"].map(file))
        .args(["going", &echo()]);
    let mut client = Running::start(&mut command);
    assert_eq!(client.line(), "open");
    let shutdown = Shutdown::new().unwrap();
    shutdown.request();
    let ending = thread::spawn(move || proxy.run_until(&shutdown).unwrap());
    // H3_REQUEST_REJECTED (RFC 9114, section 5.2).
    assert_eq!(client.all(), ["late 0x10b", "ended"]);
    assert_eq!(ending.join().unwrap(), Ending::Drained);
}

/// A near end of ours whose far end is aioquic, known by the key in its certificate.
#[test]
fn aioquic_is_the_far_end() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    issue(
        folder.path(),
        &authority(folder.path(), "servers"),
        "server",
    );
    let mut command = Command::new(python);
    command
        .arg(script("http3_proxy.py"))
        .args(["server.crt", "server.key"].map(file))
        .arg("65536");
    let mut far = Running::start(&mut command);
    let port: u16 = far.line().parse().unwrap();
    let key = read_certificate_key(&file("server.crt")).unwrap().unwrap();
    make_identity(&file("identity")).unwrap();
    let identity = read_identity(&file("identity")).unwrap();
    let link = Link {
        params: LinkParams::of_rate(Rate::from_bits_per_sec(100_000_000)),
        path: QuicPath {
            round_trip: Duration::from_millis(20),
            ..QuicPath::default()
        },
        control: None,
    };
    let near = |key: PublicKey| {
        let quic = link.config(identity.clone(), vec![key], false).unwrap();
        let template = Template::of_authority("localhost").unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let far = SocketAddr::from(([127, 0, 0, 1], port));
        let (driver, near) = Driver::near(&quic, any, far, template).unwrap();
        let handle = driver.handle();
        let thread = thread::spawn(move || driver.run().map(drop).unwrap());
        (near, handle, thread)
    };
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let end = Instant::now() + PATIENCE;
        while !done() {
            assert!(Instant::now() < end, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    };
    // Another's key is refused, and told.
    let stranger = format!("sha256:{}=", "A".repeat(43)).parse().unwrap();
    let (refused, handle, thread) = near(stranger);
    until("it is not told", &|| {
        let status = handle.status(PATIENCE).unwrap();
        status.last_loss.contains(&format!("{key} "))
    });
    assert!(!refused.is_up());
    handle.stop();
    thread.join().unwrap();

    let (near, handle, thread) = near(key);
    until("the far end is not reached", &|| near.is_up());
    let target = |port: &str| SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    let client = SocketAddr::from(([192, 0, 2, 7], 40_000));
    let ask = |port: &str| {
        let (told, answers) = channel();
        let ticket = near.ask(target(port).into(), client, move |answer| {
            let _ = told.send(answer);
        });
        let answer = answers.recv_timeout(PATIENCE).unwrap();
        drop(ticket);
        answer
    };
    let connect = |port: &str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let carried = listener.accept().unwrap().0;
        near.carry(carried, target(port).into(), Box::new(()));
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    };
    // There and back, more than its windows, with half-closes.
    let sent: Vec<u8> = (0..2_000_000).map(|n: u32| (n % 251) as u8).collect();
    let client = connect(&echo());
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
    let mut client = connect(&resetting());
    client.write_all(b"x").unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let (port, ends) = watching();
    let mut client = connect(&port);
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let now = socket2::SockRef::from(&client);
    now.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let end = ends.recv_timeout(PATIENCE).unwrap();
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    // What it says of a dial.
    assert_eq!(ask(&closed()), Err(NoTunnel::Dial(DialError::Refused)));
    // It goes away: what stands stays, and what is new goes by another connection.
    let mut standing = connect(&echo());
    standing.write_all(b"a").unwrap();
    standing.read_exact(&mut [0]).unwrap();
    far.child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"go\n")
        .unwrap();
    while far.line() != "gone" {}
    standing.write_all(b"b").unwrap();
    standing.read_exact(&mut [0]).unwrap();
    drop(standing);
    until("it does not come again", &|| {
        near.is_up() && ask(&echo()) == Ok(())
    });
    handle.stop();
    thread.join().unwrap();
}

#[test]
fn node_asks_for_tunnels() {
    let Some(node) = node() else { return };
    let bed = Bed::new("");
    let run = |what: &[&str]| bed.client(&node, "http2_client.mjs", what).all();
    let found = Found {
        flight: "1000000",
        end: "half-closed",
        echoed: &["echoed CONNECT", "echoed connect-tcp-12"],
        // CONNECT_ERROR (RFC 9113, section 8.5).
        reset: "reset 10",
        abandoned: Some(ErrorKind::ConnectionReset),
    };
    asks_by_http2(run, &found);
}

/// What a client of HTTP/2 finds, and what an intermediary may make of it.
struct Found<'a> {
    /// How many bytes of an echo may be under way.
    flight: &'a str,
    /// How the client ends it.
    end: &'a str,
    /// What it has of [`echo`].
    echoed: &'a [&'a str],
    /// How it hears of a server's reset.
    reset: &'a str,
    /// How a server hears of its own.
    abandoned: Option<ErrorKind>,
}

fn asks_by_http2(run: impl Fn(&[&str]) -> Vec<String>, found: &Found<'_>) {
    let echoed = run(&["echo", &echo(), "1000000", found.flight, found.end]);
    assert_eq!(echoed, found.echoed);
    let downloaded = run(&["download", &source(4_000_000), "4000000"]);
    assert_eq!(downloaded, ["downloaded 4000000"]);
    assert_eq!(run(&["reset", &resetting()]), [found.reset]);
    let (port, ends) = watching();
    assert_eq!(run(&["abandon", &port]), ["abandoned"]);
    let end = ends.recv_timeout(PATIENCE).unwrap();
    assert_eq!(end, found.abandoned);
    let refused = run(&["refused", &closed()]);
    assert!(
        refused[0].starts_with("502 ") && refused[0].contains("error=connection_refused"),
        "{refused:?}"
    );
}

#[test]
fn curl_goes_by_it() {
    let Some(python) = python() else { return };
    let bed = Bed::new("");
    let url = |port: &str, path: &str| format!("http://127.0.0.1:{port}/{path}");
    let addresses = [
        url(&web(), "3000000"),
        url(&closed(), ""),
        url(&web(), "10"),
    ];
    let addresses = addresses.each_ref().map(String::as_str);
    let came = bed.client(&python, "curl_client.py", &addresses).all();
    // CURLE_COULDNT_CONNECT: the tunnel is refused.
    assert_eq!(came, ["h2 200 3000000 0", "h2 502 0 7", "h2 200 10 0"]);
}

/// Floods and broken frames end their own stream or connection, and friends' tunnels work beside all of them.
#[test]
fn an_enemy_that_speaks_http2_disturbs_nobody() {
    let Some(python) = python() else { return };
    let bed = Bed::new("[limits]\nclient_connections = 64\ntunnels = 200\n");
    let source = source(1_000_000);
    let friend = ["friend.crt", "friend.key"].map(|name| bed.file(name).display().to_string());
    let what = [echo(), source].into_iter().chain(friend);
    let what: Vec<_> = what.collect();
    let what: Vec<_> = what.iter().map(String::as_str).collect();
    let verdicts = bed.client(&python, "http2_hostile.py", &what);
    let verdicts = verdicts.all();
    let verdict = |attack: &str| {
        let found = verdicts.iter().find_map(|line| line.strip_prefix(attack));
        found.unwrap_or_else(|| panic!("{verdicts:?}"))
    };
    // Where bytes were left unread the kernel resets, and what the proxy said is lost.
    let is_closed = |ended: &str| ended == ": closed" || ended.starts_with(": GOAWAY");
    for attack in ["fields", "continuations", "noise"] {
        let ended = verdict(attack);
        assert!(is_closed(ended), "{attack}{ended}");
    }
    // Ten thousand that are begun and reset are fewer than may be so at once: an outage ends, and all of them come.
    assert!(!is_closed(verdict("resets")), "{verdicts:?}");
    let overrun = verdict("window");
    assert!(
        is_closed(overrun) || overrun.ends_with(" FLOW_CONTROL_ERROR"),
        "{overrun}"
    );
    assert_eq!(verdict("overflow"), ": RST_STREAM FLOW_CONTROL_ERROR");
    assert!(
        verdict("streams").contains("REFUSED_STREAM"),
        "{verdicts:?}"
    );
    // What is cut, or goes on after its end, is a reset; of what is said to be long no more than has come is held.
    let cut = ": RST_STREAM CONNECT_ERROR, RST_STREAM CONNECT_ERROR, goes on, goes on";
    assert_eq!(verdict("cut"), cut);
    let friends: u32 = verdict("friends ").parse().unwrap();
    assert!(friends > 0);
}

#[test]
fn haproxy_passes_tunnels_on() {
    let haproxy = program(&["/usr/sbin/haproxy"]);
    let (Some(haproxy), Some(node)) = (haproxy, node()) else {
        return;
    };
    let bed = Bed::new("");
    let port = free_port();
    let config = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n timeout tunnel 1m\n\
         frontend front\n bind 127.0.0.1:{port} proto h2\n default_backend back\n\
         backend back\n server proxy {} ssl crt {} ca-file {} verify required sni str(localhost) alpn h2 proto h2\n",
        bed.address,
        bed.file("client.pem").display(),
        bed.file("servers.crt").display(),
    );
    std::fs::write(bed.file("haproxy.cfg"), config).unwrap();
    let mut command = Command::new(haproxy);
    command.args(["-db", "-f"]).arg(bed.file("haproxy.cfg"));
    let _running = Running::listening(&mut command, port);
    let found = Found {
        // While the buffer of one stream is full HAProxy reads nothing of its connection, not even WINDOW_UPDATE: where more is under
        // way each way than windows allow, which a client may let shrink to half of 64 kB, both sides wait until its timeouts.
        flight: "30000",
        end: "half-closed",
        echoed: &["echoed CONNECT", "echoed connect-tcp-12"],
        // It tells a client of any reset by CANCEL, and a server of none: it ends the stream.
        reset: "reset 8",
        abandoned: None,
    };
    asks_by_http2(|what| bed.by(&node, port, what), &found);
}

#[test]
fn nghttpx_passes_tunnels_on() {
    let nghttpx = program(&["/usr/sbin/nghttpx", "/usr/bin/nghttpx"]);
    let (Some(nghttpx), Some(node)) = (nghttpx, node()) else {
        return;
    };
    let bed = Bed::new("");
    let port = free_port();
    let file = |option: &str, name: &str| format!("--{option}={}", bed.file(name).display());
    let back = format!(
        "127.0.0.1,{};;proto=h2;tls;sni=localhost",
        bed.address.port()
    );
    let mut command = Command::new(nghttpx);
    command
        .args(["--conf=/dev/null", "--http2-proxy", "--single-process"])
        .arg(format!("--frontend=127.0.0.1,{port};no-tls"))
        .arg(format!("--backend={back}"))
        .arg(file("client-cert-file", "client.crt"))
        .arg(file("client-private-key-file", "client.key"))
        .arg(file("cacert", "servers.crt"));
    let _running = Running::listening(&mut command, port);
    let found = Found {
        flight: "1000000",
        // It keeps a client's half-close until the server has ended too, and offers extended CONNECT for nothing but WebSocket.
        end: "reset",
        echoed: &["echoed CONNECT"],
        // It tells a client of a server's reset by an end.
        reset: "reset 0",
        abandoned: Some(ErrorKind::ConnectionReset),
    };
    asks_by_http2(|what| bed.by(&node, port, what), &found);
}
