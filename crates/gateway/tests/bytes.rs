//! Every byte, in order, in time, and never more of them held than allowed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Bytes;
use bentpipe_gateway::Config;
use bentpipe_os::{need, nft};
use bentpipe_sockets::tcp;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::{Ip, Stage, eventually, in_order, pattern, splitting};

/// Writes `bytes` in pieces of many sizes, then closes at once.
fn write_and_close(mut stream: TcpStream, bytes: &[u8]) {
    let sizes = [1, 7, 100, 1448, 5000, 16_384, 16_385, 70_000, 300_000];
    let mut left = bytes;
    for size in sizes.into_iter().cycle() {
        let (piece, after) = left.split_at(size.min(left.len()));
        stream.write_all(piece).unwrap();
        left = after;
        if left.is_empty() {
            return;
        }
    }
}

fn read_all(mut stream: impl Read) -> Vec<u8> {
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    got
}

#[test]
fn every_byte_arrives_both_ways_at_once() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        let (client, server) = stage.pair(ip);
        let sent = &pattern(20_000_000);
        std::thread::scope(|scope| {
            for end in [&client, &server] {
                scope.spawn(move || {
                    let mut end = end;
                    end.write_all(sent).unwrap();
                    end.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(move || assert!(read_all(end) == *sent, "{ip:?}"));
            }
        });
    }
    eventually("the orderly ends", || gateway.meter.read().finished == 2);
    let counters = gateway.meter.read();
    assert_eq!(counters.bytes_to_lan, 40_000_000);
    assert_eq!(counters.bytes_to_sat, 40_000_000);
}

#[test]
fn a_close_right_after_the_last_write_loses_nothing() {
    need!(Root, Tproxy);
    let (stage, gateway) = splitting();
    for ip in Ip::BOTH {
        for size in [1, 16_384, 16_385, 1_000_000, 5_000_000] {
            for upload in [true, false] {
                let (from, to) = in_order(stage.pair(ip), upload);
                let sent = pattern(size);
                let writer = std::thread::spawn({
                    let sent = sent.clone();
                    move || write_and_close(from, &sent)
                });
                assert!(read_all(to) == sent, "{ip:?} {size} {upload}");
                writer.join().unwrap();
            }
        }
    }
    eventually("the orderly ends", || gateway.meter.read().open == 0);
    assert_eq!(gateway.meter.read().reset, 0);
}

/// The reader starts late and reads slowly; the writer has long closed.
#[test]
fn a_slow_reader_gets_every_byte() {
    need!(Root, Tproxy);
    let (stage, _gateway) = splitting();
    for ip in Ip::BOTH {
        let (client, mut server) = stage.pair(ip);
        let sent = pattern(3_000_000);
        let writer = std::thread::spawn({
            let sent = sent.clone();
            move || write_and_close(client, &sent)
        });
        std::thread::sleep(Duration::from_millis(300));
        let mut got = Vec::new();
        let mut buffer = vec![0; 100_000];
        loop {
            match server.read(&mut buffer).unwrap() {
                0 => break,
                count => got.extend_from_slice(&buffer[..count]),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(got == sent, "{ip:?}");
        writer.join().unwrap();
    }
}

/// A small message is not held back. The bounds are for medians, well above a busy machine's
/// scheduling and below the stalls of TCP: 40 ms of a delayed acknowledgement, 200 ms of a
/// retransmission timeout.
#[test]
fn a_byte_goes_and_comes_without_delay() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    for ip in Ip::BOTH {
        let plain = median(|| stage.pair(ip), alone);
        let gateway = stage.split();
        for talk in [alone, after_a_burst, in_two_parts] {
            let split = median(|| stage.pair(ip), talk);
            let limit = plain * 10 + Duration::from_millis(10);
            assert!(split < limit, "{ip:?}: {split:?} against {plain:?} plain");
        }
        assert_eq!(gateway.meter.read().connected, 3);
    }
}

/// Time of a byte's way there and back.
fn alone(client: &mut TcpStream) -> Duration {
    let start = Instant::now();
    client.write_all(&[7]).unwrap();
    client.read_exact(&mut [0]).unwrap();
    start.elapsed()
}

/// The same when much has just gone before: what is spliced must not wait for more.
fn after_a_burst(client: &mut TcpStream) -> Duration {
    let mut burst = vec![7; 100_000];
    client.write_all(&burst).unwrap();
    client.read_exact(&mut burst).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    alone(client)
}

/// The same for two bytes, the second before the first can have been acknowledged.
fn in_two_parts(client: &mut TcpStream) -> Duration {
    let start = Instant::now();
    client.write_all(&[0xff]).unwrap();
    std::thread::sleep(Duration::from_millis(1));
    client.write_all(&[7]).unwrap();
    client.read_exact(&mut [0; 2]).unwrap();
    start.elapsed()
}

/// The median of what `talk` measures, with an echo at the other end: one that waits, before it
/// answers a byte 0xff, for the byte behind.
fn median(
    pair: impl Fn() -> (TcpStream, TcpStream),
    talk: fn(&mut TcpStream) -> Duration,
) -> Duration {
    let (mut client, mut server) = pair();
    let echo = std::thread::spawn(move || {
        let mut buffer = vec![0; 200_000];
        while let Ok(mut count @ 1..) = server.read(&mut buffer) {
            if buffer[count - 1] == 0xff {
                count += server.read(&mut buffer[count..]).unwrap();
            }
            server.write_all(&buffer[..count]).unwrap();
        }
    });
    let mut times: Vec<Duration> = (0..41).map(|_| talk(&mut client)).collect();
    drop(client);
    echo.join().unwrap();
    times.sort();
    times[times.len() / 2]
}

/// A receiver that stands still holds its sender back: what the gateway swallows is bounded by the
/// two buffers and the pipe, whichever way the bytes go.
#[test]
fn a_stalled_receiver_holds_the_sender_back() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let text = "
        threads = 1
        [lan]
        send_buffer = \"256KiB\"
        receive_buffer = \"128KiB\"
        [sat]
        congestion_control = \"cubic\"
        send_buffer = \"512KiB\"
        receive_buffer = \"192KiB\"
        [limits]
        pipe = \"64KiB\"";
    let config = Config::parse("test", text).unwrap();
    let bound = |receive: Bytes, send: Bytes| receive + send + config.limits.pipe;
    let up = bound(config.sat.receive_buffer, config.lan.send_buffer);
    let down = bound(config.lan.receive_buffer, config.sat.send_buffer);
    let gateway = stage.split_by(config.between("lan0", "sat0"));
    for ip in Ip::BOTH {
        for (upload, bound) in [(true, up), (false, down)] {
            let (mut writer, mut reader) = in_order(stage.pair(ip), upload);
            // The ends' own buffers come on top: kept small, and measured.
            support::set_buffers(&writer, &reader, 64 * 1024);
            let own = support::buffers(&writer, &reader);
            // A buffer takes a segment whole as long as it is not full before.
            let segments = 4 * 65_536;
            let written = write_until_stalled(&mut writer);
            assert!(
                written <= bound.0 + own + segments,
                "{ip:?} upload {upload}: {written} written, {bound} allowed and {own} at the ends"
            );
            // And nothing is lost when the reader goes on.
            drop(writer);
            let mut count = 0;
            let mut buffer = vec![0; 65_536];
            while let read @ 1.. = reader.read(&mut buffer).unwrap() {
                count += read as u64;
            }
            assert_eq!(count, written);
        }
    }
    assert!(gateway.meter.read().held_back >= 4);
}

/// Writes until nothing has been taken for a while; returns the bytes taken.
fn write_until_stalled(stream: &mut TcpStream) -> u64 {
    stream.set_nonblocking(true).unwrap();
    let mut written = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(400) {
        match stream.write(&[7; 65_536]) {
            Ok(count) => {
                written += count as u64;
                last = Instant::now();
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    written
}

/// With no pipe left, flows go on by copying.
#[test]
fn flows_outnumber_the_pipes() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.pipes = 1;
    config.threads = Some(1);
    let _gateway = stage.split_by(config);
    // Stalled receivers keep the only pipe, and then one more than that.
    let mut stalled: Vec<_> = (0..3).map(|_| stage.pair(Ip::V4)).collect();
    for (client, _) in &mut stalled {
        client.set_nonblocking(true).unwrap();
        while client.write(&[7; 65_536]).is_ok() {}
    }
    let (client, server) = stage.pair(Ip::V4);
    let sent = pattern(5_000_000);
    let writer = std::thread::spawn({
        let sent = sent.clone();
        move || write_and_close(client, &sent)
    });
    assert!(read_all(server) == sent);
    writer.join().unwrap();
}

/// A sender on this machine sends its own pages by sendfile(2), and a splice passes them on. Without pipes they are copied, so
/// that what it writes there when all is acknowledged changes nothing.
#[test]
fn without_pipes_what_was_sent_is_what_arrives() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let mut config = Stage::config();
    config.limits.pipes = 0;
    let _gateway = stage.split_by(config);
    let (client, mut server) = stage.pair(Ip::V4);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sent");
    let sent = pattern(300_000);
    std::fs::write(&path, &sent).unwrap();
    // The standard library uses sendfile(2) for a file.
    std::io::copy(&mut std::fs::File::open(&path).unwrap(), &mut server).unwrap();
    eventually("the acknowledgement of all", || {
        let acknowledged = tcp::info(&server).unwrap().bytes_acked;
        acknowledged >= Bytes(sent.len() as u64)
    });
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&vec![0; sent.len()]).unwrap();
    drop(server);
    assert!(read_all(client) == sent);
}

/// A hundred flows at once share the work: none starves while others are busy.
#[test]
fn busy_flows_do_not_starve_each_other() {
    need!(Root, Tproxy);
    for ip in Ip::BOTH {
        let stage = Stage::new();
        let mut config = Stage::config();
        config.threads = Some(1);
        let _gateway = stage.split_by(config);
        let pairs: Vec<_> = (0..40).map(|_| stage.pair(ip)).collect();
        let small = stage.pair(ip);
        let until = Instant::now() + Duration::from_secs(1);
        let median = std::thread::scope(|scope| {
            for (mut client, server) in pairs {
                scope.spawn(move || {
                    while Instant::now() < until {
                        client.write_all(&[7; 262_144]).unwrap();
                    }
                });
                scope.spawn(move || read_all(server));
            }
            let (client, server) = small;
            let ends = std::cell::RefCell::new(Some((client, server)));
            median(|| ends.take().unwrap(), alone)
        });
        assert!(median < Duration::from_millis(200), "{median:?}");
    }
}

/// The gateway's table never marks before `tproxy`: the ruleset as the kernel has it.
#[test]
fn without_a_listener_packets_would_pass() {
    need!(Root, Tproxy);
    let (stage, _gateway) = splitting();
    let rules = stage.gateway.run(|| nft::list(&["ruleset"]).unwrap());
    let rules = rules.unwrap();
    // The decoy's rules for SYNs leave the mark to a chain.
    let marks = |rule: &str| rule.find("mark set").or(rule.find("jump unmarked"));
    let tproxy = rules.lines().filter(|line| line.contains("tproxy"));
    let (marking, plain): (Vec<&str>, Vec<&str>) = tproxy.partition(|rule| marks(rule).is_some());
    // For each leg and family a listener, and for each family the decoy.
    assert_eq!(marking.len(), 6, "{rules}");
    for rule in marking {
        assert!(rule.find("tproxy") < marks(rule), "{rule}");
    }
    // Those that end what waits in TIME_WAIT do nothing else.
    for rule in plain {
        let end = rule.rsplit(' ').next().unwrap();
        assert!(end.parse::<SocketAddr>().is_ok(), "{rule}");
    }
}
