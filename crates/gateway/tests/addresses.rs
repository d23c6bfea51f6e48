//! Who is seen by whom, and what is intercepted at all.

mod support;

use bentpipe_os::need;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use support::{Ip, Stage, connect_in, eventually};

#[test]
fn the_server_sees_the_clients_address_and_port() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split();
    for ip in Ip::BOTH {
        let (client, server) = stage.pair(ip);
        assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
        assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    }
    eventually("both connections", || gateway.meter.read().connected == 2);
    assert_eq!(gateway.meter.read().other_port, 0);
}

#[test]
fn both_directions_are_split_by_default() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split();
    for ip in Ip::BOTH {
        let listener = stage.listen_in(&stage.client, ip.client());
        let near = connect_in(&stage.server, listener.address()).unwrap();
        let far = listener.accept();
        assert_eq!(far.peer_addr().unwrap(), near.local_addr().unwrap());
    }
    eventually("both connections", || gateway.meter.read().connected == 2);
}
