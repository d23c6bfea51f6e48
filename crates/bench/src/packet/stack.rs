//! Our TCP as a server: takes, sends or echoes bytes at a port for each.

use super::{BUFFER, PacketBenchError};
use bentpipe_base::Machine as _;
use bentpipe_driver::Driver;
use bentpipe_host::{Config, ConnectionId, Host, ListenerId, Secret};
use bentpipe_os::tun::Tun;
use bentpipe_tcp::{self as tcp, State, recovery};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The ports of those that take, send, and echo.
pub(super) const TAKES: u16 = 5001;
pub(super) const SENDS: u16 = 5002;
pub(super) const ECHOES: u16 = 5003;

/// How soon the end of the run is seen.
const PAUSE: Duration = Duration::from_millis(50);
/// Written again and again; shared, not copied.
const CHUNK: usize = 256 * 1024;

/// A thread that works until it is dropped.
#[derive(Debug)]
pub(super) struct Task {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), PacketBenchError>>>,
}

impl Task {
    pub(super) fn start(
        name: &str,
        work: impl FnOnce(&AtomicBool) -> Result<(), PacketBenchError> + Send + 'static,
    ) -> Result<Self, PacketBenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&seen));
        Ok(Self {
            stop,
            thread: Some(thread.map_err(|source| PacketBenchError::Io {
                doing: "starting a thread",
                source,
            })?),
        })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => tracing::warn!(%error, "an end of the bench failed"),
            Some(Err(_)) => tracing::warn!("an end of the bench panicked"),
            _ => {}
        }
    }
}

/// How our connections are: with the kernel's congestion control and its loss recovery, as far as we have it.
pub(super) fn config(congestion: &str) -> tcp::Config {
    let control = tcp::Config::rfc()
        .variant(congestion)
        .expect("the registry has reno and cubic");
    tcp::Config {
        recovery: recovery::find("rack-tlp").expect("the registry has it"),
        dsack: true,
        frto: true,
        eifel: true,
        min_rto: Duration::from_millis(200),
        rto_variance: Duration::from_millis(200),
        nagle: false,
        mss: u16::MAX,
        receive_buffer: BUFFER,
        send_buffer: BUFFER,
        ..control
    }
}

/// A host with the address `address` on `tun`, whose connections are as `config` says.
pub(super) fn start(
    tun: Tun,
    address: IpAddr,
    config: tcp::Config,
) -> Result<Task, PacketBenchError> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|error| PacketBenchError::Io {
        doing: "drawing a key",
        source: std::io::Error::other(error),
    })?;
    let mut host = Host::new(Config::default(), Secret::new(key));
    host.add_address(address);
    let config = Arc::new(config);
    let listeners = [TAKES, SENDS, ECHOES].map(|port| {
        let at = SocketAddr::new(address, port);
        let listener = host.listen(at, &config, 16).expect("the address is its");
        (listener, port)
    });
    Task::start("bench stack", move |stop| {
        serve(Driver::new(host, tun)?, listeners, stop)
    })
}

fn serve(
    mut driver: Driver<Host>,
    listeners: [(ListenerId, u16); 3],
    stop: &AtomicBool,
) -> Result<(), PacketBenchError> {
    let chunk = Bytes::from(vec![0x5a; CHUNK]);
    let mut open: Vec<(ConnectionId, u16)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        driver.turn(Some(PAUSE))?;
        let now = driver.now();
        let host = driver.machine_mut();
        while host.event().is_some() {}
        for (listener, port) in listeners {
            while let Some((id, _)) = host.accept(listener) {
                open.push((id, port));
            }
        }
        open.retain(|(id, port)| {
            let stays = work(host, *id, *port, &chunk);
            if !stays {
                host.release(*id, now);
            }
            stays
        });
    }
    Ok(())
}

/// Moves what can be moved; whether the connection goes on.
fn work(host: &mut Host, id: ConnectionId, port: u16, chunk: &Bytes) -> bool {
    let Some(connection) = host.connection_mut(id) else {
        return false;
    };
    match port {
        TAKES => while connection.read_bytes(CHUNK).is_some() {},
        SENDS => while connection.write_bytes(&mut chunk.clone()) > 0 {},
        _ => {
            while let Some(mut bytes) = connection.read_bytes(CHUNK) {
                connection.write_bytes(&mut bytes);
            }
        }
    }
    matches!(connection.state(), State::SynReceived | State::Established)
}
