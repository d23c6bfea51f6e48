//! Connections that stand and are not split: what is forged in their names does them no more harm than without a gateway.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Seq;
use bentpipe_gateway::Handshake;
use bentpipe_os::{need, nft};
use bentpipe_wire::Flags;
use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::time::Duration;
use support::{HANDSHAKES, Ip, Running, Stage, abort, converse, eventually, flood};

/// An end that has the connection answers a SYN by a challenge ACK (RFC 5961), and goes on; where its address is translated,
/// too.
#[test]
fn one_forged_syn_ends_no_connection_that_passes_unsplit() {
    need!(Root, Tproxy);
    for (by_the_server, masquerades) in [(true, false), (false, false), (false, true)] {
        for ip in Ip::BOTH {
            let stage = Stage::new();
            if masquerades {
                stage.apply(
                "table inet own { chain post { type nat hook postrouting priority srcnat; policy accept;
                   oifname lan0 masquerade
                 } }",
            );
            }
            let (mut client, mut server) = stage.pair(ip);
            let gateway = stage.split_after(Handshake::EndToEnd);
            let ends = (client.local_addr().unwrap(), server.local_addr().unwrap());
            let (netns, (from, to)) = if by_the_server {
                (&stage.server, (ends.1, ends.0))
            } else {
                (&stage.client, ends)
            };
            for number in 1..=3 {
                flood::forge(netns, from, to, Seq(4711 * number));
                std::thread::sleep(Duration::from_millis(100));
                converse(&mut client, &mut server);
            }
            eventually("the SYN passes", || gateway.meter.read().unanswered > 0);
            converse(&mut client, &mut server);
            // No other takes that connection's packets again.
            let before = gateway.meter.read();
            for number in 1..=3 {
                flood::forge(netns, from, to, Seq(5000 + number));
                let passed = before.unanswered + u64::from(number);
                eventually("it passes", || gateway.meter.read().unanswered >= passed);
            }
            converse(&mut client, &mut server);
            let counters = gateway.meter.read();
            assert_eq!((counters.held, counters.connected), (before.held, 0));
        }
    }
}

/// Answered early, its packets meet what the kernel keeps of the forged SYN, for as long as it does. It lives on.
#[test]
fn one_forged_syn_that_is_answered_resets_no_connection_that_passes_unsplit() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let (mut client, mut server) = stage.pair(Ip::V4);
    let gateway = stage.split_after(Handshake::Early);
    let ends = (client.local_addr().unwrap(), server.local_addr().unwrap());
    flood::forge(&stage.client, ends.0, ends.1, Seq(4711));
    eventually("the answer", || gateway.meter.read().early == 1);
    // The last repetition of the answer was five seconds ago.
    std::thread::sleep(Duration::from_millis(12_500));
    converse(&mut client, &mut server);
}

/// The client's SYN is held, the server does not hear the dial's and answers with `flags` what was never sent. The SYN passes then;
/// returns how many resets came to the server.
fn answer_wrongly(stage: &Stage, gateway: &Running, server: SocketAddr, flags: Flags) -> u64 {
    let ip = if server.is_ipv4() { Ip::V4 } else { Ip::V6 };
    let client = SocketAddr::new(ip.client(), 5555);
    let rules = |rules: &'static str| stage.server.run(|| nft::apply(rules).unwrap()).unwrap();
    rules(
        "table inet deaf { chain input {
           type filter hook input priority 0
           tcp flags & (syn | ack) == syn drop
           tcp flags rst counter
         }
         }",
    );
    flood::forge(&stage.client, client, server, Seq(4711));
    eventually("the dial", || gateway.meter.read().held == 1);
    flood::forge_answer(&stage.server, server, client, flags);
    eventually("the SYN passes", || gateway.meter.read().unanswered == 1);
    let seen = || nft::list(&["table", "inet", "deaf"]).unwrap();
    let seen = stage.server.run(seen).unwrap();
    rules("delete table inet deaf");
    let (_, count) = seen.split_once("packets ").unwrap();
    count.split(' ').next().unwrap().parse().unwrap()
}

/// One acknowledgement that somebody forges in a server's name has the connection pass that is dialled at that moment, and no
/// other.
#[test]
fn a_forged_acknowledgement_has_no_later_connection_pass() {
    need!(Root, Tproxy, Nft);
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let gateway = stage.split_after(Handshake::EndToEnd);
        let listener = stage.listen(ip);
        answer_wrongly(&stage, &gateway, listener.address(), Flags::ACK);
        let (mut client, mut server) = (stage.connect(listener.address()), listener.accept());
        converse(&mut client, &mut server);
        eventually("that it is split", || gateway.meter.read().connected == 1);
    }
}

/// The server may be answering a SYN that came before, and passed: a reset by the dial would end what it has begun.
#[test]
fn the_answer_to_another_syn_has_no_reset_leave() {
    need!(Root, Tproxy, Nft);
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let gateway = stage.split_after(Handshake::EndToEnd);
        let listener = stage.listen(ip);
        let both = Flags::SYN | Flags::ACK;
        let resets = answer_wrongly(&stage, &gateway, listener.address(), both);
        assert_eq!(resets, 0);
    }
}

/// A client that has lost power has no such connection any more when it uses its port again: it resets what the server has
/// (RFC 9293, section 3.5.1), and sends its SYN again.
#[test]
fn a_client_that_has_lost_its_connection_begins_again_from_the_same_port() {
    need!(Root, Tproxy, Nft);
    for handshake in HANDSHAKES {
        let stage = Stage::new();
        let lost = Ip::BOTH.map(|ip| {
            let listener = stage.listen(ip);
            let client = stage.connect(listener.address());
            (listener.accept(), client, listener)
        });
        let rules = |rules: &'static str| stage.client.run(|| nft::apply(rules).unwrap()).unwrap();
        rules(
            "table inet lost { chain output {
               type filter hook output priority 0
               meta l4proto tcp drop
             }
             }",
        );
        let lost = lost.map(|(server, client, listener)| {
            let from = client.local_addr().unwrap();
            abort(client);
            (server, from, listener)
        });
        rules("delete table inet lost");
        let gateway = stage.split_after(handshake);
        for (mut before, from, listener) in lost {
            let mut client = stage.connect_from(from, listener.address());
            let mut server = listener.accept();
            assert_eq!(server.peer_addr().unwrap(), from);
            converse(&mut client, &mut server);
            let error = before.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        if handshake == Handshake::Early {
            assert_eq!(gateway.meter.read().connected, 2);
        }
    }
}

/// Its host resets the answers to SYNs that somebody forges in its name. They come into the queue again and again, as those do that
/// are lost on the way to a listener, and no connection of its own passes for that.
#[test]
fn forged_syns_have_no_connection_of_that_client_pass() {
    need!(Root, Tproxy);
    for handshake in HANDSHAKES {
        for ip in Ip::BOTH {
            let stage = Stage::new();
            let gateway = stage.split_after(handshake);
            let listener = stage.listen(ip);
            let forged = SocketAddr::new(ip.client(), 4711);
            for number in 0..3 {
                flood::forge(&stage.client, forged, listener.address(), Seq(7));
                eventually("it is seen", || gateway.meter.read().repeated >= number);
                std::thread::sleep(Duration::from_millis(600));
            }
            eventually("the last passes", || gateway.meter.read().unanswered == 1);
            let mut client = stage.connect(listener.address());
            let ends = client.local_addr().unwrap();
            // Those that were forged may have become connections of the server.
            let mut server = loop {
                let server = listener.accept();
                if server.peer_addr().is_ok_and(|peer| peer == ends) {
                    break server;
                }
            };
            converse(&mut client, &mut server);
            let counters = gateway.meter.read();
            assert_eq!((counters.unanswered, counters.connected), (1, 1));
        }
    }
}
