//! How a gateway ends: draining, and what is left behind: nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Ending;
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, sweep};
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};
use support::{Ip, Stage, child, descriptors_of, eventually, exchange, splitting};

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
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let mut config = Stage::config();
        config.drain = Duration::from_millis(300);
        let gateway = stage.split_by(config);
        let (mut client, mut server) = stage.pair(ip);
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
}

#[test]
fn a_second_request_ends_it_at_once() {
    need!(Root, Tproxy);
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let mut gateway = child::start(&stage, "drain = \"20s\"");
        let _pair = stage.pair(ip);
        let start = Instant::now();
        gateway.signal("-TERM");
        gateway.signal("-INT");
        assert_eq!(gateway.child.wait().unwrap().code(), Some(7));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

/// The end of the last flow with bytes still on their way to a slow reader.
#[test]
fn draining_delivers_the_last_bytes() {
    need!(Root, Tproxy);
    for ip in Ip::BOTH {
        let (stage, gateway) = splitting();
        let (mut client, mut server) = stage.pair(ip);
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
        // On a busy host the first may come before the workers have their queues.
        for ip in Ip::BOTH {
            eventually("a split connection", || {
                let before = stage.connections().len();
                pairs.push(stage.pair(ip));
                stage.connections().len() == before + 2
            });
        }
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
    let _pairs = Ip::BOTH.map(|ip| stage.pair(ip));
    drop(gateway);
    nothing_is_left(&stage);
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
