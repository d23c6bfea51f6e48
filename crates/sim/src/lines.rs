//! From the links of a scenario to the directions that packets travel.

use crate::packets::Handle;
use crate::{LinkCounters, SimError};
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_link::channel::{self, BitError, PacketError, Replay};
use bentpipe_link::queue::{
    Blue, BlueSettings, DropTail, Red, RedLinux, RedNs2, RedSettings, Thresholds,
};
use bentpipe_link::{Change, Channel, Direction, Limit, Settings, queue};
use bentpipe_scenario as scenario;
use scenario::{Gilbert, Outage, Queue, QueueLimit, RedKind};

/// Both directions of a link, the one from its first end first.
pub(crate) fn directions(
    name: &str,
    link: &scenario::Link,
    seed: u64,
) -> Result<[Direction<Handle, LinkCounters>; 2], SimError> {
    let direction = |way: &scenario::Direction, suffix| {
        let settings = settings(way, link.mtu).map_err(|why| SimError::Link {
            link: name.to_owned(),
            why,
        })?;
        // The names that `bentpipe_link::Link` gives: equal seeds lose the same packets in the lab.
        let name = format!("{name}.{suffix}");
        let counters = LinkCounters::default();
        let mut direction = Direction::new(settings, seed, &name, counters);
        direction.follow(way.changes.iter().map(|change| Change {
            at: Instant::ZERO + change.at,
            rate: change.rate,
            delay: change.delay,
        }));
        Ok::<_, SimError>(direction)
    };
    Ok([
        direction(&link.forward, "a-b")?,
        direction(&link.reverse, "b-a")?,
    ])
}

fn settings(way: &scenario::Direction, mtu: Bytes) -> Result<Settings<Handle>, String> {
    Ok(Settings {
        rate: way.rate,
        delay: way.delay,
        overhead: way.overhead,
        queue: match way.queue {
            Queue::DropTail(size) => DropTail::new(limit(size)).into(),
            Queue::Red(red) => self::red(&red, mtu, way.rate)?,
            Queue::Blue(blue) => self::blue(&blue),
        },
        channels: channels(way)?,
    })
}

fn limit(size: QueueLimit) -> Limit {
    match size {
        QueueLimit::Packets(packets) => Limit::Packets(packets as usize),
        QueueLimit::Bytes(bytes) => Limit::Bytes(bytes),
    }
}

fn red(
    red: &scenario::Red,
    mtu: Bytes,
    rate: Option<Rate>,
) -> Result<queue::Discipline<Handle>, String> {
    let (min, max) = (red.min_threshold, red.max_threshold);
    let mean = red.mean_packet.or(match red.kind {
        RedKind::Published => None,
        RedKind::Linux => Some(Bytes(1000)),
        RedKind::Ns2 => Some(Bytes(500)),
    });
    let settings = RedSettings {
        limit: limit(red.limit),
        thresholds: match red.limit {
            QueueLimit::Packets(_) => Thresholds::Packets {
                min: min as f64,
                max: max as f64,
            },
            QueueLimit::Bytes(_) => Thresholds::Bytes {
                min: Bytes(min),
                max: Bytes(max),
                typical: mean.unwrap_or(mtu),
            },
        },
        max_p: red.max_probability,
        weight: bentpipe_base::Probability::new(red.weight)
            .ok_or_else(|| format!("a weight of {} in RED; give one in (0, 1]", red.weight))?,
        gentle: red.gentle,
        slot: rate.zip(mean).map(|(rate, mean)| rate.serialisation(mean)),
    };
    let made = match red.kind {
        RedKind::Published => Red::new(settings).map(boxed),
        RedKind::Linux => RedLinux::new(settings).map(boxed),
        RedKind::Ns2 => RedNs2::new(settings).map(boxed),
    };
    made.map_err(|error| error.to_string())
}

fn boxed(queue: impl queue::Queue<Handle> + 'static) -> queue::Discipline<Handle> {
    queue::Discipline::Other(Box::new(queue))
}

fn blue(blue: &scenario::Blue) -> queue::Discipline<Handle> {
    let settings = BlueSettings {
        limit: limit(blue.limit),
        increment: blue.increment,
        decrement: blue.decrement,
        freeze: blue.freeze,
    };
    boxed(Blue::new(settings))
}

/// In the order of the fields; those that do nothing are left out.
fn channels(way: &scenario::Direction) -> Result<Vec<Box<dyn Channel>>, String> {
    let mut channels: Vec<Box<dyn Channel>> = Vec::new();
    if way.packet_error_rate.value() > 0.0 {
        channels.push(Box::new(PacketError::new(way.packet_error_rate)));
    }
    if way.bit_error_rate.value() > 0.0 {
        channels.push(Box::new(BitError::new(way.bit_error_rate)));
    }
    if let Some(gilbert) = &way.gilbert {
        channels.push(Box::new(channel::Gilbert::new(chain(gilbert)?)));
    }
    for outage in &way.outages {
        channels.push(Box::new(self::outage(outage)?));
    }
    if !way.drops.is_empty() {
        channels.push(Box::new(Replay::new(way.drops.iter().copied())));
    }
    Ok(channels)
}

fn chain(gilbert: &Gilbert) -> Result<channel::Chain, String> {
    match *gilbert {
        Gilbert::Means {
            mean_burst,
            error_rate,
        } => channel::Chain::bursts(mean_burst, error_rate).map_err(|error| error.to_string()),
        Gilbert::Transitions {
            to_bad,
            to_good,
            good_error_rate,
            bad_error_rate,
        } => Ok(channel::Chain {
            worsen: to_bad,
            recover: to_good,
            good: good_error_rate,
            bad: bad_error_rate,
        }),
    }
}

fn outage(outage: &Outage) -> Result<channel::Outage, String> {
    let first = Instant::ZERO + outage.start;
    match outage.every {
        None => Ok(channel::Outage::new([(first, outage.length)])),
        Some(period) => channel::Outage::periodic(first, outage.length, period)
            .map_err(|error| error.to_string()),
    }
}
