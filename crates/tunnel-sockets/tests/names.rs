//! Names of servers, which the far end's own resolver is asked for. In a namespace of its own, with a DNS server that answers nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_connect_tcp::{Target, Template};
use bentpipe_quic::{Config, Identity, Limits};
use bentpipe_tunnel_sockets::{Driver, Near, Rule};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use support::loopback;

const INSIDE: &str = "BENTPIPE_TEST_NAMES";

/// Runs `test` of this file once more, where `server.example` is known and of other names nothing is heard.
fn in_a_silent_namespace(test: &str) {
    let folder = tempfile::tempdir().unwrap();
    let script = "ip link set lo up && cd \"$1\" && \
        echo 'nameserver 127.0.0.1' > resolv && echo '127.0.0.1 server.example' > hosts && \
        mount --bind resolv /etc/resolv.conf && mount --bind hosts /etc/hosts && exec \"$2\" \"$3\" --exact --nocapture";
    let output = Command::new("unshare")
        .args([
            "--map-root-user",
            "--mount",
            "--net",
            "sh",
            "-c",
            script,
            "sh",
        ])
        .args([
            folder.path(),
            &std::env::current_exe().unwrap(),
            test.as_ref(),
        ])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{output:?}"
    );
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn names_that_nobody_answers_for_hold_up_nobody_elses() {
    if std::env::var_os(INSIDE).is_none() {
        return in_a_silent_namespace("names_that_nobody_answers_for_hold_up_nobody_elses");
    }
    let silent = UdpSocket::bind("127.0.0.1:53").unwrap();
    let [near, far] = support::configs(Limits::default(), Instant::now());
    let other = Config {
        identity: Identity::generate().unwrap(),
        ..near.clone()
    };
    let far = Config {
        peers: vec![near.identity.public(), other.identity.public()],
        ..far
    };
    let template = Template::of_authority("far.example").unwrap();
    let open = Rule {
        prefix: "127.0.0.1/32".parse().unwrap(),
        ports: 1..=65_535,
        allow: true,
    };
    let serve = support::far(&template, vec![open], 1000, Duration::from_secs(120));
    let far = Driver::far(&far, loopback(), serve).unwrap();
    let (peer, handle) = (far.address().unwrap(), far.handle());
    thread::spawn(move || far.run());
    let ends = [near, other].map(|config| {
        let (driver, near) = Driver::near(&config, loopback(), peer, template.clone()).unwrap();
        let handle = driver.handle();
        thread::spawn(move || driver.run());
        until("the far end is reached", || near.is_up());
        (near, handle)
    });
    let [(asks, its), (friend, _)] = &ends;
    let dead = |near: &Near, number: u32| {
        let name: Target = format!("x{number}.dead.example:80").parse().unwrap();
        support::client(near, name)
    };
    let begun = Instant::now();
    let clients: Vec<_> = (0..90).map(|number| dead(asks, number)).collect();
    // All of them wait for an answer, and the DNS server has been asked.
    silent.recv(&mut [0; 512]).unwrap();
    let dialling = |wanted: usize| {
        move || {
            { handle.status(Duration::from_secs(2)) }
                .is_some_and(|it| it.counters.asked >= wanted as u64)
        }
    };
    until("all are asked for", dialling(90));

    let server = TcpListener::bind(loopback()).unwrap();
    server.set_nonblocking(true).unwrap();
    let port = server.local_addr().unwrap().port();
    let asked = Instant::now();
    let name: Target = format!("server.example:{port}").parse().unwrap();
    let mut client = support::client(friend, name);
    let mut dialled = None;
    until("a known name is dialled", || {
        dialled = server.accept().ok();
        dialled.is_some() || asked.elapsed() > Duration::from_secs(2)
    });
    let (mut served, _) = dialled.expect("a known name waits for others");
    served.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();

    // A name that is not answered for takes no longer than a dial.
    for mut client in clients {
        client.read(&mut [0]).unwrap_err();
    }
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "{:?}",
        begun.elapsed()
    );
    let status = its.status(Duration::from_secs(2)).unwrap();
    assert_eq!(status.counters.failures["dns_timeout"], 90);
}
