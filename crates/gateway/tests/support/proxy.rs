//! A pair whose far end is a proxy of connect-tcp, and whose near end is a gateway with `carrier = "quic"`.

use super::child::{self, GatewayProcess};
use super::pair::{Pair, split_one};
use super::{Ip, Running, eventually};
use bentpipe_proxy::{Config, Proxy};
use bentpipe_tunnel_sockets::make_identity;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use tempfile::TempDir;

/// What the proxies of these tests may reach: the server, on a network that is not public.
pub const OPEN: &str = "[[policy]]\nto = [\"10.77.2.2\", \"fd77:2::2\"]\naction = \"allow\"\n";

/// Set for a process that is to be a proxy.
const CONFIG: &str = "BENTPIPE_TEST_PROXY_CONFIG";

/// Keys and configurations of both ends.
pub struct Keys {
    folder: TempDir,
    pub near: String,
    pub far: String,
}

impl Keys {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let identity = make_identity(&folder.path().join(name)).unwrap();
            identity.public().to_string()
        };
        let (near, far) = (make("near.key"), make("far.key"));
        Self { folder, near, far }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The far end's configuration, with `rest` behind the usual keys.
    pub fn proxy(&self, ip: Ip, client: &str, rest: &str) -> PathBuf {
        let file = self.path("proxy.toml");
        let listen = match ip {
            Ip::V4 => "10.77.5.2:4433",
            Ip::V6 => "[fd77:5::2]:4433",
        };
        let text = format!(
            "listen = \"{listen}\"\nidentity = \"{}\"\nclients = [\"{client}\"]\ncontrol = \"off\"\n[link]\n{LINK}{rest}",
            self.path("far.key").display()
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    /// The near end's configuration, with `rest` among the keys of its satellite leg.
    pub fn gateway(&self, ip: Ip, peer: &str, rest: &str) -> String {
        let proxy = match ip {
            Ip::V4 => "10.77.5.2:4433",
            Ip::V6 => "[fd77:5::2]:4433",
        };
        format!(
            "threads = 1\n[sat]\ncarrier = \"quic\"\nproxy = \"{proxy}\"\nidentity = \"{}\"\npeer_key = \"{peer}\"\n{LINK}{rest}",
            self.path("near.key").display()
        )
    }
}

/// A link without much delay.
const LINK: &str = "rate = \"200Mbit/s\"\nround_trip = \"20ms\"\n";

/// Both ends at work.
pub struct Tunnelled {
    pub pair: Pair,
    pub keys: Keys,
    pub proxy: Proxy,
    pub gateway: Running,
}

impl Tunnelled {
    /// A proxy with `far` in its configuration, a gateway with `near` in its leg's, whose connection stands.
    pub fn new(ip: Ip, far: &str, near: &str) -> Self {
        let (pair, keys) = (Pair::new(), Keys::new());
        let file = keys.proxy(ip, &keys.near, far);
        let proxy = start(&pair, &file);
        let gateway = split_one(&pair.near, &keys.gateway(ip, &keys.far, near));
        let tunnelled = Self {
            pair,
            keys,
            proxy,
            gateway,
        };
        eventually("tunnels", || tunnelled.is_up());
        tunnelled
    }

    pub fn is_up(&self) -> bool {
        is_up(&self.gateway)
    }
}

/// Whether a gateway's tunnels are up.
pub fn is_up(gateway: &Running) -> bool {
    let status = gateway.handle.status().unwrap();
    status.tunnels.as_ref().is_some_and(|tunnels| tunnels.up)
}

/// Dials of the far end that failed for this reason.
pub fn failures(gateway: &Running, why: &str) -> u64 {
    let status = gateway.handle.status().unwrap();
    status.tunnels.as_ref().unwrap().counters.failures[why]
}

/// A proxy in the far end's namespace.
pub fn start(pair: &Pair, file: &std::path::Path) -> Proxy {
    let config = Config::load(file).unwrap();
    pair.far
        .run(|| Proxy::start(&config, file).unwrap())
        .unwrap()
}

/// In the child, runs a proxy until it is killed; otherwise does nothing.
pub fn be_a_proxy() {
    let Some(file) = std::env::var_os(CONFIG) else {
        return;
    };
    let file = PathBuf::from(file);
    let proxy = Proxy::start(&Config::load(&file).unwrap(), &file).unwrap();
    let _ = std::io::stdout().write_all(b"ready\n");
    let shutdown = bentpipe_gateway::Shutdown::on_signals().unwrap();
    proxy.run_until(&shutdown).unwrap();
    std::process::exit(0);
}

/// A proxy in a process of its own; killed when dropped.
pub struct ProxyProcess(Child);

impl ProxyProcess {
    pub fn start(pair: &Pair, file: &std::path::Path) -> Self {
        Self::start_after(pair, "true", file)
    }

    /// Likewise, by a shell that does `first` before it becomes the proxy.
    pub fn start_after(pair: &Pair, first: &str, file: &std::path::Path) -> Self {
        let mut command = pair.far.command("sh");
        command
            .args(["-c", &format!("{first} && exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args(["proxy_process", "--exact", "--nocapture"])
            .env(CONFIG, file)
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.trim_end().ends_with("ready") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the proxy ended");
        }
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Self(child)
    }

    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Asks it to end, and waits for that.
    pub fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A gateway in a process of its own.
pub fn gateway_process(pair: &Pair, config: &str) -> GatewayProcess {
    child::start_in(&pair.near, config)
}
