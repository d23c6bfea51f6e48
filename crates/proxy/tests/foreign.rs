//! Others' clients of the proxy, and another's proxy for our near end: real programs over loopback, with certificates. Each is skipped where
//! its program is not there: `scripts/setup test`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "foreign/bed.rs"]
mod bed;
#[path = "foreign/near_end.rs"]
mod near_end;
#[path = "foreign/quic_go.rs"]
mod quic_go;
#[path = "foreign/servers.rs"]
mod servers;

use bed::*;
use bentpipe_management::Shutdown;
use bentpipe_proxy::Ending;
use near_end::*;
use servers::*;
use std::io::{ErrorKind, Read as _, Write as _};
use std::process::Command;
use std::thread;

/// What a client of HTTP/3 asks for in any language; `run` has it do so, and gives the lines that it says.
fn asks_as_any_client(run: impl Fn(&[&str]) -> Vec<String>) {
    let got = run(&["download", &source(4_000_000), "4000000"]);
    assert_eq!(got, ["downloaded 4000000"]);
    // What was said before a reset is not overtaken by it where the end of the stream tells it; where it cannot, with classic CONNECT,
    // there is H3_CONNECT_ERROR (RFC 9114, section 4.4).
    assert_eq!(
        run(&["reset", &resetting()]),
        ["no FINAL_DATA", "reset 0x10f"]
    );
    let (port, ends) = watching();
    assert_eq!(run(&["abandon", &port]), ["abandoned"]);
    let end = ends.recv_timeout(PATIENCE).unwrap();
    assert_eq!(end, Some(ErrorKind::ConnectionReset));
    let refused = run(&["refused", &closed()]);
    assert!(
        refused[0].starts_with("502 ") && refused[0].contains("error=connection_refused"),
        "{refused:?}"
    );
    // Whose certificate it is without its key: decrypt_error (RFC 8446, section 6.2).
    assert_eq!(run(&["stranger"]), ["refused 0x133"]);
}

#[test]
fn aioquic_asks_for_tunnels() {
    let Some(python) = python() else { return };
    let bed = Bed::new("");
    let run = |what: &[&str]| bed.http3(&python, what).all();
    let echoed = run(&["echo", &echo(), "1048576"]);
    assert_eq!(echoed, ["echoed connect-tcp-12", "echoed None"]);
    asks_as_any_client(run);
    assert_eq!(run(&["udp", &udp_echo()]), ["datagrams 10"]);
}

/// A proxy that drains says so, carries what it has, and takes no more.
#[test]
fn aioquic_is_told_of_a_drain() {
    let Some(python) = python() else { return };
    let Bed {
        proxy,
        address,
        folder,
    } = Bed::new("");
    let file = |name: &str| folder.path().join(name);
    let mut command = Command::new(python);
    command
        .arg(script("http3_client.py"))
        .arg(address.port().to_string())
        .args(["servers.crt", "client.crt", "client.key"].map(file))
        .args(["going", &echo()]);
    let mut client = Running::start(&mut command);
    assert_eq!(client.line(), "open");
    let shutdown = Shutdown::new().unwrap();
    shutdown.request();
    let ending = thread::spawn(move || proxy.run_until(&shutdown).unwrap());
    // H3_REQUEST_REJECTED (RFC 9114, section 5.2).
    assert_eq!(client.all(), ["late 0x10b", "ended"]);
    assert_eq!(ending.join().unwrap(), Ending::Drained);
}

/// A near end of ours whose far end is aioquic, known by the key in its certificate.
#[test]
fn aioquic_is_the_far_end() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(python);
    command.arg(script("http3_proxy.py"));
    let mut far = FarEnd::start(command, folder.path(), &["65536"]);
    // Another's key is refused, and told.
    let stranger = format!("sha256:{}=", "A".repeat(43)).parse().unwrap();
    let refused = NearEnd::start(&far, stranger, None, None);
    until("it is not told", || {
        let status = refused.handle.status(PATIENCE).unwrap();
        status.last_loss.contains(&format!("{} ", far.key))
    });
    assert!(!refused.near.is_up());
    drop(refused);
    let near = NearEnd::start(&far, far.key, None, None);
    near.carries_tcp();
    // It goes away: what stands stays, and what is new goes by another connection.
    let mut standing = near.connect(&echo());
    standing.write_all(b"a").unwrap();
    standing.read_exact(&mut [0]).unwrap();
    let input = far.running.child.stdin.as_mut().unwrap();
    input.write_all(b"go\n").unwrap();
    while far.running.line() != "gone" {}
    standing.write_all(b"b").unwrap();
    standing.read_exact(&mut [0]).unwrap();
    drop(standing);
    until("it does not come again", || {
        near.near.is_up() && near.ask(&echo()) == Ok(())
    });
}

#[test]
fn node_asks_for_tunnels() {
    let Some(node) = node() else { return };
    let bed = Bed::new("");
    let run = |what: &[&str]| bed.client(&node, "http2_client.mjs", what).all();
    let found = Found {
        flight: "1000000",
        end: "half-closed",
        echoed: &["echoed CONNECT", "echoed connect-tcp-12"],
        // CONNECT_ERROR (RFC 9113, section 8.5).
        reset: "reset 10",
        abandoned: Some(ErrorKind::ConnectionReset),
    };
    asks_by_http2(run, &found);
}

/// What a client of HTTP/2 finds, and what an intermediary may make of it.
struct Found<'a> {
    /// How many bytes of an echo may be under way.
    flight: &'a str,
    /// How the client ends it.
    end: &'a str,
    /// What it has of [`echo`].
    echoed: &'a [&'a str],
    /// How it hears of a server's reset.
    reset: &'a str,
    /// How a server hears of its own.
    abandoned: Option<ErrorKind>,
}

fn asks_by_http2(run: impl Fn(&[&str]) -> Vec<String>, found: &Found<'_>) {
    let echoed = run(&["echo", &echo(), "1000000", found.flight, found.end]);
    assert_eq!(echoed, found.echoed);
    let downloaded = run(&["download", &source(4_000_000), "4000000"]);
    assert_eq!(downloaded, ["downloaded 4000000"]);
    assert_eq!(run(&["reset", &resetting()]), [found.reset]);
    let (port, ends) = watching();
    assert_eq!(run(&["abandon", &port]), ["abandoned"]);
    let end = ends.recv_timeout(PATIENCE).unwrap();
    assert_eq!(end, found.abandoned);
    let refused = run(&["refused", &closed()]);
    assert!(
        refused[0].starts_with("502 ") && refused[0].contains("error=connection_refused"),
        "{refused:?}"
    );
}

#[test]
fn curl_goes_by_it() {
    let Some(python) = python() else { return };
    let bed = Bed::new("");
    let url = |port: &str, path: &str| format!("http://127.0.0.1:{port}/{path}");
    let addresses = [
        url(&web(), "3000000"),
        url(&closed(), ""),
        url(&web(), "10"),
    ];
    let addresses = addresses.each_ref().map(String::as_str);
    let came = bed.client(&python, "curl_client.py", &addresses).all();
    // CURLE_COULDNT_CONNECT: the tunnel is refused.
    assert_eq!(came, ["h2 200 3000000 0", "h2 502 0 7", "h2 200 10 0"]);
}

/// Floods and broken frames end their own stream or connection, and friends' tunnels work beside all of them.
#[test]
fn an_enemy_that_speaks_http2_disturbs_nobody() {
    let Some(python) = python() else { return };
    let bed = Bed::new("[limits]\nclient_connections = 64\ntunnels = 200\n");
    let source = source(1_000_000);
    let friend = ["friend.crt", "friend.key"].map(|name| bed.file(name).display().to_string());
    let what = [echo(), source, udp_echo()].into_iter().chain(friend);
    let what: Vec<_> = what.collect();
    let what: Vec<_> = what.iter().map(String::as_str).collect();
    let verdicts = bed.client(&python, "http2_hostile.py", &what);
    let verdicts = verdicts.all();
    let verdict = |attack: &str| {
        let found = verdicts.iter().find_map(|line| line.strip_prefix(attack));
        found.unwrap_or_else(|| panic!("{verdicts:?}"))
    };
    // Where bytes were left unread the kernel resets, and what the proxy said is lost.
    let is_closed = |ended: &str| ended == ": closed" || ended.starts_with(": GOAWAY");
    for attack in ["fields", "continuations", "noise"] {
        let ended = verdict(attack);
        assert!(is_closed(ended), "{attack}{ended}");
    }
    // Ten thousand that are begun and reset are fewer than may be so at once: an outage ends, and all of them come.
    assert!(!is_closed(verdict("resets")), "{verdicts:?}");
    let overrun = verdict("window");
    assert!(
        is_closed(overrun) || overrun.ends_with(" FLOW_CONTROL_ERROR"),
        "{overrun}"
    );
    assert_eq!(verdict("overflow"), ": RST_STREAM FLOW_CONTROL_ERROR");
    assert!(
        verdict("streams").contains("REFUSED_STREAM"),
        "{verdicts:?}"
    );
    // What is cut, or goes on after its end, is a reset; of what is said to be long no more than has come is held.
    let cut = ": RST_STREAM CONNECT_ERROR, RST_STREAM CONNECT_ERROR, goes on, goes on";
    assert_eq!(verdict("cut"), cut);
    // Capsules of UDP, likewise; a good one comes back whatever came before it.
    for (attack, said) in [
        ("udp_cut", ": PING RST_STREAM CONNECT_ERROR"),
        ("udp_malformed", ": PING RST_STREAM CONNECT_ERROR"),
        ("udp_forged", ": PING good"),
        ("udp_lengths", ": PING"),
        ("udp_flood", ": PING"),
    ] {
        assert_eq!(verdict(attack), said, "{attack}");
    }
    let gone = verdict("udp_gone");
    assert!(gone.starts_with(": PING") && !is_closed(gone), "{gone}");
    let friends: u32 = verdict("friends ").parse().unwrap();
    assert!(friends > 0);
}

#[test]
fn haproxy_passes_tunnels_on() {
    let haproxy = program(&["/usr/sbin/haproxy"]);
    let (Some(haproxy), Some(node)) = (haproxy, node()) else {
        return;
    };
    let bed = Bed::new("");
    let port = free_port();
    let config = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n timeout tunnel 1m\n\
         frontend front\n bind 127.0.0.1:{port} proto h2\n default_backend back\n\
         backend back\n server proxy {} ssl crt {} ca-file {} verify required sni str(localhost) alpn h2 proto h2\n",
        bed.address,
        bed.file("client.pem").display(),
        bed.file("servers.crt").display(),
    );
    std::fs::write(bed.file("haproxy.cfg"), config).unwrap();
    let mut command = Command::new(haproxy);
    command.args(["-db", "-f"]).arg(bed.file("haproxy.cfg"));
    let _running = Running::listening(&mut command, port);
    let found = Found {
        // While the buffer of one stream is full HAProxy reads nothing of its connection, not even WINDOW_UPDATE: where more is under
        // way each way than windows allow, which a client may let shrink to half of 64 kB, both sides wait until its timeouts.
        flight: "30000",
        end: "half-closed",
        echoed: &["echoed CONNECT", "echoed connect-tcp-12"],
        // It tells a client of any reset by CANCEL, and a server of none: it ends the stream.
        reset: "reset 8",
        abandoned: None,
    };
    asks_by_http2(|what| bed.by(&node, port, what), &found);
}

#[test]
fn nghttpx_passes_tunnels_on() {
    let nghttpx = program(&["/usr/sbin/nghttpx", "/usr/bin/nghttpx"]);
    let (Some(nghttpx), Some(node)) = (nghttpx, node()) else {
        return;
    };
    let bed = Bed::new("");
    let port = free_port();
    let file = |option: &str, name: &str| format!("--{option}={}", bed.file(name).display());
    let back = format!(
        "127.0.0.1,{};;proto=h2;tls;sni=localhost",
        bed.address.port()
    );
    let mut command = Command::new(nghttpx);
    command
        .args(["--conf=/dev/null", "--http2-proxy", "--single-process"])
        .arg(format!("--frontend=127.0.0.1,{port};no-tls"))
        .arg(format!("--backend={back}"))
        .arg(file("client-cert-file", "client.crt"))
        .arg(file("client-private-key-file", "client.key"))
        .arg(file("cacert", "servers.crt"));
    let _running = Running::listening(&mut command, port);
    let found = Found {
        flight: "1000000",
        // It keeps a client's half-close until the server has ended too, and offers extended CONNECT for nothing but WebSocket.
        end: "reset",
        echoed: &["echoed CONNECT"],
        // It tells a client of a server's reset by an end.
        reset: "reset 0",
        abandoned: Some(ErrorKind::ConnectionReset),
    };
    asks_by_http2(|what| bed.by(&node, port, what), &found);
}
