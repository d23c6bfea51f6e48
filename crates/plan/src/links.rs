//! From the links of a scenario to the settings of their directions.

use bentpipe_base::Bytes;
use bentpipe_link::keys::Fault;
use bentpipe_link::queue::{self, LinkInfo};
use bentpipe_link::{Change, Mark, Settings};
use bentpipe_scenario::{self as scenario, Direction};

/// The settings of both directions of `link`, the one from its first end first.
///
/// # Errors
/// The first property of it that cannot be.
pub fn settings<P: Mark + Send + 'static>(
    link: &scenario::Link,
) -> Result<[Settings<P>; 2], Fault> {
    let direction = |way| direction(way, link.mtu);
    Ok([direction(&link.forward)?, direction(&link.reverse)?])
}

fn direction<P: Mark + Send + 'static>(way: &Direction, mtu: Bytes) -> Result<Settings<P>, Fault> {
    Ok(Settings {
        rate: way.rate,
        burst: way.burst,
        delay: way.delay,
        jitter: way.jitter,
        overhead: way.overhead,
        queue: {
            let info = LinkInfo {
                rate: way.rate,
                mtu,
            };
            let queue = &way.queue;
            queue::build(queue.spec(), queue.limit().into(), queue.values(), &info)?
        },
        channels: { way.channels.iter() }
            .map(|channel| (channel.spec().build)(channel.values()))
            .collect::<Result<_, _>>()?,
        errors_before_queue: way.errors_before_queue,
        changes: { way.changes.iter() }
            .map(|change| Change {
                at: change.at,
                rate: change.rate,
                delay: change.delay,
            })
            .collect(),
    })
}
