//! What is refused at the start, with one clear line, and what the legs' sockets are given.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_bpf::{HYBLA, RATE, kernel_name};
use bentpipe_gateway::{Config, Gateway, StartError};
use bentpipe_os::need;
use std::net::{SocketAddr, TcpListener};
use support::{Ip, Stage, child, eventually, splitting};

/// What starting in the gateway's namespace fails with.
fn refusal(stage: &Stage, config: &Config) -> String {
    let start = || Gateway::start(config).map(drop);
    let error: StartError = stage.gateway.run(start).unwrap().unwrap_err();
    let message = error.to_string();
    assert_eq!(message.lines().count(), 1, "{message}");
    let tables = stage
        .gateway
        .run(|| bentpipe_os::nft::list(&["tables"]).unwrap());
    assert_eq!(tables.unwrap(), "", "after: {message}");
    let rules = stage.gateway.netlink().unwrap().rules().unwrap();
    assert!(rules.is_empty(), "{rules:?} after: {message}");
    message
}

fn parsed(text: &str) -> Config {
    Config::parse("test", text).unwrap().between("lan0", "sat0")
}

#[test]
fn interfaces_that_cannot_be_are_refused() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    for (config, expected) in [
        (Config::default(), "no interface is given for the lan leg"),
        (Config::default(), "`lan0`"),
        (
            Config::default().between("lan7", "sat0"),
            "no interface `lan7` for the lan leg: there are `sat0`, `lan0`",
        ),
        (
            Config::default().between("lan0", "sat7"),
            "no interface `sat7` for the sat leg",
        ),
        (Config::default().between("lan0", "lan0"), "two"),
    ] {
        let message = refusal(&stage, &config);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_port_of_a_bridge_is_refused() {
    need!(Root, Tproxy, Program("ip"));
    let stage = Stage::new();
    for words in ["link add br0 type bridge", "link set lan0 master br0"] {
        let mut ip = stage.gateway.command("ip");
        assert!(ip.args(words.split(' ')).status().unwrap().success());
    }
    let said = refusal(&stage, &Stage::config());
    assert!(
        said.contains("`lan0` is a port of `br0`") && said.contains("name that one"),
        "{said}"
    );
}

#[test]
fn a_port_in_use_is_refused() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let port = stage.free_ports_of_the_gateway();
    for (host, taken) in [("127.0.0.1", port), ("::1", port), ("::1", port + 1)] {
        let address = SocketAddr::new(host.parse().unwrap(), taken);
        let holder = stage
            .gateway
            .run(|| TcpListener::bind(address).unwrap())
            .unwrap();
        let message = refusal(&stage, &parsed(&format!("port = {port}")));
        let expected = format!("port {taken} of {host} is in use");
        assert!(message.contains(&expected), "{message}");
        drop(holder);
    }
    // Another gateway of this very user, too.
    let config = Config {
        port,
        ..Stage::config()
    };
    let _first = stage.split_by(config.clone());
    let start = || Gateway::start(&config).map(drop);
    let error = stage.gateway.run(start).unwrap().unwrap_err();
    assert!(error.to_string().contains("is in use"), "{error}");
}

#[test]
fn too_few_ports_to_choose_from_are_refused() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let key = "net.ipv4.ip_local_port_range";
    stage.gateway.set_sysctl(key, "40000 40001").unwrap();
    let message = refusal(&stage, &Stage::config());
    assert!(message.contains(key), "{message}");
}

/// A flow log that is a pipe without a reader would be waited for without end.
#[test]
fn a_flow_log_that_nobody_reads_is_refused() {
    need!(Root, Tproxy, Program("mkfifo"));
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows");
    let mut mkfifo = std::process::Command::new("mkfifo");
    assert!(mkfifo.arg(&path).status().unwrap().success());
    let config = parsed(&format!("flow_log = \"{}\"", path.display()));
    let message = refusal(&stage, &config);
    assert!(message.contains("cannot write the flow log"), "{message}");
}

#[test]
fn a_control_that_is_insisted_on_and_missing_is_refused() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let text = "[sat]\ncongestion_control = \"no_such\"\ninsist = true";
    let message = refusal(&stage, &parsed(text));
    assert!(message.contains("the sat leg"), "{message}");
    assert!(message.contains("`no_such` is not available"), "{message}");
    // Without insisting, another stands in for it.
    let config = parsed("[sat]\ncongestion_control = \"no_such\"");
    let _gateway = stage.split_by(config);
    let _pair = stage.pair(Ip::V4);
}

#[test]
fn descriptors_for_no_flow_are_refused() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let message = refusal(&stage, &parsed("threads = 16\n[limits]\ndescriptors = 100"));
    assert!(message.contains("carry no flow"), "{message}");
}

#[test]
fn without_the_capability_it_says_so() {
    need!(Root, Tproxy, Program("setpriv"));
    let stage = Stage::new();
    let mut command = stage.gateway.command("setpriv");
    let output = child::arrange(&mut command, "", true).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("CAP_NET_ADMIN is missing"), "{said}");
    assert!(said.contains("run as root"), "{said}");
}

#[test]
fn without_ipv6_it_splits_ipv4() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let key = "net.ipv6.conf.all.disable_ipv6";
    stage.gateway.set_sysctl(key, "1").unwrap();
    let gateway = stage.split();
    let _pair = stage.pair(Ip::V4);
    eventually("the connection", || gateway.meter.read().connected == 1);
}

/// CAP_NET_ADMIN alone: connections are split, both ways to answer them work, and in the place of our
/// controls, for which BPF takes more, the kernel's stand in.
#[test]
fn net_admin_alone_suffices() {
    need!(Root, Tproxy, Program("setpriv"), Program("ss"));
    for handshake in ["end-to-end", "early"] {
        let stage = Stage::new();
        let config = format!("handshake = \"{handshake}\"\n[sat]\nrate = \"100Mbit/s\"");
        let gateway = child::start_confined(&stage, &config);
        let status = format!("/proc/{}/status", gateway.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let effective = status.lines().find(|line| line.starts_with("CapEff"));
        assert!(
            effective.unwrap().ends_with("0000000000001000"),
            "{effective:?}"
        );
        for ip in Ip::BOTH {
            let mut pair = stage.pair(ip);
            assert_eq!(pair.1.peer_addr().unwrap(), pair.0.local_addr().unwrap());
            support::exchange(&mut pair);
            let ours = stage.connections();
            assert!(
                ours.iter().any(|one| one.mark >> 24 == 0x62),
                "{handshake} {ip:?}: unsplit"
            );
            let mut ss = stage.gateway.command("ss");
            let told = ss.arg("-tinH").output();
            let told = String::from_utf8(told.unwrap().stdout).unwrap();
            let stands_in = ["hybla", "bbr", "cubic"]
                .iter()
                .any(|name| told.contains(name));
            assert!(stands_in && !told.contains("bentpipe"), "{told}");
        }
    }
}

/// Without CAP_NET_BIND_SERVICE, a client's port below 1024 is replaced by another, as the guide says.
#[test]
fn without_the_right_to_low_ports_another_is_dialled_from() {
    need!(Root, Tproxy, Program("setpriv"));
    for handshake in ["end-to-end", "early"] {
        let stage = Stage::new();
        let config = format!("handshake = \"{handshake}\"");
        let _gateway = child::start_confined(&stage, &config);
        for ip in Ip::BOTH {
            let listener = stage.listen(ip);
            let client = SocketAddr::new(ip.client(), 900);
            let client = stage.connect_from(client, listener.address());
            let mut pair = (client, listener.accept());
            support::exchange(&mut pair);
            let ours = stage.connections();
            assert!(
                ours.iter().any(|one| one.mark >> 24 == 0x62),
                "{handshake} {ip:?}: unsplit"
            );
            assert_ne!(pair.1.peer_addr().unwrap().port(), 900);
        }
    }
}

/// Our connections in the gateway's namespace: what the kernel knows of them.
/// The socket towards the client (satellite leg) and that towards the server (terrestrial leg) carry
/// marks of their own, and so does a connection from the other side.
#[test]
fn each_leg_has_its_mark() {
    need!(Root, Tproxy);
    for ip in Ip::BOTH {
        let (stage, _gateway) = splitting();
        let _up = stage.pair(ip);
        let listener = stage.listen_in(&stage.client, ip.client());
        let _down = support::connect_in(&stage.server, listener.address()).unwrap();
        listener.accept();
        eventually("four sockets", || stage.connections().len() == 4);
        let all = stage.connections();
        let towards = |ip: std::net::IpAddr| -> Vec<u32> {
            let those = all.iter().filter(|connection| connection.peer.ip() == ip);
            those.map(|connection| connection.mark).collect()
        };
        let (sat, lan) = (towards(ip.client()), towards(ip.server()));
        assert_eq!((sat.len(), sat[0]), (2, sat[1]));
        assert_eq!((lan.len(), lan[0]), (2, lan[1]));
        assert_ne!(sat[0], lan[0]);
        assert_eq!(sat[0] >> 24, 0x62);
    }
}

/// The BPF controls are on the satellite leg's sockets, accepted or dialled, and not on the others.
#[test]
fn the_satellite_leg_gets_its_control() {
    need!(Root, Tproxy, Btf, StructOps, Program("ss"));
    let stage = Stage::new();
    for (text, control) in [
        ("[sat]\nrate = \"10Mbit/s\"\ninsist = true", RATE),
        // A path of unknown rate, too short to lead over a satellite.
        ("", "cubic"),
        ("[sat]\ncongestion_control = \"bentpipe_hybla\"", HYBLA),
        ("[sat]\ncongestion_control = \"reno\"", "reno"),
    ] {
        let _gateway = stage.split_by(parsed(&format!(
            "[lan]\ncongestion_control = \"cubic\"\n{text}"
        )));
        let _up = stage.pair(Ip::V4);
        let listener = stage.listen_in(&stage.client, Ip::V6.client());
        let _down = support::connect_in(&stage.server, listener.address()).unwrap();
        listener.accept();
        eventually("four sockets", || stage.connections().len() == 4);
        let mut ss = stage.gateway.command("ss");
        let output = ss.args(["-tniH"]).output().unwrap().stdout;
        let listing = String::from_utf8_lossy(&output);
        let count = |name: &str| {
            let words = listing.split_whitespace();
            words.filter(|word| *word == name).count()
        };
        // The other leg's are cubic as well.
        let others = count("cubic") - if control == "cubic" { 2 } else { 0 };
        let ours = count(kernel_name(control)) - if control == "cubic" { 2 } else { 0 };
        assert_eq!((ours, others), (2, 2), "{listing}");
    }
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// Where two network namespaces have one configuration, the gateway of the other is none whose place may be taken.
#[test]
fn a_gateway_of_another_namespace_is_not_replaced() {
    need!(Root, Tproxy);
    let (stage, other) = (Stage::new(), Stage::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.sock");
    let config = format!("control = \"{}\"\n", path.display());
    let _running = child::start(&stage, &config);
    let config = Stage::config();
    let succeed = || Gateway::succeed(&config, &path).map(drop);
    let error = other.gateway.run(succeed).unwrap().unwrap_err();
    assert!(
        error.to_string().contains("another network namespace"),
        "{error}"
    );
}
