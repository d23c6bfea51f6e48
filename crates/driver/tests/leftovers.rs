//! What is left of a process that drives a host over a TUN interface when it is killed: nothing, and what was sent to the host
//! takes the next route at once. One that is stopped keeps its interface, for its connections are nobody else's; what is sent to
//! it meanwhile waits, and all of it arrives when it goes on.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

#[path = "support/actor.rs"]
mod actor;

use actor::Actor;
use bentpipe_driver::Driver;
use bentpipe_host::{Config, Host, Secret};
use bentpipe_os::netlink::{Veth, VethEnd};
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_os::{need, nft};
use bentpipe_tcp as tcp;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOST: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(100, 64, 0, 2)), 5_000);

#[test]
#[ignore = "the other process of the tests below"]
fn host_process() {
    if !actor::plays("host_process") {
        return;
    }
    let tun = Tun::open("ours", TunConfig::default()).unwrap();
    let here = Netns::current().unwrap();
    let kernel = "100.64.0.1/30".parse().unwrap();
    here.netlink().unwrap().add_address("ours", kernel).unwrap();
    let mut host = Host::new(Config::default(), Secret::new([7; 16]));
    host.add_address(HOST.ip());
    let config = Arc::new(tcp::Config::linux());
    let listener = host.listen(HOST, &config, 8).unwrap();
    let mut driver = Driver::new(host, tun).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "READY").unwrap();
    out.flush().unwrap();
    let mut open = Vec::new();
    let mut room = vec![0; 1 << 16];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        driver.turn(Some(Duration::from_secs(1))).unwrap();
        let host = driver.machine_mut();
        while host.accept(listener).is_some_and(|(id, _)| {
            open.push(id);
            true
        }) {}
        for id in &open {
            let Some(connection) = host.connection_mut(*id) else {
                continue;
            };
            let got = connection.read(&mut room);
            assert_eq!(
                connection.write(&room[..got]),
                got,
                "the send buffer has room"
            );
        }
        while bentpipe_base::Machine::event(host).is_some() {}
    }
}

fn ip(netns: &Netns, words: &str) -> String {
    let out = netns.command("ip").args(words.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "ip {words}: {out:?}");
    said
}

/// What the namespace has of interfaces, addresses, routes, rules and tables.
fn settings(netns: &Netns) -> Vec<String> {
    let lists = [
        "-o link",
        "-o address",
        "route show table all",
        "-6 route show table all",
        "rule",
        "-6 rule",
    ];
    let mut all: Vec<_> = lists.iter().map(|list| ip(netns, list)).collect();
    all.push(netns.run(|| nft::list(&["ruleset"]).unwrap()).unwrap());
    all
}

fn echo(stream: &mut TcpStream, bytes: &[u8]) {
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(bytes).unwrap());
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == bytes, "other bytes came back");
    });
}

fn connect(netns: &Netns) -> TcpStream {
    let connected = netns.run(|| TcpStream::connect_timeout(&HOST, Duration::from_millis(900)));
    let stream = connected.unwrap().unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
}

#[test]
fn nothing_is_left_of_a_killed_process_and_the_next_route_is_taken() {
    need!(Root, Tun, Nft);
    let netns = Netns::create("driver-killed").unwrap();
    // Behind a wider route another host has the address too.
    let other = Netns::create("driver-other").unwrap();
    let near = VethEnd {
        netns: &netns,
        name: "wide",
    };
    let far = VethEnd {
        netns: &other,
        name: "eth",
    };
    let veth = Veth::create(near, far).unwrap();
    veth.set_up().unwrap();
    ip(&netns, "address add 100.64.8.1/30 dev wide");
    ip(&other, "address add 100.64.8.2/30 dev eth");
    ip(&other, "address add 100.64.0.2/32 dev eth");
    ip(&netns, "route add 100.64.0.0/16 via 100.64.8.2");
    let listener = other.run(|| TcpListener::bind(HOST).unwrap()).unwrap();
    let before = settings(&netns);
    let actor = Actor::start(&netns, "host_process");
    assert_ne!(settings(&netns), before);
    let mut stream = connect(&netns);
    echo(&mut stream, b"hello");

    drop(actor);
    let killed = Instant::now();
    // The connection was the process's own, and is lost with it; a new one takes the wider route.
    let again = connect(&netns);
    assert!(killed.elapsed() < Duration::from_secs(1));
    assert_eq!(listener.accept().unwrap().1, again.local_addr().unwrap());
    assert_eq!(settings(&netns), before);
}

#[test]
fn what_is_sent_to_a_stopped_process_waits_and_arrives() {
    need!(Root, Tun);
    let netns = Netns::create("driver-stopped").unwrap();
    let actor = Actor::start(&netns, "host_process");
    let mut stream = connect(&netns);
    echo(&mut stream, b"hello");
    actor.signal("-STOP");
    let bytes: Vec<u8> = (0..1_000_000).map(|i| (i * 7 / 3) as u8).collect();
    std::thread::scope(|scope| {
        let echoes = scope.spawn(|| echo(&mut stream, &bytes));
        std::thread::sleep(Duration::from_secs(2));
        assert!(!echoes.is_finished(), "it is stopped");
        // Its interface stays: nobody else has its connections.
        assert!(ip(&netns, "-o link").contains("ours"));
        actor.signal("-CONT");
        echoes.join().unwrap();
    });
}
