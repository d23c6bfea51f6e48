//! `carrier = "scps"`: the satellite leg of split connections by our own TCP, between a pair of gateways and with one alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Ending;
use bentpipe_os::need;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use support::pair::{Pair, SCPS, split_one};
use support::{Ip, Running, abort, child, connect_in, eventually, exchange, pattern};

/// Bytes that are carried each way.
const AMOUNT: usize = 2 << 20;

/// With an environment variable of its own, a gateway to be killed.
#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// Carries [`AMOUNT`] bytes each way at the same time, and their ends.
fn carry_both_ways(ends: (TcpStream, TcpStream)) {
    let (client, server) = ends;
    thread::scope(|scope| {
        for end in [&client, &server] {
            scope.spawn(move || {
                let mut end = end;
                end.write_all(&pattern(AMOUNT)).unwrap();
                end.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let (mut end, mut got) = (end, Vec::new());
                end.read_to_end(&mut got).unwrap();
                assert!(got == pattern(AMOUNT), "other bytes: {}", got.len());
            });
        }
    });
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

/// Waits until a read finds a reset.
fn meets_a_reset(what: &str, stream: &mut TcpStream) {
    let begun = Instant::now();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(1..) => {}
            Ok(0) => panic!("{what}: an end in the place of a reset"),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{what}: {took:?}");
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
            meets_a_reset("the other end", &mut other);
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
            let (dies, lives) = match near_dies {
                true => (&pair.near, &pair.far),
                false => (&pair.far, &pair.near),
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
            meets_a_reset(&format!("{case}, quiet client"), &mut quiet.0);
            meets_a_reset(&format!("{case}, quiet server"), &mut quiet.1);
            meets_a_reset(&format!("{case}, busy server"), &mut receiver);
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
        let (stops, goes_on) = match near_stops {
            true => (&pair.near, &pair.far),
            false => (&pair.far, &pair.near),
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
    let pair = Pair::new();
    let slow = SCPS.replace("200Mbit/s", "10Mbit/s");
    let [near, far] = pair.split(&slow);
    let (mut client, mut server) = pair.pair(Ip::V4);
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

/// Told by a modem that the link is out, a gateway waits; told that it is back, it goes on at once.
#[test]
fn orders_of_a_modem_are_heard() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let [near, far] = pair.split(SCPS);
    assert!(near.handle.set_link("lan", false).is_err());
    let (mut client, mut server) = pair.pair(Ip::V4);
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

fn exchange_between(client: &mut TcpStream, server: &mut TcpStream) {
    support::converse(client, server);
}
