//! How many connections the carrier knows.

use super::carried;
use super::support::ends::carry_both_ways;
use super::support::pair::{Pair, SCPS, split_one};
use super::support::{Ip, eventually, exchange};
use bentpipe_os::need;
use bentpipe_os::nft;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};

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
    // The servers have said all that they have to say.
    for (client, server) in &both {
        let mut client = client;
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
    // Handshakes go on: a dial that is not answered at once would pass unsplit.
    let outage = "table inet outage {
      chain input {
        type filter hook prerouting priority -400; policy accept;
        iifname sat0 tcp flags & syn == 0 drop
      }
    }";
    for netns in [&pair.near, &pair.far] {
        netns.run(|| nft::apply(outage).unwrap()).unwrap();
    }
    let servers = both.map(|(mut client, server)| {
        client.write_all(&[7; 64 << 10]).unwrap();
        server
    });
    eventually("the end of both on the ground", || {
        near.handle.status().unwrap().flows.open == 0
    });
    let listener = pair.listen(Ip::V4);
    let client = pair.connect(listener.address());
    eventually("one that is not carried", || {
        near.meter.read().carrier_over_flows > 0
    });
    pair.set_link(true);
    let mut ends = (client, listener.accept());
    exchange(&mut ends);
    carry_both_ways(ends);
    drop((servers, far));
}
