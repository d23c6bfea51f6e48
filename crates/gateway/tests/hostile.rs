//! Peers that do what no kernel does, on either leg, and the honest end behind the gateway: it gets what was said,
//! once and in order, or a reset; never a wrong byte, never an end that was not said.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Seq;
use bentpipe_os::need;
use bentpipe_sockets::tcp;
use bentpipe_wire::Flags;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;
use support::peer::{LARGEST_SEGMENT, Peer};
use support::{Ip, Stage, eventually, pattern};

const MOMENT: Duration = Duration::from_millis(60);

/// Runs `play` with a hostile client and with a hostile server, each on a stage of its own.
fn on_both_legs(play: impl Fn(&mut Peer, &mut TcpStream)) {
    for client in [true, false] {
        let stage = Stage::new();
        let gateway = stage.split();
        let mut peer = Peer::beside(&stage, client);
        let mut honest = meet(&stage, &mut peer, client);
        play(&mut peer, &mut honest);
        assert_eq!(gateway.meter.read().connected, 1, "it was split");
        drop(honest);
        let reset = peer.segment(peer.next, Flags::RST | Flags::ACK);
        peer.send(reset, b"");
        eventually("the end", || gateway.meter.read().open == 0);
    }
}

/// The honest end of a connection with `peer`.
fn meet(stage: &Stage, peer: &mut Peer, client: bool) -> TcpStream {
    if client {
        let listener = stage.listen(Ip::V4);
        peer.connect(listener.address(), b"");
        return listener.accept();
    }
    let to = peer.address();
    std::thread::scope(|scope| {
        let dial = scope.spawn(|| stage.connect(to));
        peer.accept();
        dial.join().unwrap()
    })
}

/// Both ways work still.
fn goes_on(peer: &mut Peer, honest: &mut TcpStream) {
    peer.say(b"still");
    let mut got = [0; 5];
    honest.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"still");
    let before = peer.got.len();
    honest.write_all(b"here").unwrap();
    peer.listen_until(before + 4);
    assert_eq!(&peer.got[before..], b"here");
    assert!(!peer.reset);
}

fn read_to_end(honest: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    honest.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn urgent_pointers_that_lie_change_no_byte() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        let sent = pattern(60_000);
        // To the past, to the first byte, into the segment, to its end, and beyond all that was sent.
        let pointers = [0, 1, 700, 1400, 1401, 5000, 65_535];
        for (piece, pointer) in sent.chunks(1400).zip(pointers.into_iter().cycle()) {
            let mut tcp = peer.segment(peer.next, Flags::ACK | Flags::URG);
            tcp.urgent = pointer;
            peer.send(tcp, piece);
            peer.next = peer.next + piece.len() as u32;
            peer.listen(Duration::from_millis(1));
        }
        let mut got = vec![0; sent.len()];
        honest.read_exact(&mut got).unwrap();
        assert!(got == sent);
        goes_on(peer, honest);
        // An end with an urgent pointer behind it.
        let mut tcp = peer.segment(peer.next, Flags::ACK | Flags::URG | Flags::FIN);
        tcp.urgent = 9000;
        peer.send(tcp, b"last");
        peer.next = peer.next + 5;
        assert_eq!(read_to_end(honest), b"last");
    });
}

/// The urgent mark is in a segment that was there before the one that tells of it.
#[test]
fn an_urgent_mark_that_is_told_late_holds_nothing_up() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        for size in [200, 1400] {
            let sent = pattern(3 * size);
            for number in [1, 2] {
                let place = peer.next + (number * size) as u32;
                let piece = &sent[number * size..(number + 1) * size];
                peer.send(peer.segment(place, Flags::ACK), piece);
            }
            let mut tcp = peer.segment(peer.next, Flags::ACK | Flags::URG);
            tcp.urgent = size as u16 + 77;
            peer.send(tcp, &sent[..size]);
            peer.next = peer.next + sent.len() as u32;
            let mut got = vec![0; sent.len()];
            honest.read_exact(&mut got).unwrap();
            assert!(got == sent);
        }
        goes_on(peer, honest);
    });
}

#[test]
fn segments_that_overlap_and_differ_give_each_byte_once() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        let start = peer.next;
        let at = |offset: u32| start + offset;
        let piece = |offset, letter: u8, count: usize| {
            peer.send(peer.segment(at(offset), Flags::ACK), &vec![letter; count]);
        };
        // Behind a gap, twice and differing; over what was taken; from before the start.
        piece(100, b'c', 100);
        piece(50, b'b', 100);
        piece(150, b'd', 100);
        piece(0, b'a', 60);
        piece(0, b'x', 300);
        piece(200u32.wrapping_neg(), b'y', 600);
        let mut got = [0; 400];
        honest.read_exact(&mut got).unwrap();
        assert!(got[..50].iter().all(|byte| *byte == b'a'), "{got:?}");
        assert!(got[50..].iter().all(|byte| b"abcdxy".contains(byte)));
        peer.next = at(400);
        goes_on(peer, honest);
        peer.end();
        assert_eq!(read_to_end(honest), b"");
    });
}

#[test]
fn windows_that_close_and_shrink_cost_time_and_no_byte() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        let sent = pattern(200_000);
        std::thread::scope(|scope| {
            let bytes = &sent;
            let mut writer = honest.try_clone().unwrap();
            scope.spawn(move || writer.write_all(bytes).unwrap());
            let windows = [0, 1, 3000, 0, 65_535, 20_000, 500, 10_000, 0, 40_000];
            for window in windows.into_iter().cycle() {
                if peer.got.len() == sent.len() {
                    break;
                }
                peer.window = window;
                peer.acknowledge();
                peer.listen(Duration::from_millis(20));
            }
        });
        assert!(peer.got == sent);
        peer.window = 65_535;
        goes_on(peer, honest);
    });
}

#[test]
fn a_reset_counts_only_with_the_exact_number() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        // Outside the window: nothing. Inside it: a question, and nothing (RFC 5961, section 3).
        for offset in [1, 5000, 0x8000_0000, 1u32.wrapping_neg()] {
            peer.send(peer.segment(peer.next + offset, Flags::RST), b"");
            peer.send(
                peer.segment(peer.next + offset, Flags::RST | Flags::ACK),
                b"",
            );
        }
        peer.listen(MOMENT);
        goes_on(peer, honest);
        // A SYN in mid-stream too (section 4).
        peer.send(peer.segment(peer.next, Flags::SYN), b"");
        peer.send(peer.segment(peer.next + 7, Flags::SYN | Flags::ACK), b"");
        peer.listen(MOMENT);
        goes_on(peer, honest);
        peer.say(b"before");
        peer.send(peer.segment(peer.next, Flags::RST), b"");
        let mut got = [0; 6];
        honest.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"before");
        let error = honest.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn an_end_counts_when_all_before_it_is_there_and_nothing_after_it() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        honest.set_read_timeout(Some(4 * MOMENT)).unwrap();
        let start = peer.next;
        // Behind a gap.
        peer.send(peer.segment(start + 5, Flags::ACK | Flags::FIN), b"gap");
        peer.listen(MOMENT);
        assert_eq!(
            honest.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        honest.set_read_timeout(Some(support::PATIENCE)).unwrap();
        peer.send(peer.segment(start, Flags::ACK), b"first");
        // Again and again, with more behind it. One by one: two that meet in a socket's backlog become one there, "gap" and "too late" with the
        // end behind both, which says that the end was taken back.
        for _ in 0..3 {
            peer.send(peer.segment(start + 5, Flags::ACK | Flags::FIN), b"gap");
            peer.listen(MOMENT);
            peer.send(peer.segment(start + 9, Flags::ACK), b"too late");
            peer.listen(MOMENT);
        }
        peer.next = start + 9;
        assert_eq!(read_to_end(honest), b"firstgap");
        // The other direction is open still.
        let before = peer.got.len();
        honest.write_all(b"answer").unwrap();
        peer.listen_until(before + 6);
        honest.shutdown(Shutdown::Write).unwrap();
        peer.listen(MOMENT);
        assert!(peer.ended && !peer.reset);
    });
}

/// Bytes over the place where the end was said: a reset (RFC 1122, section 4.2.2.13), and none of them arrives.
#[test]
fn an_end_that_is_taken_back_is_a_reset() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        let start = peer.next;
        peer.say(b"all");
        peer.end();
        peer.listen(MOMENT);
        peer.send(peer.segment(start + 2, Flags::ACK), b"xyz");
        let mut all = Vec::new();
        let result = honest.read_to_end(&mut all);
        assert_eq!(all, b"all");
        assert_eq!(result.unwrap(), 3, "the end had been said before");
        eventually("the reset", || {
            peer.listen(Duration::from_millis(5));
            honest.write_all(b"?").is_err()
        });
        assert!(peer.reset);
    });
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_ignored() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        let expected = peer.expected;
        for offset in [
            1,
            70_000,
            0x7fff_ffff,
            0x8000_0000,
            70_000u32.wrapping_neg(),
        ] {
            peer.expected = expected + offset;
            peer.acknowledge();
            peer.send(peer.segment(peer.next, Flags::ACK), b"with a lie");
        }
        peer.expected = expected;
        peer.listen(MOMENT);
        // A lie discards the whole segment, but one that is only old does not.
        let mut got = [0; 10];
        peer.say(b"with a lie");
        honest.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"with a lie");
        goes_on(peer, honest);
    });
}

/// An end that has forgotten the connection (restarted, say) hears a reset or gives one; the honest one behind the
/// gateway learns it, and what stands is gone.
#[test]
fn a_peer_that_has_forgotten_ends_the_connection_at_its_next_word() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        goes_on(peer, honest);
        // It does not answer; what comes is retransmitted.
        peer.acknowledges = false;
        honest.write_all(b"are you there").unwrap();
        peer.listen(MOMENT);
        assert!(peer.longest >= 13);
        // A host that does not know the connection: RST with the number acknowledged.
        peer.send(peer.segment(peer.next, Flags::RST), b"");
        let error = honest.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn forged_icmp_errors_break_nothing() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        // Each kind of "unreachable", source quench, and time exceeded: about numbers never used, and about the
        // next byte.
        for seq in [peer.expected + 1_000_000, peer.expected, peer.expected - 1] {
            for code in 0..16 {
                peer.complain(3, code, if code == 4 { 68 } else { 0 }, seq);
            }
            peer.complain(4, 0, 0, seq);
            peer.complain(11, 0, 0, seq);
            peer.complain(12, 0, 0, seq);
        }
        peer.listen(MOMENT);
        goes_on(peer, honest);
        let before = peer.got.len();
        let sent = pattern(50_000);
        honest.write_all(&sent).unwrap();
        peer.listen_until(before + sent.len());
        assert!(peer.got[before..] == sent);
        peer.say(&sent);
        let mut got = vec![0; sent.len()];
        honest.read_exact(&mut got).unwrap();
        assert!(got == sent);
    });
}

/// Errors about a dial that come by the client's leg are a client's, who would lower the path MTU to the server for all.
#[test]
fn a_client_lowers_no_path_mtu_to_a_server() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = stage.split();
    let mut server = Peer::beside(&stage, false);
    let mut honest = meet(&stage, &mut server, false);
    // What is under way has numbers from here on.
    server.acknowledges = false;
    honest.write_all(&pattern(1000)).unwrap();
    server.listen(MOMENT);
    let client = Peer::beside(&stage, true);
    let is_lowered = || {
        let route = stage.gateway.run(|| {
            let mut route = std::process::Command::new("ip");
            route
                .args(["route", "get", &server.own.0.to_string()])
                .output()
        });
        let route = route.unwrap().unwrap();
        String::from_utf8(route.stdout).unwrap().contains("mtu 560")
    };
    let (SocketAddr::V4(from), first) = (honest.local_addr().unwrap(), server.expected) else {
        panic!("a client of IPv4");
    };
    let ends = ((*from.ip(), from.port()), server.own);
    // To be forwarded, and to the gateway itself, whose kernel finds the socket by what is in the error.
    for to in [Ip::V4.server(), Ip::V4.gateway_sat()] {
        let IpAddr::V4(to) = to else { continue };
        client.complain_of(ends, to, [3, 4], 560, first);
    }
    std::thread::sleep(MOMENT);
    assert!(!is_lowered(), "by a client");
    server.complain_of(ends, ends.0.0, [3, 4], 560, first);
    eventually("the path MTU that the server's leg tells", is_lowered);
}

/// Bytes in a SYN are not acknowledged, so that the client sends them again: they arrive once.
#[test]
fn bytes_in_a_syn_arrive_once() {
    need!(Root, Tproxy);
    for config in [Stage::config(), Stage::early()] {
        let stage = Stage::new();
        let gateway = stage.split_by(config);
        let mut peer = Peer::beside(&stage, true);
        let listener = stage.listen(Ip::V4);
        peer.connect(listener.address(), b"early");
        let mut honest = listener.accept();
        // What else the SYN said is known all the same.
        let largest = tcp::largest_segment(&honest).unwrap();
        assert_eq!(largest, LARGEST_SEGMENT);
        peer.say(b"early");
        peer.end();
        assert_eq!(read_to_end(&mut honest), b"early");
        assert_eq!(gateway.meter.read().connected, 1);
    }
}

/// Who resets what it has begun, again and again by one port, is split when it means it.
#[test]
fn who_resets_half_open_connections_is_split_all_the_same() {
    need!(Root, Tproxy);
    for config in [Stage::config(), Stage::early()] {
        let stage = Stage::new();
        let gateway = stage.split_by(config);
        let mut peer = Peer::beside(&stage, true);
        let listener = stage.listen(Ip::V4);
        for _ in 0..4 {
            peer.probe(listener.address());
            std::thread::sleep(Duration::from_millis(400));
            peer.next = peer.next + 100_000;
        }
        peer.connect(listener.address(), b"");
        peer.say(b"meant");
        eventually("the flow", || gateway.meter.read().connected == 1);
        let counters = gateway.meter.read();
        assert_eq!((counters.unanswered, counters.connected), (0, 1));
    }
}

/// Ten thousand segments with every number, flag and length at random beside a connection that goes on: it loses
/// no byte, and what is not of its own making does not end it.
#[test]
fn a_storm_of_random_segments_changes_no_byte() {
    need!(Root, Tproxy);
    on_both_legs(|peer, honest| {
        let mut dice = 0x9e37_79b9_7f4a_7c15u64;
        let mut roll = move || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            (dice >> 16) as u32
        };
        for round in 0..10u8 {
            for _ in 0..1000 {
                // Far from the window, where whoever guesses is nearly always.
                let seq = Seq(peer.next.0 ^ 0x4000_0000) + (roll() & 0x0fff_ffff);
                let mut tcp = peer.segment(seq, Flags::from_bits(roll() as u16 & 0x1ff));
                tcp.ack = Seq(roll());
                tcp.window = roll() as u16;
                tcp.urgent = roll() as u16;
                peer.send(tcp, &vec![round; (roll() % 1400) as usize]);
            }
            peer.listen(Duration::from_millis(5));
            goes_on(peer, honest);
        }
    });
}

/// Where the machine has every listener take data of a SYN without a cookie (`net.ipv4.tcp_fastopen`, 0x603), the gateway's do
/// not: who sends such SYNs and is not there makes no connection at the server.
#[test]
fn fast_open_of_the_machine_takes_no_forged_data() {
    need!(Root, Tproxy);
    for handshake in support::HANDSHAKES {
        let stage = Stage::new();
        let fast_open = "net.ipv4.tcp_fastopen";
        stage.gateway.set_sysctl(fast_open, "1539").unwrap();
        let gateway = stage.split_after(handshake);
        let listener = stage.listen(Ip::V4);
        let mut peer = Peer::beside(&stage, true);
        let answer = peer.knock(listener.address(), b"forged");
        assert_eq!(answer, Some(Flags::SYN | Flags::ACK));
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(gateway.meter.read().accepted, 0);
        peer.own.1 += 1;
        peer.connect(listener.address(), b"");
        eventually("a real one", || gateway.meter.read().accepted == 1);
    }
}

/// A SYN with a wrong checksum is no connection at the server, as without a gateway, for whoever held it would make it right.
#[test]
fn a_damaged_syn_is_not_mended() {
    need!(Root, Tproxy);
    for handshake in support::HANDSHAKES {
        let stage = Stage::new();
        let gateway = stage.split_after(handshake);
        let listener = stage.listen(Ip::V4);
        let mut peer = Peer::beside(&stage, true);
        let SocketAddr::V4(to) = listener.address() else {
            unreachable!("of family V4")
        };
        peer.other = (*to.ip(), to.port());
        for port in 6000..6020 {
            peer.own.1 = port;
            peer.send_damaged(peer.segment(peer.next, Flags::SYN));
        }
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(gateway.meter.read().held, 0);
        assert!(listener.accept_within(Duration::ZERO).is_none());
        peer.own.1 += 1;
        peer.connect(listener.address(), b"");
        eventually("a real one", || gateway.meter.read().accepted == 1);
    }
}
