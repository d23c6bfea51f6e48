//! A gateway that hangs, or from which somebody takes what interception rests on: new connections work
//! all the same, and those that stand go on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::protocol::{self, Request};
use bentpipe_os::netlink::Prefix;
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, sweep};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::child::GatewayProcess;
use support::{Ip, Stage, child, eventually, exchange};

/// New connections must work again within this time, begun at any moment.
const SOON: Duration = Duration::from_secs(2);

fn ip(netns: &Netns, command: &str) -> bool {
    let words = command.split_whitespace();
    netns.command("ip").args(words).status().unwrap().success()
}

/// A connection that works at once, at least within [`SOON`].
fn soon(stage: &Stage, family: Ip) -> (TcpStream, TcpStream) {
    let begun = Instant::now();
    let mut pair = stage.pair(family);
    exchange(&mut pair);
    let took = begun.elapsed();
    assert!(took < SOON, "a new connection took {took:?}");
    pair
}

/// Waits until new connections are split again, those of `pairs` being all that there are.
fn split_again(stage: &Stage, pairs: &mut Vec<(TcpStream, TcpStream)>) {
    let before = stage.connections().len();
    eventually("split connections", || {
        pairs.push(soon(stage, Ip::V4));
        stage.connections().len() > before
    });
}

/// Stopped by SIGSTOP, as it might hang or be frozen: whoever connects at whatever moment from then on
/// gets through within two seconds, end to end. Going on, it splits as before, and harms nobody. Answered
/// early, those that connect in the first 0.8 s have been answered already, and wait.
#[test]
fn a_stopped_gateway_lets_new_connections_pass_and_takes_them_back() {
    need!(Root, Tproxy);
    for config in ["", "handshake = \"early\""] {
        let stage = Stage::new();
        let gateway = child::start(&stage, config);
        let mut split: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
        split.iter_mut().for_each(exchange);
        gateway.stop();
        if !config.is_empty() {
            std::thread::sleep(bentpipe_os::nft::LIFE);
        }
        let mut unsplit = Vec::new();
        std::thread::scope(|scope| {
            let begun = (0..16).map(|number| {
                let stage = &stage;
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(150 * number));
                    soon(stage, Ip::BOTH[number as usize % 2])
                })
            });
            let begun: Vec<_> = begun.collect();
            unsplit.extend(begun.into_iter().map(|thread| thread.join().unwrap()));
        });
        assert_eq!(stage.connections().len(), 4, "{config}");
        gateway.signal("-CONT");
        split_again(&stage, &mut unsplit);
        split.iter_mut().chain(&mut unsplit).for_each(exchange);
    }
}

/// A thread of a gateway that hangs at its next wait, until it is let go; as long as its tracer is stopped.
struct Hung(Child);

impl Hung {
    fn new(gateway: &GatewayProcess, name: &str) -> Self {
        let tasks = format!("/proc/{}/task", gateway.child.id());
        let tasks = std::fs::read_dir(tasks).unwrap().flatten();
        let named = tasks.map(|task| task.path()).find(|task| {
            let comm = std::fs::read_to_string(task.join("comm")).unwrap();
            comm.trim() == name
        });
        let thread = named.unwrap();
        let thread = thread.file_name().unwrap().to_str().unwrap();
        let mut strace = Command::new("strace");
        strace.args(["-p", thread, "-o", "/dev/null"]);
        let mut strace = strace.stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(strace.stderr.take().unwrap());
        lines.read_line(&mut said).unwrap();
        assert!(said.contains("attached"), "{said}");
        let hung = Self(strace);
        hung.signal("-STOP");
        hung
    }

    fn signal(&self, signal: &str) {
        let mut kill = Command::new("kill");
        let kill = kill.args([signal, &self.0.id().to_string()]);
        assert!(kill.status().unwrap().success());
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread that packets wait for, and that hangs by itself: that is told, and new connections pass as when the gateway is
/// stopped as a whole. What it snoops, and acknowledgements that it thins out, go on without it; where it leads packets past
/// chains that may refuse them, the connections that are split wait for it.
#[test]
fn a_thread_that_hangs_is_told_and_connections_pass() {
    need!(Root, Tproxy, Program("strace"));
    for (name, config) in [
        ("split-0", "threads = 1"),
        ("chains", ""),
        (
            "acks",
            "[sat]\nack_rate = \"1Mbit/s\"\ncongestion_control = \"cubic\"",
        ),
        ("snoop", "[[policy]]\naction = \"snoop\"\nport = 7001"),
        ("carrier", "[sat]\ncarrier = \"scps\"\nrate = \"100Mbit/s\""),
    ] {
        let stage = Stage::new();
        if name == "chains" {
            stage.apply(
                "table inet own { chain c { type filter hook input priority filter; policy accept;
                   iifname sat0 tcp dport 22 drop
                 } }",
            );
        }
        let (gateway, health) = start_between(&stage, config);
        let listener = support::listen::listen_at(&stage.server, Ip::V4.server(), 7001);
        let client = stage.connect(listener.address());
        let mut standing = (client, listener.accept());
        exchange(&mut standing);
        let hung = Hung::new(&gateway, name);
        eventually("a word about it", || health().ends_with("impaired\n"));
        // The kernel ends the splitting a moment after.
        std::thread::sleep(bentpipe_os::nft::LIFE / 8);
        let mut pairs = Ip::BOTH.map(|ip| soon(&stage, ip));
        pairs.iter_mut().for_each(exchange);
        // What was on its way when it began to hang is sent again by the ends.
        let goes_on = ["acks", "snoop"].contains(&name);
        if goes_on {
            for _ in 0..20 {
                let begun = Instant::now();
                exchange(&mut standing);
                assert!(begun.elapsed() < SOON, "{name}: {:?}", begun.elapsed());
            }
        }
        drop(hung);
        eventually("a word that all is well", || health().contains("200 OK"));
        split_again(&stage, &mut Vec::new());
        exchange(&mut standing);
    }
}

/// Rules and routes that somebody removes, one by one or all, are made again within a second, and the
/// flows that stand lose nothing.
#[test]
fn rules_and_routes_that_are_removed_are_made_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = child::start(&stage, "");
    let netns = &stage.gateway;
    let mut pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    let all_rules = [
        "-4 rule flush",
        "-4 rule add lookup main pref 32766",
        "-6 rule flush",
        "-6 rule add lookup main pref 32766",
    ];
    let all_routes = [
        "-4 route flush table all proto 98",
        "-6 route flush table all proto 98",
    ];
    let both = [all_rules.as_slice(), &all_routes].concat();
    // Down, an interface loses its routes, of which nobody is told.
    let loopback = ["link set lo down", "link set lo up"];
    for commands in [all_rules.as_slice(), &all_routes, &both, &loopback] {
        for command in commands {
            assert!(ip(netns, command), "{command}");
        }
        std::thread::sleep(Duration::from_secs(1));
        let before = stage.connections().len();
        pairs.extend(Ip::BOTH.map(|ip| soon(&stage, ip)));
        assert_eq!(stage.connections().len(), before + 4, "{commands:?}");
        pairs.iter_mut().for_each(exchange);
    }
    drop(gateway);
}

/// Removes at one go what is not the kernel's: every rule but those of the usual preferences, and every route that the kernel
/// has not made itself. Returns how many it were.
fn remove_what_is_foreign(netns: &Netns) -> usize {
    let both = ["-4", "-6"].map(|family| {
        let list = |words: &[&str]| {
            let mut command = netns.command("ip");
            let listed = command.args(["-o", family]).args(words).output().unwrap();
            String::from_utf8(listed.stdout).unwrap()
        };
        let mut batch = String::new();
        for rule in list(&["rule", "show"]).lines() {
            let (preference, _) = rule.split_once(':').unwrap();
            if !["0", "32766", "32767"].contains(&preference) {
                batch += &format!("rule del pref {preference}\n");
            }
        }
        for route in list(&["route", "show", "table", "all"]).lines() {
            if !route.contains("proto kernel") {
                batch += &format!("route del {route}\n");
            }
        }
        (family, batch)
    });
    let mut removed = 0;
    for (family, batch) in both {
        let mut command = netns.command("ip");
        let command = command.args([family, "-force", "-batch", "-"]);
        let mut running = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = running.stdin.take().unwrap();
        input.write_all(batch.as_bytes()).unwrap();
        drop(input);
        // It fails where the gateway has been so quick as to make others meanwhile.
        running.wait().unwrap();
        removed += batch.lines().count();
    }
    removed
}

/// A service that wants the rules and routes of the machine for itself removes those of others, and does so again: that is what
/// systemd-networkd does by its manual (`ManageForeignRoutingPolicyRules`, `ManageForeignRoutes`). Flows go on meanwhile.
#[test]
fn what_is_removed_at_one_go_and_again_is_made_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = child::start(&stage, "");
    let pairs = Ip::BOTH.map(|ip| stage.pair(ip));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = support::ends::SetAtEnd(&done);
        for mut pair in pairs {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    exchange(&mut pair);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        for _ in 0..2 {
            let removed = remove_what_is_foreign(&stage.gateway);
            assert!(removed >= 4, "of each family a rule and a route: {removed}");
            std::thread::sleep(Duration::from_secs(1));
        }
        let before = stage.connections().len();
        let mut more = Ip::BOTH.map(|ip| soon(&stage, ip));
        assert_eq!(stage.connections().len(), before + 4);
        more.iter_mut().for_each(exchange);
    });
}

/// Rules of routing that would come before the gateway's, at its start and while it works, change nothing: without a
/// number of their own the kernel puts them first.
#[test]
fn rules_that_would_come_first_change_nothing() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let netns = &stage.gateway;
    let rules = |end: &str| {
        for (family, server, client_net, server_net) in [
            ("-4", Ip::V4.server(), "10.77.1.0/24", "10.77.2.0/24"),
            ("-6", Ip::V6.server(), "fd77:1::/64", "fd77:2::/64"),
        ] {
            for command in [
                format!("{family} route replace default via {server} table 100"),
                format!("{family} rule add from {client_net} lookup 100 {end}"),
                format!("{family} rule add to {server_net} lookup main {end}"),
            ] {
                assert!(ip(netns, &command), "{command}");
            }
        }
    };
    rules("pref 50");
    let gateway = child::start(&stage, "");
    let mut pairs: Vec<_> = Ip::BOTH.map(|ip| soon(&stage, ip)).into();
    assert_eq!(stage.connections().len(), 4);
    for end in ["", "pref 20"] {
        rules(end);
        std::thread::sleep(Duration::from_secs(1));
        let before = stage.connections().len();
        pairs.extend(Ip::BOTH.map(|ip| soon(&stage, ip)));
        assert_eq!(stage.connections().len(), before + 4);
        pairs.iter_mut().for_each(exchange);
    }
    drop(gateway);
}

/// Where the rules of others have gone, the gateway's go up again: there is room for the next that comes without a number.
#[test]
fn a_low_rule_that_came_and_went_leaves_room() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let (_gateway, health) = start_with_health(&stage);
    for family in ["-4", "-6"] {
        for change in ["add", "del"] {
            let rule = format!("{family} rule {change} pref 4 fwmark 7 lookup 100");
            assert!(ip(&stage.gateway, &rule));
            std::thread::sleep(Duration::from_secs(1));
        }
        assert!(ip(
            &stage.gateway,
            &format!("{family} rule add fwmark 7 lookup 100")
        ));
    }
    std::thread::sleep(Duration::from_secs(1));
    assert!(health().contains("200 OK"), "{}", health());
    let mut pairs = Ip::BOTH.map(|ip| soon(&stage, ip));
    assert_eq!(stage.connections().len(), 4);
    pairs.iter_mut().for_each(exchange);
}

/// A gateway, and what its `/healthz` says.
fn start_with_health(stage: &Stage) -> (GatewayProcess, impl Fn() -> String) {
    start_between(stage, "")
}

/// The same with more to its configuration.
fn start_between(stage: &Stage, config: &str) -> (GatewayProcess, impl Fn() -> String) {
    let metrics = SocketAddr::new(Ip::V4.gateway_lan(), 9463);
    let gateway = child::start(stage, &format!("metrics = \"{metrics}\"\n{config}"));
    let health = move || {
        let mut stream = support::connect_in(&stage.server, metrics).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    (gateway, health)
}

/// Where they cannot be made again, new connections pass, and `/healthz` says that something is wrong;
/// and once they can, all is as before.
#[test]
fn where_they_cannot_be_made_again_new_connections_pass() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let (_gateway, health) = start_with_health(&stage);
    let mut pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    assert!(health().contains("200 OK"), "{}", health());
    assert!(ip(&stage.gateway, "link set lo down"));
    std::thread::sleep(Duration::from_secs(1));
    let before = stage.connections().len();
    let mut unsplit = Ip::BOTH.map(|ip| soon(&stage, ip));
    assert_eq!(stage.connections().len(), before);
    eventually("a word about it", || health().contains("503"));
    assert!(health().ends_with("impaired\n"), "{}", health());
    assert!(ip(&stage.gateway, "link set lo up"));
    split_again(&stage, &mut pairs);
    pairs.iter_mut().chain(&mut unsplit).for_each(exchange);
    assert!(health().contains("200 OK"), "{}", health());
}

/// A leg's interface that gets another name is no leg's: that is told, and new connections pass, until it has its
/// name again.
#[test]
fn an_interface_that_is_gone_is_told() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let (_gateway, health) = start_with_health(&stage);
    let rename = |from: &str, to: &str| {
        // Down, it loses its IPv6 addresses otherwise.
        let key = format!("net.ipv6.conf.{from}.keep_addr_on_down");
        stage.gateway.set_sysctl(&key, "1").unwrap();
        for command in [
            format!("link set {from} down"),
            format!("link set {from} name {to}"),
            format!("link set {to} up"),
        ] {
            assert!(ip(&stage.gateway, &command), "{command}");
        }
    };
    let mut pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    rename("sat0", "other0");
    // As udev may do: by this name it is found, but packets do not come by it.
    let altname = |what: &str| {
        let command = format!("link property {what} dev other0 altname sat0");
        assert!(ip(&stage.gateway, &command), "{command}");
    };
    altname("add");
    eventually("a word about it", || health().ends_with("impaired\n"));
    let before = stage.connections().len();
    let mut unsplit = Ip::BOTH.map(|ip| soon(&stage, ip));
    assert_eq!(stage.connections().len(), before);
    altname("del");
    rename("other0", "sat0");
    split_again(&stage, &mut pairs);
    pairs.iter_mut().chain(&mut unsplit).for_each(exchange);
    assert!(health().contains("200 OK"), "{}", health());
}

/// So is one that becomes a port of a bridge: packets come by the bridge then. Out of it, it is the leg's again.
#[test]
fn an_interface_that_becomes_a_port_is_told() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let (_gateway, health) = start_with_health(&stage);
    for command in ["link add br0 type bridge", "link set sat0 master br0"] {
        assert!(ip(&stage.gateway, command), "{command}");
    }
    eventually("a word about it", || health().ends_with("impaired\n"));
    assert!(ip(&stage.gateway, "link set sat0 nomaster"));
    split_again(&stage, &mut Vec::new());
    // What was split was so before the kernel had ended that.
    eventually("a word that all is well", || health().contains("200 OK"));
}

/// IPv6 that is switched off while the gateway works takes no IPv4 along; on again, it is split again.
#[test]
fn ipv6_that_is_switched_off_takes_no_ipv4_along() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let (_gateway, health) = start_with_health(&stage);
    let switch_off = |value: &str| {
        let key = "net.ipv6.conf.all.disable_ipv6";
        stage.gateway.set_sysctl(key, value).unwrap();
    };
    switch_off("1");
    // Longer than it may go on by what was found before.
    std::thread::sleep(Duration::from_secs(7));
    let mut pairs = vec![soon(&stage, Ip::V4)];
    assert_eq!(stage.connections().len(), 2);
    assert!(health().contains("200 OK"), "{}", health());
    switch_off("0");
    // Switched off, interfaces lose their addresses.
    let netlink = stage.gateway.netlink().unwrap();
    for (name, address) in [
        ("sat0", Ip::V6.gateway_sat()),
        ("lan0", Ip::V6.gateway_lan()),
    ] {
        let prefix = Prefix::new(address, 64).unwrap();
        netlink.add_address(name, prefix).unwrap();
    }
    // The routes come a tenth of a second later.
    std::thread::sleep(Duration::from_millis(500));
    pairs.extend(Ip::BOTH.map(|ip| stage.pair(ip)));
    assert_eq!(stage.connections().len(), 6);
    pairs.iter_mut().for_each(exchange);
}

/// nft hangs when a limit is met, when the operator wants a bypass, and when the gateway ends: none of
/// that needs it.
#[test]
fn nothing_waits_for_an_nft_that_hangs() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let control = format!("control = \"{}\"", socket.display());
    let mut gateway = child::start(&stage, &format!("{control}\n[limits]\nflows = 4"));
    stage.signal_nft("-STOP");
    let mut pairs: Vec<_> = (0..12).map(|i| soon(&stage, Ip::BOTH[i % 2])).collect();
    assert!(stage.connections().len() < 2 * pairs.len(), "at the limit");
    let ask = |request| protocol::ask(&socket, &request);
    let standing = || {
        std::thread::sleep(Duration::from_millis(210));
        ask(Request::Status).unwrap()["status"]["admission"].clone()
    };
    assert_eq!(standing(), "suspended");
    pairs.truncate(1);
    eventually("splitting again", || standing() == "serving");
    for (on, expected) in [(true, "bypassed"), (false, "serving")] {
        let begun = Instant::now();
        ask(Request::Bypass { on }).unwrap();
        assert_eq!(standing(), expected);
        let before = stage.connections().len();
        pairs.push(soon(&stage, Ip::V4));
        let split = stage.connections().len() - before;
        assert_eq!(split, if on { 0 } else { 2 });
        assert!(begun.elapsed() < SOON);
    }
    pairs.iter_mut().for_each(exchange);
    drop(pairs);
    gateway.signal("-TERM");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

/// A sweep from another pid namespace of the same network sees none of our processes, and takes
/// nothing from them.
#[test]
fn a_sweep_from_another_pid_namespace_takes_nothing_from_the_living() {
    need!(Root, Tproxy, Program("unshare"));
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "");
    let mut pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    let rules = || {
        let list = |family| stage.gateway.command("ip").args([family, "rule"]).output();
        ["-4", "-6"].map(|family| String::from_utf8(list(family).unwrap().stdout).unwrap())
    };
    let before = rules();
    assert!(before[0].contains("fwmark"), "{before:?}");
    // With folders of its own: what others have in theirs is not ours to try this on. This program may lie in one of those.
    let script = "exec 9<\"$0\" && mount -t tmpfs none /run && mount -t tmpfs none /tmp && \
                  exec /proc/self/fd/9 sweep_process --exact --nocapture";
    let sweep = || {
        let mut unshare = stage.gateway.command("unshare");
        unshare.args(["--pid", "--fork", "--mount", "--mount-proc", "sh", "-c"]);
        unshare.arg(script).arg(std::env::current_exe().unwrap());
        let output = unshare.env(SWEEP, "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let swept = sweep();
    assert!(swept.contains("nothing to sweep"), "{swept}");
    assert_eq!(rules(), before);
    pairs.extend(Ip::BOTH.map(|ip| soon(&stage, ip)));
    assert_eq!(stage.connections().len(), 8);
    pairs.iter_mut().for_each(exchange);

    gateway.kill();
    let swept = sweep();
    assert!(
        swept.contains("removed rule"),
        "the dead one's goes: {swept}"
    );
    assert!(!rules()[0].contains("fwmark"));
}

const SWEEP: &str = "BENTPIPE_TEST_SWEEP";

/// In the child of the test above, a sweep.
#[test]
fn sweep_process() {
    if std::env::var_os(SWEEP).is_none() {
        return;
    }
    assert!(
        !Path::new("/run/netns").exists(),
        "not in folders of its own"
    );
    let report = sweep::sweep();
    let words = if report.is_empty() {
        "nothing to sweep".to_owned()
    } else {
        report.to_string()
    };
    std::io::stdout().write_all(words.as_bytes()).unwrap();
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
