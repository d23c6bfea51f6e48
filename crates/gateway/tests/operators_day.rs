//! What an operator's day brings: others' firewalls and trackers flushed, links that go down, interfaces
//! that are taken away, too little memory, paths that swallow what is too large, and long silences.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::need;
use bentpipe_os::netlink::{Prefix, Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::pair::{Pair, split_one};
use support::proxy::{self, Keys, ProxyProcess};
use support::{Ip, Stage, child, eventually, exchange, pattern};

fn run(netns: &Netns, program: &str, arguments: &str) {
    let words = arguments.split_whitespace();
    let status = netns.command(program).args(words).status().unwrap();
    assert!(status.success(), "{program} {arguments}");
}

/// A flow of each family, and then that they are split.
fn split_pairs(stage: &Stage) -> Vec<(TcpStream, TcpStream)> {
    let before = stage.connections().len();
    let pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    assert_eq!(stage.connections().len(), before + 4);
    pairs
}

/// Uploads whose bytes are compared at the end, while `meanwhile` happens.
fn bytes_survive(stage: &Stage, meanwhile: impl FnOnce()) {
    const EACH: usize = 8_000_000;
    std::thread::scope(|scope| {
        let mut servers = Vec::new();
        for (mut client, mut server) in split_pairs(stage) {
            scope.spawn(move || {
                let all = pattern(EACH);
                for part in all.chunks(EACH / 40) {
                    client.write_all(part).unwrap();
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            servers.push(scope.spawn(move || {
                let mut all = Vec::new();
                server.read_to_end(&mut all).unwrap();
                all
            }));
        }
        std::thread::sleep(Duration::from_millis(300));
        meanwhile();
        for server in servers {
            assert!(server.join().unwrap() == pattern(EACH));
        }
    });
}

/// `nft flush ruleset` by another's hand takes everybody's tables but ours.
#[test]
fn a_flushed_ruleset_changes_nothing() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = child::start(&stage, "");
    bytes_survive(&stage, || {
        for _ in 0..5 {
            run(&stage.gateway, "nft", "flush ruleset");
            let mut pairs = split_pairs(&stage);
            pairs.iter_mut().for_each(exchange);
        }
    });
}

/// `conntrack -F` neither, with rules that track and drop what they do not know.
#[test]
fn a_flushed_conntrack_changes_nothing() {
    need!(Root, Tproxy, Program("conntrack"));
    let stage = Stage::new();
    let rules = "table inet filter { chain forward { type filter hook forward priority 0; ct state invalid drop\n ct state established,related accept\n}\n}\n";
    let load = || bentpipe_os::nft::apply(rules).unwrap();
    stage.gateway.run(load).unwrap();
    let _gateway = child::start(&stage, "");
    bytes_survive(&stage, || {
        for _ in 0..5 {
            run(&stage.gateway, "conntrack", "-F");
            let mut pairs = split_pairs(&stage);
            pairs.iter_mut().for_each(exchange);
        }
    });
}

/// A link that is down for a second, on either side: what was on its way comes after it.
#[test]
fn a_link_that_goes_down_and_up_loses_no_byte() {
    need!(Root, Tproxy);
    for interface in ["sat0", "lan0"] {
        let stage = Stage::new();
        let _gateway = child::start(&stage, "");
        let netns = &stage.gateway;
        // Down, it loses its IPv6 addresses otherwise.
        let key = format!("net.ipv6.conf.{interface}.keep_addr_on_down");
        netns.set_sysctl(&key, "1").unwrap();
        bytes_survive(&stage, || {
            run(netns, "ip", &format!("link set {interface} down"));
            std::thread::sleep(Duration::from_secs(1));
            run(netns, "ip", &format!("link set {interface} up"));
        });
        let mut pairs = split_pairs(&stage);
        pairs.iter_mut().for_each(exchange);
    }
}

/// An interface that is removed and made again under the same name is the leg's again, without a word to
/// the gateway.
#[test]
fn an_interface_that_is_made_again_is_the_legs_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = child::start(&stage, "");
    drop(split_pairs(&stage));
    stage
        .gateway
        .netlink()
        .unwrap()
        .delete_link("lan0")
        .unwrap();
    let _again = veth_again(&stage);
    eventually("the end of those before", || stage.connections().is_empty());
    let mut pairs = split_pairs(&stage);
    pairs.iter_mut().for_each(exchange);
}

/// And what is told to QUIC there is told again.
#[test]
fn an_interface_that_is_made_again_tells_by_scone_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_with(
        "lan = { interface = \"sat0\" }
         sat = { interface = \"lan0\", rate = \"10Mbit/s\", receive_rate = \"2Mbit/s\", scone = \"50%\" }",
    );
    let bound = |netns: &Netns, address| {
        let bind = || std::net::UdpSocket::bind((address, 0)).unwrap();
        netns.run(bind).unwrap()
    };
    let receiver = bound(&stage.client, Ip::V4.client());
    let pause = std::time::Duration::from_millis(100);
    receiver.set_read_timeout(Some(pause)).unwrap();
    // A SCONE packet that has nothing to say, before one of QUIC: 1 Mbit/s, half of what comes from there, is 20.
    let said = || {
        let sender = bound(&stage.server, Ip::V4.server());
        let packet = *b"\xff\xef\x7d\xc0\xfd\x02\x09\x09\x00\x40\x09\x09\x01\x02\x03";
        let to = receiver.local_addr().unwrap();
        let mut told = packet;
        (sender.send_to(&packet, to).is_ok() && receiver.recv(&mut told).is_ok())
            .then(|| told[0] & 0x3f)
    };
    eventually("it is told", || said() == Some(20 >> 1));
    stage
        .gateway
        .netlink()
        .unwrap()
        .delete_link("lan0")
        .unwrap();
    let _again = veth_again(&stage);
    eventually("it is told again", || said() == Some(20 >> 1));
    // Both are counted.
    eventually("both in the status", || {
        let scone = gateway.handle.status().unwrap().scone;
        scone.is_some_and(|scone| scone.lowered > 1)
    });
}

/// The server's side of the stage, as it was.
fn veth_again(stage: &Stage) -> Veth {
    let end = |netns, name| VethEnd { netns, name };
    let veth = Veth::create(end(&stage.server, "eth0"), end(&stage.gateway, "lan0")).unwrap();
    for ip in Ip::BOTH {
        let bits = if ip == Ip::V4 { 24 } else { 64 };
        let prefix = |address| Prefix::new(address, bits).unwrap();
        let server = stage.server.netlink().unwrap();
        server.add_address("eth0", prefix(ip.server())).unwrap();
        let gateway = stage.gateway.netlink().unwrap();
        gateway
            .add_address("lan0", prefix(ip.gateway_lan()))
            .unwrap();
    }
    veth.set_up().unwrap();
    for ip in Ip::BOTH {
        let everything = match ip {
            Ip::V4 => "0.0.0.0/0",
            Ip::V6 => "::/0",
        };
        let route = Route::via(everything.parse().unwrap(), ip.gateway_lan());
        stage.server.netlink().unwrap().add_route(&route).unwrap();
    }
    veth
}

/// A path behind the gateway that swallows large packets without a word: where the kernel probes for it
/// (`net.ipv4.tcp_mtu_probing`), the gateway's leg gets through, whatever the client's kernel does.
#[test]
fn a_black_hole_for_large_packets_is_found_by_probing() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let (narrow, listener) = stage.behind_a_narrow_router(Ip::V4);
    let silent = "table ip silent { chain out { type filter hook output priority 0; icmp type destination-unreachable drop\n}\n}\n";
    let load = || bentpipe_os::nft::apply(silent).unwrap();
    stage.server.run(load).unwrap();
    let key = "net.ipv4.tcp_mtu_probing";
    stage.gateway.set_sysctl(key, "1").unwrap();
    let _gateway = child::start(&stage, "");
    let mut client = stage.connect(listener.address());
    let mut server = listener.accept();
    assert_eq!(stage.connections().len(), 2);
    let writer = std::thread::spawn(move || client.write_all(&pattern(200_000)).unwrap());
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    writer.join().unwrap();
    assert!(all == pattern(200_000));
    drop(narrow);
}

/// In a control group that has little memory for sockets, and little more than the program takes for
/// itself, the gateway is slow where it must be, and correct: no byte is lost, and it is not killed.
#[test]
fn little_memory_costs_no_byte() {
    need!(Root, Tproxy);
    let Some(group) = Group::make("little_memory_costs_no_byte", "36M", ["32M", "4M"]) else {
        return;
    };
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "");
    group.take(gateway.child.id());
    bytes_survive(&stage, || {
        // Readers that read nothing, and whatever fits until then.
        let stalled: Vec<_> = (0..20).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
        for (client, _) in &stalled {
            client.set_nonblocking(true).unwrap();
            while (&mut &*client).write(&[7; 65_536]).is_ok() {}
        }
        let mut pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
        pairs.iter_mut().for_each(exchange);
    });
    assert!(group.is_felt(), "there was enough");
    assert!(gateway.child.try_wait().unwrap().is_none(), "it was killed");
    drop(gateway);
}

/// In a control group too, downloads that nobody reads hold up nobody else: at the group's limit the kernel would give
/// no connection more buffers, for as long as they stall.
#[test]
fn stalled_readers_in_a_control_group_hold_nobody_up() {
    need!(Root, Tproxy);
    let name = "stalled_readers_in_a_control_group_hold_nobody_up";
    let Some(group) = Group::make(name, "128M", ["128M", "8M"]) else {
        return;
    };
    let stage = Stage::new();
    let join = format!("echo $$ > {}", group.0.join("cgroup.procs").display());
    let _gateway = child::start_after(&stage.gateway, &join, "");
    let mut stalled = Vec::new();
    for i in 0..60 {
        let (client, server) = stage.pair(Ip::BOTH[i % 2]);
        server.set_nonblocking(true).unwrap();
        stalled.push((client, server));
    }
    let fill = |stalled: &[(TcpStream, TcpStream)]| {
        for (_, server) in stalled {
            while (&mut &*server).write(&[7; 65_536]).is_ok() {}
        }
    };
    for _ in 0..30 {
        fill(&stalled);
        std::thread::sleep(Duration::from_millis(100));
    }
    let (mut client, mut server) = stage.pair(Ip::V6);
    let begun = std::time::Instant::now();
    client
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let writer = std::thread::spawn(move || server.write_all(&pattern(3_000_000)).unwrap());
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    writer.join().unwrap();
    assert!(all == pattern(3_000_000));
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

/// Nor is a far end killed there, whose limit is on what it holds for them.
#[test]
fn downloads_that_nobody_reads_kill_no_far_end_in_a_control_group() {
    need!(Root, Nft, Tproxy);
    let name = "downloads_that_nobody_reads_kill_no_far_end_in_a_control_group";
    let Some(group) = Group::make(name, "64M", ["64M", "64M"]) else {
        return;
    };
    let (pair, keys) = (Pair::new(), Keys::new());
    let file = keys.proxy(Ip::V4, &keys.near, proxy::OPEN);
    let join = format!("echo $$ > {}", group.0.join("cgroup.procs").display());
    let mut far = ProxyProcess::start_after(&pair, &join, &file);
    let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &keys.far, ""));
    eventually("tunnels", || proxy::is_up(&gateway));
    let mut read = Ip::BOTH.map(|ip| pair.pair(ip));
    let stalled: Vec<_> = (0..60).map(|i| pair.pair(Ip::BOTH[i % 2])).collect();
    for _ in 0..40 {
        for (_, server) in &stalled {
            server.set_nonblocking(true).unwrap();
            while (&mut &*server).write(&[7; 65_536]).is_ok() {}
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(far.is_alive(), "it was killed");
    read.iter_mut().for_each(exchange);
}

/// Nor a near end by uploads that are faster than the link.
#[test]
fn uploads_kill_no_near_end_in_a_control_group() {
    need!(Root, Nft, Tproxy);
    let name = "uploads_kill_no_near_end_in_a_control_group";
    let Some(group) = Group::make(name, "64M", ["64M", "64M"]) else {
        return;
    };
    let (pair, keys) = (Pair::new(), Keys::new());
    let far = proxy::start(&pair, &keys.proxy(Ip::V4, &keys.near, proxy::OPEN));
    let join = format!("echo $$ > {}", group.0.join("cgroup.procs").display());
    let config = keys.gateway(Ip::V4, &keys.far, "when_down = \"refuse\"\n");
    let mut gateway = child::start_after(&pair.near, &join, &config);
    let listeners = Ip::BOTH.map(|ip| pair.listen(ip));
    let mut uploads = Vec::new();
    while uploads.len() < 60 {
        let listener = &listeners[uploads.len() % 2];
        // Refused for as long as the far end is not reached.
        if let Ok(client) = support::connect_in(&pair.client, listener.address()) {
            client.set_nonblocking(true).unwrap();
            uploads.push((client, listener.accept()));
        }
    }
    for _ in 0..40 {
        for (client, _) in &uploads {
            while (&mut &*client).write(&[7; 65_536]).is_ok() {}
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(gateway.child.try_wait().unwrap().is_none(), "it was killed");
    drop(far);
}

/// And a proxy.
#[test]
fn proxy_process() {
    proxy::be_a_proxy();
}

/// A control group with limits on memory; gone when dropped.
struct Group(PathBuf);

impl Group {
    /// One for `test`, with a limit on the process and its sockets together, or where the groups are of version 1 on
    /// each of the two.
    fn make(test: &str, together: &str, [process, sockets]: [&str; 2]) -> Option<Self> {
        let made = Self::limited(test, together, process, sockets);
        if made.is_none() {
            let line =
                format!("SKIPPED {test}: no control group with limits on memory can be made\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
        }
        made
    }

    fn limited(test: &str, together: &str, process: &str, sockets: &str) -> Option<Self> {
        let all = Path::new("/sys/fs/cgroup");
        let version_2 = all.join("cgroup.controllers").exists();
        let (parent, limits) = if version_2 {
            (all.to_owned(), vec![("memory.max", together)])
        } else {
            let limits = vec![
                ("memory.limit_in_bytes", process),
                ("memory.kmem.tcp.limit_in_bytes", sockets),
            ];
            (all.join("memory"), limits)
        };
        let path = parent.join(format!("bentpipe-{test}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        let limit = |(file, limit): &(&str, &str)| fs::write(group.0.join(file), limit).is_ok();
        limits.iter().all(limit).then_some(group)
    }

    fn take(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Whether a limit was met.
    fn is_felt(&self) -> bool {
        let read = |file: &str| fs::read_to_string(self.0.join(file)).unwrap_or_default();
        let of_sockets = ["max_usage", "limit"].map(|which| {
            let file = format!("memory.kmem.tcp.{which}_in_bytes");
            read(&file).trim().parse::<u64>()
        });
        let met = |line: &str| line.strip_prefix("max ").is_some_and(|count| count != "0");
        match of_sockets {
            [Ok(most), Ok(limit)] => most >= limit,
            _ => read("memory.events").lines().any(met),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its process has ended a moment ago.
        eventually("an empty group", || fs::remove_dir(&self.0).is_ok());
    }
}

/// Flows on which nothing moves for minutes are there when something does. (No middlebox is on the way
/// that would forget them.)
#[test]
#[ignore = "takes four minutes"]
fn idle_gaps_of_minutes_are_survived() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = child::start(&stage, "");
    let mut pairs = split_pairs(&stage);
    for minutes in [1, 3] {
        pairs.iter_mut().for_each(exchange);
        std::thread::sleep(Duration::from_secs(60 * minutes));
        pairs.iter_mut().for_each(exchange);
    }
    assert_eq!(stage.connections().len(), 4);
}

/// A bound on the size of files (`ulimit -f`, LimitFSIZE=) costs lines of the flow log, and nothing else.
#[test]
fn a_bound_on_files_costs_lines_of_the_log() {
    need!(Root, Tproxy, Program("prlimit"));
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("flows.jsonl");
    let config = format!("flow_log = \"{}\"", log.display());
    let mut gateway = child::start(&stage, &config);
    let pid = gateway.child.id().to_string();
    let bound = |size: &str| {
        let mut prlimit = std::process::Command::new("prlimit");
        let size = format!("--fsize={size}:");
        assert!(
            prlimit
                .args(["--pid", &pid, &size])
                .status()
                .unwrap()
                .success()
        );
    };
    bound("1");
    for _ in 0..5 {
        exchange(&mut stage.pair(Ip::V4));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(gateway.child.try_wait().unwrap().is_none());
    bound("unlimited");
    eventually("a line", || {
        drop(stage.pair(Ip::V4));
        std::fs::metadata(&log).is_ok_and(|about| about.len() > 1)
    });
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
