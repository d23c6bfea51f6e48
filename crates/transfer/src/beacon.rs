//! Beacons: who is there, on the local link.

use crate::Error;
use bentpipe_base::{Bytes, Instant};
use bentpipe_os::timer;
use bentpipe_os::udp::{RECEIVE, Udp};
use bentpipe_wire::saratoga::{
    Beacon, Capabilities, Frame, FreeSpace, GROUP_V4, GROUP_V6, PORT, Width, Willingness,
};
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Between two beacons.
const PAUSE: Duration = Duration::from_secs(5);
/// Peers that are told apart at most.
const MOST_PEERS: usize = 10_000;

/// Sends beacons now and then.
pub(crate) struct Herald {
    ways: Vec<(Udp, SocketAddr)>,
    name: String,
    receives: bool,
    next: Instant,
}

impl Herald {
    pub(crate) fn new(name: String, receives: bool) -> Result<Self, Error> {
        let ways = [
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(GROUP_V4)),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(GROUP_V6)),
        ];
        let mut open = Vec::new();
        for (own, group) in ways {
            let bound = Udp::bind(SocketAddr::new(own, 0)).and_then(|udp| {
                udp.keep_local()?;
                Ok(udp)
            });
            match bound {
                Ok(udp) => open.push((udp, SocketAddr::new(group, PORT))),
                // A machine without that family.
                Err(error) => tracing::debug!(%error, %group, "no beacons"),
            }
        }
        Ok(Self {
            ways: open,
            name,
            receives,
            next: Instant::ZERO,
        })
    }

    /// Sends a beacon if it is time for one.
    pub(crate) fn call(&mut self, room: Option<u64>, now: Instant) {
        if self.next > now {
            return;
        }
        self.next = now + PAUSE;
        let beacon = Beacon {
            capabilities: Capabilities {
                width: Width::Bits64,
                streams: self.receives,
                send: Willingness::Willing,
                receive: match self.receives {
                    true => Willingness::Willing,
                    false => Willingness::Capable,
                },
                udp_lite: false,
            },
            free: room.map(|room| FreeSpace::of(Bytes(room))),
            name: self.name.clone(),
        };
        let mut datagram = Vec::new();
        if Frame::Beacon(beacon).emit(&mut datagram).is_ok() {
            for (udp, to) in &self.ways {
                // No route for groups is no reason not to serve.
                let _ = udp.send(&datagram, datagram.len(), *to);
            }
        }
    }
}

/// Listens for `time` and tells who was heard, by address.
///
/// # Errors
/// When no group can be joined.
pub fn listen(time: Duration) -> Result<BTreeMap<IpAddr, Beacon>, Error> {
    let mut open = Vec::new();
    let mut refused = None;
    for group in [IpAddr::V4(GROUP_V4), IpAddr::V6(GROUP_V6)] {
        let bound = Udp::bind(SocketAddr::new(group, PORT)).and_then(|udp| {
            udp.join(group)?;
            Ok(udp)
        });
        match bound {
            Ok(udp) => open.push(udp),
            Err(error) => refused = Some(error),
        }
    }
    if let (true, Some(error)) = (open.is_empty(), refused) {
        return Err(Error::socket("listen for beacons")(error));
    }
    let mut heard = BTreeMap::new();
    let mut buffer = vec![0; RECEIVE];
    let end = timer::now() + time;
    while timer::now() < end {
        for udp in &open {
            while let Some(received) = udp.receive(&mut buffer).map_err(Error::socket("receive"))? {
                let parsed = Frame::parse(&buffer[..received.len]);
                if let Ok((Frame::Beacon(beacon), _)) = parsed
                    && heard.len() < MOST_PEERS
                {
                    heard.insert(received.from.ip(), beacon);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(heard)
}
