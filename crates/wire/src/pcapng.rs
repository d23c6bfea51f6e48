//! Writes captures that Wireshark, tshark and tcptrace open: pcapng (IETF draft
//! draft-ietf-opsawg-pcapng), one section, raw IP, nanosecond stamps.

use bentpipe_base::Instant;
use core::time::Duration;
use std::io::{self, Write};

/// A capture being written.
pub struct Writer<W> {
    out: W,
    epoch: Duration,
    interfaces: u32,
    block: Vec<u8>,
}

/// An interface of a capture: one direction or place that packets are seen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface(u32);

const SECTION: u32 = 0x0a0d_0d0a;
const DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// LINKTYPE_RAW: each packet begins with its IPv4 or IPv6 header.
const RAW_IP: u16 = 101;
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const INTERFACE_NAME: u16 = 2;
const APPLICATION: u16 = 4;
const TIMESTAMP_RESOLUTION: u16 = 9;

impl<W: Write> Writer<W> {
    /// Begins a capture. `application` names who wrote it; `epoch` is the time of
    /// [`Instant::ZERO`] since 1970 (zero in virtual time).
    ///
    /// # Errors
    /// What writing to `out` gives.
    pub fn new(out: W, application: &str, epoch: Duration) -> io::Result<Self> {
        let mut writer = Self {
            out,
            epoch,
            interfaces: 0,
            block: Vec::new(),
        };
        writer.begin(SECTION);
        writer.put(&BYTE_ORDER.to_le_bytes());
        // Version 1.0; the section's length is not known.
        writer.put(&[1, 0, 0, 0]);
        writer.put(&(-1i64).to_le_bytes());
        writer.option(APPLICATION, application.as_bytes())?;
        writer.option(END_OF_OPTIONS, &[])?;
        writer.end()?;
        Ok(writer)
    }

    /// Adds an interface.
    ///
    /// # Errors
    /// What writing gives; `InvalidInput` when `name` exceeds 65,535 bytes.
    pub fn interface(&mut self, name: &str) -> io::Result<Interface> {
        self.begin(DESCRIPTION);
        self.put(&RAW_IP.to_le_bytes());
        self.put(&[0, 0]);
        // No limit on the length of a packet.
        self.put(&0u32.to_le_bytes());
        self.option(INTERFACE_NAME, name.as_bytes())?;
        self.option(TIMESTAMP_RESOLUTION, &[9])?;
        self.option(END_OF_OPTIONS, &[])?;
        self.end()?;
        let interface = Interface(self.interfaces);
        self.interfaces += 1;
        Ok(interface)
    }

    /// Adds a packet seen at `interface` at `now`, from its IP header on; `comment` is shown beside
    /// it (why it was dropped, say) unless empty.
    ///
    /// # Errors
    /// What writing gives; `InvalidInput` when packet or comment are too long for the format.
    pub fn packet(
        &mut self,
        interface: Interface,
        now: Instant,
        packet: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        let since_1970 = self.epoch + Duration::from_nanos(now.as_nanos());
        // 64 bits of nanoseconds last until 2554.
        let stamp = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let len = u32::try_from(packet.len()).map_err(|_| too_long("packet"))?;
        self.begin(ENHANCED_PACKET);
        self.put(&interface.0.to_le_bytes());
        self.put(&((stamp >> 32) as u32).to_le_bytes());
        self.put(&(stamp as u32).to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put_padded(packet);
        if !comment.is_empty() {
            self.option(COMMENT, comment.as_bytes())?;
            self.option(END_OF_OPTIONS, &[])?;
        }
        self.end()
    }

    /// Ends the capture and gives the output back.
    ///
    /// # Errors
    /// What flushing gives.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn begin(&mut self, kind: u32) {
        self.block.clear();
        self.put(&kind.to_le_bytes());
        // The length, filled in at the end.
        self.put(&[0; 4]);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    /// Adds bytes, padded to 32 bits.
    fn put_padded(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) -> io::Result<()> {
        let len = u16::try_from(value.len()).map_err(|_| too_long("option"))?;
        self.put(&code.to_le_bytes());
        self.put(&len.to_le_bytes());
        self.put_padded(value);
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let len = u32::try_from(self.block.len() + 4).map_err(|_| too_long("block"))?;
        self.block[4..8].copy_from_slice(&len.to_le_bytes());
        self.put(&len.to_le_bytes());
        self.out.write_all(&self.block)
    }
}

fn too_long(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("cannot write the capture: its {what} is too long for pcapng"),
    )
}
