//! Real programs over an emulated satellite link (10 and 2 Mbit/s, 500 ms, 0.5% of the packets lost) and
//! through the real gateway: what an operator's users do all day. `make programs` asks for it; a
//! program that is not there is named and left out.
//!
//! ```text
//! client sat0 ==== sat0 gateway lan0 ---- eth0 server
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "what was measured, for whoever asks for it"
)]

mod support;
#[path = "satellite/table.rs"]
mod table;

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_lab::emulator::{Emulator, Frame, Spec, port_config};
use bentpipe_link::channel::PacketError;
use bentpipe_link::queue::DropTail;
use bentpipe_link::{Limit, Settings};
use bentpipe_os::need;
use bentpipe_os::netlink::{Prefix, Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::Tun;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::PROGRAM;
use table::{Row, rows};

const CONFIG: &str = r#"
control = "off"
metrics = "127.0.0.1:9463"
[lan]
interface = "lan0"
[sat]
interface = "sat0"
rate = "10Mbit/s"
"#;
const SERVER: &str = "10.78.2.2";
const SERVER6: &str = "fd78:2::2";
/// Of `data`, and of each of the files in `tree`.
const DATA: usize = 700_000;
const SMALL: usize = 2_000;
const FILES: usize = 20;
/// The longest that a server may take to start, and a client to do its work.
const START: Duration = Duration::from_secs(20);
const WORK: Duration = Duration::from_secs(120);

/// The three hosts, the link and the gateway; all gone when dropped.
struct Stage {
    client: Netns,
    gateway: Netns,
    server: Netns,
    _lan: Veth,
    _link: Emulator,
    _splits: Running,
}

/// A program in the background, with what it has started; killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process group, which it leads, and which it may have ended.
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.0.wait();
    }
}

impl Stage {
    fn new() -> Self {
        let [client, gateway, server] =
            ["client", "gateway", "server"].map(|label| Netns::create(label).unwrap());
        let end = |netns, name| VethEnd { netns, name };
        let lan = Veth::create(end(&server, "eth0"), end(&gateway, "lan0")).unwrap();
        let link = emulate(&client, &gateway);
        for (netns, interface, addresses) in [
            (&client, "sat0", ["10.78.1.2/24", "fd78:1::2/64"]),
            (&gateway, "sat0", ["10.78.1.1/24", "fd78:1::1/64"]),
            (&gateway, "lan0", ["10.78.2.1/24", "fd78:2::1/64"]),
            (&server, "eth0", ["10.78.2.2/24", "fd78:2::2/64"]),
        ] {
            netns
                .set_sysctl("net.ipv6.conf.all.dad_transmits", "0")
                .unwrap();
            netns
                .set_sysctl("net.ipv6.conf.default.dad_transmits", "0")
                .unwrap();
            netns.set_sysctl("net.ipv4.tcp_fastopen", "3").unwrap();
            let netlink = netns.netlink().unwrap();
            for address in addresses {
                netlink
                    .add_address(interface, address.parse().unwrap())
                    .unwrap();
            }
            netlink.set_up(interface).unwrap();
            netlink.set_up("lo").unwrap();
        }
        for (netns, everything, via) in [
            (&client, "0.0.0.0/0", "10.78.1.1"),
            (&client, "::/0", "fd78:1::1"),
            (&server, "0.0.0.0/0", "10.78.2.1"),
            (&server, "::/0", "fd78:2::1"),
        ] {
            let everything: Prefix = everything.parse().unwrap();
            let route = Route::via(everything, via.parse().unwrap());
            netns.netlink().unwrap().add_route(&route).unwrap();
        }
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            gateway.set_sysctl(key, "1").unwrap();
        }
        let splits = split(&gateway);
        Self {
            client,
            gateway,
            server,
            _lan: lan,
            _link: link,
            _splits: splits,
        }
    }

    /// What the gateway's page of metrics says.
    fn metric(&self, name: &str) -> u64 {
        let mut curl = self.gateway.command("curl");
        let page = curl
            .args(["-sSf", "http://127.0.0.1:9463/metrics"])
            .output()
            .unwrap();
        let page = String::from_utf8(page.stdout).unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {page}"))
            .trim()
            .parse()
            .unwrap()
    }
}

fn emulate(client: &Netns, gateway: &Netns) -> Emulator {
    let way = |rate| -> Settings<Frame> {
        let half_percent = Probability::new(0.005).unwrap();
        Settings {
            rate: Some(Rate::from_bits_per_sec(rate)),
            delay: Duration::from_millis(250),
            queue: DropTail::new(Limit::Bytes(Bytes(rate / 16))).into(),
            channels: vec![Box::new(PacketError::new(half_percent))],
            ..Settings::default()
        }
    };
    let spec = Spec {
        from_a: way(2_000_000),
        from_b: way(10_000_000),
        ..Spec::default()
    };
    let port = |netns: &Netns| netns.run(|| Tun::open("sat0", port_config(Bytes(1500))).unwrap());
    Emulator::start(spec, port(client).unwrap(), port(gateway).unwrap()).unwrap()
}

/// The gateway, once it is ready.
fn split(netns: &Netns) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let mut command = netns.command(PROGRAM);
    command
        .args(["gateway", "run", "--config"])
        .arg(config)
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Running(child)
}

/// What a row needs and this machine has not.
fn missing(row: &Row) -> Option<&'static str> {
    row.needs
        .iter()
        .copied()
        .find(|need| match need.split_once(':') {
            Some((_, module)) => {
                let mut python = Command::new("/usr/bin/python3");
                let import = format!("import {module}");
                let status = python.args(["-c", &import]).stderr(Stdio::null()).status();
                !status.is_ok_and(|status| status.success())
            }
            None => need::find_program(need).is_none(),
        })
}

fn shell(netns: &Netns, script: &str, folder: &Path) -> Command {
    let mut command = netns.command("sh");
    command
        .args(["-c", script])
        .current_dir(folder)
        .env("W", folder)
        .env("HOME", folder)
        .env("S", SERVER)
        .env("S6", SERVER6)
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// Whether somebody listens at `port`; asked from the gateway, past the satellite.
fn listens(stage: &Stage, port: u16) -> bool {
    let to: SocketAddr = (SERVER.parse::<std::net::IpAddr>().unwrap(), port).into();
    let dial = || TcpStream::connect_timeout(&to, Duration::from_secs(1)).is_ok();
    stage.gateway.run(dial).unwrap()
}

/// Waits for the end of `child`; kills it, with what it started, after [`WORK`].
fn judge(mut child: Running) -> Result<(), String> {
    let until = Instant::now() + WORK;
    loop {
        match child.0.try_wait().unwrap() {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(status.to_string()),
            None if Instant::now() > until => return Err(format!("takes more than {WORK:?}")),
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn go(stage: &Stage, row: &Row, folder: &Path) -> Result<Duration, String> {
    let log = |name: &str| std::fs::File::create(folder.join(name)).unwrap();
    let mut server = shell(&stage.server, row.server, folder);
    server.stdout(log("server.out")).stderr(log("server.err"));
    let _server = Running(server.spawn().unwrap());
    let until = Instant::now() + START;
    while !listens(stage, row.port) {
        if Instant::now() > until {
            return Err(format!(
                "its server does not start: {}",
                said(folder, "server.err")
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let begun = Instant::now();
    let mut client = shell(&stage.client, row.client, folder);
    client.stdout(log("client.out")).stderr(log("client.err"));
    match judge(Running(client.spawn().unwrap())) {
        Ok(()) => Ok(begun.elapsed()),
        Err(why) => Err(format!("{why}: {}", said(folder, "client.err"))),
    }
}

fn said(folder: &Path, name: &str) -> String {
    let text = std::fs::read(folder.join(name)).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().replace('\n', " / ")
}

/// A folder with what the programs move.
fn furnish(folder: &Path) {
    let octets = |count: usize, seed: u32| -> Vec<u8> {
        let octet = |at: usize| ((at as u32 ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8;
        (0..count).map(octet).collect()
    };
    std::fs::write(folder.join("data"), octets(DATA, 0)).unwrap();
    std::fs::create_dir(folder.join("tree")).unwrap();
    for number in 1..=FILES {
        let path = folder.join(format!("tree/{number}"));
        std::fs::write(path, octets(SMALL, number as u32)).unwrap();
    }
}

#[test]
#[ignore = "takes minutes: make programs"]
fn every_program_works_over_the_satellite() {
    need!(Root, Tproxy, Program("curl"));
    let stage = Stage::new();
    let only = std::env::var("BENTPIPE_PROGRAMS").unwrap_or_default();
    let (mut went, mut failed) = (0, Vec::new());
    for row in rows().iter().filter(|row| row.name.contains(&only)) {
        if let Some(missing) = missing(row) {
            println!("SKIPPED  {}: no {missing} here", row.name);
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        furnish(folder.path());
        let before = stage.metric("bentpipe_connected_total ");
        match go(&stage, row, folder.path()) {
            Ok(time) => {
                let split = stage.metric("bentpipe_connected_total ") - before;
                println!(
                    "ok       {:6.1} s  {split:3} split  {}",
                    time.as_secs_f64(),
                    row.name
                );
                went += 1;
                if split == 0 {
                    failed.push(row.name);
                    println!("FAILED   {}: it went round the gateway", row.name);
                }
            }
            Err(why) => {
                println!("FAILED   {}: {why}", row.name);
                failed.push(row.name);
            }
        }
    }
    assert!(went > 0 || !only.is_empty(), "no program is here");
    assert!(failed.is_empty(), "{failed:?}");
}
