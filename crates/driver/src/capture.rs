use bentpipe_base::Instant;
use bentpipe_wire::pcapng::{Interface, Writer};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A capture of all packets that pass a driver, for Wireshark and tcpdump.
pub struct Capture {
    writer: Writer<BufWriter<File>>,
    interface: Interface,
}

impl Capture {
    /// Begins the capture `path`, of packets that pass `interface`. `now`: what the driver's clock shows at this moment.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn create(path: &Path, interface: &str, now: Instant) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let epoch = wall
            .unwrap_or_default()
            .saturating_sub(Duration::from_nanos(now.as_nanos()));
        let mut writer = Writer::new(file, "bentpipe", epoch)?;
        let interface = writer.interface(interface)?;
        Ok(Self { writer, interface })
    }

    pub(crate) fn packet(&mut self, bytes: &[u8], now: Instant) -> io::Result<()> {
        self.writer.packet(self.interface, now, bytes, "")
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// Fails when the file cannot be written.
    pub fn finish(self) -> io::Result<()> {
        self.writer.finish().map(drop)
    }
}
