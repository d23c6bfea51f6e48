//! HTTP/3 of a real client and a real server (aioquic) whose QUIC crosses a pair over QUIC.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};
use support::pair::{Pair, split_one};
use support::proxy::{self, Keys, OPEN, ProxyProcess, is_up};
use support::{Ip, eventually};

/// A proxy to be killed.
#[test]
fn proxy_process() {
    proxy::be_a_proxy();
}

/// The Python of `scripts/setup test`, which has aioquic.
fn python() -> Option<PathBuf> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/http3/bin/python");
    let is_there = found.exists();
    if !is_there {
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            b"SKIPPED: there is no aioquic: `scripts/setup test`\n",
        );
    }
    is_there.then_some(found)
}

/// One of the two programs, killed when dropped.
struct Peer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(netns: &Netns, python: &Path, arguments: &[String]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http3/peer.py");
        let mut command = netns.command(python);
        command.arg(script).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    fn server(pair: &Pair, python: &Path, ip: Ip) -> Self {
        let arguments = [
            "server".to_owned(),
            ip.server().to_string(),
            "443".to_owned(),
        ];
        let mut peer = Self::start(&pair.server, python, &arguments);
        assert_eq!(peer.lines.next().unwrap().unwrap(), "ready");
        peer
    }

    fn client(pair: &Pair, python: &Path, ip: Ip, (length, count): (usize, usize)) -> Self {
        let address = ip.server().to_string();
        let numbers = [443, length, count].map(|number| number.to_string());
        let [port, length, count] = numbers;
        let arguments = ["client".to_owned(), address, port, length, count];
        Self::start(&pair.client, python, &arguments)
    }

    /// The next answer's length, and whom the server saw.
    fn answer(&mut self) -> Option<(usize, String)> {
        let line = self.lines.next()?.unwrap();
        let (length, seen) = line.split_once(' ').unwrap();
        Some((length.parse().unwrap(), seen.to_owned()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Downloads cross a link that loses packets, and what repeats is the client's and the server's QUIC alone: the server sees the far end.
#[test]
fn http3_crosses_a_pair() {
    need!(Root, Nft, Tproxy);
    let Some(python) = python() else {
        return;
    };
    for ip in Ip::BOTH {
        let on = proxy::Tunnelled::new(ip, OPEN, "udp = [443]\n");
        let _server = Peer::server(&on.pair, &python, ip);
        on.pair.lose(100);
        let mut client = Peer::client(&on.pair, &python, ip, (1_000_000, 3));
        for _ in 0..3 {
            let seen = ip.gateway_lan().to_string();
            assert_eq!(client.answer(), Some((1_000_000, seen)));
        }
        assert_eq!(client.answer(), None);
        eventually("the figures", || {
            let status = on.gateway.handle.status().unwrap();
            let udp = &status.tunnels.as_ref().unwrap().udp;
            (udp.flows, udp.passed) == (1, 0) && udp.out > 2000
        });
    }
}

/// A connection of HTTP/3 goes on while its tunnel is gone, and when it is back: by QUIC's migration.
#[test]
fn http3_outlives_its_tunnel() {
    need!(Root, Nft, Tproxy);
    let Some(python) = python() else {
        return;
    };
    let ip = Ip::V4;
    let (pair, keys) = (Pair::new(), Keys::new());
    let file = keys.proxy(ip, &keys.near, OPEN);
    let mut far = ProxyProcess::start(&pair, &file);
    let gateway = split_one(&pair.near, &keys.gateway(ip, &keys.far, "udp = [443]\n"));
    eventually("tunnels", || is_up(&gateway));
    let _server = Peer::server(&pair, &python, ip);
    let mut client = Peer::client(&pair, &python, ip, (20_000, 10_000));
    let mut until_seen_from = |address: std::net::IpAddr| {
        let begun = Instant::now();
        while client.answer().unwrap() != (20_000, address.to_string()) {
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
    };
    until_seen_from(ip.gateway_lan());
    far.kill();
    until_seen_from(ip.client());
    let _far = ProxyProcess::start(&pair, &file);
    until_seen_from(ip.gateway_lan());
}
