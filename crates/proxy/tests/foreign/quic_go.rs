//! quic-go as a client of the proxy and as another's far end, with masque-go for UDP.

use crate::asks_as_any_client;
use crate::bed::*;
use crate::near_end::*;
use crate::servers::*;
use bentpipe_tunnel_sockets::CertificateFiles;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

/// What `scripts/setup test` builds of `foreign/go`.
fn quic_go(role: &str) -> Option<Command> {
    let mut command = Command::new(program(&["target/go/foreign"])?);
    command.arg(role);
    Some(command)
}

#[test]
fn quic_go_asks_for_tunnels() {
    let Some(_) = quic_go("client") else { return };
    let bed = Bed::new("");
    let run = |what: &[&str]| {
        let mut command = quic_go("client").unwrap();
        bed.client_by(&mut command, what).all()
    };
    let echoed = run(&["echo", &echo(), "1000000"]);
    assert_eq!(echoed, ["echoed connect-tcp-12", "echoed CONNECT"]);
    asks_as_any_client(run);
    let flows = run(&["udp", &udp_echo()]);
    let carried = ["status 200 ?1", "datagrams 10"];
    assert_eq!(flows[..4], [carried, carried].concat());
    assert!(
        flows[4].starts_with("refused 403 ")
            && flows[4].contains("error=destination_ip_prohibited"),
        "{flows:?}"
    );
}

#[test]
fn quic_go_is_the_far_end() {
    let Some(command) = quic_go("proxy") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let clients = authority(folder.path(), "clients");
    issue(folder.path(), &clients, "client");
    let authorities = file("clients.crt");
    let mut far = FarEnd::start(command, folder.path(), &[authorities.to_str().unwrap()]);
    // It wants a certificate.
    let without = NearEnd::start(&far, far.key, None, None);
    until("it is not told", || {
        let status = without.handle.status(PATIENCE).unwrap();
        status.last_loss.contains("wants a certificate")
    });
    drop(without);
    let shown = CertificateFiles {
        chain: file("client.crt"),
        key: Some(file("client.key")),
        authorities: None,
        revoked: None,
    };
    let server = udp_echo();
    let near = NearEnd::start(&far, far.key, Some(&shown), Some(&server));
    near.carries_tcp();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(near.udp.unwrap()).unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    for number in 0..10_u8 {
        let payload = vec![number; 100 * usize::from(number) + 1];
        // quic-go drops what comes before it has looked at the request: a client says it again.
        until("a datagram does not come back", || {
            client.send(&payload).unwrap();
            let mut buffer = [0; 2048];
            let came = client.recv(&mut buffer);
            came.is_ok_and(|len| buffer[..len] == payload)
        });
    }
    let asked = format!("asked connect-udp 127.0.0.1:{server} by client");
    while far.running.line() != asked {}
}
