//! How many connections the carrier knows.

use super::support::pair::{Pair, SCPS, split_one};
use super::support::{Ip, abort, eventually, exchange};
use super::{carried, carry_both_ways};
use bentpipe_os::need;
use bentpipe_os::nft;
use std::io::Write as _;
use std::net::TcpListener;

/// Of SYNs from space that nobody answers no more than `half_open` are known; the others are counted, and who is answered gets through.
#[test]
fn syns_beyond_half_open_are_counted() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let near = split_one(&pair.near, &format!("{SCPS}[limits]\nhalf_open = 4\n"));
    let silent = "table inet silent {
      chain input {
        type filter hook input priority 0; policy accept;
        tcp dport 7 drop
      }
    }";
    pair.client.run(|| nft::apply(silent).unwrap()).unwrap();
    let dial = |port: u16| {
        let to = std::net::SocketAddr::from((Ip::V4.client(), port)).into();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.set_nonblocking(true).unwrap();
        // It is on its way.
        let _ = socket.connect(&to);
        socket
    };
    let waiting = pair.server.run(|| [7; 12].map(dial)).unwrap();
    eventually("SYNs that are forgotten", || {
        near.meter.read().carrier_over_half_open >= 8
    });
    let listening = pair.client.run(|| TcpListener::bind((Ip::V4.client(), 0)));
    let listener = listening.unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let from_space = super::support::connect_in(&pair.server, to).unwrap();
    let (answered, _) = listener.accept().unwrap();
    carry_both_ways((from_space, answered));
    drop(waiting);
}

/// While as many as `flows` are carried, whose bytes have yet to be delivered, a further connection is the kernel's, and counted.
#[test]
fn connections_beyond_flows_are_counted_and_whole() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let near = split_one(&pair.near, &format!("{SCPS}[limits]\nflows = 2\n"));
    let far = split_one(&pair.far, SCPS);
    let both = [(); 2].map(|()| carried(&pair, Ip::V4, &near));
    pair.set_link(false);
    let listener = pair.listen(Ip::V4);
    for (mut client, _) in both {
        client.write_all(&[7; 64 << 10]).unwrap();
        abort(client);
    }
    eventually("the end of both on the ground", || {
        near.handle.status().unwrap().flows.open == 0
    });
    let to = listener.address();
    let client = pair
        .client
        .run(move || std::thread::spawn(move || std::net::TcpStream::connect(to).unwrap()));
    eventually("one that is not carried", || {
        near.meter.read().carrier_over_flows > 0
    });
    pair.set_link(true);
    let mut ends = (client.unwrap().join().unwrap(), listener.accept());
    exchange(&mut ends);
    carry_both_ways(ends);
    drop(far);
}
