//! TCP Fast Open between two hosts (RFC 7413): cookies, limits, what fails, and those who mean harm.

mod common;

use bentpipe_base::{Instant, Seq};
use bentpipe_host::{ConnectionId, ListenerId, ServerCookie};
use bentpipe_tcp as host_tcp;
use bentpipe_tcp::State;
use bentpipe_wire::{
    FastOpenCookie, FastOpenOption, Flags, Ip, Packet, Payload, Tcp, TcpOptions, Transport,
};
use common::{CLIENT, Net, SERVER, any, tcp, troubled};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 80;
const REQUEST: &[u8] = b"a request that may be repeated";
const SECOND: Duration = Duration::from_secs(1);

fn fast() -> Arc<host_tcp::Config> {
    Arc::new(host_tcp::Config {
        fast_open: true,
        ..host_tcp::Config::clone(&tcp())
    })
}

/// Two hosts, and a listener that has at most `most` early connections.
fn net(most: usize) -> (Net, ListenerId) {
    let mut net = Net::new();
    let listener = net.listen(PORT, 64);
    net.hosts[1].set_fast_open(listener, most);
    (net, listener)
}

/// Opens a connection, and writes the request before the SYN leaves.
fn request(net: &mut Net) -> ConnectionId {
    let now = net.now;
    let to = SocketAddr::new(SERVER, PORT);
    let id = net.hosts[0]
        .connect(any(), to, &fast(), now)
        .expect("a port");
    let connection = net.hosts[0].connection_mut(id).expect("it was opened");
    assert_eq!(connection.write(REQUEST), REQUEST.len());
    id
}

/// Has the client learn its cookie by a connection that is over.
fn learn(net: &mut Net, listener: ListenerId) -> FastOpenCookie {
    let id = request(net);
    net.run(SECOND);
    assert_eq!(net.state(0, id), Some(State::Established));
    let (server, _) = net.hosts[1].accept(listener).expect("it stands");
    let now = net.now;
    for (host, id) in net.hosts.iter_mut().zip([id, server]) {
        host.connection_mut(id).expect("it stands").abort(now);
        host.release(id, now);
    }
    net.run(SECOND);
    let known = net.hosts[0].server_cookie(CLIENT, SERVER);
    known.expect("the server gave one").cookie
}

/// A SYN with `cookie` and data, of a client at `from`.
fn syn(from: IpAddr, port: u16, cookie: FastOpenCookie) -> Packet {
    let options = TcpOptions {
        mss: Some(1_460),
        unknown: FastOpenOption::Cookie(cookie).to_raw(),
        ..TcpOptions::default()
    };
    segment(from, port, Flags::SYN, 7, options, REQUEST)
}

fn segment(
    from: IpAddr,
    port: u16,
    flags: Flags,
    seq: u32,
    options: TcpOptions,
    data: &[u8],
) -> Packet {
    Packet {
        ip: Ip::between(from, SERVER).expect("one family"),
        transport: Transport::Tcp(Tcp {
            source: port,
            destination: PORT,
            seq: Seq(seq),
            flags,
            window: 60_000,
            options: options.boxed(),
            ..Tcp::default()
        }),
        payload: match data {
            [] => Payload::Absent,
            data => Payload::from(data),
        },
    }
}

fn read(net: &mut Net, side: usize, id: ConnectionId) -> Vec<u8> {
    let mut room = [0; 4096];
    let connection = net.hosts[side].connection_mut(id).expect("it is there");
    let got = connection.read(&mut room);
    room[..got].to_vec()
}

#[test]
fn the_second_connection_is_answered_in_one_round_trip() {
    let (mut net, listener) = net(8);
    learn(&mut net, listener);
    let began = net.now;
    let client = request(&mut net);
    // One way takes 10 ms.
    net.run(Duration::from_millis(10));
    let (server, _) = net.hosts[1].accept(listener).expect("it was opened early");
    assert_eq!(net.state(1, server), Some(State::SynReceived));
    assert_eq!(read(&mut net, 1, server), REQUEST);
    let answer = net.hosts[1].connection_mut(server).expect("it is there");
    answer.write(b"an answer");
    let done = net.run_until(SECOND, |net| {
        net.hosts[0]
            .connection(client)
            .is_some_and(|c| c.readable() > 0)
    });
    assert!(done);
    assert_eq!(net.now.since(began), Duration::from_millis(20));
    assert_eq!(read(&mut net, 0, client), b"an answer");
    net.run(SECOND);
    assert_eq!(net.state(1, server), Some(State::Established));
    let (ours, theirs) = (net.hosts[0].counters(), net.hosts[1].counters());
    assert_eq!((ours.fast_opens_answered, ours.fast_opens_failed), (1, 0));
    assert_eq!((theirs.fast_opens, theirs.fast_open_cookies_sent), (1, 1));
}

#[test]
fn a_listener_that_was_not_told_to_gives_no_cookie() {
    let (mut net, listener) = net(0);
    let id = request(&mut net);
    net.run(SECOND);
    assert_eq!(net.state(0, id), Some(State::Established));
    assert_eq!(net.hosts[0].server_cookie(CLIENT, SERVER), None);
    let (server, _) = net.hosts[1].accept(listener).expect("it stands");
    assert_eq!(read(&mut net, 1, server), REQUEST);
}

#[test]
fn a_cookie_is_one_clients_and_one_days() {
    let (mut net, listener) = net(8);
    let cookie = learn(&mut net, listener);
    let opened = |net: &Net| net.hosts[1].counters().fast_opens;
    let falsely = |net: &Net| net.hosts[1].counters().fast_open_cookies_false;
    net.inject(1, syn(CLIENT, 1_000, cookie));
    assert_eq!((opened(&net), falsely(&net)), (1, 0));
    // Another's address, and a cookie that was guessed.
    net.inject(1, syn(IpAddr::from([10, 0, 0, 9]), 1_000, cookie));
    let guess = FastOpenCookie::new(&[0; 8]).expect("eight bytes");
    net.inject(1, syn(CLIENT, 1_001, guess));
    assert_eq!((opened(&net), falsely(&net)), (1, 2));
    // The SYN-ACK acknowledges the SYN alone, and brings the right one.
    let Some(Transport::Tcp(answer)) = net.sent[1].last().map(|packet| &packet.transport) else {
        panic!("a SYN-ACK");
    };
    assert_eq!(answer.ack, Seq(8));
    let unknown = answer
        .options
        .as_ref()
        .and_then(|options| options.unknown.as_deref());
    let given = unknown.and_then(FastOpenOption::parse);
    assert_eq!(given, Some(FastOpenOption::Cookie(cookie)));
    // The day after it is good, and answered with a new one; two days after it is not.
    let day = Duration::from_secs(86_400);
    net.now = Instant::ZERO + day;
    net.inject(1, syn(CLIENT, 1_002, cookie));
    assert_eq!((opened(&net), falsely(&net)), (2, 2));
    assert_eq!(net.hosts[1].counters().fast_open_cookies_sent, 4);
    net.now = Instant::ZERO + 2 * day;
    net.inject(1, syn(CLIENT, 1_003, cookie));
    assert_eq!((opened(&net), falsely(&net)), (2, 3));
}

#[test]
fn no_more_are_opened_early_than_the_limit_and_resets_count_for_a_minute() {
    let (mut net, listener) = net(3);
    let cookie = learn(&mut net, listener);
    let opened = |net: &Net| net.hosts[1].counters().fast_opens;
    for port in 1_000..1_010 {
        net.inject(1, syn(CLIENT, port, cookie));
    }
    assert_eq!(opened(&net), 3);
    assert_eq!(net.hosts[1].counters().fast_opens_refused, 7);
    // The client whose address was forged knows nothing of them.
    for port in 1_000..1_010 {
        let ack = 8 + REQUEST.len() as u32;
        let reset = segment(CLIENT, port, Flags::RST, ack, TcpOptions::default(), &[]);
        net.inject(1, reset);
    }
    net.inject(1, syn(CLIENT, 2_000, cookie));
    assert_eq!(opened(&net), 3);
    net.run(61 * SECOND);
    net.inject(1, syn(CLIENT, 2_001, cookie));
    assert_eq!(opened(&net), 4);
    // What was reset unaccepted is gone.
    let mut accepted = std::iter::from_fn(|| net.hosts[1].accept(listener));
    assert!(accepted.all(|(_, tuple)| tuple.remote.port() >= 2_000));
}

#[test]
fn a_server_that_forgot_its_key_costs_no_more_than_the_ordinary_way() {
    let (mut net, listener) = net(8);
    let wrong = FastOpenCookie::new(&[9; 8]).expect("eight bytes");
    let now = net.now;
    let given = ServerCookie {
        cookie: wrong,
        mss: 1_460,
    };
    net.hosts[0].add_server_cookie((CLIENT, SERVER), given, now);
    let id = request(&mut net);
    net.run(SECOND);
    assert_eq!(net.state(0, id), Some(State::Established));
    let (server, _) = net.hosts[1].accept(listener).expect("it stands");
    assert_eq!(read(&mut net, 1, server), REQUEST);
    let known = net.hosts[0].server_cookie(CLIENT, SERVER);
    assert!(known.is_some_and(|known| known.cookie != wrong));
    assert_eq!(net.hosts[0].counters().fast_opens_failed, 1);
}

/// Whether `packet` is a SYN with the option.
fn has_option(packet: &Packet) -> bool {
    match &packet.transport {
        Transport::Tcp(tcp) => tcp.options.as_ref().is_some_and(|o| o.unknown.is_some()),
        _ => false,
    }
}

#[test]
fn a_path_that_drops_such_syns_costs_a_timeout_twice_and_then_none_for_a_while() {
    let (mut net, listener) = net(8);
    learn(&mut net, listener);
    net.fate = Box::new(|packet, _| {
        if has_option(packet) {
            Vec::new()
        } else {
            vec![Duration::from_millis(10)]
        }
    });
    let mut took = Vec::new();
    for pause in [0, 0, 0, 61] {
        net.run(pause * SECOND);
        let began = net.now;
        let id = request(&mut net);
        let stands = net.run_until(10 * SECOND, |net| {
            net.state(0, id) == Some(State::Established)
        });
        assert!(stands);
        took.push(net.now.since(began) >= SECOND);
        net.run(SECOND);
    }
    assert_eq!(took, [true, true, false, true]);
    while let Some((server, _)) = net.hosts[1].accept(listener) {
        assert_eq!(read(&mut net, 1, server), REQUEST);
    }
}

#[test]
fn requests_and_answers_arrive_whole_over_a_path_that_loses_doubles_and_delays() {
    for seed in 0..150 {
        let (mut net, listener) = net(8);
        learn(&mut net, listener);
        net.fate = troubled(seed, 0.1, 0.1, 0.2);
        let client = request(&mut net);
        let answer: Vec<u8> = (0..30_000).map(Payload::pattern).collect();
        let (mut got, mut served, mut written) = (Vec::new(), Vec::new(), 0);
        let mut room = [0; 8192];
        let done = net.run_until(600 * SECOND, |net| {
            served.extend(net.hosts[1].accept(listener).map(|(id, _)| id));
            for id in &served {
                let connection = net.hosts[1].connection_mut(*id).expect("it is held");
                written += connection.write(&answer[written..]);
            }
            let connection = net.hosts[0].connection_mut(client).expect("it is held");
            let count = connection.read(&mut room);
            got.extend_from_slice(&room[..count]);
            got.len() == answer.len()
        });
        assert!(done && got == answer, "seed {seed}: {} bytes", got.len());
        let first = served[0];
        assert_eq!(read(&mut net, 1, first), REQUEST, "seed {seed}");
    }
}

#[test]
fn what_was_opened_early_is_released_as_any_other() {
    let (mut net, listener) = net(8);
    learn(&mut net, listener);
    let client = request(&mut net);
    net.run(Duration::from_millis(10));
    let (server, _) = net.hosts[1].accept(listener).expect("it was opened early");
    assert_eq!(read(&mut net, 1, server), REQUEST);
    let connection = net.hosts[1].connection_mut(server).expect("it is there");
    connection.write(b"an answer");
    let now = net.now;
    net.hosts[1].release(server, now);
    net.run(SECOND);
    assert_eq!(read(&mut net, 0, client), b"an answer");
    assert_eq!(net.state(0, client), Some(State::CloseWait));
    let now = net.now;
    net.hosts[0].release(client, now);
    net.run(SECOND);
    assert_eq!(net.hosts[1].connections().0, 0);
}
