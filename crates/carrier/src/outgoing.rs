//! Packets that the proxy has made, until they leave together: many by one system call.

use bentpipe_sockets::raw_ip::{RawIp, Way};
use bentpipe_wire as wire;
use std::io;

/// The most bytes that gather.
const MOST: usize = 256 << 10;

/// Packets of one direction, one behind the other.
#[derive(Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Outgoing {
    /// Adds `packet`.
    pub(crate) fn push(&mut self, packet: &wire::Packet) -> Result<(), wire::Error> {
        packet.emit(&mut self.bytes)?;
        self.ends.push(self.bytes.len());
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= MOST
    }

    /// Sends all; `refused` hears of those that do not leave, and why.
    pub(crate) fn send(
        &mut self,
        sender: &RawIp,
        way: &Way,
        refused: impl FnMut(&[u8], io::Error),
    ) {
        let mut begin = 0;
        let packets: Vec<_> = { self.ends.iter() }
            .map(|end| &self.bytes[std::mem::replace(&mut begin, *end)..*end])
            .collect();
        sender.send_all(&packets, way, refused);
        self.bytes.clear();
        self.ends.clear();
    }
}
