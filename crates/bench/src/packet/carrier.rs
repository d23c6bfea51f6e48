//! Copies packets between two TUN interfaces, and so connects two kernels: what a TCP over TUN costs besides itself.

use super::PacketBenchError;
use super::stack::Task;
use bentpipe_os::tun::Tun;
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_wire::VirtioHeader;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Packets of one direction before the other has its turn.
const BATCH: usize = 64;
/// How soon the end of the run is seen.
const PAUSE: Duration = Duration::from_millis(50);

/// Carries what comes by each of `tuns` to the other, with its virtio header where there is one.
pub(super) fn start(tuns: [Tun; 2]) -> Result<Task, PacketBenchError> {
    Task::start("bench carrier", move |stop| {
        carry(&tuns, stop).map_err(|source| PacketBenchError::Io {
            doing: "carrying packets between two TUN interfaces",
            source,
        })
    })
}

fn carry(tuns: &[Tun; 2], stop: &AtomicBool) -> io::Result<()> {
    let epoll = Epoll::new()?;
    for (token, tun) in (0..).zip(tuns) {
        epoll.add(tun, token, Interest::READ)?;
    }
    let mut events = Events::with_capacity(2);
    let mut packet = vec![0; VirtioHeader::LEN + 65_535];
    while !stop.load(Ordering::Relaxed) {
        epoll.wait(&mut events, Some(PAUSE))?;
        for event in events.iter() {
            let from = event.token as usize % 2;
            for _ in 0..BATCH {
                let Some(length) = tuns[from].receive(&mut packet)? else {
                    break;
                };
                tuns[1 - from].send(&packet[..length])?;
            }
        }
    }
    Ok(())
}
