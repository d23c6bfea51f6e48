//! How long packets wait for those before them: over the link's own channels, in virtual time, a sender that always has
//! something to send. docs/fec.md has the table, which `table` prints.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_base::{Bytes, Instant, Machine, Output, Probability, Rate};
use bentpipe_fec::{Config, Layer, Overhead, Side, Strength, silence};
use bentpipe_link::channel::{Chain, Gilbert, PacketError};
use bentpipe_link::{Channel, Direction, Settings};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// Packets of 1,500 octets take 1.2 ms each.
const RATE: Rate = Rate::from_bits_per_sec(10_000_000);
const PACKET: Bytes = Bytes(1500);
/// One way.
const DELAY: Duration = Duration::from_millis(300);

/// A channel that loses a share of all packets.
#[derive(Clone, Copy)]
enum Losses {
    Independent(f64),
    /// In bursts of three on average.
    Bursts(f64),
}

impl Losses {
    fn channel(self) -> Box<dyn Channel> {
        let share = |share| Probability::new(share).unwrap();
        match self {
            Self::Independent(lost) => Box::new(PacketError::new(share(lost))),
            Self::Bursts(lost) => Box::new(Gilbert::new(Chain::bursts(3.0, share(lost)).unwrap())),
        }
    }
}

/// What a run has found.
struct Found {
    /// How long packets were on their way beyond the path's delay until all before them were there, in ascending order.
    waits: Vec<Duration>,
    /// Datagrams sent, a new packet of data.
    overhead: f64,
    /// Packets sent again, of those.
    repeated: f64,
}

impl Found {
    /// In milliseconds.
    fn quantile(&self, share: f64) -> f64 {
        let index = (self.waits.len() as f64 * share) as usize;
        self.waits[index].as_secs_f64() * 1e3
    }
}

/// A sender of data packets of which each has a number. A transmission is lost, as QUIC judges, when one that was sent `threshold`
/// later has arrived, and then repeated; the sender knows half a round trip after the receiver.
struct Transfer {
    /// The layer of each end, if there is one.
    layers: Option<(Layer, Layer)>,
    link: Direction<bytes::Bytes>,
    threshold: u64,
    /// What the sender has sent: the number of the data packet, by transmission.
    transmissions: Vec<u64>,
    /// Transmissions that are known to the receiver, or given up, below which all are.
    judged: u64,
    arrived: Vec<bool>,
    /// Data packets to be repeated, and when the sender will know.
    repeats: VecDeque<(Instant, u64)>,
    /// Acknowledgements under way, which nothing loses; they tell the sender what is lost on the way there.
    back: VecDeque<(Instant, bytes::Bytes)>,
    /// When each data packet was sent first, and when it was there.
    first_sent: Vec<Instant>,
    there: BTreeMap<u64, Instant>,
    datagrams: u64,
}

impl Transfer {
    fn new(overhead: Option<Overhead>, losses: Losses, seed: u64) -> Self {
        let layers = overhead.map(|overhead| {
            let silence = silence(RATE, PACKET);
            let layer = || Layer::new(Config { overhead, silence });
            (layer(), layer())
        });
        let settings = Settings {
            rate: Some(RATE),
            delay: DELAY,
            channels: vec![losses.channel()],
            ..Settings::default()
        };
        Self {
            layers,
            link: Direction::new(settings, seed, "fec", bentpipe_base::Silent),
            threshold: 3,
            transmissions: Vec::new(),
            judged: 0,
            arrived: Vec::new(),
            repeats: VecDeque::new(),
            back: VecDeque::new(),
            first_sent: Vec::new(),
            there: BTreeMap::new(),
            datagrams: 0,
        }
    }

    /// Sends what is due at `now`: what is to be repeated, or else new data. Returns how many datagrams that took.
    fn send(&mut self, now: Instant) -> u32 {
        let due = self.repeats.front().is_some_and(|(at, _)| *at <= now);
        let data = match due.then(|| self.repeats.pop_front()).flatten() {
            Some((_, data)) => data,
            None => {
                self.first_sent.push(now);
                self.first_sent.len() as u64 - 1
            }
        };
        let transmission = self.transmissions.len() as u64;
        self.transmissions.push(data);
        self.arrived.push(false);
        let packet = bytes::Bytes::copy_from_slice(&transmission.to_be_bytes());
        let mut sent = vec![packet.clone()];
        if let Some((near, _)) = &mut self.layers {
            let arrived = self.back.partition_point(|(at, _)| *at <= now);
            for (_, back) in self.back.drain(..arrived) {
                outputs(near, Some((Side::Path, back)), now);
            }
            sent = outputs(near, Some((Side::Quic, packet)), now);
            self.threshold = near.strength().packet_threshold().into();
        }
        let count = sent.len() as u32;
        for datagram in sent {
            self.link.push(datagram, PACKET, now);
        }
        self.datagrams += u64::from(count);
        count
    }

    /// Takes what has arrived by `now`.
    fn receive(&mut self, now: Instant) {
        while let Some((at, datagram)) = self.link.deliver(now) {
            let packets = match &mut self.layers {
                Some((_, far)) => {
                    let acknowledgement = Some((Side::Quic, bytes::Bytes::from_static(b"ACK")));
                    let back = outputs(far, acknowledgement, at).into_iter();
                    self.back
                        .extend(back.map(|datagram| (at + DELAY, datagram)));
                    outputs(far, Some((Side::Path, datagram)), at)
                }
                None => vec![datagram],
            };
            for packet in packets {
                let transmission = u64::from_be_bytes(packet[..].try_into().unwrap());
                self.arrived[transmission as usize] = true;
                let data = self.transmissions[transmission as usize];
                self.there.entry(data).or_insert(at);
                self.judge(transmission, at);
            }
        }
    }

    /// Transmission `latest` has arrived `at`: what was sent long before it is lost.
    fn judge(&mut self, latest: u64, at: Instant) {
        while self.judged + self.threshold <= latest {
            let data = self.transmissions[self.judged as usize];
            if !self.arrived[self.judged as usize] {
                self.repeats.push_back((at + DELAY, data));
            }
            self.judged += 1;
        }
    }

    /// Sends until `packets` data packets were sent.
    fn run(mut self, packets: usize) -> Found {
        let mut now = Instant::ZERO;
        while self.first_sent.len() < packets {
            self.receive(now);
            let sent = self.send(now);
            now += RATE.serialisation(PACKET) * sent;
        }
        self.receive(now + DELAY * 2);
        let mut all_there = Instant::ZERO;
        let path = DELAY + RATE.serialisation(PACKET);
        let mut waits = Vec::new();
        for (data, sent) in (0..).zip(&self.first_sent) {
            // The end of the run has no time to be repaired.
            let Some(there) = self.there.get(&data) else {
                break;
            };
            all_there = all_there.max(*there);
            waits.push(all_there.since(*sent + path));
        }
        assert!(
            waits.len() > packets * 9 / 10,
            "{} of {packets}",
            waits.len()
        );
        waits.sort_unstable();
        let data = self.first_sent.len() as f64;
        Found {
            waits,
            overhead: self.datagrams as f64 / data - 1.0,
            repeated: self.transmissions.len() as f64 / data - 1.0,
        }
    }
}

fn outputs(
    layer: &mut Layer,
    arrived: Option<(Side, bytes::Bytes)>,
    now: Instant,
) -> Vec<bytes::Bytes> {
    let mut out = Vec::new();
    layer.turn(arrived, now, |output| match output {
        Output::Packet(_, packet) => out.push(packet),
        Output::Event(event) => match event {},
    });
    out
}

const fn fixed(every: u16, window: u16) -> Option<Overhead> {
    Some(Overhead::Fixed(Strength {
        every,
        window,
        tail: 3,
    }))
}

/// The 99th percentile in milliseconds.
fn p99(overhead: Option<Overhead>, losses: Losses) -> f64 {
    Transfer::new(overhead, losses, 1)
        .run(50_000)
        .quantile(0.99)
}

#[test]
fn five_percent_of_repairs_hide_one_percent_of_losses() {
    let wait = p99(fixed(20, 200), Losses::Independent(0.01));
    assert!(wait <= 60.0, "{wait} ms");
}

#[test]
fn ten_percent_of_repairs_hide_five_percent_of_losses_and_one_in_bursts() {
    let scattered = p99(fixed(10, 200), Losses::Independent(0.05));
    let bursts = p99(fixed(10, 200), Losses::Bursts(0.01));
    assert!(
        scattered <= 150.0 && bursts <= 150.0,
        "{scattered} ms, {bursts} ms"
    );
}

#[test]
fn fourteen_percent_of_repairs_save_the_round_trip_at_five_percent_in_bursts() {
    let wait = p99(fixed(7, 200), Losses::Bursts(0.05));
    assert!(wait <= 600.0, "{wait} ms");
    let alone = p99(None, Losses::Bursts(0.05));
    assert!(alone > 1_000.0, "without repairs {alone} ms");
}

#[test]
fn overhead_that_follows_the_losses_does_as_well() {
    for (losses, most) in [
        (Losses::Independent(0.05), 0.12),
        (Losses::Bursts(0.01), 0.06),
    ] {
        let found = Transfer::new(Some(Overhead::Measured), losses, 1).run(50_000);
        let wait = found.quantile(0.99);
        assert!(
            wait <= 600.0 && found.overhead <= most,
            "{wait} ms, {}",
            found.overhead
        );
    }
}

/// Prints the table of docs/fec.md:
/// `cargo test --release -p bentpipe-fec --test delay -- --ignored --nocapture`.
#[test]
#[ignore = "prints a table; takes a minute"]
#[allow(clippy::print_stdout, reason = "the table is what it is for")]
fn table() {
    let rows = [
        ("ARQ alone", None),
        ("2.5% (40, 200)", fixed(40, 200)),
        ("5% (20, 200)", fixed(20, 200)),
        ("5% (20, 500)", fixed(20, 500)),
        ("7.1% (14, 200)", fixed(14, 200)),
        ("10% (10, 100)", fixed(10, 100)),
        ("10% (10, 200)", fixed(10, 200)),
        ("14.3% (7, 200)", fixed(7, 200)),
        ("20% (5, 200)", fixed(5, 200)),
        ("25% (4, 200)", fixed(4, 200)),
        ("measured", Some(Overhead::Measured)),
    ];
    let columns = [
        Losses::Independent(0.01),
        Losses::Bursts(0.01),
        Losses::Independent(0.05),
        Losses::Bursts(0.05),
    ];
    for (name, overhead) in rows {
        let cells = columns.map(|losses| {
            let found = Transfer::new(overhead, losses, 1).run(200_000);
            let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|share| found.quantile(share));
            let percent = |share: f64| share * 100.0;
            let (sent, again) = (percent(found.overhead), percent(found.repeated));
            format!("{p50:.0}, {p99:.0}, {p999:.0} ({sent:.1}%, {again:.2}%)")
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
}
