//! A hostile crowd around a server of Saratoga, with real sockets and files: any datagrams, from several
//! addresses, some of whose senders answer what the server asks, and any record that an earlier session could have
//! left. The server must neither panic nor fall silent, nor leave its directory.
#![no_main]

use bentpipe_base::Rate;
use bentpipe_saratoga::{HoleEnd, echo, sender::Congestion};
use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::{Link, Server, Tree, serve};
use bentpipe_wire::saratoga::{Capabilities, Frame, Request, RequestKind};
use libfuzzer_sys::fuzz_target;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{LazyLock, mpsc};
use std::time::Duration;

/// Where the server is, and its directory.
static SERVED: LazyLock<(SocketAddr, PathBuf)> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("bentpipe-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a directory can be made");
    std::fs::write(folder.join("a"), [7; 5000]).expect("a file can be written");
    let tree = Tree::open(&folder).expect("it can be opened");
    let config = serve::ServerConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        link: Link {
            rate: Rate::from_bits_per_sec(100_000_000),
            packet: 1500,
            congestion: Congestion::None,
            // Sessions of one input must not fill the table for the next.
            silence: Duration::from_millis(300),
            hole_end: HoleEnd::Inclusive,
            timestamps: true,
            peer_port: None,
        },
        put: true,
        delete: false,
        key: None,
        max_size: 1 << 20,
        max_sessions: 64,
        checksum: Algorithm::Crc32c,
        name: None,
    };
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut server = Server::new(tree, config).expect("a port can be had");
        let _ = tell.send(server.address().expect("it has an address"));
        server.run(&AtomicBool::new(false)).expect("it serves");
    });
    (told.recv().expect("it started"), folder)
});

/// Takes what came, and answers questions where `answers`.
fn hear(socket: &UdpSocket, server: SocketAddr, answers: bool) -> bool {
    let mut buffer = [0; 2000];
    let mut heard = false;
    while let Ok(len) = socket.recv(&mut buffer) {
        heard = true;
        if let Ok((Frame::Data(data), _)) = Frame::parse(&buffer[..len])
            && answers
            && data.status_wanted
        {
            let mut octets = Vec::new();
            let _ = echo(data.session, data.timestamp).emit(&mut octets);
            let _ = socket.send_to(&octets, server);
        }
    }
    heard
}

fuzz_target!(|bytes: &[u8]| {
    let (server, folder) = &*SERVED;
    let socket = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_nonblocking(true).expect("it can be set");
        socket
    };
    let peers = [socket(), socket(), socket()];
    // Records of: who, length, content. The fourth of them writes a record of `b`, as a killed session leaves it.
    let mut rest = bytes;
    while let [who, len, tail @ ..] = rest {
        let (octets, next) = tail.split_at((*len as usize).min(tail.len()));
        rest = next;
        match peers.get(usize::from(who % 4)) {
            Some(peer) => {
                let _ = peer.send_to(octets, server);
                hear(peer, *server, who % 4 < 2);
            }
            None => {
                let _ = std::fs::write(folder.join(".b.saratoga-record"), octets);
            }
        }
    }
    // It still answers.
    let peer = socket();
    let mut ask = Vec::new();
    let request = Request {
        capabilities: Capabilities::default(),
        session: 1,
        kind: RequestKind::None,
        late_checksum: false,
        path: String::new(),
        authentication: Vec::new(),
    };
    let _ = Frame::Request(request).emit(&mut ask);
    for wait in 0..2000 {
        if wait % 100 == 0 {
            let _ = peer.send_to(&ask, server);
        }
        std::thread::sleep(Duration::from_micros(200));
        if hear(&peer, *server, false) {
            return;
        }
    }
    panic!("the server says nothing any more");
});
