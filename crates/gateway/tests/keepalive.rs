//! Keep-alive probes of the ends, on either side: they end at the gateway, which probes the other end as often, and leaves them without an
//! answer while that one gives none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_os::netns::Netns;
use bentpipe_os::{need, nft};
use bentpipe_sockets::tcp;
use socket2::{SockRef, TcpKeepalive};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use support::{HANDSHAKES, Ip, PATIENCE, Running, Stage, converse, in_order};

const SECOND: Duration = Duration::from_secs(1);

/// A flow without traffic whose one end probes the other every second, with so many probes before it gives up.
struct Asking {
    asks: TcpStream,
    other: TcpStream,
    /// Segments that the other end had got before.
    before: u32,
}

impl Asking {
    fn new(stage: &Stage, ip: Ip, client_asks: bool, probes: u32) -> Self {
        let (mut client, mut server) = stage.pair(ip);
        converse(&mut client, &mut server);
        let (asks, other) = in_order((client, server), client_asks);
        let alive = TcpKeepalive::new()
            .with_time(SECOND)
            .with_interval(SECOND)
            .with_retries(probes);
        SockRef::from(&asks).set_tcp_keepalive(&alive).unwrap();
        let before = tcp::info(&other).unwrap().segs_in;
        Self {
            asks,
            other,
            before,
        }
    }

    fn other_is_probed(&self) -> bool {
        tcp::info(&self.other).unwrap().segs_in > self.before + 2
    }

    fn is_answered(&self) -> bool {
        tcp::info(&self.asks).unwrap().probes == 0
    }
}

/// Waits longer than anything else does.
fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + 4 * PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn set_silent(netns: &Netns, is_silent: bool) {
    let rules = if is_silent {
        "table inet silent { chain input {
           type filter hook prerouting priority -400
           meta l4proto tcp drop
         }
         }"
    } else {
        "delete table inet silent"
    };
    netns.run(|| nft::apply(rules).unwrap()).unwrap();
}

struct Case {
    stage: Stage,
    gateway: Running,
    client_asks: bool,
    hasty: [Asking; 2],
    patient: [Asking; 2],
    others: (TcpStream, TcpStream),
}

/// What the ends do by keep-alive without a gateway they do with one: boxes beyond it stay awake, an end whose peer is silent hears of it by its own
/// count, and one with patience goes on when the peer is there again.
#[test]
fn what_an_end_asks_the_other_end_is_asked() {
    need!(Root, Tproxy, Nft);
    let cases = [(HANDSHAKES[0], true), (HANDSHAKES[1], false)].map(|(handshake, client_asks)| {
        let stage = Stage::new();
        // Of our own probes so many may be lost that it is never we who give up here.
        for (key, value) in [("intvl", "3"), ("probes", "100")] {
            let key = format!("net.ipv4.tcp_keepalive_{key}");
            stage.gateway.set_sysctl(&key, value).unwrap();
        }
        let gateway = stage.split_after(handshake);
        let asking = |probes| Ip::BOTH.map(|ip| Asking::new(&stage, ip, client_asks, probes));
        let (hasty, patient) = (asking(3), asking(100));
        let mut others = stage.pair(Ip::V4);
        converse(&mut others.0, &mut others.1);
        Case {
            gateway,
            client_asks,
            hasty,
            patient,
            others,
            stage,
        }
    });
    for case in &cases {
        let before = tcp::info(&case.others.1).unwrap().segs_in;
        for asking in case.hasty.iter().chain(&case.patient) {
            eventually("a probe of the other end", || asking.other_is_probed());
            eventually("an answer", || asking.is_answered());
        }
        let (_, others) = &case.others;
        assert_eq!(tcp::info(others).unwrap().segs_in, before, "nobody asks");
    }
    let silent = cases.each_ref().map(|case| {
        if case.client_asks {
            &case.stage.server
        } else {
            &case.stage.client
        }
    });
    silent.iter().for_each(|netns| set_silent(netns, true));
    for case in &cases {
        for asking in &case.hasty {
            asking.asks.set_read_timeout(Some(4 * PATIENCE)).unwrap();
            let error = (&asking.asks).read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
        for asking in &case.patient {
            eventually("silence", || !asking.is_answered());
        }
        // What is written is no probe.
        let [asking, _] = &case.patient;
        (&asking.asks).write_all(b"x").unwrap();
        let owed = || tcp::unacknowledged(&asking.asks).unwrap().0;
        eventually("an acknowledgement", || owed() == 0);
    }
    silent.iter().for_each(|netns| set_silent(netns, false));
    for mut case in cases {
        case.patient[0]
            .other
            .set_read_timeout(Some(4 * PATIENCE))
            .unwrap();
        case.patient[0].other.read_exact(&mut [0]).unwrap();
        for asking in &mut case.patient {
            eventually("an answer", || asking.is_answered());
            converse(&mut asking.asks, &mut asking.other);
        }
        converse(&mut case.others.0, &mut case.others.1);
        let flows = case.gateway.meter.read();
        assert_eq!((flows.open, flows.vanished), (3, 0));
    }
}
