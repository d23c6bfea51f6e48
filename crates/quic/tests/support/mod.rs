//! Two endpoints over one emulated link, in virtual time: the near one connects and asks, the far one answers.
#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_base::{Bytes, Fact, Instant, Machine, Observer, Output, Probability, Rate};
use bentpipe_cc::{LinkParams, Settings as ControlSettings};
use bentpipe_link::channel::{Channel, PacketError};
use bentpipe_link::queue::DropTail;
use bentpipe_link::{self as link, Limit};
use bentpipe_quic::{
    Config, CongestionControl, ConnectionId, Datagram, Direction, End, Endpoint, Event, Identity,
    Limits, Path, Quic, Read, StreamId, StreamRef,
};
use bytes::Bytes as Chunk;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const NEAR: &str = "10.0.0.1:4433";
pub(crate) const FAR: &str = "10.0.0.2:443";
pub(crate) const ZEROS: Chunk = Chunk::from_static(&[0; 65_536]);

pub(crate) fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the stack's instants need one to begin with"
)]
pub(crate) fn base() -> std::time::Instant {
    std::time::Instant::now()
}

/// The link of a geostationary satellite: 10 Mbit/s, 600 ms, packets lost each way.
pub(crate) fn geo(mbps: u64, loss: f64) -> Path {
    Path {
        rate: Rate::from_bits_per_sec(mbps * 1_000_000),
        round_trip: Duration::from_millis(600),
        loss: Probability::new(loss).unwrap(),
        mtu: Bytes(1500),
        overhead: Bytes(0),
        ipv6: false,
    }
}

/// Both sides' configurations, each trusting the other.
pub(crate) fn configs(path: &Path, control: &str, seed: u64) -> [Config; 2] {
    let settings = ControlSettings {
        link: LinkParams::of_rate(path.rate),
        ..ControlSettings::default()
    };
    let identities = [(); 2].map(|()| Identity::generate().unwrap());
    let base = base();
    let limits = Limits::default();
    let limits = Limits {
        memory: limits.memory.max(path.stream_window() * 4),
        ..limits
    };
    [(0, 1), (1, 0)].map(|(own, other)| Config {
        seed: Some(seed * 2 + own as u64),
        limits,
        ..Config::new(
            path.clone(),
            CongestionControl::new(control, settings.clone()).unwrap(),
            identities[own].clone(),
            vec![identities[other].public()],
            base,
        )
    })
}

/// The longest that a packet waited before its first bit left.
#[derive(Default)]
pub(crate) struct Wait(pub(crate) Duration);

impl Observer for Wait {
    fn observe(&mut self, now: Instant, fact: &Fact) {
        if let Fact::Departed { since, .. } = fact {
            self.0 = self.0.max(now.since(*since));
        }
    }
}

/// How the far side answers a stream.
#[derive(Clone, Copy, Default)]
struct Answer {
    left: u64,
}

/// What the near side got on a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Got {
    pub(crate) bytes: u64,
    pub(crate) finished: Option<Instant>,
    /// It is not read.
    pub(crate) ignored: bool,
}

/// Two endpoints and the link between them.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) near: Endpoint,
    pub(crate) far: Endpoint,
    pub(crate) ways: [link::Direction<Datagram, Wait>; 2],
    answers: BTreeMap<StreamRef, Answer>,
    requests: BTreeMap<StreamRef, Vec<u8>>,
    pub(crate) got: BTreeMap<StreamId, Got>,
    /// What both sides told of connections.
    pub(crate) told: Vec<(&'static str, Event)>,
    /// Which side may open streams before the handshake of which connection is through.
    pub(crate) early: Vec<(&'static str, ConnectionId)>,
    /// What the near side sent, if wanted.
    pub(crate) recorded: Option<Vec<Datagram>>,
    /// Time and length of all datagrams, if wanted.
    pub(crate) trace: Option<Vec<(u64, usize)>>,
    pub(crate) connection: Option<ConnectionId>,
    /// Where the far side sees the near one.
    pub(crate) near_address: SocketAddr,
    /// Where it last sent to.
    pub(crate) far_sent_to: Option<SocketAddr>,
    /// When the near side had read how much, if wanted.
    pub(crate) progress: Option<Vec<(Instant, u64)>>,
    /// The streams that a test answers itself, if it does.
    pub(crate) by_hand: Option<Vec<StreamRef>>,
}

impl Pair {
    pub(crate) fn new(path: &Path, configs: &[Config; 2], seed: u64) -> Self {
        let loss = path.loss;
        Self::with_losses(path, configs, seed, || Box::new(PacketError::new(loss)))
    }

    /// The same, each way with such a channel.
    pub(crate) fn with_losses(
        path: &Path,
        configs: &[Config; 2],
        seed: u64,
        channel: impl Fn() -> Box<dyn Channel>,
    ) -> Self {
        let way = |name: &str| {
            let settings = link::Settings {
                rate: Some(path.rate),
                delay: path.round_trip / 2,
                queue: DropTail::new(Limit::Bytes(Bytes(750_000))).into(),
                channels: vec![channel()],
                ..link::Settings::default()
            };
            link::Direction::new(settings, seed, name, Wait::default())
        };
        Self {
            now: Instant::ZERO,
            near: Endpoint::new(&configs[0], false).unwrap(),
            far: Endpoint::new(&configs[1], true).unwrap(),
            ways: [way("link.up"), way("link.down")],
            answers: BTreeMap::new(),
            requests: BTreeMap::new(),
            got: BTreeMap::new(),
            told: Vec::new(),
            early: Vec::new(),
            recorded: None,
            trace: None,
            connection: None,
            near_address: NEAR.parse().unwrap(),
            far_sent_to: None,
            progress: None,
            by_hand: None,
        }
    }

    /// The same with configurations as they come.
    pub(crate) fn over(path: &Path, control: &str, seed: u64) -> Self {
        Self::new(path, &configs(path, control, seed), seed)
    }

    pub(crate) fn connect(&mut self) -> ConnectionId {
        let peer: SocketAddr = FAR.parse().unwrap();
        let connection = self.near.connect(peer, self.now).unwrap();
        self.connection = Some(connection);
        connection
    }

    /// Connects, and waits until that is done and all is quiet.
    pub(crate) fn stand(&mut self) {
        let connection = self.connect();
        self.run_until(self.now + Duration::from_secs(5), |pair| {
            pair.told.iter().any(|(side, event)| {
                *side == "near"
                    && matches!(event, Event::Connected { connection: made, .. } if *made == connection)
            })
        });
        assert!(!self.told.is_empty(), "no connection within five seconds");
    }

    /// Asks for `bytes` on a stream of its own.
    pub(crate) fn ask(&mut self, bytes: u64) -> StreamId {
        let connection = self.connection.unwrap();
        let stream = self.near.open(connection, Direction::Both).unwrap();
        let whole = StreamRef { connection, stream };
        let mut request = Chunk::from(bytes.to_le_bytes().to_vec());
        assert_eq!(self.near.write(whole, &mut request), Ok(8));
        self.near.end(whole, End::Finish).unwrap();
        self.got.insert(stream, Got::default());
        stream
    }

    /// Runs until `end`, or until `done`.
    pub(crate) fn run_until(&mut self, end: Instant, done: impl Fn(&Self) -> bool) {
        loop {
            self.settle();
            if done(self) {
                return;
            }
            let next = self.next().filter(|&next| next < end);
            self.now = next.unwrap_or(end).max(self.now);
            for (way, peer) in [(0, self.near_address), (1, FAR.parse().unwrap())] {
                while let Some((_, mut datagram)) = self.ways[way].deliver(self.now) {
                    datagram.peer = peer;
                    let side = if way == 0 {
                        &mut self.far
                    } else {
                        &mut self.near
                    };
                    side.input((), datagram, self.now);
                }
            }
            for side in [&mut self.near, &mut self.far] {
                if side.deadline().is_some_and(|due| due <= self.now) {
                    side.timeout(self.now);
                }
            }
            if next.is_none() {
                self.settle();
                return;
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let sides = [self.near.deadline(), self.far.deadline()];
        let ways = [self.ways[0].deadline(), self.ways[1].deadline()];
        sides.into_iter().chain(ways).flatten().min()
    }

    /// Everything leaves, and applications act, until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut events = Vec::new();
            let now = self.now;
            let trace = &mut self.trace;
            let recorded = &mut self.recorded;
            let [up, down] = &mut self.ways;
            for (name, side, way) in [("near", &mut self.near, up), ("far", &mut self.far, down)] {
                side.drain(now, |output| match output {
                    Output::Packet((), datagram) => {
                        if let Some(trace) = trace {
                            trace.push((now.as_nanos(), datagram.data.len()));
                        }
                        if name == "near"
                            && let Some(recorded) = recorded
                        {
                            recorded.push(datagram.clone());
                        }
                        if name == "far" {
                            self.far_sent_to = Some(datagram.peer);
                        }
                        let length = Bytes(datagram.data.len() as u64 + 28);
                        way.push(datagram, length, now);
                    }
                    Output::Event(event) => events.push((name, event)),
                });
            }
            if events.is_empty() {
                return;
            }
            for (side, event) in events {
                match (side, event) {
                    ("near", Event::Readable(stream)) => self.take(stream.stream),
                    ("far", Event::Opened(stream) | Event::Readable(stream)) => self.serve(stream),
                    ("far", Event::Writable(stream)) => self.answer(stream),
                    (side, Event::Early { connection, .. }) => self.early.push((side, connection)),
                    (side, event @ (Event::Connected { .. } | Event::Lost { .. })) => {
                        self.told.push((side, event));
                    }
                    _ => {}
                }
            }
        }
    }

    /// The near side reads.
    pub(crate) fn take(&mut self, stream: StreamId) {
        let connection = self.connection.unwrap();
        let Some(got) = self.got.get_mut(&stream) else {
            return;
        };
        while !got.ignored && got.finished.is_none() {
            match self.near.read(StreamRef { connection, stream }, usize::MAX) {
                Ok(Read::Data(data)) => {
                    got.bytes += data.len() as u64;
                    if let Some(progress) = &mut self.progress {
                        progress.push((self.now, got.bytes));
                    }
                }
                Ok(Read::Finished) => got.finished = Some(self.now),
                _ => return,
            }
        }
    }

    /// The far side ends without a word, and another begins in its place.
    pub(crate) fn restart_far(&mut self, config: &Config) {
        self.far = Endpoint::new(config, true).unwrap();
        self.requests.clear();
        self.answers.clear();
    }

    /// Requests that the far side has heard of.
    pub(crate) fn asked(&self) -> usize {
        self.requests.len()
    }

    /// The far side reads what is wanted.
    fn serve(&mut self, stream: StreamRef) {
        let request = self.requests.entry(stream).or_default();
        while let Ok(Read::Data(data)) = self.far.read(stream, usize::MAX) {
            request.extend_from_slice(&data);
        }
        if let Some(streams) = &mut self.by_hand {
            if !streams.contains(&stream) {
                streams.push(stream);
            }
            return;
        }
        if let Ok(wanted) = <[u8; 8]>::try_from(&request[..])
            && !self.answers.contains_key(&stream)
        {
            let left = u64::from_le_bytes(wanted);
            self.answers.insert(stream, Answer { left });
            self.answer(stream);
        }
    }

    /// And sends it.
    fn answer(&mut self, stream: StreamRef) {
        let Some(answer) = self.answers.get_mut(&stream) else {
            return;
        };
        while answer.left > 0 {
            let mut data = ZEROS.slice(..(answer.left as usize).min(ZEROS.len()));
            let Ok(written @ 1..) = self.far.write(stream, &mut data) else {
                return;
            };
            answer.left -= written as u64;
        }
        self.answers.remove(&stream);
        self.far.end(stream, End::Finish).unwrap();
    }

    /// Asks for `bytes`, and returns how long all of them took.
    pub(crate) fn fetch(&mut self, bytes: u64) -> Duration {
        let began = self.now;
        let stream = self.ask(bytes);
        self.run_until(began + Duration::from_secs(60), |pair| {
            pair.got[&stream].finished.is_some()
        });
        let got = self.got[&stream];
        assert_eq!(got.bytes, bytes);
        got.finished.unwrap().since(began)
    }

    /// The longest wait on either way.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.ways.iter().map(|way| way.observer().0).max().unwrap()
    }
}

/// Three fetches over what `pair` makes of a seed: the same seed gives the same times and lengths of datagrams, another one others.
pub(crate) fn traces_follow_the_seed(pair: impl Fn(u64) -> Pair) {
    let trace = |seed| {
        let mut pair = pair(seed);
        pair.trace = Some(Vec::new());
        for _ in 0..3 {
            pair.fetch(300_000);
        }
        pair.trace.unwrap()
    };
    let first = trace(5);
    assert!(first.len() > 600, "{}", first.len());
    assert!(first == trace(5), "two runs of one seed differ");
    assert!(first != trace(6), "two seeds are one");
}
