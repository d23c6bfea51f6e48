//! Beacons: announces this server on the local link, and finds others there.

use crate::endpoint::nonce;
use crate::reachability::Refusals;
use crate::seal::{DOUBT, Seal, Side};
use crate::{Error, Key};
use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_saratoga::sender::Failure;
use bentpipe_sockets::timer;
use bentpipe_sockets::udp::{RECEIVE, Udp, interfaces};
use bentpipe_wire::saratoga::{
    Beacon, Capabilities, Code, Frame, FreeSpace, GROUP_V4, GROUP_V6, PORT, Request, RequestKind,
    Width, Willingness,
};
use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Between two beacons.
const PAUSE: Duration = Duration::from_secs(5);
/// Peers that are told apart at most.
const MOST_PEERS: usize = 10_000;
/// Octets of a beacon that is heard at most: names have a few, and all those of many peers are kept.
const LONGEST: usize = 1_500;
/// Beacons of one socket in a row at most.
const RECEIVES: usize = 64;

/// What a server that takes `rate` and has `room` says of itself; to who has asked, with the Id of the question. The frame
/// has no place for either: they stand at the end of the name, which has no fixed form.
pub(crate) fn of(
    name: &str,
    rate: Rate,
    asked: Option<u32>,
    receives: bool,
    room: Option<u64>,
) -> Beacon {
    let asked = asked.map(|id| format!("{} ", asked_word(id)));
    Beacon {
        capabilities: Capabilities {
            width: Width::Bits64,
            streams: receives,
            send: Willingness::Willing,
            receive: if receives {
                Willingness::Willing
            } else {
                Willingness::Capable
            },
            udp_lite: false,
        },
        free: room.map(|room| FreeSpace::of(Bytes(room))),
        name: format!("{name} {}{RATE}{rate}", asked.unwrap_or_default())
            .trim_start()
            .to_owned(),
    }
}

/// The text before the rate in a beacon's name.
const RATE: &str = "rate=";

/// The word that says which question a beacon answers.
fn asked_word(id: u32) -> String {
    format!("asked={id:08x}")
}

/// Whether `beacon` answers the question `id`. Whoever does not see the question cannot know its Id.
fn answers(beacon: &Beacon, id: u32) -> bool {
    // The rate may be one that cannot be read here, or missing.
    let mut last = beacon.name.rsplit(' ').take(2);
    last.any(|word| word == asked_word(id))
}

/// The name of a peer, and the rate that it takes if it says so.
pub fn name_and_rate(beacon: &Beacon) -> (&str, Option<Rate>) {
    let name = beacon.name.as_str();
    let (front, last) = name.rsplit_once(' ').unwrap_or(("", name));
    match last.strip_prefix(RATE).and_then(|rate| rate.parse().ok()) {
        Some(rate) => (front, Some(rate)),
        None => (name, None),
    }
}

/// Asks the server at `address` for the rate that it takes, for `patience` at most.
///
/// # Errors
/// A server that refuses, says nothing, or nothing of a rate; the socket.
pub fn ask_rate(address: SocketAddr, key: Option<&Key>, patience: Duration) -> Result<Rate, Error> {
    let own = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let udp = Udp::bind(SocketAddr::new(own, 0)).map_err(Error::socket("open a UDP port"))?;
    udp.connect(address)
        .map_err(Error::socket("find a way to the server"))?;
    // Drawn at random: beacons count only with it, for anybody can forge the server's address.
    let session = nonce();
    let mut request = Request {
        capabilities: Capabilities::default(),
        session,
        kind: RequestKind::None,
        late_checksum: false,
        path: String::new(),
        authentication: Vec::new(),
    };
    if let Some(key) = key {
        key.sign(&mut request);
    }
    let seal = key.map(|key| Seal::of_session(key, &request.authentication, Side::Client));
    let mut unsealed = None;
    let mut datagram = Vec::new();
    // A REQUEST without a path can be written.
    let _ = Frame::Request(request).emit(&mut datagram);
    let refused = |failure| Error::session(RATE_ASKED, failure);
    let (mut end, mut next) = (timer::now() + patience, timer::now());
    let mut buffer = vec![0; RECEIVE];
    let mut refused_by = Refusals::default();
    while timer::now() < end && !refused_by.are_believed() {
        if timer::now() >= next {
            next = timer::now() + AGAIN;
            let sent = udp.send(&datagram, datagram.len(), address);
            refused_by.or_else(sent).map_err(Error::socket("send"))?;
        }
        while timer::now() < end {
            let received = refused_by.received(udp.receive(&mut buffer));
            let Some(received) = received.map_err(Error::socket("receive"))? else {
                break;
            };
            if received.from.ip().to_canonical() != address.ip().to_canonical() {
                continue;
            }
            let datagram = &buffer[..received.len];
            // With a key nothing else is believed, but it may be that a server has none, or another.
            let opened = match &seal {
                Some(seal) => seal.open(datagram),
                None => Some(datagram),
            };
            match Frame::parse(opened.unwrap_or(datagram)) {
                Ok((Frame::Beacon(beacon), _)) if opened.is_some() && answers(&beacon, session) => {
                    let (name, rate) = name_and_rate(&beacon);
                    return rate.ok_or_else(|| Error::UnknownRate {
                        said: name.escape_debug().to_string(),
                    });
                }
                Ok((Frame::Status(status), _)) if status.session == session => {
                    if opened.is_some() && status.code == Code::OK {
                        return Err(Error::UnknownRate {
                            said: status.code.to_string(),
                        });
                    }
                    if opened.is_some() {
                        return Err(refused(Failure::Peer(status.code)));
                    }
                    unsealed.get_or_insert(status.code);
                    end = end.min(timer::now() + DOUBT);
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(match unsealed {
        _ if refused_by.are_believed() => Error::Unreachable { server: address },
        Some(code) => Error::Unsealed {
            path: RATE_ASKED.to_owned(),
            code,
        },
        None => Error::NoRate,
    })
}

/// Of the addresses of one host the first of which nobody says within two seconds that nothing listens there, or that there is no
/// way to it; the last where that is said of all. One alone is not asked.
pub fn listening(mut addresses: Vec<SocketAddr>) -> Option<SocketAddr> {
    let last = addresses.pop()?;
    let listens = |address: &SocketAddr| {
        let asked = ask_rate(*address, None, LISTENS);
        !matches!(asked, Err(Error::Unreachable { .. } | Error::Socket { .. }))
    };
    Some(addresses.into_iter().find(listens).unwrap_or(last))
}

/// How long [`listening`] waits for each.
const LISTENS: Duration = Duration::from_secs(2);

/// What is asked for, in errors.
const RATE_ASKED: &str = "the rate";

/// Between two questions for a rate: longer than the longest round trip.
const AGAIN: Duration = Duration::from_secs(1);

/// Sends beacons now and then.
pub(crate) struct BeaconSender {
    local_addresses: Vec<(Udp, SocketAddr)>,
    next: Instant,
}

impl BeaconSender {
    pub(crate) fn new() -> Result<Self, Error> {
        let local_addresses = [
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(GROUP_V4)),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(GROUP_V6)),
        ];
        let mut open = Vec::new();
        for (own, group) in local_addresses {
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
            local_addresses: open,
            next: Instant::ZERO,
        })
    }

    /// Whether it is time for a beacon.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// Sends one on every link.
    pub(crate) fn call(&mut self, beacon: Beacon, now: Instant) {
        self.next = now + PAUSE;
        let mut datagram = Vec::new();
        if Frame::Beacon(beacon).emit(&mut datagram).is_ok() {
            // Links come and go.
            let links = interfaces().unwrap_or_default();
            for (udp, to) in &self.local_addresses {
                for (link, _) in &links {
                    // One that is down, or without that family, is no reason not to serve.
                    let _ = has_source(*to, *link).and_then(|has_source| {
                        if !has_source {
                            return Ok(());
                        }
                        udp.send_groups_by(*link)?;
                        udp.send(&datagram, datagram.len(), *to)
                    });
                }
            }
        }
    }
}

/// Whether what goes to the group `to` by interface number `link` has an address that it comes from. Without an IPv4
/// address the kernel sends it from 0.0.0.0, at which nobody is reached.
fn has_source(to: SocketAddr, link: u32) -> std::io::Result<bool> {
    let any = match to {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => return Ok(true),
    };
    // Sends nothing: a connected datagram socket has a source address, and no more.
    let udp = Udp::bind(SocketAddr::new(any, 0))?;
    udp.send_groups_by(link)?;
    udp.connect(to)?;
    Ok(!udp.local_address()?.ip().is_unspecified())
}

/// Sockets that hear `group` on every link that carries it. IPv6 wants one for each link: its groups are of
/// the link, and so is an address to bind.
fn joined(group: IpAddr) -> std::io::Result<Vec<Udp>> {
    let mut open: Vec<Udp> = Vec::new();
    let mut refused = std::io::Error::other("there is no interface beside the loopback");
    for (link, _) in interfaces()? {
        let joined = match (group, open.pop()) {
            (IpAddr::V4(_), Some(udp)) => {
                let joined = udp.join(group, link);
                open.push(udp);
                joined
            }
            (_, last) => {
                open.extend(last);
                let address = match group {
                    IpAddr::V4(_) => SocketAddr::new(group, PORT),
                    IpAddr::V6(group) => SocketAddrV6::new(group, PORT, 0, link).into(),
                };
                Udp::bind_group(address).and_then(|udp| {
                    udp.join(group, link)?;
                    open.push(udp);
                    Ok(())
                })
            }
        };
        refused = joined.err().unwrap_or(refused);
    }
    if open.is_empty() {
        Err(refused)
    } else {
        Ok(open)
    }
}

/// The address of `from`, with the interface where it is one of a link.
fn reached_at(from: SocketAddr) -> String {
    let scope = match from {
        SocketAddr::V6(from) => from.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    if scope == 0 {
        return from.ip().to_string();
    }
    let links = interfaces().unwrap_or_default();
    let link = links.into_iter().find(|(index, _)| *index == scope);
    match link {
        Some((_, name)) => format!("{}%{name}", from.ip()),
        None => from.ip().to_string(),
    }
}

/// Listens for `time` and tells who was heard, by the address that they are reached at.
///
/// # Errors
/// When no group can be joined.
pub fn listen(time: Duration) -> Result<BTreeMap<String, Beacon>, Error> {
    let mut open = Vec::new();
    let mut refused = None;
    for group in [IpAddr::V4(GROUP_V4), IpAddr::V6(GROUP_V6)] {
        match joined(group) {
            Ok(sockets) => open.extend(sockets),
            Err(error) => refused = Some(error),
        }
    }
    if let (true, Some(error)) = (open.is_empty(), refused) {
        return Err(Error::socket("listen for beacons")(error));
    }
    hear(&open, timer::now() + time)
}

/// Who is heard by `sockets` until `end`, however much more comes.
fn hear(sockets: &[Udp], end: Instant) -> Result<BTreeMap<String, Beacon>, Error> {
    let mut heard = BTreeMap::new();
    let mut buffer = vec![0; RECEIVE];
    let mut refusals = Refusals::default();
    while timer::now() < end {
        let mut more = false;
        for udp in sockets {
            for _ in 0..RECEIVES {
                let received = refusals.received(udp.receive(&mut buffer));
                let received = received.map_err(Error::socket("receive"))?;
                more |= received.is_some();
                let Some(received) = received else {
                    break;
                };
                for datagram in buffer[..received.len].chunks(received.segment) {
                    if datagram.len() <= LONGEST
                        // A host without an address is reached nowhere.
                        && !received.from.ip().is_unspecified()
                        && let Ok((Frame::Beacon(beacon), _)) = Frame::parse(datagram)
                        && heard.len() < MOST_PEERS
                    {
                        heard.insert(reached_at(received.from), beacon);
                    }
                }
            }
        }
        if !more {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(heard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn socket(at: &str) -> Udp {
        Udp::bind(at.parse().expect("an address")).expect("a port")
    }

    fn datagram(name: String) -> Vec<u8> {
        let mut datagram = Vec::new();
        let rate = Rate::from_bits_per_sec(8_000_000);
        let beacon = Frame::Beacon(of(&name, rate, None, true, None));
        beacon.emit(&mut datagram).expect("it can be written");
        datagram
    }

    /// Whoever is on the link can send beacons without end, and of any length.
    #[test]
    fn of_the_addresses_of_a_host_one_is_taken_at_which_something_listens() {
        let open = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let listens = open();
        let there = listens.local_addr().unwrap();
        let closed = [(); 2].map(|()| open().local_addr().unwrap());
        assert_eq!(listening(vec![closed[0], there, closed[1]]), Some(there));
        assert_eq!(listening(closed.to_vec()), Some(closed[1]));
        assert_eq!(listening(Vec::new()), None);
    }

    #[test]
    fn a_flood_of_beacons_hides_nobody_and_has_an_end() {
        let sockets = [socket("127.0.0.1:0"), socket("127.0.0.1:0")];
        let [flooded, other] = [0, 1].map(|i: usize| sockets[i].local_address().expect("one"));
        let over = Arc::new(AtomicBool::new(false));
        let floods = [300, 300, 300, 300, LONGEST + 1].map(|len| {
            let (over, datagram) = (Arc::clone(&over), datagram("n".repeat(len)));
            std::thread::spawn(move || {
                let from = socket(if len > LONGEST {
                    "127.0.0.3:0"
                } else {
                    "127.0.0.2:0"
                });
                let end = timer::now() + Duration::from_secs(10);
                while !over.load(Ordering::Relaxed) && timer::now() < end {
                    let _ = from.send(&datagram, datagram.len(), flooded);
                }
            })
        });
        let honest = socket("127.0.0.4:0");
        let beacon = datagram("honest".to_owned());
        let sent = honest.send(&beacon, beacon.len(), other);
        sent.expect("it is sent");
        let began = timer::now();
        let heard = hear(&sockets, began + Duration::from_millis(500));
        let took = timer::now().since(began);
        over.store(true, Ordering::Relaxed);
        for flood in floods {
            flood.join().expect("it ends");
        }
        assert!(took < Duration::from_secs(3), "{took:?}");
        let heard: Vec<String> = heard.expect("heard").into_keys().collect();
        assert_eq!(heard, ["127.0.0.2", "127.0.0.4"]);
    }
}
