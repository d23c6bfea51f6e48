//! Limits, draining, and what is left behind: nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Bytes;
use bentpipe_gateway::Ending;
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, sweep};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{
    Ip, Listener, Stage, abort, child, descriptors_of, eventually, exchange, pattern, splitting,
};

#[test]
fn an_idle_flow_costs_two_descriptors() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = child::start(&stage, "");
    let before = descriptors_of(gateway.child.id());
    let mut pairs: Vec<_> = (0..100).map(|_| stage.pair(Ip::V4)).collect();
    // Used, so that pipes were borrowed and given back.
    for pair in &mut pairs {
        pair.0.write_all(&[7; 100_000]).unwrap();
        pair.1.read_exact(&mut [0; 100_000]).unwrap();
    }
    let after = descriptors_of(gateway.child.id());
    let pipes = 2 * 8;
    assert!(
        (200..=200 + pipes).contains(&(after - before)),
        "{before} before, {after} with 100 idle flows"
    );
    drop(pairs);
    eventually("all descriptors back", || {
        descriptors_of(gateway.child.id()) <= before + pipes
    });
}

/// A flow without a byte for the configured time is reset on both sides; one that is used lives on.
#[test]
fn an_idle_flow_is_reset_in_the_end() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.idle = Some(Duration::from_secs(1));
    let gateway = stage.split_by(config);
    for ip in Ip::BOTH {
        let mut used = stage.pair(ip);
        let (mut client, mut server) = stage.pair(ip);
        let start = Instant::now();
        let before = gateway.meter.read().idle;
        while gateway.meter.read().idle == before {
            assert!(start.elapsed() < support::PATIENCE, "it lives on");
            exchange(&mut used);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(start.elapsed() >= Duration::from_millis(900));
        for end in [&mut client, &mut server] {
            let error = end.read(&mut [0; 1]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
        exchange(&mut used);
    }
}

/// Nine thousand flows in one gateway process, a thousand of them used:
/// `cargo test -p bentpipe-gateway --test limits -- --ignored --nocapture nine_thousand`.
#[test]
#[ignore = "36,000 sockets: for a quiet machine"]
fn nine_thousand_flows_are_held() {
    need!(Root, Tproxy);
    bentpipe_process::limits::raise_descriptors().unwrap();
    let stage = Stage::new();
    let gateway = child::start(&stage, "");
    let listener = stage.listen(Ip::V4);
    let start = Instant::now();
    let mut pairs: Vec<_> = (0..9_000)
        .map(|_| (stage.connect(listener.address()), listener.accept()))
        .collect();
    let opened = start.elapsed();
    let pid = gateway.child.id();
    let descriptors = descriptors_of(pid);
    assert!(
        descriptors >= 18_000,
        "{descriptors} descriptors: not all are split"
    );
    pairs.iter_mut().step_by(9).for_each(exchange);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let figures =
        format!("opened in {opened:?}; the gateway has {descriptors} descriptors, {memory}\n");
    std::io::stderr().write_all(figures.as_bytes()).unwrap();
    // One more than fits passes unsplit, if it does not fit.
    let mut more: Vec<_> = (0..400).map(|_| stage.pair(Ip::V4)).collect();
    more.iter_mut().for_each(exchange);
    pairs.iter_mut().for_each(exchange);
    assert!(descriptors_of(pid) < 20_000);
}

/// At the limit new flows pass end to end, old ones live on, and well below it splitting resumes.
#[test]
fn beyond_the_limit_flows_pass_unsplit() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.flows = 4;
    let gateway = stage.split_by(config);
    let mut old: Vec<_> = (0..4).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
    eventually("the suspension", || gateway.meter.read().suspended == 1);
    let before = gateway.meter.read().accepted;
    let mut unsplit: Vec<_> = (0..20).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
    let counters = gateway.meter.read();
    assert!(counters.accepted <= before + 2, "{counters:?}");
    old.iter_mut().chain(&mut unsplit).for_each(exchange);

    old.truncate(1);
    eventually("the ends of old flows", || gateway.meter.read().open <= 3);
    eventually("splitting again", || {
        let before = gateway.meter.read().accepted;
        let _pair = stage.pair(Ip::V4);
        gateway.meter.read().accepted > before
    });
    old.iter_mut().chain(&mut unsplit).for_each(exchange);
    assert_eq!(gateway.meter.read().starved, 0);
}

/// Over the bound of buffered bytes new flows pass end to end; those that stand lose nothing, and once
/// the buffers are read splitting resumes.
#[test]
fn beyond_the_bound_of_buffered_bytes_flows_pass_unsplit() {
    need!(Root, Tproxy);
    const EACH: usize = 30_000_000;
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.buffered = Some(Bytes(8 << 20));
    let gateway = stage.split_by(config);
    let passed = || {
        let counts = gateway.meter.passed().unwrap();
        let count = counts.iter().find(|count| count.name == "limit_buffered");
        count.unwrap().packets
    };
    let mut quiet = stage.pair(Ip::V4);
    let stalled: Vec<_> = (0..4).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
    std::thread::scope(|scope| {
        let mut servers = Vec::new();
        for (mut client, server) in stalled {
            servers.push(server);
            scope.spawn(move || client.write_all(&pattern(EACH)).unwrap());
        }
        eventually("the suspension", || gateway.meter.read().suspended == 1);
        let before = gateway.meter.read();
        let mut unsplit: Vec<_> = (0..20).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
        let after = gateway.meter.read();
        assert_eq!(after.accepted, before.accepted);
        assert_eq!(passed(), 20, "all are counted by the reason");
        unsplit.iter_mut().for_each(exchange);
        exchange(&mut quiet);
        for mut server in servers {
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            assert!(all == pattern(EACH), "{} bytes of {EACH}", all.len());
        }
        eventually("splitting again", || {
            let before = gateway.meter.read().accepted;
            let _pair = stage.pair(Ip::V4);
            gateway.meter.read().accepted > before
        });
        unsplit.iter_mut().for_each(exchange);
    });
    exchange(&mut quiet);
}

/// With 200 descriptors for everything, three hundred connections all work, split or not.
#[test]
fn out_of_descriptors_nobody_is_harmed() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = child::start(&stage, "[limits]\ndescriptors = 200\n");
    let listener = stage.listen(Ip::V4);
    let mut pairs = Vec::new();
    for _ in 0..6 {
        // Fifty at once, so that many SYNs are on their way when the limit is met.
        let to = listener.address();
        let clients: Vec<TcpStream> = std::thread::scope(|scope| {
            let dials: Vec<_> = (0..50).map(|_| scope.spawn(|| stage.connect(to))).collect();
            dials.into_iter().map(|dial| dial.join().unwrap()).collect()
        });
        let mut servers: Vec<TcpStream> = (0..50).map(|_| listener.accept()).collect();
        for client in clients {
            let from = client.local_addr().unwrap();
            let server = servers
                .iter()
                .position(|server| server.peer_addr().unwrap() == from)
                .expect("every client's connection, by its own address");
            pairs.push((client, servers.swap_remove(server)));
        }
        pairs.iter_mut().for_each(exchange);
    }
    let open = descriptors_of(gateway.child.id());
    assert!(open < 200, "{open} descriptors");
    assert!(open > 60, "few flows are split: {open} descriptors");
}

/// Where one descriptor is left, and then two, no far side is dialled for a client that could not be accepted afterwards.
#[test]
fn who_is_answered_can_be_accepted() {
    need!(Root, Tproxy, Program("prlimit"));
    for more in [1, 2, 3] {
        let stage = Stage::new();
        let gateway = child::start(&stage, "");
        gateway.limit_descriptors(more);
        let mut pairs: Vec<_> = (0..4).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
        pairs.iter_mut().for_each(exchange);
    }
}

/// A bound that is set from outside while the gateway works, and is met again and again by connections that come and go: they
/// all work, and splitting does not begin and end with every few of them.
#[test]
fn at_a_bound_that_lasts_splitting_does_not_come_and_go() {
    need!(Root, Tproxy, Program("prlimit"));
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let gateway = child::start(&stage, &format!("control = \"{}\"", socket.display()));
    let mut standing: Vec<_> = (0..10).map(|_| stage.pair(Ip::V4)).collect();
    standing.iter_mut().for_each(exchange);
    gateway.limit_descriptors(12);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for ip in [Ip::V4, Ip::V6, Ip::V4, Ip::V6] {
            let stage = &stage;
            scope.spawn(move || {
                while begun.elapsed() < Duration::from_secs(6) {
                    let mut pairs: Vec<_> = (0..4).map(|_| stage.pair(ip)).collect();
                    pairs.iter_mut().for_each(exchange);
                }
            });
        }
    });
    let request = bentpipe_gateway::protocol::Request::Status;
    let status = bentpipe_gateway::protocol::ask(&socket, &request).unwrap();
    let times = status["status"]["counters"]["suspended"].as_u64().unwrap();
    assert!((1..=4).contains(&times), "{times} times in 6 s");
    standing.iter_mut().for_each(exchange);
}

/// Early: held, those without room would pass unsplit.
const TIGHT: &str = "handshake = \"early\"\nthreads = 1\n[limits]\ndescriptors = 100\n";
const BURST: usize = 200;

/// More connections than [`TIGHT`] has room for, all intercepted before the gateway knows of any.
fn burst(stage: &Stage, gateway: &child::GatewayProcess, to: &Listener) -> Vec<TcpStream> {
    gateway.signal("-STOP");
    let clients = stage.burst(BURST, to.address());
    gateway.signal("-CONT");
    clients
}

/// More connections at once than there is room for: those beyond it wait for flows to end.
#[test]
fn a_burst_beyond_the_descriptors_waits_for_room() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = child::start(&stage, TIGHT);
    for ip in Ip::BOTH {
        let listener = stage.listen(ip);
        let clients = burst(&stage, &gateway, &listener);
        std::thread::scope(|scope| {
            for mut client in clients {
                scope.spawn(move || {
                    let mut answer = Vec::new();
                    client.read_to_end(&mut answer).unwrap();
                    assert_eq!(answer, b"served");
                });
            }
            for _ in 0..BURST {
                listener.accept().write_all(b"served").unwrap();
            }
        });
        eventually("splitting again", || stage.intercepts());
    }
    let open = descriptors_of(gateway.child.id());
    assert!(open < 100, "{open} descriptors");
}

/// But not for ever: where none ends, those without room are reset, and the others live on.
#[test]
fn a_burst_that_finds_no_room_is_reset_in_the_end() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = child::start(&stage, TIGHT);
    let listener = stage.listen(Ip::V4);
    let start = Instant::now();
    let clients = burst(&stage, &gateway, &listener);
    let mut servers = Vec::new();
    let results: Vec<_> = std::thread::scope(|scope| {
        let read = |client: &TcpStream| {
            let mut client = client;
            client.read_exact(&mut [0])
        };
        let reads = clients
            .iter()
            .map(|client| scope.spawn(move || read(client)));
        let reads: Vec<_> = reads.collect();
        while !reads.iter().all(|read| read.is_finished()) {
            if let Some(mut server) = listener.accept_within(Duration::from_millis(50)) {
                server.write_all(b"x").unwrap();
                servers.push(server);
            }
        }
        reads.into_iter().map(|read| read.join().unwrap()).collect()
    });
    let served = results.iter().filter(|result| result.is_ok()).count();
    assert_eq!(served, servers.len());
    assert!((12..BURST).contains(&served), "{served} served");
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert!(start.elapsed() > Duration::from_secs(2), "they had time");
}

/// The kernel's own limit is met although the configuration allowed more.
#[test]
fn the_kernels_limit_on_descriptors_is_survived() {
    need!(Root, Tproxy, Program("prlimit"));
    let stage = Stage::new();
    let gateway = child::start(&stage, "handshake = \"early\"");
    let mut old: Vec<_> = (0..10).map(|_| stage.pair(Ip::V4)).collect();
    gateway.limit_descriptors(3);
    // Some more may fit; one meets the limit, and is lost or reset. From then on they pass.
    let mut more = Vec::new();
    eventually("the end of interception", || {
        let listener = stage.listen(Ip::V4);
        if let Ok(client) = stage.try_connect(listener.address())
            && let Some(server) = listener.accept_within(Duration::from_millis(500))
        {
            more.push((client, server));
        }
        !stage.intercepts()
    });
    more.extend((0..5).map(|_| stage.pair(Ip::V4)));
    more.iter_mut().for_each(exchange);
    old.iter_mut().for_each(exchange);
}

/// Who is told to end tells the one whose place it has taken, and waits for that one's flows too: a service manager kills
/// what is left of the service when its main process has ended.
#[test]
fn sigterm_drains_the_predecessor_too() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let config = format!("drain = \"5s\"\ncontrol = \"{}\"\n", path.display());
    let mut retired = child::start(&stage, &config);
    let mut old = stage.pair(Ip::V4);
    let mut running = child::start_in_place(&stage, &config);
    let mut new = stage.pair(Ip::V6);
    running.signal("-TERM");
    std::thread::sleep(Duration::from_millis(300));
    exchange(&mut old);
    exchange(&mut new);
    drop(new);
    std::thread::sleep(Duration::from_millis(700));
    assert!(running.child.try_wait().unwrap().is_none());
    exchange(&mut old);
    drop(old);
    for gateway in [&mut retired, &mut running] {
        assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    }

    // What has not ended by itself is reset in time.
    let mut retired = child::start(&stage, &config);
    let mut old = stage.pair(Ip::V4);
    let mut running = child::start_in_place(&stage, &config);
    running.signal("-TERM");
    assert_eq!(retired.child.wait().unwrap().code(), Some(7));
    running.child.wait().unwrap();
    assert!(old.0.read(&mut [0]).is_err());
}

#[test]
fn sigterm_drains() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "drain = \"20s\"");
    let mut old = Ip::BOTH.map(|ip| stage.pair(ip));
    gateway.signal("-TERM");
    eventually("the end of interception", || !stage.intercepts());
    // New flows pass end to end; they will outlive the gateway.
    let before = descriptors_of(gateway.child.id());
    let mut new = Ip::BOTH.map(|ip| stage.pair(ip));
    assert_eq!(descriptors_of(gateway.child.id()), before);
    old.iter_mut().for_each(exchange);
    assert!(
        gateway.child.try_wait().unwrap().is_none(),
        "it still drains"
    );
    // The old flows end, the gateway with them; their last bytes arrive.
    for (client, mut server) in old {
        let mut client = client;
        client.write_all(&[7; 500_000]).unwrap_or_default();
        drop(client);
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), 500_000);
    }
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    new.iter_mut().for_each(exchange);
    nothing_is_left(&stage);
}

#[test]
fn draining_ends_at_its_time_with_resets() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.drain = Duration::from_millis(300);
    let gateway = stage.split_by(config);
    let (mut client, mut server) = stage.pair(Ip::V4);
    let start = Instant::now();
    gateway.shutdown.request();
    assert_eq!(gateway.join(), Ending::Cut(1));
    assert!(start.elapsed() >= Duration::from_millis(300));
    for end in [&mut client, &mut server] {
        let error = end.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    nothing_is_left(&stage);
}

#[test]
fn a_second_request_ends_it_at_once() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "drain = \"20s\"");
    let _pair = stage.pair(Ip::V4);
    let start = Instant::now();
    gateway.signal("-TERM");
    gateway.signal("-INT");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(7));
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// The end of the last flow with bytes still on their way to a slow reader.
#[test]
fn draining_delivers_the_last_bytes() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    let (mut client, mut server) = stage.pair(Ip::V4);
    client.write_all(&[7; 2_000_000]).unwrap();
    drop(client);
    server.shutdown(std::net::Shutdown::Write).unwrap();
    eventually("the end of the flow", || gateway.meter.read().finished == 1);
    gateway.shutdown.request();
    std::thread::sleep(Duration::from_millis(200));
    let mut rest = Vec::new();
    server.read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 2_000_000);
    assert_eq!(gateway.join(), Ending::Drained);
}

/// `kill -9`: interception goes with the process, new connections pass, and the next sweep removes
/// what has no owner in the kernel.
#[test]
fn after_a_kill_connections_pass_and_a_sweep_leaves_nothing() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    for _ in 0..3 {
        let mut gateway = child::start(&stage, "");
        let split = Ip::BOTH.map(|ip| stage.pair(ip));
        gateway.kill();
        drop(split);
        let mut pairs = Ip::BOTH.map(|ip| stage.pair(ip));
        pairs.iter_mut().for_each(exchange);
    }
    assert!(
        rules(&stage.gateway).contains("fwmark"),
        "rules outlive a kill"
    );
    let swept = stage.gateway.run(sweep::sweep).unwrap();
    assert!(
        !swept.rules.is_empty() && swept.failures.is_empty(),
        "{swept}"
    );
    nothing_is_left(&stage);
}

/// The process that holds the nft table is killed: the table is made again, serving and draining,
/// and neither flows that stand nor new ones are harmed.
#[test]
fn a_lost_table_is_made_again() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "drain = \"20s\"");
    let mut pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    let tables = || {
        let list = || bentpipe_os::nft::list(&["tables"]).unwrap();
        stage.gateway.run(list).unwrap()
    };
    for _ in 0..2 {
        let before = tables();
        gateway.kill_its_nft();
        eventually("another table", || stage.intercepts() && tables() != before);
        pairs.extend(Ip::BOTH.map(|ip| stage.pair(ip)));
        eventually("split flows", || {
            stage.connections().len() == 2 * pairs.len()
        });
        pairs.iter_mut().for_each(exchange);
    }
    gateway.signal("-TERM");
    eventually("the end of interception", || !stage.intercepts());
    let before = tables();
    gateway.kill_its_nft();
    eventually("another table", || {
        let now = tables();
        now != before && !now.is_empty()
    });
    assert!(!stage.intercepts(), "it still drains");
    pairs.iter_mut().for_each(exchange);
    drop(pairs);
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
    nothing_is_left(&stage);
}

/// And where it cannot be made again, the gateway does not stay on for nothing.
#[test]
fn a_table_that_is_lost_for_good_ends_the_gateway() {
    need!(Root, Tproxy, Program("prlimit"));
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "");
    gateway.limit_descriptors(0);
    gateway.kill_its_nft();
    assert_eq!(gateway.child.wait().unwrap().code(), Some(1));
    nothing_is_left(&stage);
}

#[test]
fn an_orderly_end_leaves_nothing() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    let _pair = stage.pair(Ip::V4);
    drop(gateway);
    nothing_is_left(&stage);
}

/// Churn of short, aborted and half-closed flows: descriptors are flat at the end.
#[test]
fn churn_leaves_no_descriptor_behind() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = child::start(&stage, "");
    let idle = descriptors_of(gateway.child.id());
    for _ in 0..3 {
        for round in 0..100 {
            let (mut client, mut server) = stage.pair(Ip::BOTH[round % 2]);
            client.write_all(&vec![7; round * 700]).unwrap();
            match round % 4 {
                0 => drop(client),
                1 => abort(client),
                2 => abort(server),
                _ => {
                    client.shutdown(std::net::Shutdown::Write).unwrap();
                    server.read_to_end(&mut Vec::new()).unwrap();
                }
            }
        }
        // A few idle pipes may stay.
        eventually("flat descriptors", || {
            descriptors_of(gateway.child.id()) <= idle + 16
        });
    }
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}

fn rules(netns: &Netns) -> String {
    let mut all = String::new();
    for family in ["-4", "-6"] {
        let output = netns.command("ip").args([family, "rule"]).output().unwrap();
        all += &String::from_utf8_lossy(&output.stdout);
    }
    all
}

/// No table, rule or route of ours in the gateway's namespace.
fn nothing_is_left(stage: &Stage) {
    let netns = &stage.gateway;
    let tables = netns.run(|| bentpipe_os::nft::list(&["tables"]).unwrap());
    assert_eq!(tables.unwrap().trim(), "");
    let rules = rules(netns);
    assert!(!rules.contains("fwmark"), "{rules}");
    for family in ["-4", "-6"] {
        let mut ip = netns.command("ip");
        let output = ip.args([family, "route", "show", "table", "all", "proto", "98"]);
        let routes = output.output().unwrap().stdout;
        assert_eq!(String::from_utf8_lossy(&routes), "");
    }
}
