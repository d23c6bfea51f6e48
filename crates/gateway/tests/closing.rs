//! How connections end: half-close, reset, refusal, and the gateway's own death.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Bytes;
use bentpipe_os::need;
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_os::netns::Netns;
use bentpipe_os::sweep::sweep;
use bentpipe_sockets::tcp;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::{Ip, Stage, abort, child, eventually, in_order, pattern, splitting};

/// What reading the rest of a stream comes to.
fn rest(stream: &mut TcpStream) -> Result<Vec<u8>, ErrorKind> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(error.kind()),
    }
}

#[test]
fn half_close_works_both_ways() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        for client_first in [true, false] {
            let (mut first, mut second) = in_order(stage.pair(ip), client_first);
            first.write_all(b"question").unwrap();
            first.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rest(&mut second).unwrap(), b"question");
            // The other direction is as alive as before, also after a while.
            std::thread::sleep(Duration::from_millis(50));
            for part in [&b"ans"[..], b"wer"] {
                second.write_all(part).unwrap();
                first.read_exact(&mut [0; 3]).unwrap();
            }
            second.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rest(&mut first).unwrap(), b"");
        }
    }
    eventually("orderly ends", || gateway.meter.read().finished == 4);
    assert_eq!(gateway.meter.read().reset, 0);
}

/// Who has closed knows nothing of the connection a little later, and would answer a probe by a reset, as it does what the other end still
/// says. What it said arrives all the same, however long that takes, and then the reset; both ways.
#[test]
fn what_was_said_before_a_close_arrives_however_slowly_it_is_read() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    for netns in [&stage.client, &stage.server] {
        netns.set_sysctl("net.ipv4.tcp_fin_timeout", "2").unwrap();
    }
    let mut config = Stage::config();
    config.limits.keepalive = Duration::from_secs(2);
    let gateway = stage.split_by(config);
    let bytes = pattern(2 << 20);
    let ways = [(false, false), (true, false), (false, true)];
    let mut readers = Vec::new();
    for (speaks, resets) in ways {
        for client_first in [true, false] {
            for ip in Ip::BOTH {
                let (mut first, mut second) = in_order(stage.pair(ip), client_first);
                first.write_all(&bytes).unwrap();
                if resets {
                    second.write_all(b"wait").unwrap();
                }
                // Its end is here before the other one speaks: a host that has not sent its end yet answers by a reset in its place.
                first.shutdown(Shutdown::Write).unwrap();
                eventually("the bytes", || {
                    tcp::unacknowledged(&first).unwrap() == Bytes(0)
                });
                if resets {
                    // It has said all, and does not read what the other end says.
                    abort(first);
                } else {
                    drop(first);
                }
                if speaks {
                    second.write_all(b"and now?").unwrap();
                }
                readers.push((second, speaks || resets));
            }
        }
    }
    // Until its host has forgotten it, it would have been probed, and the rest thrown away after that; so it would five seconds after it
    // was spoken to.
    std::thread::sleep(Duration::from_secs(11));
    for (mut reader, is_reset) in readers {
        assert!(rest(&mut reader).unwrap() == bytes);
        if is_reset {
            // What it said came to nobody.
            eventually("the reset", || tcp::is_over(&reader));
        }
    }
    eventually("ends", || gateway.meter.read().open == 0);
    let counters = gateway.meter.read();
    assert_eq!((counters.finished, counters.reset), (4, 8));
}

/// What little one end has said last arrives, though its reader stands still, or the path is away: the kernel would give up a connection that
/// nobody holds any more after 100 s without an acknowledgement, and five minutes of a closed window, or sooner where it is told to.
#[test]
fn what_was_said_last_arrives_however_long_its_reader_or_the_path_stands_still() {
    need!(Root, Tproxy);
    for is_away in [false, true] {
        let stage = Stage::new();
        let tell = |netns: &Netns, key, value| netns.set_sysctl(key, value).unwrap();
        tell(&stage.gateway, "net.ipv4.tcp_orphan_retries", "1");
        if !is_away {
            for netns in [&stage.client, &stage.server] {
                tell(netns, "net.ipv4.tcp_rmem", "4096 4096 4096");
            }
        }
        let outage = || {
            let rules = "table inet away {\nchain come { type filter hook prerouting priority raw; tcp flags & (syn | rst) == 0 drop;\n}\n}";
            bentpipe_os::nft::apply(rules).unwrap();
        };
        let back = || bentpipe_os::nft::apply("delete table inet away").unwrap();
        let gateway = stage.split();
        let bytes = pattern(12_000);
        let mut ends = Vec::new();
        for ip in Ip::BOTH {
            for client_first in [true, false] {
                let (mut first, second) = in_order(stage.pair(ip), client_first);
                second.shutdown(Shutdown::Write).unwrap();
                assert_eq!(rest(&mut first), Ok(Vec::new()));
                let reader = [&stage.client, &stage.server][usize::from(client_first)];
                ends.push((first, second, reader));
            }
        }
        for (first, _, reader) in &mut ends {
            if is_away {
                reader.run(outage).unwrap();
            }
            first.write_all(&bytes).unwrap();
            first.shutdown(Shutdown::Write).unwrap();
            if is_away {
                // The other end of the path goes on: its own bytes have been acknowledged.
                eventually("the bytes", || {
                    tcp::unacknowledged(&*first).unwrap() == Bytes(0)
                });
                std::thread::sleep(Duration::from_secs(3));
                reader.run(back).unwrap();
            }
        }
        std::thread::sleep(Duration::from_secs(4));
        for (_first, mut second, _) in ends {
            assert!(rest(&mut second).as_ref() == Ok(&bytes), "{is_away}");
        }
        eventually("ends", || gateway.meter.read().open == 0);
        let counters = gateway.meter.read();
        assert_eq!((counters.finished, counters.reset), (4, 0));
    }
}

/// Data and FIN in one segment: a short read does not mean that nothing is left.
#[test]
fn an_end_that_comes_with_the_data_is_not_lost() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        for _ in 0..20 {
            let (mut client, mut server) = stage.pair(ip);
            support::cork(&client);
            client.write_all(b"all at once").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rest(&mut server).unwrap(), b"all at once");
        }
    }
    drop(gateway);
}

#[test]
fn a_reset_passes_both_ways() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        for client_first in [true, false] {
            let (first, mut second) = in_order(stage.pair(ip), client_first);
            let start = Instant::now();
            abort(first);
            assert_eq!(rest(&mut second), Err(ErrorKind::ConnectionReset));
            assert!(start.elapsed() < Duration::from_secs(2));
        }
    }
    eventually("the end of the flows", || gateway.meter.read().open == 0);
    assert_eq!(gateway.meter.read().reset, 4);
}

/// After a half-close, too, a reset stays a reset, in both directions of the half-open stream.
#[test]
fn a_reset_after_a_half_close_passes() {
    need!(Root, Tproxy);
    let (stage, _gateway) = splitting();
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut server).unwrap(), b"");
        abort(server);
        assert_eq!(rest(&mut client), Err(ErrorKind::ConnectionReset));

        let (client, mut server) = stage.pair(ip);
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut server).unwrap(), b"");
        abort(client);
        // The client's reset meets a server that goes on writing.
        eventually("the reset at the server", || server.write(b"x").is_err());
    }
}

/// What was sent before a reset arrives before it, as on a plain path.
#[test]
fn bytes_before_a_reset_arrive_before_it() {
    need!(Root, Tproxy);
    let (stage, _gateway) = splitting();
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        let sent = pattern(60_000);
        // The server refuses an upload: it answers, and resets because it did not read it all.
        client.write_all(b"upload").unwrap();
        server.write_all(&sent).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        abort(server);
        let mut got = vec![0; sent.len()];
        client.read_exact(&mut got).unwrap();
        assert!(got == sent);
        assert_eq!(rest(&mut client), Err(ErrorKind::ConnectionReset));
    }
}

/// A reset that comes while the reader has yet to read: the bytes before it first, then the reset.
#[test]
fn a_reset_waits_for_a_slow_reader() {
    need!(Root, Tproxy);
    let (stage, _gateway) = splitting();
    for ip in Ip::BOTH {
        let (mut client, mut server) = stage.pair(ip);
        let sent = pattern(1_500_000);
        server.write_all(&sent).unwrap();
        eventually("all bytes at the gateway", || {
            tcp::unacknowledged(&server).unwrap() == Bytes(0)
        });
        abort(server);
        std::thread::sleep(Duration::from_millis(300));
        let mut got = vec![0; sent.len()];
        client.read_exact(&mut got).unwrap();
        assert!(got == sent);
        assert_eq!(rest(&mut client), Err(ErrorKind::ConnectionReset));
    }
}

/// But not for ever: a reader that stands still is reset within the grace.
#[test]
fn a_reset_does_not_wait_for_ever() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    let clients = Ip::BOTH.map(|ip| {
        let (client, mut server) = stage.pair(ip);
        server.write_all(&pattern(1_500_000)).unwrap();
        abort(server);
        client
    });
    eventually("the end of the grace", || gateway.meter.read().open == 0);
    for mut client in clients {
        assert_eq!(rest(&mut client), Err(ErrorKind::ConnectionReset));
    }
}

#[test]
fn a_refused_destination_gives_the_client_a_reset() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_by(Stage::early());
    for ip in Ip::BOTH {
        let closed = stage.listen(ip).address();
        expect_reset(&stage, closed);
    }
    assert_eq!(gateway.meter.read().refused, 2);
}

/// A neighbour that does not answer, the server itself or the router before it: after its three
/// solicitations (3 s) the client hears of it, as it would without us.
#[test]
fn an_unreachable_destination_gives_the_client_a_reset() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_by(Stage::early());
    let mut destinations = Vec::new();
    for ip in Ip::BOTH {
        let there = Route::via(Prefix::host(ip.beyond()), ip.nobody());
        stage.gateway.netlink().unwrap().add_route(&there).unwrap();
        destinations.extend([ip.nobody(), ip.beyond()]);
    }
    std::thread::scope(|scope| {
        for destination in &destinations {
            scope.spawn(|| expect_reset(&stage, SocketAddr::new(*destination, 80)));
        }
    });
    assert_eq!(gateway.meter.read().unreachable, 4);
}

/// An ICMP error from a router beyond the gateway ends the dial at once.
#[test]
fn an_icmp_unreachable_from_beyond_gives_the_client_a_reset() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = stage.split_by(Stage::early());
    for ip in Ip::BOTH {
        let beyond = ip.beyond();
        let there = Route::via(Prefix::host(beyond), ip.server());
        stage.gateway.netlink().unwrap().add_route(&there).unwrap();
        stage.server_refuses_to_route(ip);
        let start = Instant::now();
        expect_reset(&stage, SocketAddr::new(beyond, 80));
        assert!(start.elapsed() < Duration::from_secs(2), "{ip:?}");
    }
    assert_eq!(gateway.meter.read().unreachable, 2);
}

fn expect_reset(stage: &Stage, to: SocketAddr) {
    let outcome = stage.try_connect(to).and_then(|mut stream| {
        let mut byte = [0];
        stream.read(&mut byte)
    });
    let error = outcome.expect_err("the client saw an orderly end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{to}");
}

/// `kill -9` in the middle of a transfer: both sides see a reset, never an end with bytes missing.
#[test]
fn a_killed_gateway_resets_both_sides() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut gateway = child::start(&stage, "");
    let mut ends = Vec::new();
    for ip in Ip::BOTH {
        for busy in [false, true] {
            let (mut client, server) = stage.pair(ip);
            if busy {
                // The server does not read: bytes wait in the gateway when it dies.
                client.set_nonblocking(true).unwrap();
                eventually("a full path", || {
                    client.write(&[7; 65_536]).is_err() && {
                        std::thread::sleep(Duration::from_millis(30));
                        client.write(&[7; 65_536]).is_err()
                    }
                });
                client.set_nonblocking(false).unwrap();
            }
            ends.push((client, server));
        }
    }
    gateway.kill();
    for (mut client, mut server) in ends {
        assert_eq!(rest(&mut client), Err(ErrorKind::ConnectionReset));
        assert_eq!(rest(&mut server), Err(ErrorKind::ConnectionReset));
    }
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// A flow of which both directions have ended, and the client has not read what the server sent.
fn ended_with_bytes_to_come(stage: &Stage, ip: Ip) -> TcpStream {
    let (mut client, mut server) = stage.pair(ip);
    support::set_buffers(&server, &client, 8192);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.read_to_end(&mut Vec::new()).unwrap();
    server.write_all(&pattern(1_000_000)).unwrap();
    drop(server);
    client
}

/// What an end gets that was not told of all bytes before the gateway went: never silence, nor an orderly end.
fn is_told(client: &mut TcpStream) {
    let mut got = Vec::new();
    let error = client.read_to_end(&mut got).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::ConnectionReset,
        "{} bytes",
        got.len()
    );
    assert!(got.len() < 1_000_000);
}

/// What both ends believe to be over is reset when the gateway ends or is killed before all has arrived.
#[test]
fn a_finished_flow_with_bytes_to_come_is_reset_when_the_gateway_ends() {
    need!(Root, Tproxy);
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let gateway = stage.split();
        let mut client = ended_with_bytes_to_come(&stage, ip);
        eventually("the end of the flow", || gateway.meter.read().finished == 1);
        assert_eq!(gateway.meter.read().open, 1);
        drop(gateway);
        is_told(&mut client);

        let mut gateway = child::start(&stage, "");
        let mut client = ended_with_bytes_to_come(&stage, ip);
        std::thread::sleep(Duration::from_millis(300));
        gateway.kill();
        stage.gateway.run(sweep).unwrap();
        is_told(&mut client);
    }
}

/// Until then it is kept, and delivered to the last byte.
#[test]
fn a_finished_flow_is_kept_until_all_has_arrived() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let mut client = ended_with_bytes_to_come(&stage, ip);
        eventually("the end of the flow", || gateway.meter.read().open == 1);
        std::thread::sleep(Duration::from_millis(200));
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert!(got == pattern(1_000_000));
        eventually("no flow", || gateway.meter.read().open == 0);
    }
    assert_eq!(gateway.meter.read().finished, 2);
}
