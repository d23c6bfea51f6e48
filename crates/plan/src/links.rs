//! From the links of a scenario to the settings of their directions.

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_link::channel::{self, BitError, BurstError, Chain, PacketError, PeriodError, Replay};
use bentpipe_link::queue::{
    Blue, BlueSettings, Discipline, DropTail, Red, RedError, RedLinux, RedNs2, RedSettings,
    Thresholds,
};
use bentpipe_link::{Change, Channel, Limit, Settings, queue};
use bentpipe_scenario::{self as scenario, Direction, Gilbert, Outage, Queue, QueueLimit, RedKind};
use thiserror::Error;

/// A property of a link that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum LinkError {
    /// Of a RED queue.
    #[error(transparent)]
    Red(#[from] RedError),
    /// A RED queue's weight.
    #[error("a weight of {0} in RED; give one in (0, 1]")]
    Weight(f64),
    /// Bursts of errors.
    #[error(transparent)]
    Burst(#[from] BurstError),
    /// An outage that comes again.
    #[error(transparent)]
    Period(#[from] PeriodError),
}

/// The settings of both directions of `link`, the one from its first end first.
///
/// # Errors
/// The first property of it that cannot be.
pub fn settings<P: Send + 'static>(link: &scenario::Link) -> Result<[Settings<P>; 2], LinkError> {
    let direction = |way| direction(way, link.mtu);
    Ok([direction(&link.forward)?, direction(&link.reverse)?])
}

fn direction<P: Send + 'static>(way: &Direction, mtu: Bytes) -> Result<Settings<P>, LinkError> {
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
        changes: { way.changes.iter() }
            .map(|change| Change {
                at: change.at,
                rate: change.rate,
                delay: change.delay,
            })
            .collect(),
    })
}

const fn limit(size: QueueLimit) -> Limit {
    match size {
        QueueLimit::Packets(packets) => Limit::Packets(packets as usize),
        QueueLimit::Bytes(bytes) => Limit::Bytes(bytes),
    }
}

fn red<P: Send + 'static>(
    red: &scenario::Red,
    mtu: Bytes,
    rate: Option<Rate>,
) -> Result<Discipline<P>, LinkError> {
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
        weight: Probability::new(red.weight).ok_or(LinkError::Weight(red.weight))?,
        gentle: red.gentle,
        slot: rate.zip(mean).map(|(rate, mean)| rate.serialisation(mean)),
    };
    Ok(match red.kind {
        RedKind::Published => boxed(Red::new(settings)?),
        RedKind::Linux => boxed(RedLinux::new(settings)?),
        RedKind::Ns2 => boxed(RedNs2::new(settings)?),
    })
}

fn boxed<P>(queue: impl queue::Queue<P> + 'static) -> Discipline<P> {
    Discipline::Other(Box::new(queue))
}

fn blue<P: Send + 'static>(blue: &scenario::Blue) -> Discipline<P> {
    boxed(Blue::new(BlueSettings {
        limit: limit(blue.limit),
        increment: blue.increment,
        decrement: blue.decrement,
        freeze: blue.freeze,
    }))
}

/// In the order of the fields; those that do nothing are left out.
fn channels(way: &Direction) -> Result<Vec<Box<dyn Channel>>, LinkError> {
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

fn chain(gilbert: &Gilbert) -> Result<Chain, BurstError> {
    match *gilbert {
        Gilbert::Means {
            mean_burst,
            error_rate,
        } => Chain::bursts(mean_burst, error_rate),
        Gilbert::Transitions {
            to_bad,
            to_good,
            good_error_rate,
            bad_error_rate,
        } => Ok(Chain {
            worsen: to_bad,
            recover: to_good,
            good: good_error_rate,
            bad: bad_error_rate,
        }),
    }
}

fn outage(outage: &Outage) -> Result<channel::Outage, PeriodError> {
    match outage.every {
        None => Ok(channel::Outage::new([(outage.start, outage.length)])),
        Some(period) => channel::Outage::periodic(outage.start, outage.length, period),
    }
}
