//! Short connections: connect, one byte each way, close.
//!
//! The client closes, in good order (FIN), so that TIME_WAIT stays with it and with the proxy's
//! dialling side. Every connection takes a pair of address and port of its own, so that none meets
//! its predecessor's TIME_WAIT, whoever stands between.

use super::usage;
use super::worker::{Duty, Worker};
use super::{Cancel, Doing, PATIENCE, Path, TrafficError};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Ports taken of each client address: below those that the kernel chooses by itself, because it
/// chooses none that any socket, even one in TIME_WAIT, was bound to by name.
const PORTS: std::ops::Range<u16> = 2_000..32_000;

/// The client's pairs of address and port, given out one after another.
#[derive(Debug)]
pub(in crate::gateway) struct Ports {
    addresses: Vec<IpAddr>,
    given: AtomicUsize,
}

impl Ports {
    /// The pairs of `addresses`, of which there must be at least one.
    pub(in crate::gateway) fn of(addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            given: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> SocketAddr {
        let given = self.given.fetch_add(1, Ordering::Relaxed);
        let address = self.addresses[given / PORTS.len() % self.addresses.len()];
        // In range by construction: the remainder is below the number of ports.
        let port = PORTS.start + (given % PORTS.len()) as u16;
        SocketAddr::new(address, port)
    }
}

/// What short connections showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::gateway) struct Connects {
    /// Connections a second.
    pub(in crate::gateway) rate: f64,
    /// Processor time of the proxy's threads a connection, in microseconds; `None` without a proxy.
    pub(in crate::gateway) proxy_cpu: Option<f64>,
    /// The same of the endpoints' threads and the proxy's together.
    pub(in crate::gateway) path_cpu: f64,
}

/// Makes short connections, `at_once` of them under way at any time.
pub(in crate::gateway) fn connects(
    path: &Path<'_>,
    at_once: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Connects, TrafficError> {
    let server = Worker::start(Duty::Echo, Some(path.listen()?), Vec::new())?;
    let figures = path.client.run(|| {
        let mut client = Client::new(path.address, path.ports, at_once)?;
        client.run(&path.cancel, warm_up)?;
        let (before, proxy_before, own_before) = (client.done, path.proxy_cpu()?, own_cpu()?);
        let start = Instant::now();
        client.run(&path.cancel, window)?;
        let elapsed = start.elapsed();
        let own = own_cpu()?.saturating_sub(own_before);
        let proxy = path.proxy_cpu()?.saturating_sub(proxy_before);
        let made = (client.done - before) as f64;
        client.check_all_moving()?;
        let each = |time: Duration| time.as_secs_f64() * 1e6 / made;
        Ok::<_, TrafficError>(Connects {
            rate: made / elapsed.as_secs_f64(),
            proxy_cpu: path.proxy.map(|_| each(proxy)),
            path_cpu: each(own + proxy),
        })
    })??;
    server.stop()?;
    Ok(figures)
}

/// Processor time of this process: the endpoints, and what the kernel does for packets in their threads.
fn own_cpu() -> Result<Duration, TrafficError> {
    usage::process_cpu(std::process::id()).doing("reading the endpoints' processor time")
}

/// One connection under way.
struct Attempt {
    stream: OwnedFd,
    began: Instant,
    asked: bool,
}

struct Client<'a> {
    server: SocketAddr,
    ports: &'a Ports,
    epoll: Epoll,
    attempts: Vec<Attempt>,
    done: u64,
}

impl<'a> Client<'a> {
    fn new(server: SocketAddr, ports: &'a Ports, at_once: usize) -> Result<Self, TrafficError> {
        let mut client = Self {
            server,
            ports,
            epoll: Epoll::new().doing("making an epoll set")?,
            attempts: Vec::with_capacity(at_once),
            done: 0,
        };
        for slot in 0..at_once {
            let attempt = client.dial(slot).doing("connecting to the server")?;
            client.attempts.push(attempt);
        }
        Ok(client)
    }

    fn run(&mut self, cancel: &Cancel, time: Duration) -> Result<(), TrafficError> {
        let end = Instant::now() + time;
        let mut events = Events::with_capacity(self.attempts.len());
        while Instant::now() < end {
            cancel.check()?;
            let ready = self
                .epoll
                .wait(&mut events, Some(PATIENCE))
                .doing("waiting for connections")?;
            if ready == 0 {
                return Err(TrafficError::Stalled {
                    what: "no connection moved on".to_owned(),
                });
            }
            for event in events.iter() {
                self.advance(event.token as usize)
                    .doing("making short connections")?;
            }
        }
        Ok(())
    }

    /// Takes the connection in `slot` as far as it goes; a finished one makes room for the next.
    fn advance(&mut self, slot: usize) -> io::Result<()> {
        let attempt = &mut self.attempts[slot];
        if !attempt.asked {
            match socket::send(&attempt.stream, b"q") {
                Ok(_) => attempt.asked = true,
                Err(e) if is_unready(&e) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        match socket::receive(&attempt.stream, &mut [0]) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection ended without an answer",
            )),
            Ok(_) => {
                self.attempts[slot] = self.dial(slot)?;
                self.done += 1;
                Ok(())
            }
            Err(e) if is_unready(&e) => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn dial(&mut self, slot: usize) -> io::Result<Attempt> {
        let stream = socket::stream(self.server)?;
        socket::bind(&stream, self.ports.next())?;
        socket::connect(&stream, self.server)?;
        let interest = Interest::READ | Interest::WRITE | Interest::EDGE;
        self.epoll.add(&stream, slot as u64, interest)?;
        Ok(Attempt {
            stream,
            began: Instant::now(),
            asked: false,
        })
    }

    /// Connections that hang would only lower the number at once: they make the figure invalid.
    fn check_all_moving(&self) -> Result<(), TrafficError> {
        let late = Duration::from_secs(1);
        let hanging = self.attempts.iter().filter(|a| a.began.elapsed() > late);
        match hanging.count() {
            0 => Ok(()),
            some => Err(TrafficError::Stalled {
                what: format!("{some} connections hung and would not finish"),
            }),
        }
    }
}

fn is_unready(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_pair_is_given_twice_before_all_were_given() {
        let addresses: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let ports = Ports::of(addresses);
        let all = 2 * PORTS.len();
        let given: HashSet<_> = (0..all).map(|_| ports.next()).collect();
        assert_eq!(given.len(), all);
        assert!(given.contains(&ports.next()));
    }
}
