//! Real programs through the gateway: curl, iperf3, ssh; ssh through a pair over QUIC too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::proxy::{OPEN, Tunnelled};
use support::{Ip, eventually, pattern, splitting};

/// A program in the background; killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn output(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn accepts(netns: &Netns, to: SocketAddr) -> bool {
    support::connect_in(netns, to).is_ok()
}

/// Answers `count` HTTP requests: with the pattern to GET, with the number of bytes to PUT.
fn serve_http(listener: support::Listener, count: usize, page: Vec<u8>) {
    for _ in 0..count {
        let mut stream = listener.accept();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        let mut get = false;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
                break;
            }
            let lower = line.to_lowercase();
            get |= lower.starts_with("get ");
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if lower.starts_with("expect:") {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            }
        }
        let body = if get {
            page.clone()
        } else {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            assert!(body == page[..length]);
            length.to_string().into_bytes()
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&body).unwrap();
    }
}

#[test]
fn curl_downloads_and_uploads() {
    need!(Root, Tproxy, Program("curl"));
    let (stage, gateway) = splitting();
    let page = pattern(3_000_000);
    let directory = tempfile::tempdir().unwrap();
    let upload = directory.path().join("upload");
    std::fs::write(&upload, &page[..1_000_000]).unwrap();
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        let url = format!("http://{}/", listener.address());
        let page = page.clone();
        let expected = page.clone();
        let server = std::thread::spawn(move || serve_http(listener, 2, page));
        let curl = || {
            let mut curl = stage.client.command("curl");
            curl.args(["--silent", "--show-error", "--globoff", "--max-time", "20"]);
            curl
        };
        assert!(output(curl().arg(&url)).stdout == expected, "{ip:?}");
        let answer = output(curl().arg("--upload-file").arg(&upload).arg(&url)).stdout;
        assert_eq!(answer, b"1000000", "{ip:?}");
        server.join().unwrap();
    }
    eventually("orderly ends", || gateway.meter.read().finished == 4);
    assert_eq!(gateway.meter.read().reset, 0);
}

#[test]
fn iperf3_runs_both_ways_with_parallel_streams() {
    need!(Root, Tproxy, Program("iperf3"));
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let address = ip.server().to_string();
        let server = stage
            .server
            .command("iperf3")
            .args(["--server", "--bind", &address])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let _server = Server(server);
        for reverse in [false, true] {
            let mut client = stage.client.command("iperf3");
            client.args([
                "--client",
                &address,
                "--time",
                "1",
                "--parallel",
                "3",
                "--json",
            ]);
            if reverse {
                client.arg("--reverse");
            }
            // Until the server is up, and while it is still busy with the run before.
            eventually("an iperf3 run", || {
                let output = client.output().unwrap();
                String::from_utf8_lossy(&output.stdout).contains("\"sum_received\"")
            });
        }
    }
    let counters = gateway.meter.read();
    assert!(counters.bytes_to_lan > 1_000_000, "{counters:?}");
    assert!(counters.bytes_to_sat > 1_000_000, "{counters:?}");
}

#[test]
fn ssh_logs_in_and_carries_a_session() {
    need!(
        Root,
        Tproxy,
        Program("ssh"),
        Program("sshd"),
        Program("ssh-keygen")
    );
    let (stage, gateway) = splitting();
    let directory = tempfile::tempdir().unwrap();
    let keys = Keys::make(directory.path());
    for ip in Ip::BOTH {
        let _server = keys.serve(&stage.server, &stage.gateway, ip);
        // The server's log of the client's address is what an operator looks at.
        let seen = keys.session(&stage.client, ip);
        assert!(seen.starts_with(&format!("{} ", ip.client())), "{seen}");
    }
    assert!(gateway.meter.read().connected >= 4);
}

/// By tunnels over QUIC, on a link that loses packets; the server sees the far end.
#[test]
fn ssh_crosses_a_pair_over_quic() {
    need!(
        Root,
        Nft,
        Tproxy,
        Program("ssh"),
        Program("sshd"),
        Program("ssh-keygen")
    );
    let directory = tempfile::tempdir().unwrap();
    let keys = Keys::make(directory.path());
    for ip in Ip::BOTH {
        let on = Tunnelled::new(ip, OPEN, "");
        on.pair.lose(50);
        let _server = keys.serve(&on.pair.server, &on.pair.far, ip);
        let seen = keys.session(&on.pair.client, ip);
        assert!(
            seen.starts_with(&format!("{} ", ip.gateway_lan())),
            "{seen}"
        );
        let counters = on.gateway.meter.read();
        assert_eq!((counters.tunnelled, counters.tunnel_down), (2, 0));
    }
}

/// Temporary keys and configuration for an ssh server and client.
struct Keys {
    directory: std::path::PathBuf,
}

impl Keys {
    fn make(directory: &Path) -> Self {
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(directory, private).unwrap();
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            output(keygen.arg(directory.join(name)));
        }
        std::fs::copy(directory.join("user.pub"), directory.join("authorized")).unwrap();
        Self {
            directory: directory.to_owned(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// A server in `server`'s namespace, which `near` is next to.
    fn serve(&self, server: &Netns, near: &Netns, ip: Ip) -> Server {
        // sshd wants to be called by its full path, and its directory for separated privileges.
        let program = bentpipe_os::need::find_program("sshd").unwrap();
        let _ = std::fs::create_dir("/run/sshd");
        let mut sshd = server.command(program);
        sshd.args(["-D", "-e", "-f", "/dev/null"]);
        for option in [
            format!("ListenAddress={}", ip.server()),
            "Port=2222".to_owned(),
            format!("HostKey={}", self.path("host")),
            format!("AuthorizedKeysFile={}", self.path("authorized")),
            "PidFile=none".to_owned(),
            "PermitRootLogin=yes".to_owned(),
            "StrictModes=no".to_owned(),
            "UsePAM=no".to_owned(),
        ] {
            sshd.arg("-o").arg(option);
        }
        let server = Server(sshd.stderr(Stdio::null()).spawn().unwrap());
        let to = SocketAddr::new(ip.server(), 2222);
        eventually("sshd", || accepts(near, to));
        server
    }

    /// A command's output, and data both ways through a pipe with a half-close; then what the server says of where the client is.
    fn session(&self, client: &Netns, ip: Ip) -> String {
        let sent = pattern(2_000_000);
        let mut ssh = self.ssh(client, ip);
        ssh.arg("cat; echo done >&2");
        let mut child = ssh
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let copy = sent.clone();
        let writer = std::thread::spawn(move || input.write_all(&copy));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("done"), "{said}");
        assert!(output.stdout == sent, "{ip:?}");
        let mut ssh = self.ssh(client, ip);
        let seen = self::output(ssh.arg("echo $SSH_CONNECTION")).stdout;
        String::from_utf8(seen).unwrap()
    }

    fn ssh(&self, client: &Netns, ip: Ip) -> Command {
        let mut ssh = client.command("ssh");
        ssh.args(["-F", "/dev/null", "-p", "2222", "-i", &self.path("user")]);
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "ConnectTimeout=20",
        ] {
            ssh.args(["-o", option]);
        }
        ssh.arg(format!("root@{}", ip.server()));
        ssh
    }
}
