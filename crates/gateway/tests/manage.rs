//! The operator's side: status, bypass, reload, retire, by the control socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::protocol::{self, Request};
use bentpipe_gateway::{ConfigSource, ControlSocket, ManageError, Manager};
use bentpipe_os::need;
use rustix::process::{Gid, Uid};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use support::managed::{QUICK, managed, managed_by, parse};
use support::{Ip, PATIENCE, Stage, eventually, exchange};

#[test]
fn the_status_shows_flows_by_state_and_the_busiest_first() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut pairs: Vec<_> = (0..6).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
    pairs[3].0.write_all(&[7; 300_000]).unwrap();
    pairs[3].1.read_exact(&mut [0; 300_000]).unwrap();
    pairs[4].1.write_all(&[7; 100_000]).unwrap();
    pairs[4].0.read_exact(&mut [0; 100_000]).unwrap();
    pairs[5].0.shutdown(std::net::Shutdown::Write).unwrap();
    pairs[5].1.read_to_end(&mut Vec::new()).unwrap();
    let _dialling = stage.burst(1, (Ip::V4.beyond(), 80).into());

    let status = gateway.status();
    assert_eq!(status["admission"], "serving");
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["flows"]["established"], 5, "{status}");
    assert_eq!(status["flows"]["half_closed"], 1, "{status}");
    assert_eq!(status["counters"]["bytes_to_lan"], 300_000);
    assert_eq!(status["sat"]["interface"], "sat0");
    assert_eq!(status["sat"]["congestion_control"], "cubic");
    assert!(status["sat"]["rtt_median"].as_f64().unwrap() > 0.0);
    // The client is on the satellite's side of the stage.
    let busiest = &status["busiest"][0];
    assert_eq!(
        busiest["sat_host"],
        pairs[3].0.local_addr().unwrap().to_string()
    );
    assert_eq!(
        busiest["lan_host"],
        pairs[3].0.peer_addr().unwrap().to_string()
    );
    assert_eq!(busiest["to_lan"], 300_000);
    assert!(busiest["to_lan_rate"].as_f64().unwrap() > 1e4, "{busiest}");
    assert_eq!(status["busiest"][1]["to_sat"], 100_000);
}

#[test]
fn bypass_lets_new_flows_pass_and_takes_them_back() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut old = stage.pair(Ip::V4);
    // The kernel has connected a client before the gateway accepts it.
    eventually("the first flow", || gateway.accepted() == 1);
    assert_eq!(gateway.status()["admission"], "serving");
    gateway.ask(&Request::Bypass { on: true }).unwrap();
    // However short a time ago it was looked at.
    assert_eq!(gateway.status()["admission"], "bypassed");
    let mut new: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    assert!(!stage.intercepts());
    exchange(&mut old);

    gateway.ask(&Request::Bypass { on: false }).unwrap();
    new.extend(Ip::BOTH.map(|ip| stage.pair(ip)));
    new.iter_mut().for_each(exchange);
    eventually("the later two", || gateway.accepted() >= 3);
    assert_eq!(gateway.accepted(), 3);
    exchange(&mut old);
}

#[test]
fn a_reload_is_for_new_flows_and_harms_no_old_one() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut old = stage.pair(Ip::V4);
    *gateway.text.lock().unwrap() = "drain = \"1s\"\n[lan]\ncongestion_control = \"cubic\"\n\
        [sat]\ncongestion_control = \"reno\"\nrate = \"50Mbit/s\"\nsend_buffer = \"1MiB\"\n\
        [limits]\nflows = 3\npipe = \"64KiB\"\npipes = 8\n"
        .to_owned();
    gateway.ask(&Request::Reload).unwrap();
    // Each worker's listeners have the new policy a moment later.
    eventually("flows by the new policy", || {
        let _pair = stage.pair(Ip::V4);
        sat_controls(&stage).contains("reno")
    });
    assert!(sat_controls(&stage).contains("cubic"), "the old flow's");
    let status = gateway.status();
    assert_eq!(status["sat"]["rate"], 50_000_000);
    assert_eq!(status["limits"]["flows"], 3);
    let mut more: Vec<_> = (0..4).map(|_| stage.pair(Ip::V6)).collect();
    eventually("the new limit", || gateway.handle.counters().suspended == 1);
    more.iter_mut().for_each(exchange);
    exchange(&mut old);
    assert_eq!(gateway.handle.counters().reset, 0);
}

/// A client's port that is used again has the new policy too, whoever remembers the connection before.
#[test]
fn a_port_used_again_after_a_reload_goes_by_the_new_policy() {
    const LEGS: &str = "drain = \"1s\"\n[sat]\ncongestion_control = \"cubic\"\n\
        [leg.a]\ncongestion_control = \"cubic\"\n[leg.b]\ncongestion_control = \"reno\"\n";
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed_by(&stage, LEGS);
    for (leg, control) in [("a", "cubic"), ("b", "reno"), ("a", "cubic")] {
        let policy = format!("[[policy]]\naction = \"split\"\nleg = \"{leg}\"\n");
        *gateway.text.lock().unwrap() = format!("{LEGS}{policy}");
        gateway.ask(&Request::Reload).unwrap();
        for ip in Ip::BOTH {
            let listener = support::listen::listen_at(&stage.server, ip.server(), 7000);
            let from = std::net::SocketAddr::new(ip.client(), 5555);
            let client = stage.connect_from(from, listener.address());
            let mut pair = (client, listener.accept());
            exchange(&mut pair);
            assert!(sat_controls(&stage).contains(control), "{leg}");
            support::abort(pair.0);
            eventually("the end", || stage.connections().is_empty());
        }
    }
}

/// The congestion controls of the connections on the satellite's side, as `ss` names them.
fn sat_controls(stage: &Stage) -> String {
    let mut ss = stage.gateway.command("ss");
    let output = ss
        .args(["-tinH", "state", "established"])
        .args(["(", "dst", "10.77.1.2", "or", "dst", "[fd77:1::2]", ")"])
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// nft hangs when a reload wants other rules: another nft makes the table in its place, and neither flows
/// that stand nor new ones notice.
#[test]
fn a_reload_does_not_need_an_nft_that_hangs() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut pairs: Vec<_> = Ip::BOTH.map(|ip| stage.pair(ip)).into();
    stage.signal_nft("-STOP");
    *gateway.text.lock().unwrap() =
        format!("{QUICK}[[policy]]\nname = \"none\"\naction = \"bypass\"\n");
    let before = gateway.accepted();
    let reload = {
        let path = gateway.path.clone();
        std::thread::spawn(move || protocol::ask(&path, &Request::Reload).unwrap())
    };
    while !reload.is_finished() {
        let begun = Instant::now();
        pairs.push(stage.pair(Ip::V4));
        pairs.iter_mut().for_each(exchange);
        assert!(begun.elapsed() < Duration::from_secs(2));
        assert_eq!(gateway.status()["admission"], "serving");
    }
    reload.join().unwrap();
    assert!(gateway.accepted() > before, "split meanwhile");
    let before = gateway.accepted();
    pairs.extend(Ip::BOTH.map(|ip| stage.pair(ip)));
    pairs.iter_mut().for_each(exchange);
    assert_eq!(gateway.accepted(), before, "the new policy is in force");
}

/// One that a successor has replaced does not wait for its flows for ever.
#[test]
fn a_retired_gateway_ends_at_its_time() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut pairs = Ip::BOTH.map(|ip| stage.pair(ip));
    *gateway.text.lock().unwrap() = format!("retire = \"1s\"\n{QUICK}");
    gateway.ask(&Request::Reload).unwrap();
    gateway.ask(&Request::Retire).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    pairs.iter_mut().for_each(exchange);
    gateway.join();
    for (mut client, _) in pairs {
        assert!(client.read(&mut [0; 1]).is_err(), "it is reset");
    }
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let before = gateway.status();
    for (text, words) in [
        (
            "[sat]\nraet = \"1Mbit/s\"\n",
            "gateway.toml:2:1: unknown key `raet`",
        ),
        ("port = 4000\n", "`port` cannot change in a running gateway"),
        (
            "[leg.bulk]\n",
            "the names and `like` of `[leg]` cannot change",
        ),
        (
            "intercept = \"lan\"\nthreads = 7\n",
            "`intercept`, `threads` cannot",
        ),
        (
            "[sat]\ncongestion_control = \"no_such\"\ninsist = true\n",
            "no_such",
        ),
        (
            "[limits]\ndescriptors = 100\npipes = 1000",
            "raise `descriptors`",
        ),
    ] {
        *gateway.text.lock().unwrap() = text.to_owned();
        let error = gateway.ask(&Request::Reload);
        if words.starts_with("raise") && error.is_ok() {
            // This process has few descriptors open: they are enough.
            continue;
        }
        let error = error.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    *gateway.text.lock().unwrap() = QUICK.to_owned();
    gateway.ask(&Request::Reload).unwrap();
    let after = gateway.status();
    for part in ["admission", "limits", "sat", "lan"] {
        assert_eq!(before[part], after[part]);
    }
}

#[test]
fn a_retired_gateway_ends_with_its_last_flow() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut old = Ip::BOTH.map(|ip| stage.pair(ip));
    gateway.ask(&Request::Retire).unwrap();
    let before = gateway.accepted();
    let mut new = Ip::BOTH.map(|ip| stage.pair(ip));
    assert_eq!(gateway.accepted(), before, "new flows pass");
    eventually("draining", || gateway.status()["admission"] == "draining");
    let refused = gateway.ask(&Request::Bypass { on: false }).unwrap_err();
    assert!(refused.to_string().contains("drains"), "{refused}");
    old.iter_mut().for_each(exchange);
    drop(old);
    gateway.join();
    new.iter_mut().for_each(exchange);
}

/// Clients that hang, flood, talk nonsense or come in numbers: the others are answered, and flows go
/// on.
#[test]
fn bad_clients_of_the_control_socket_disturb_nobody() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut pair = stage.pair(Ip::V4);
    let connect = || UnixStream::connect(&gateway.path).unwrap();
    // In the middle of its line.
    let mut hung = connect();
    hung.write_all(b"{\"do\":\"sta").unwrap();
    let flood = {
        let mut flood = connect();
        std::thread::spawn(move || {
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until && flood.write_all(b"{\"do\":\"status\"}\n").is_ok() {}
        })
    };
    let mut endless = connect();
    let _ = endless.write_all(&[b'x'; 100_000]);
    let mut said = String::new();
    let _ = endless.read_to_string(&mut said);
    assert!(
        said.is_empty() || said.contains("one line of at most"),
        "{said}"
    );
    for _ in 0..5 {
        gateway.status();
        exchange(&mut pair);
        exchange(&mut stage.pair(Ip::V4));
    }
    // More than there are seats: turned away, not kept waiting.
    let crowd: Vec<_> = (0..20).map(|_| connect()).collect();
    let closed = crowd.iter().filter(|client| {
        client
            .set_read_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut said = String::new();
        (&mut &**client).read_to_string(&mut said).is_ok() && said.contains("too many clients")
    });
    assert!(closed.count() >= 16);
    drop((crowd, hung));
    flood.join().unwrap();
    gateway.status();
    exchange(&mut pair);
}

/// Whoever may only look cannot keep out those who may order, trickling or not.
#[test]
fn who_may_only_look_keeps_no_order_out() {
    need!(Root, Tproxy, Program("setpriv"));
    let stage = Stage::new();
    let gateway = managed(&stage);
    for folder in gateway.path.ancestors().skip(1).take(2) {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(&gateway.path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let path = gateway.path.clone();
    let (stop, stopped) = mpsc::channel::<()>();
    let nobody = std::thread::spawn(move || {
        let (user, group) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let mut crowd: Vec<_> = (0..8)
            .map(|_| UnixStream::connect(&path).unwrap())
            .collect();
        while stopped.recv_timeout(Duration::from_millis(50))
            == Err(mpsc::RecvTimeoutError::Timeout)
        {
            for one in &mut crowd {
                let _ = one.write_all(b" ");
            }
        }
    });
    for _ in 0..20 {
        gateway.ask(&Request::Bypass { on: false }).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(stop);
    nobody.join().unwrap();
}

#[test]
fn the_control_socket_is_for_its_owner_and_group() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mode = std::fs::metadata(&gateway.path)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
    for folder in gateway.path.ancestors().skip(1).take(2) {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Credentials belong to the thread, as the kernel sees them.
    let stranger = |groups: &[u32]| {
        let groups: Vec<_> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        let path = gateway.path.clone();
        let ask = move || {
            let (nobody, nogroup) = (Uid::from_raw(65_534), Gid::from_raw(65_534));
            rustix::thread::set_thread_groups(&groups).unwrap();
            rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup).unwrap();
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let said = |request: &Request| match protocol::ask(&path, request) {
                Ok(_) => "ok".to_owned(),
                Err(error) => error.to_string(),
            };
            [Request::Status, Request::Bypass { on: true }].map(|request| said(&request))
        };
        std::thread::spawn(ask).join().unwrap()
    };
    let denied = stranger(&[]);
    assert!(denied[0].contains("Permission denied"), "{denied:?}");
    // One that gets in by the group may look, and not touch.
    let watcher = stranger(&[0]);
    assert_eq!(watcher[0], "ok");
    assert!(watcher[1].contains("only root"), "{watcher:?}");
    assert_eq!(gateway.status()["admission"], "serving");
}

#[test]
fn a_second_gateway_does_not_take_the_control_socket() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut config = parse(QUICK).unwrap();
    config.control = ControlSocket::At(gateway.path.clone());
    let source = ConfigSource::new(|| Err("none".to_owned()));
    let refused = Manager::start(&config, &gateway.handle, &source, None).unwrap_err();
    assert!(matches!(refused, ManageError::InUse(_)), "{refused}");
    config.control = ControlSocket::At(Path::new("/proc/no/such/place").to_owned());
    let refused = Manager::start(&config, &gateway.handle, &source, None).unwrap_err();
    assert!(refused.to_string().contains("/proc/no/such"), "{refused}");
    gateway.status();
}

/// A successor that cannot start changes nothing: its predecessor goes on.
#[test]
fn a_successor_without_its_metrics_retires_nobody() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let mut config = parse(QUICK).unwrap();
    config.control = ControlSocket::At(gateway.path.clone());
    config.metrics = Some("192.0.2.55:9463".parse().unwrap());
    let source = ConfigSource::new(|| Err("none".to_owned()));
    let start = || Manager::start(&config, &gateway.handle, &source, Some(&gateway.path));
    let refused = stage.gateway.run(start).unwrap().unwrap_err();
    assert!(matches!(refused, ManageError::Metrics { .. }), "{refused}");
    assert!(!gateway.handle.is_retired());
    gateway.status();
}

/// Who watches it tells an end from a thread that hangs.
#[test]
fn a_gateway_that_has_ended_says_so() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = managed(&stage);
    let handle = gateway.handle.clone();
    assert!(handle.is_alive(PATIENCE));
    assert!(!handle.has_stopped());
    gateway.shutdown.request();
    gateway.join();
    assert!(!handle.is_alive(PATIENCE));
    assert!(handle.has_stopped());
}
