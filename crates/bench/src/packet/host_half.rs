//! The host half alone: a server to which thousands connect, packet by packet and without any interface, in virtual time.

use super::{PacketBenchError, usage};
use bentpipe_base::{Instant, Machine as _, Seq};
use bentpipe_host::{Config, ConnectionId, Host, ListenerId, Secret};
use bentpipe_tcp as tcp;
use bentpipe_wire::{Flags, Ip, Ipv4, Packet, Payload, Tcp, TcpOptions, Timestamps, Transport};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const PORT: u16 = 5001;
/// Where the clients' ports begin.
const FIRST: u16 = 10_000;
/// What each client asks, and what it is answered.
const REQUEST: &[u8] = &[b'q'; 100];
const ANSWER: &[u8] = &[b'a'; 1_000];
/// Between two steps of a client.
const STEP: Duration = Duration::from_micros(10);

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostHalf {
    /// Bytes of a connection that has answered one request and is idle.
    pub(super) idle_memory: f64,
    /// Handshakes, accepted, in a second of this machine.
    pub(super) accepts: f64,
}

/// Has `connections` clients connect, ask and be answered.
pub(super) fn measure(connections: u16) -> Result<HostHalf, PacketBenchError> {
    // What the first connections touch of the program itself is not theirs: 200 bytes for each of a thousand.
    let mut first = Bench::new(1);
    let mut client = first.open(FIRST);
    client.iter_mut().for_each(|client| first.ask(client));
    let mut bench = Bench::new(connections);
    let memory = || {
        usage::process_memory(std::process::id()).map_err(|source| PacketBenchError::Io {
            doing: "reading our memory",
            source,
        })
    };
    let before = memory()?;
    let began = std::time::Instant::now();
    let mut clients: Vec<_> = (0..connections)
        .filter_map(|number| bench.open(FIRST + number))
        .collect();
    let took = began.elapsed();
    for client in &mut clients {
        bench.ask(client);
    }
    let answered = clients.iter().filter(|client| client.answered).count();
    let (open, _) = bench.host.connections();
    let made = answered.min(open);
    if made < usize::from(connections) {
        return Err(PacketBenchError::HostHalf {
            made,
            asked: connections.into(),
        });
    }
    let own = clients.capacity() * size_of::<Client>();
    let grown = (memory()?.saturating_sub(before)).saturating_sub(own as u64);
    Ok(HostHalf {
        idle_memory: grown as f64 / f64::from(connections),
        accepts: f64::from(connections) / took.as_secs_f64(),
    })
}

struct Bench {
    host: Host,
    listener: ListenerId,
    now: Instant,
}

/// A client that stands, written out packet by packet.
struct Client {
    port: u16,
    id: ConnectionId,
    /// The server's next number.
    ack: Seq,
    stamp: u32,
    answered: bool,
}

impl Bench {
    fn new(connections: u16) -> Self {
        let mut host = Host::new(Config::default(), Secret::new([7; 16]));
        host.add_address(SERVER.into());
        let at = SocketAddr::new(IpAddr::from(SERVER), PORT);
        let config = Arc::new(tcp::Config::rfc());
        let listener = host.listen(at, &config, connections.into());
        Self {
            host,
            listener: listener.expect("the address is its"),
            now: Instant::ZERO,
        }
    }

    /// Hands the host a packet, and takes what it says: the last packet, and how many bytes all carried.
    fn say(&mut self, packet: Packet) -> (Option<Tcp>, usize) {
        self.now += STEP;
        self.host.input((), packet, self.now);
        self.drain()
    }

    fn drain(&mut self) -> (Option<Tcp>, usize) {
        let (mut last, mut carried) = (None, 0);
        while let Some(((), packet)) = self.host.transmit(self.now) {
            carried += packet.payload.len();
            if let Transport::Tcp(tcp) = packet.transport {
                last = Some(tcp);
            }
        }
        while self.host.event().is_some() {}
        (last, carried)
    }

    /// A handshake with the options that Linux has, and what it makes is accepted.
    fn open(&mut self, port: u16) -> Option<Client> {
        let options = TcpOptions {
            mss: Some(1_460),
            window_scale: Some(7),
            sack_permitted: true,
            ..TcpOptions::default()
        };
        let mut syn = header(port, Flags::SYN, (Seq(0), Seq(0)), 0);
        syn.options = options.boxed();
        let (answer, _) = self.say(packet(syn, &[]));
        let answer = answer?;
        let (ack, stamp) = (answer.seq + 1, answer.timestamps?.value);
        let done = header(port, Flags::ACK, (Seq(1), ack), stamp);
        self.say(packet(done, &[]));
        let (id, _) = self.host.accept(self.listener)?;
        Some(Client {
            port,
            id,
            ack,
            stamp,
            answered: false,
        })
    }

    /// A request, its answer, and the client's acknowledgement of that.
    fn ask(&mut self, client: &mut Client) {
        let (port, stamp) = (client.port, client.stamp);
        let request = header(port, Flags::ACK, (Seq(1), client.ack), stamp);
        self.say(packet(request, REQUEST));
        let Some(connection) = self.host.connection_mut(client.id) else {
            return;
        };
        let read = connection.read(&mut [0; REQUEST.len() + 1]);
        let written = connection.write(ANSWER);
        let (_, carried) = self.drain();
        client.ack = client.ack + ANSWER.len() as u32;
        let next = Seq(1) + REQUEST.len() as u32;
        let all = header(port, Flags::ACK, (next, client.ack), stamp);
        self.say(packet(all, &[]));
        let connection = self.host.connection(client.id);
        let idle = connection.is_some_and(|one| one.unacknowledged() == 0);
        client.answered =
            idle && (read, written, carried) == (REQUEST.len(), ANSWER.len(), ANSWER.len());
    }
}

fn header(port: u16, flags: Flags, (seq, ack): (Seq, Seq), echo: u32) -> Tcp {
    Tcp {
        source: port,
        destination: PORT,
        seq,
        ack,
        flags,
        window: 60_000,
        timestamps: Some(Timestamps { value: 1, echo }),
        ..Tcp::default()
    }
}

fn packet(tcp: Tcp, payload: &[u8]) -> Packet {
    Packet {
        ip: Ip::V4(Ipv4::new(CLIENT, SERVER)),
        transport: Transport::Tcp(tcp),
        payload: Payload::from(payload),
    }
}
