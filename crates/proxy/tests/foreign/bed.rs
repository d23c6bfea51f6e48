//! A proxy of ours with certificates, and programs of others beside it.

use bentpipe_proxy::{Config, Proxy, StartError};
use bentpipe_tunnel_sockets::make_identity;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The first of `candidates` that is there, or a line that says what is skipped.
pub(super) fn program(candidates: &[&str]) -> Option<PathBuf> {
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
pub(super) fn python() -> Option<PathBuf> {
    program(&["target/http3/bin/python"])
}

pub(super) fn node() -> Option<PathBuf> {
    program(&["/usr/bin/node", "/usr/local/bin/node"])
}

pub(super) fn script(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign");
    folder.join(name)
}

/// A program, killed when dropped.
pub(super) struct Running {
    pub(super) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    errors: Option<ChildStderr>,
}

impl Running {
    pub(super) fn start(command: &mut Command) -> Self {
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
    pub(super) fn listening(command: &mut Command, port: u16) -> Self {
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
    pub(super) fn line(&mut self) -> String {
        if let Some(line) = self.lines.next() {
            return line.unwrap();
        }
        let mut words = String::new();
        let errors = self.errors.take();
        errors.map(|mut errors| errors.read_to_string(&mut words));
        panic!("it ended: {words}");
    }

    /// All of its lines until `ready`.
    pub(super) fn all(mut self) -> Vec<String> {
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
pub(super) struct Bed {
    pub(super) proxy: Proxy,
    pub(super) address: SocketAddr,
    pub(super) folder: TempDir,
}

/// An authority, and in `folder` its certificate as `NAME.crt`.
pub(super) fn authority(folder: &Path, name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let made = CertifiedIssuer::self_signed(params, key).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), made.pem()).unwrap();
    made
}

/// What it signs: `NAME.crt`, `NAME.key`, and both in `NAME.pem`.
pub(super) fn issue(folder: &Path, authority: &CertifiedIssuer<'static, KeyPair>, name: &str) {
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
    pub(super) fn new(rest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        issue(path, &authority(path, "servers"), "server");
        let clients = authority(path, "clients");
        issue(path, &clients, "client");
        issue(path, &clients, "friend");
        make_identity(&path.join("identity")).unwrap();
        // Another test may have the number meanwhile, for TCP above all.
        let mut tries = (0..9).map(|_| Self::start(path, rest));
        let started = { tries.find(Result::is_ok) }.unwrap_or_else(|| Self::start(path, rest));
        let (proxy, address) = started.unwrap();
        drop(tries);
        Self {
            proxy,
            address,
            folder,
        }
    }

    fn start(path: &Path, rest: &str) -> Result<(Proxy, SocketAddr), StartError> {
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
        Proxy::start(&config, &file).map(|proxy| (proxy, address))
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A client of HTTP/3 that does `what`.
    pub(super) fn http3(&self, python: &Path, what: &[&str]) -> Running {
        self.client(python, "http3_client.py", what)
    }

    pub(super) fn client(&self, interpreter: &Path, name: &str, what: &[&str]) -> Running {
        self.client_by(Command::new(interpreter).arg(script(name)), what)
    }

    /// A client that is given the proxy's port, the authority of its certificate, and one of its own with its key.
    pub(super) fn client_by(&self, command: &mut Command, what: &[&str]) -> Running {
        command
            .arg(self.address.port().to_string())
            .args(["servers.crt", "client.crt", "client.key"].map(|name| self.file(name)))
            .args(what);
        Running::start(command)
    }

    /// An address for an intermediary, and a client of HTTP/2 without TLS there, which does each of `whats`.
    pub(super) fn by(&self, node: &Path, port: u16, what: &[&str]) -> Vec<String> {
        let mut command = Command::new(node);
        command
            .arg(script("http2_client.mjs"))
            .args([&port.to_string(), "-", "-", "-"])
            .args(what);
        Running::start(&mut command).all()
    }
}
