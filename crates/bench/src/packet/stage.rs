//! The ground of one subject: a kernel that connects, a TUN interface, and who is behind it.

use super::rival::Rival;
use super::stack::{self, ECHOES, SENDS, TAKES, Task};
use super::{Figure, Options, PacketBenchError, Subject, Timing, carrier, ground, stats, usage};
use crate::gateway::TrafficError;
use crate::gateway::traffic::worker::{Duty, Worker};
use crate::gateway::traffic::{CONNECTIONS, Cancel, Doing, PATIENCE, round_trips};
use bentpipe_os::need::Need;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_sockets::socket;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Instant;

const KERNEL: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const SUBJECT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const INTERFACE: &str = "tun0";

/// Checks what the comparison needs, and says what it found: a line each.
pub(super) fn requirements() -> Result<Vec<String>, PacketBenchError> {
    Need::check_all(&[Need::Root, Need::Tun])?;
    Ok(vec![format!(
        "Linux {}, {} processors",
        rustix::system::uname().release().to_string_lossy(),
        usage::processors()
    )])
}

/// Who serves behind the interface. Dropping it ends it.
#[derive(Debug)]
enum Server {
    /// A stack in a thread of ours.
    Ours { _stack: Task },
    /// A process of its own.
    Rival { _process: Rival },
    /// The kernel of another namespace, with a worker for each port.
    Kernel {
        _carrier: Task,
        _workers: Vec<Worker>,
        _netns: Netns,
    },
}

/// See the file's head. Dropping it undoes everything.
#[derive(Debug)]
pub(super) struct Stage {
    // Dropped in this order: who serves goes before the ground.
    _server: Server,
    netns: Netns,
    subject: Subject,
    congestion: &'static str,
}

impl Stage {
    pub(super) fn build(subject: Subject, options: &Options) -> Result<Self, PacketBenchError> {
        let (netns, congestion) = ground::host::<PacketBenchError>("bench_packet")?;
        let address = || {
            let netlink = netns.netlink()?;
            Ok::<_, PacketBenchError>(netlink.add_address(INTERFACE, ground::prefix(KERNEL))?)
        };
        let server = match subject {
            Subject::Smoltcp => {
                let at = (INTERFACE, IpAddr::from(SUBJECT), 16);
                let configure = || {
                    netns.netlink()?.set_up(INTERFACE)?;
                    address()
                };
                Server::Rival {
                    _process: Rival::start(&options.smoltcp, &netns, at, configure)?,
                }
            }
            Subject::Kernel | Subject::KernelOffloads => {
                let tun = interface(&netns, subject)?;
                address()?;
                kernel(tun, subject)?
            }
            Subject::Bentpipe | Subject::BentpipeOffloads | Subject::HostHalf => {
                let tun = interface(&netns, subject)?;
                address()?;
                let config = stack::config(congestion);
                Server::Ours {
                    _stack: stack::start(tun, SUBJECT.into(), config)?,
                }
            }
        };
        Ok(Self {
            _server: server,
            netns,
            subject,
            congestion,
        })
    }

    /// Who is measured here.
    pub(super) const fn subject(&self) -> Subject {
        self.subject
    }

    /// How hosts are set: a line.
    pub(super) fn conditions(&self) -> String {
        format!(
            "TUN interfaces with an MTU of 1500; {} congestion control; stacks in user space with buffers of {}",
            self.congestion,
            super::BUFFER
        )
    }

    /// What `error` was about.
    pub(super) fn explain(&self, figure: Figure, source: TrafficError) -> PacketBenchError {
        PacketBenchError::Measurement {
            figure: figure.name(),
            subject: self.subject.name(),
            source,
        }
    }

    /// Measures one figure over the interface.
    pub(super) fn measure(
        &self,
        figure: Figure,
        timing: Timing,
        cancel: &Cancel,
    ) -> Result<f64, TrafficError> {
        match figure {
            Figure::FromKernel => self.bulk((TAKES, Duty::Source), timing, cancel),
            Figure::ToKernel => self.bulk((SENDS, Duty::Sink), timing, cancel),
            _ => self.round_trip(timing, cancel),
        }
    }

    /// Gbit/s of payload over one connection to `port`. What the kernel sends is counted as it is written, which what waits
    /// in its buffer, as much at both ends of the window, does not change.
    fn bulk(
        &self,
        (port, duty): (u16, Duty),
        timing: Timing,
        cancel: &Cancel,
    ) -> Result<f64, TrafficError> {
        let stream = self.connect(port)?;
        let nonblocking = stream.set_nonblocking(true);
        nonblocking.doing("preparing a client's socket")?;
        let worker = Worker::start(duty, None, vec![OwnedFd::from(stream)])?;
        cancel.sleep(timing.warm_up)?;
        let (before, began) = (worker.received(), Instant::now());
        cancel.sleep(timing.window)?;
        let (after, took) = (worker.received(), began.elapsed());
        if worker.open() == 0 || after == before {
            let what = "the connection ended, or carried nothing".to_owned();
            return Err(TrafficError::Stalled { what });
        }
        worker.stop()?;
        Ok((after - before) as f64 * 8.0 / 1e9 / took.as_secs_f64())
    }

    /// Microseconds: the mean over some connections of the median of each, as `bench gateway` has it.
    fn round_trip(&self, timing: Timing, cancel: &Cancel) -> Result<f64, TrafficError> {
        let mut sum = 0.0;
        for _ in 0..CONNECTIONS {
            cancel.check()?;
            let mut stream = self.connect(ECHOES)?;
            round_trips(&mut stream, timing.warm_up / CONNECTIONS)?;
            let times = round_trips(&mut stream, timing.window / CONNECTIONS)?;
            sum += stats::median(&times).expect("at least one round trip was made");
        }
        Ok(sum / f64::from(CONNECTIONS))
    }

    /// A connection from the kernel. Closing it sends RST, so that none lingers.
    fn connect(&self, port: u16) -> Result<TcpStream, TrafficError> {
        let at = SocketAddr::new(SUBJECT.into(), port);
        let began = Instant::now();
        let stream = loop {
            match self
                .netns
                .run(|| TcpStream::connect_timeout(&at, PATIENCE))?
            {
                // smoltcp refuses until it has seen that its last connection is over.
                Err(error)
                    if error.kind() == std::io::ErrorKind::ConnectionRefused
                        && began.elapsed() < PATIENCE => {}
                stream => break stream.doing("connecting to the stack")?,
            }
        };
        socket::abort_on_close(&stream, true)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
            .doing("preparing a client's socket")?;
        Ok(stream)
    }
}

fn interface(netns: &Netns, subject: Subject) -> Result<Tun, PacketBenchError> {
    let config = TunConfig {
        offloads: subject.has_offloads(),
        ..TunConfig::default()
    };
    Ok(netns.run(|| Tun::open(INTERFACE, config))??)
}

/// The kernel's TCP behind `tun`: a namespace with a TUN interface of its own, and a loop between the two.
fn kernel(tun: Tun, subject: Subject) -> Result<Server, PacketBenchError> {
    let (netns, _) = ground::host::<PacketBenchError>("bench_packet_far")?;
    let far = interface(&netns, subject)?;
    let address = ground::prefix(SUBJECT);
    netns.netlink()?.add_address(INTERFACE, address)?;
    let ports = [
        (TAKES, Duty::Sink),
        (SENDS, Duty::Source),
        (ECHOES, Duty::Echo),
    ];
    let worker = |(port, duty)| {
        let listener = netns.run(move || {
            let at = SocketAddr::new(SUBJECT.into(), port);
            let listener = socket::stream(at)?;
            socket::bind(&listener, at)?;
            socket::listen(&listener, 16)?;
            Ok(listener)
        });
        let listener = listener?.doing("listening in the far namespace")?;
        Ok::<_, PacketBenchError>(Worker::start(duty, Some(listener), Vec::new())?)
    };
    let workers = ports.into_iter().map(worker).collect::<Result<_, _>>()?;
    Ok(Server::Kernel {
        _carrier: carrier::start([tun, far])?,
        _workers: workers,
        _netns: netns,
    })
}
