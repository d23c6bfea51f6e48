//! `carrier = "scps"`: the satellite leg of split connections by our own TCP, between a pair of gateways and with one alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "carrier/bounds.rs"]
mod bounds;
#[path = "carrier/closed.rs"]
mod closed;
#[path = "carrier/crowd.rs"]
mod crowd;
#[path = "carrier/killed.rs"]
mod killed;
#[path = "carrier/liar.rs"]
mod liar;
#[path = "carrier/other_interface.rs"]
mod other_interface;
#[path = "carrier/path.rs"]
mod path;
#[path = "carrier/plain_link.rs"]
mod plain_link;
#[path = "carrier/reference_peer.rs"]
mod reference_peer;
mod support;

use bentpipe_gateway::Ending;
use bentpipe_os::need;
use bentpipe_os::nft;
use bentpipe_sockets::socket::set_traffic_class;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::ends::{AMOUNT, carry_both_ways, meets_a_reset};
use support::pair::{Pair, SCPS, split_one};
use support::{Ip, Running, abort, child, connect_in, eventually, exchange, in_order, pattern};

/// Within that time a reset is heard.
const SOON: Duration = Duration::from_secs(5);

/// With an environment variable of its own, a gateway to be killed.
#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// A connection that `gateway` carries: on a machine that is busy the carrier may be late for one.
fn carried(pair: &Pair, ip: Ip, gateway: &Running) -> (TcpStream, TcpStream) {
    for _ in 0..10 {
        let before = gateway.meter.read().carried;
        let mut ends = pair.pair(ip);
        exchange(&mut ends);
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            if gateway.meter.read().carried > before {
                return ends;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    panic!("no connection is carried");
}

/// Both gateways speak SCPS-TP on a link that loses packets, and every byte arrives; the server sees the client's address.
#[test]
fn a_pair_carries_every_byte_both_ways() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let pair = Pair::new();
        pair.lose(50);
        let gateways = pair.split(SCPS);
        let ends = carried(&pair, ip, &gateways[0]);
        assert_eq!(ends.1.peer_addr().unwrap(), ends.0.local_addr().unwrap());
        carry_both_ways(ends);
        for gateway in &gateways {
            let counters = gateway.meter.read();
            assert_eq!(counters.carried, 1, "{ip:?}");
            assert!(counters.connected >= 1);
            assert!(counters.carrier_sent_again > 10, "{counters:?}");
            assert!(counters.carrier_snacks > 5, "{counters:?}");
            assert!(counters.carrier_snacks_sent > 5, "{counters:?}");
        }
    }
}

/// Urgent bytes (MSG_OOB) cross the link in their place, as ordinary bytes, both ways.
#[test]
fn urgent_bytes_cross_the_link_in_their_place() {
    need!(Root, Nft, Tproxy);
    const PIECE: usize = 100_000;
    for ip in Ip::BOTH {
        let pair = Pair::new();
        let gateways = pair.split(SCPS);
        for upload in [true, false] {
            let (mut from, mut to) = in_order(carried(&pair, ip, &gateways[0]), upload);
            let bytes = pattern(2 * PIECE + 1);
            thread::scope(|scope| {
                scope.spawn(|| {
                    from.write_all(&bytes[..PIECE]).unwrap();
                    let urgent = &bytes[PIECE..=PIECE];
                    let sent = socket2::SockRef::from(&from).send_out_of_band(urgent);
                    assert_eq!(sent.unwrap(), 1);
                    from.write_all(&bytes[PIECE + 1..]).unwrap();
                    from.shutdown(Shutdown::Write).unwrap();
                });
                let mut got = Vec::new();
                to.read_to_end(&mut got).unwrap();
                assert_eq!(got.len(), bytes.len());
                assert!(got == bytes, "not in order");
            });
        }
    }
}

/// With a far end that speaks TCP alone the leg is TCP with SACK, and is counted.
#[test]
fn a_far_end_without_scps_gets_tcp() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let pair = Pair::new();
        pair.lose(50);
        let near = split_one(&pair.near, SCPS);
        carry_both_ways(pair.pair(ip));
        let counters = near.meter.read();
        assert_eq!((counters.carried, counters.carried_plain), (0, 1));
        assert!(counters.carrier_sent_again > 10, "{counters:?}");
        assert_eq!(counters.carrier_snacks, 0);
    }
}

/// Who is refused hears of it, and where nobody answers there is silence; both by SYNs answered early, too.
#[test]
fn refusal_and_silence_are_as_they_are() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let _gateways = pair.split(SCPS);
    for ip in Ip::BOTH {
        let listener = pair.listen(ip);
        let closed = listener.address();
        drop(listener);
        let refused = connect_in(&pair.client, closed).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{ip:?}");
        let rules = "table inet silent {
           chain input {
             type filter hook input priority 0; policy accept;
             tcp dport 7 drop
           }
         }";
        let silence = || bentpipe_os::nft::apply(rules).unwrap();
        pair.server.run(silence).unwrap();
        let to = (ip.server(), 7).into();
        let dial = || TcpStream::connect_timeout(&to, Duration::from_secs(2));
        let silent = pair.client.run(dial).unwrap().unwrap_err();
        assert_eq!(silent.kind(), ErrorKind::TimedOut, "{ip:?}");
    }
}

/// Each end may end its direction and go on hearing; a reset arrives as one, behind the bytes before it.
#[test]
fn ends_and_resets_go_through() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let _gateways = pair.split(SCPS);
    for ip in Ip::BOTH {
        for client_first in [true, false] {
            let order = |ends| support::in_order(ends, client_first);
            let (mut one, mut other) = order(pair.pair(ip));
            one.write_all(b"question").unwrap();
            one.shutdown(Shutdown::Write).unwrap();
            let mut heard = Vec::new();
            other.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"question");
            other.write_all(b"answer").unwrap();
            drop(other);
            heard.clear();
            one.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"answer");

            let mut ends = pair.pair(ip);
            exchange(&mut ends);
            let (one, mut other) = order(ends);
            abort(one);
            meets_a_reset("the other end", &mut other, SOON);
        }
    }
}

/// When a gateway of the pair is killed, connections are reset at both ends, those on which nothing moves too, and
/// new ones pass.
#[test]
fn a_killed_gateway_resets_both_ends_and_new_connections_pass() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        for near_dies in [true, false] {
            let pair = Pair::new();
            let (dies, lives) = if near_dies {
                (&pair.near, &pair.far)
            } else {
                (&pair.far, &pair.near)
            };
            let survivor = split_one(lives, SCPS);
            let mut victim = child::start_in(dies, SCPS);
            let mut quiet = carried(&pair, ip, &survivor);
            let busy = carried(&pair, ip, &survivor);
            let (mut sender, mut receiver) = busy;
            let writes = thread::spawn(move || while sender.write_all(&[7; 1 << 16]).is_ok() {});
            receiver.read_exact(&mut [0; 1 << 20]).unwrap();
            victim.kill();
            let case = format!("{ip:?}, near dies: {near_dies}");
            meets_a_reset(&format!("{case}, quiet client"), &mut quiet.0, SOON);
            meets_a_reset(&format!("{case}, quiet server"), &mut quiet.1, SOON);
            meets_a_reset(&format!("{case}, busy server"), &mut receiver, SOON);
            writes.join().unwrap();
            carry_both_ways(pair.pair(ip));
            drop(survivor);
        }
    }
}

/// A stopped gateway lets new connections pass, and carries again when it goes on.
#[test]
fn a_stopped_gateway_is_passed() {
    need!(Root, Nft, Tproxy);
    for near_stops in [true, false] {
        let pair = Pair::new();
        let (stops, goes_on) = if near_stops {
            (&pair.near, &pair.far)
        } else {
            (&pair.far, &pair.near)
        };
        let other = split_one(goes_on, SCPS);
        let process = child::start_in(stops, SCPS);
        let mut before = pair.pair(Ip::V4);
        exchange(&mut before);
        process.stop();
        thread::sleep(Duration::from_secs(2));
        exchange(&mut pair.pair(Ip::V4));
        process.signal("-CONT");
        exchange(&mut before);
        eventually("one that is carried again", || {
            let carried = other.meter.read().carried;
            exchange(&mut pair.pair(Ip::V4));
            other.meter.read().carried > carried
        });
    }
}

/// A gateway that is told to end delivers what its carrier has first.
#[test]
fn what_the_carrier_has_is_delivered_before_the_end() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let pair = Pair::new();
        let slow = SCPS.replace("200Mbit/s", "10Mbit/s");
        let [near, far] = pair.split(&slow);
        let (mut client, mut server) = pair.pair(ip);
        client.write_all(&pattern(AMOUNT)).unwrap();
        drop(client);
        server.shutdown(Shutdown::Write).unwrap();
        near.shutdown.request();
        let reader = thread::spawn(move || {
            let mut got = Vec::new();
            server.read_to_end(&mut got).unwrap();
            assert!(got == pattern(AMOUNT), "{} bytes", got.len());
        });
        assert_eq!(near.join(), Ending::Drained);
        reader.join().unwrap();
        drop(far);
    }
}

/// Told by a modem that the link is out, a gateway waits; told that it is back, it goes on at once.
#[test]
fn orders_of_a_modem_are_heard() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let pair = Pair::new();
        let [near, far] = pair.split(SCPS);
        assert!(near.handle.set_link("lan", false).is_err());
        let (mut client, mut server) = pair.pair(ip);
        exchange_between(&mut client, &mut server);
        pair.set_link(false);
        client.write_all(&pattern(AMOUNT)).unwrap();
        near.handle.set_link("sat", false).unwrap();
        eventually("an outage", || near.meter.read().carrier_outages == 1);
        let again = near.meter.read().carrier_sent_again;
        thread::sleep(Duration::from_secs(3));
        assert_eq!(near.meter.read().carrier_sent_again, again);
        pair.set_link(true);
        near.handle.set_link("sat", true).unwrap();
        let mut got = vec![0; AMOUNT];
        server.read_exact(&mut got).unwrap();
        assert!(got == pattern(AMOUNT));
        drop(far);
    }
}

/// What the carrier keeps counts towards `buffered`, and as its connection's: in an outage it fills its buffer, and that connection
/// gets less room.
#[test]
fn what_the_carrier_keeps_counts() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let limits = "send_buffer = \"8MiB\"\n[lan]\nsend_buffer = \"64KiB\"\nreceive_buffer = \"64KiB\"\n[limits]\nbuffered = \"4MiB\"\n";
    let near = split_one(&pair.near, &format!("{SCPS}{limits}"));
    let far = split_one(&pair.far, SCPS);
    let (mut client, mut server) = carried(&pair, Ip::V4, &near);
    pair.set_link(false);
    let writes = thread::spawn(move || {
        let _ = client.write_all(&pattern(6 << 20));
        client
    });
    let buffered = || near.handle.status().unwrap().buffered;
    eventually("a full carrier", || buffered() > 5 << 20);
    eventually("less room", || near.meter.read().shrunk > 0);
    pair.set_link(true);
    let mut got = vec![0; 6 << 20];
    server.read_exact(&mut got).unwrap();
    assert!(got == pattern(6 << 20));
    drop(writes.join().unwrap());
    eventually("an empty carrier", || buffered() < 1 << 20);
    drop(far);
}

fn exchange_between(client: &mut TcpStream, server: &mut TcpStream) {
    support::converse(client, server);
}

/// A successor carries what begins with it, and its predecessor what it has, until that ends; also the other way round, and what
/// is still to be delivered of a connection that has ended here.
#[test]
fn carried_connections_outlive_a_handover() {
    need!(Root, Nft, Tproxy);
    for near_changes in [true, false] {
        let pair = Pair::new();
        let (changes, stays) = if near_changes {
            (&pair.near, &pair.far)
        } else {
            (&pair.far, &pair.near)
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.sock");
        let config = format!("control = \"{}\"\n{SCPS}", path.display());
        let other = split_one(stays, SCPS);
        let mut predecessor = child::start_in(changes, &config);
        let before = Ip::BOTH.map(|ip| carried(&pair, ip, &other));
        let _successor = child::succeed_in(changes, &config);
        let after = Ip::BOTH.map(|ip| carried(&pair, ip, &other));
        let plain = other.meter.read().carried_plain;
        before.into_iter().chain(after).for_each(carry_both_ways);
        let end = || predecessor.child.try_wait().unwrap().is_some();
        eventually("the end of the predecessor", end);
        carry_both_ways(carried(&pair, Ip::V4, &other));
        assert_eq!(other.meter.read().carried_plain, plain);
    }
}

/// Without an order of anybody, a gateway finds out that the link is gone: what is on its way is sent again once at most, all else
/// waits, and goes on when the link is back.
#[test]
fn an_outage_is_found_out_and_outlived() {
    need!(Root, Nft, Tproxy);
    outlive(Duration::from_secs(5), false);
}

/// The outages of half a minute and two minutes, found out and told: `cargo test -p bentpipe-gateway --test carrier -- --ignored
/// long_outages`.
#[test]
#[ignore = "five minutes"]
fn long_outages_are_outlived() {
    need!(Root, Nft, Tproxy);
    for length in [30, 120] {
        for told in [false, true] {
            outlive(Duration::from_secs(length), told);
        }
    }
}

fn outlive(length: Duration, told: bool) {
    const WHOLE: usize = 4 << 20;
    let pair = Pair::new();
    let [near, far] = pair.split(&SCPS.replace("200Mbit/s", "16Mbit/s"));
    let (mut client, mut server) = carried(&pair, Ip::V4, &near);
    let writes = thread::spawn(move || client.write_all(&pattern(WHOLE)));
    let mut got = vec![0; WHOLE];
    server.read_exact(&mut got[..WHOLE / 4]).unwrap();
    pair.set_link(false);
    let order = |is_up| {
        for gateway in [&near, &far].into_iter().filter(|_| told) {
            gateway.handle.set_link("sat", is_up).unwrap();
        }
    };
    order(false);
    eventually("an outage", || near.meter.read().carrier_outages == 1);
    let again = near.meter.read().carrier_sent_again;
    thread::sleep(length);
    // One segment for each of two timeouts, a probe of the tail, and what was called for before.
    assert!(again < 10, "{again} sent again");
    assert_eq!(near.meter.read().carrier_sent_again, again, "in the outage");
    pair.set_link(true);
    order(true);
    let begun = Instant::now();
    server.read_exact(&mut got[WHOLE / 4..WHOLE / 2]).unwrap();
    let first = begun.elapsed();
    server.read_exact(&mut got[WHOLE / 2..]).unwrap();
    assert!(got == pattern(WHOLE));
    writes.join().unwrap().unwrap();
    // A probe each half second, and half a second for this quarter; a busy machine adds to it.
    assert!(first < Duration::from_secs(4), "{first:?}");
}

/// Ten connections have alike of the link.
#[test]
fn ten_connections_share_the_link_alike() {
    const WHOLE: u64 = 8 << 20;
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let gateways = pair.split(&SCPS.replace("200Mbit/s", "40Mbit/s"));
    let ends: Vec<_> = (0..10)
        .map(|_| carried(&pair, Ip::V4, &gateways[0]))
        .collect();
    // On a busy machine they take longer, and share alike all the same.
    let (all, patience) = (AtomicU64::new(0), Instant::now() + support::PATIENCE);
    let goes_on = || all.load(Ordering::Relaxed) < WHOLE && Instant::now() < patience;
    let take = &|client: &TcpStream| {
        let (mut client, mut buffer, mut amount) = (client, [0; 16 << 10], 0);
        while goes_on() {
            let length = client.read(&mut buffer).unwrap() as u64;
            all.fetch_add(length, Ordering::Relaxed);
            amount += length;
        }
        // Whoever writes to it ends.
        let _ = client.shutdown(Shutdown::Both);
        amount as f64
    };
    let amounts: Vec<f64> = thread::scope(|scope| {
        let readers: Vec<_> = ends
            .iter()
            .map(|(client, server)| {
                scope.spawn(move || {
                    let mut server = server;
                    while server.write_all(&[7; 8 << 10]).is_ok() {}
                });
                scope.spawn(move || take(client))
            })
            .collect();
        readers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (sum, squares) = amounts.iter().fold((0.0, 0.0), |(sum, squares), one| {
        (sum + one, squares + one * one)
    });
    let jain: f64 = sum * sum / (10.0 * squares);
    // In the lab, and with processors to spare, at least 0.99.
    assert!(jain >= 0.95, "{jain}: {amounts:?}");
}

/// Connections whose addresses the gateway translates are the kernel's TCP, and whole.
#[test]
fn translated_connections_are_the_kernels() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let masquerade = "table ip translation {
      chain postrouting {
        type nat hook postrouting priority 100; policy accept;
        oifname sat0 masquerade
      }
    }";
    pair.near.run(|| nft::apply(masquerade).unwrap()).unwrap();
    let [near, far] = pair.split(SCPS);
    let mut ends = pair.pair(Ip::V4);
    exchange(&mut ends);
    assert_ne!(ends.1.peer_addr().unwrap().ip(), Ip::V4.client());
    carry_both_ways(ends);
    let counters = near.meter.read();
    assert_eq!(
        (counters.connected, counters.carried, counters.carried_plain),
        (1, 0, 0)
    );
    drop(far);
}

/// Data has the code point (DSCP) of its connection on the link too.
#[test]
fn a_code_point_crosses_the_link() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    for netns in [&pair.near, &pair.far] {
        let count = "table inet seen {
          counter af41 {
          }
          counter other {
          }
          chain input {
            type filter hook prerouting priority -500; policy accept;
            iifname != sat0 accept
            tcp flags & psh == 0 accept
            ip dscp af41 counter name af41 accept
            ip6 dscp af41 counter name af41 accept
            meta l4proto tcp counter name other
          }
        }";
        netns.run(|| nft::apply(count).unwrap()).unwrap();
    }
    let [near, far] = pair.split(SCPS);
    for ip in Ip::BOTH {
        let listener = pair.listen(ip);
        let to = listener.address();
        let dial = || {
            let domain = socket2::Domain::for_address(to);
            let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
            set_traffic_class(&socket, to, 34 << 2).unwrap();
            socket.connect(&to.into()).unwrap();
            TcpStream::from(socket)
        };
        let mut client = pair.client.run(dial).unwrap();
        let mut server = listener.accept();
        support::converse(&mut client, &mut server);
    }
    assert_eq!(near.meter.read().carried, 2);
    for netns in [&pair.near, &pair.far] {
        let counts = netns.run(|| {
            let mut tally = nft::Tally::open().unwrap();
            tally.read(nft::TableFamily::Inet, "seen").unwrap()
        });
        let counts = counts.unwrap();
        let of = |name| {
            counts
                .iter()
                .find(|count| count.name == name)
                .unwrap()
                .packets
        };
        assert!(of("af41") >= 2 && of("other") == 0, "{counts:?}");
    }
    drop(far);
}
