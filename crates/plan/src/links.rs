//! From the links of a scenario to the settings of their directions.

use bentpipe_base::Bytes;
use bentpipe_link::channel::{self, BitError, BurstError, Chain, PacketError, PeriodError, Replay};
use bentpipe_link::queue::{self, Fault, Line};
use bentpipe_link::{Change, Channel, Settings};
use bentpipe_scenario::{self as scenario, Direction, Gilbert, Outage};
use thiserror::Error;

/// A property of a link that cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LinkError {
    /// Of a queue.
    #[error(transparent)]
    Queue(#[from] Fault),
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
        queue: {
            let line = Line {
                rate: way.rate,
                mtu,
            };
            let queue = &way.queue;
            queue::build(queue.spec(), queue.limit().into(), queue.values(), &line)?
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
