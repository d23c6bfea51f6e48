//! Writes captures (pcapng) at both ends of every link.

use crate::addresses::Addresses;
use crate::packet_codec::Codec;
use crate::{Observer, Packet, SimError};
use bentpipe_base::Instant;
use bentpipe_scenario::Scenario;
use bentpipe_wire::pcapng::{Interface, Writer};
use core::time::Duration;
use std::io::{self, Write};

/// Captures (pcapng) at both ends of every link, as tcpdump on the interfaces there would write:
/// what the node sends into the link, and what arrives. What a link drops is in one and not in the
/// other. Time 0 of the run is 1970.
pub struct Captures<W: Write> {
    codec: Codec,
    /// The capture of link i at its first end is number `2i`, that at its second `2i + 1`.
    files: Vec<File<W>>,
    fault: Option<io::Error>,
}

struct File<W> {
    writer: Writer<W>,
    interface: Interface,
}

impl<W: Write> Captures<W> {
    /// Begins a capture in what `open` gives for each pair of a link and a node at its end.
    ///
    /// # Errors
    /// What `open` and writing give; the profile of the scenario's cross traffic was not read.
    pub fn new(
        scenario: &Scenario,
        mut open: impl FnMut(&str, &str) -> io::Result<W>,
    ) -> io::Result<Self> {
        let addresses = Addresses::new(scenario).map_err(io::Error::other)?;
        let mut files = Vec::new();
        for (name, link) in &scenario.links {
            for end in &link.ends {
                let mut writer = Writer::new(open(name, end)?, "bentpipe sim", Duration::ZERO)?;
                let interface = writer.interface(name)?;
                files.push(File { writer, interface });
            }
        }
        Ok(Self {
            codec: Codec::new(addresses),
            files,
            fault: None,
        })
    }

    /// Ends the captures and gives the outputs back.
    ///
    /// # Errors
    /// The first that writing gave.
    pub fn finish(self) -> io::Result<Vec<W>> {
        match self.fault {
            Some(fault) => Err(fault),
            None => self
                .files
                .into_iter()
                .map(|file| file.writer.finish())
                .collect(),
        }
    }

    fn write(&mut self, file: usize, now: Instant, packet: &Packet) {
        if self.fault.is_some() {
            return;
        }
        let Some(File { writer, interface }) = self.files.get_mut(file) else {
            return;
        };
        let written = match self.codec.bytes(packet) {
            Ok(bytes) => writer.packet(*interface, now, bytes, ""),
            Err(error) => Err(broken(&error)),
        };
        self.fault = written.err();
    }
}

fn broken(error: &SimError) -> io::Error {
    io::Error::other(error.to_string())
}

impl<W: Write> Observer for Captures<W> {
    fn sent(&mut self, now: Instant, link: usize, packet: &Packet) {
        // Simplex link 2i leaves the first end of link i, 2i + 1 the second.
        self.write(link, now, packet);
    }

    fn arrived(&mut self, now: Instant, link: usize, packet: &Packet) {
        self.write(link ^ 1, now, packet);
    }
}
