//! Killed under load, the gateway is out of the way at once, and back at once when started again; and
//! a successor takes its place without the loss of a connection.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::print_stdout,
    reason = "what was measured, for whoever asks for it"
)]

mod support;

use bentpipe_os::{need, sweep};
use std::collections::HashSet;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{
    Ip, Listener, Stage, child, connect_in, descriptors_of, eventually, exchange, pattern,
};

/// New connections must work again within this time.
const SOON: Duration = Duration::from_secs(1);
/// Kills in an ordinary run.
const FEW: usize = 4;
/// And in a full one: `cargo test -p bentpipe-gateway --test failopen -- --ignored`.
const MANY: usize = 100;

/// A server that takes what clients send and tells them how much it was, once they have ended. Each
/// upload begins with its length.
struct Server {
    address: SocketAddr,
    /// Uploads that ended by a FIN with bytes missing.
    cheated: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(stage: &Stage, ip: Ip) -> Self {
        let listener = stage.listen(ip);
        let address = listener.address();
        let (cheated, stop) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let serve = {
            let (cheated, stop) = (Arc::clone(&cheated), Arc::clone(&stop));
            move || accept_all(&listener.0, &cheated, &stop)
        };
        Self {
            address,
            cheated,
            stop,
            thread: Some(std::thread::spawn(serve)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

fn accept_all(listener: &TcpListener, cheated: &Arc<AtomicU64>, stop: &AtomicBool) {
    listener.set_nonblocking(true).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(support::PATIENCE)).unwrap();
        let cheated = Arc::clone(cheated);
        std::thread::spawn(move || {
            let mut head = [0; 8];
            let mut stream = stream;
            if stream.read_exact(&mut head).is_err() {
                // Nothing was promised yet: a client that was killed, or a probe.
                return;
            }
            let expected = u64::from_be_bytes(head);
            // A reset is an error here, a FIN is not.
            if let Ok(count) = io::copy(&mut stream, &mut io::sink()) {
                if count != expected {
                    cheated.fetch_add(1, Ordering::Relaxed);
                }
                let _ = stream.write_all(&count.to_be_bytes());
            }
        });
    }
}

/// Uploads `count` bytes; `Ok(false)` when the answer ended cleanly but wrongly.
fn upload(stage: &Stage, to: SocketAddr, count: usize) -> io::Result<bool> {
    let mut stream = connect_in(&stage.client, to)?;
    stream.write_all(&(count as u64).to_be_bytes())?;
    stream.write_all(&pattern(count))?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer == (count as u64).to_be_bytes())
}

/// Clients that upload one after the other until told to stop.
struct Load<'s> {
    broken: &'s AtomicU64,
    wrong: &'s AtomicU64,
    whole: &'s AtomicU64,
    stop: &'s AtomicBool,
}

impl Load<'_> {
    fn work(&self, stage: &Stage, to: SocketAddr, count: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            let counter = match upload(stage, to, count) {
                Ok(true) => self.whole,
                Ok(false) => self.wrong,
                Err(_) => self.broken,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How long it takes until a new connection carries something whole, each attempt of its own.
fn until_one_works(stage: &Stage, to: SocketAddr) -> Duration {
    let begun = Instant::now();
    while !matches!(upload(stage, to, 100), Ok(true)) {
        assert!(
            begun.elapsed() < support::PATIENCE,
            "nothing works any more"
        );
    }
    begun.elapsed()
}

fn kill_under_load(kills: usize) {
    let stage = Stage::new();
    let servers = Ip::BOTH.map(|ip| Server::start(&stage, ip));
    let [broken, wrong, whole] = [const { AtomicU64::new(0) }; 3];
    let stop = AtomicBool::new(false);
    let load = Load {
        broken: &broken,
        wrong: &wrong,
        whole: &whole,
        stop: &stop,
    };
    let (mut passing, mut split) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        for (number, count) in [300, 30_000, 3_000_000].into_iter().enumerate() {
            let to = servers[number % 2].address;
            let (load, stage) = (&load, &stage);
            scope.spawn(move || load.work(stage, to, count));
        }
        let _stop = support::ends::SetAtEnd(&stop);
        for kill in 0..kills {
            let mut gateway = child::start(&stage, "");
            let begun = Instant::now();
            let idle = descriptors_of(gateway.child.id());
            eventually("split flows", || {
                descriptors_of(gateway.child.id()) > idle + 1
            });
            split.push(begun.elapsed());
            // Not always at the same point of a transfer.
            std::thread::sleep(Duration::from_millis((kill as u64 * 37) % 100));
            gateway.kill();
            let killed = Instant::now();
            passing.push(until_one_works(&stage, servers[kill % 2].address));
            // The rules go with the program that holds them, which the kernel ends next.
            while stage.intercepts() {
                assert!(killed.elapsed() < SOON, "interception outlived the gateway");
            }
        }
    });
    let worst = |times: &[Duration]| times.iter().max().copied().unwrap();
    let (passing, split) = (worst(&passing), worst(&split));
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{kills} kills: new connections passed within {passing:?}, were split again within {split:?} \
         of `ready`; {} uploads whole, {} reset",
        count(&whole),
        count(&broken)
    );
    assert!(passing < SOON && split < SOON, "{passing:?}, {split:?}");
    assert!(count(&whole) > kills as u64);
    assert!(
        count(&broken) > 0,
        "no flow was split when its gateway was killed"
    );
    assert_eq!(
        count(&wrong),
        0,
        "an answer ended cleanly with bytes missing"
    );
    for server in &servers {
        assert_eq!(
            count(&server.cheated),
            0,
            "an upload ended cleanly with bytes missing"
        );
    }
    nothing_but_inert_rules(&stage);
}

/// Of all that were killed, only mark-gated rules and routes are left, and after a sweep nothing.
fn nothing_but_inert_rules(stage: &Stage) {
    let list = || bentpipe_os::nft::list(&["tables"]).unwrap();
    assert_eq!(stage.gateway.run(list).unwrap().trim(), "");
    let swept = stage.gateway.run(sweep::sweep).unwrap();
    assert!(
        !swept.rules.is_empty() && swept.failures.is_empty(),
        "{swept}"
    );
    assert!(
        swept.tables.is_empty() && swept.interfaces.is_empty(),
        "{swept}"
    );
    for family in ["-4", "-6"] {
        let mut ip = stage.gateway.command("ip");
        let rules = ip.args([family, "rule"]).output().unwrap().stdout;
        assert!(!String::from_utf8_lossy(&rules).contains("fwmark"));
    }
}

#[test]
fn killed_under_load_it_is_out_of_the_way_at_once_and_back_at_once() {
    need!(Root, Tproxy);
    kill_under_load(FEW);
}

#[test]
#[ignore = "takes minutes: the same a hundred times"]
fn killed_a_hundred_times_under_load() {
    need!(Root, Tproxy);
    kill_under_load(MANY);
}

/// What is left of connections that were split does not stand in the way of new ones of the same four numbers, whoever
/// closed first: before the kernel forwards a packet it looks for a socket of its numbers, one in TIME_WAIT too.
#[test]
fn a_port_used_again_after_the_end_is_forwarded_at_once() {
    need!(Root, Tproxy);
    for translates in [false, true] {
        let stage = Stage::new();
        if translates {
            stage.apply(MASQUERADE);
        }
        for killed in [false, true] {
            let mut gateway = child::start(&stage, "");
            let used = Ip::BOTH.map(|ip| [true, false].map(|first| used_pair(&stage, ip, first)));
            if killed {
                gateway.kill();
                // As the unit does.
                let swept = stage.gateway.run(sweep::sweep).unwrap();
                assert!(swept.connections >= 4, "{swept}");
            } else {
                gateway.signal("-TERM");
                assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
            }
            eventually("the end of interception", || !stage.intercepts());
            for (from, listener) in used.into_iter().flatten() {
                let begun = Instant::now();
                let mut client = stage.connect_from(from, listener.address());
                let mut server = listener.accept();
                support::converse(&mut client, &mut server);
                assert!(begun.elapsed() < SOON, "{from}, {translates}, {killed}");
            }
        }
    }
}

const MASQUERADE: &str =
    "table inet nat { chain post { type nat hook postrouting priority srcnat; policy accept;
    oifname lan0 masquerade
} }";

/// A split connection that was used and ended, by the client first or by the server: whence, and who listens.
fn used_pair(stage: &Stage, ip: Ip, client_first: bool) -> (SocketAddr, Listener) {
    let listener = stage.listen(ip);
    let from = SocketAddr::new(ip.client(), 40_020 + u16::from(client_first));
    let mut client = stage.connect_from(from, listener.address());
    let mut server = listener.accept();
    support::converse(&mut client, &mut server);
    let (first, second) = support::in_order((&mut client, &mut server), client_first);
    first.shutdown(Shutdown::Write).unwrap();
    assert_eq!(second.read(&mut [0; 1]).unwrap(), 0);
    second.shutdown(Shutdown::Write).unwrap();
    assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
    drop((client, server));
    (from, listener)
}

/// The BPF objects (links, maps, programs) that a process has descriptors of, as `bpftool` names
/// them.
fn bpf_objects(pid: &str) -> HashSet<(&'static str, String)> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let files = folder.into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let mut objects = HashSet::new();
    for text in texts {
        for line in text.lines() {
            for (key, kind) in [
                ("link_id:", "link"),
                ("map_id:", "map"),
                ("prog_id:", "prog"),
            ] {
                if let Some(id) = line.strip_prefix(key) {
                    objects.insert((kind, id.trim().to_owned()));
                }
            }
        }
    }
    objects
}

#[test]
fn a_killed_gateway_leaves_no_bpf_object() {
    need!(Root, Tproxy, Btf, StructOps, Program("bpftool"));
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "[sat]\nrate = \"100Mbit/s\"\ninsist = true\n");
    let mut pairs = Ip::BOTH.map(|ip| stage.pair(ip));
    pairs.iter_mut().for_each(exchange);
    let objects = bpf_objects(&gateway.child.id().to_string());
    let maps = objects.iter().filter(|(kind, _)| *kind == "map").count();
    assert!(maps >= 2, "the shares and the links: {objects:?}");
    let exists = |(kind, id): &(&'static str, String)| {
        let mut bpftool = std::process::Command::new("bpftool");
        let output = bpftool.args([kind, "show", "id", id.as_str()]).output();
        output.unwrap().status.success()
    };
    assert!(objects.iter().all(exists), "{objects:?}");
    gateway.kill();
    // The kernel frees them after a grace period.
    eventually("that the kernel forgets them", || {
        !objects.iter().any(exists)
    });
}

/// A successor takes new flows while the predecessor goes on with its own: under load, nobody
/// notices.
#[test]
fn a_successor_takes_over_without_the_loss_of_a_connection() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let config = format!(
        "control = \"{}\"\nmetrics = \"127.0.0.1:9463\"\n",
        path.display()
    );
    let servers = Ip::BOTH.map(|ip| Server::start(&stage, ip));
    let [broken, wrong, whole] = [const { AtomicU64::new(0) }; 3];
    let stop = AtomicBool::new(false);
    let load = Load {
        broken: &broken,
        wrong: &wrong,
        whole: &whole,
        stop: &stop,
    };
    let mut running = child::start(&stage, &config);
    let mut old = Ip::BOTH.map(|ip| stage.pair(ip));
    std::thread::scope(|scope| {
        for (number, count) in [300, 30_000, 3_000_000, 300].into_iter().enumerate() {
            let to = servers[number % 2].address;
            let (load, stage) = (&load, &stage);
            scope.spawn(move || load.work(stage, to, count));
        }
        let _stop = support::ends::SetAtEnd(&stop);
        for _ in 0..3 {
            let whole_before = whole.load(Ordering::Relaxed);
            let mut retired =
                std::mem::replace(&mut running, child::start_in_place(&stage, &config));
            eventually("the successor at the socket", || {
                child::pid_at(&path) == Some(u64::from(running.child.id()))
            });
            eventually("flows of the successor", || {
                whole.load(Ordering::Relaxed) > whole_before + 20
            });
            // It holds flows that do not end, and goes with them.
            assert!(retired.child.try_wait().unwrap().is_none(), "it has flows");
            old.iter_mut().for_each(exchange);
            old = [stage.pair(Ip::V4), stage.pair(Ip::V6)];
            assert_eq!(retired.child.wait().unwrap().code(), Some(0));
        }
    });
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(
        (count(&broken), count(&wrong)),
        (0, 0),
        "{} whole",
        count(&whole)
    );
    old.iter_mut().for_each(exchange);
}

/// What the predecessor remembers of a connection is not for one that has its four numbers after it: the successor's own
/// dial is the one that is used, and no end of the predecessor ends it.
#[test]
fn a_port_used_again_after_a_handover_is_the_successors() {
    need!(Root, Tproxy);
    for handshake in ["end-to-end", "early"] {
        let stage = Stage::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.sock");
        let config = format!(
            "handshake = \"{handshake}\"\ncontrol = \"{}\"\n",
            path.display()
        );
        let mut retired = child::start(&stage, &config);
        let used = Ip::BOTH.map(|ip| used_pair(&stage, ip, true));
        let _stays = stage.pair(Ip::V4);
        let running = child::start_in_place(&stage, &config);
        eventually("the successor at the socket", || {
            child::pid_at(&path) == Some(u64::from(running.child.id()))
        });
        let mut pairs = used.map(|(from, listener)| {
            let client = stage.connect_from(from, listener.address());
            let server = listener.accept();
            assert_eq!(server.peer_addr().unwrap(), from, "{handshake}");
            (client, server)
        });
        pairs.iter_mut().for_each(exchange);
        retired.kill();
        pairs.iter_mut().for_each(exchange);
    }
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
