//! The flow log: one line of JSON for each flow that has ended, written by a thread of its own.

use crate::counters::Counters;
use crate::flow_stats::FlowRecord;
use bentpipe_gateway_config::LegId;
use bentpipe_process::sched;
use bentpipe_sockets::tcp::Info;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Lines that may wait for the disk.
const WAITING: usize = 4096;
/// Lines written at once.
const BATCH: usize = 256;
/// How often it is looked whether the file has been moved away, and how often losses are told.
const LOOK: Duration = Duration::from_secs(1);
const TELL: Duration = Duration::from_secs(60);

/// Opens the log at `path`, to be added to; what cannot be written is counted in `counters`. The
/// thread ends with the last sender.
pub fn open(path: &Path, counters: Arc<Counters>) -> io::Result<SyncSender<FlowRecord>> {
    let file = append(path)?;
    let (sender, records) = sync_channel(WAITING);
    let log = Log {
        path: path.to_owned(),
        file,
        looked: Instant::now(),
        logged: None,
        counters,
    };
    thread::Builder::new()
        .name("flow-log".to_owned())
        .spawn(move || log.write_all(&records))?;
    Ok(sender)
}

/// A pipe that nobody reads is refused (ENXIO), not waited for; of one that is read, this thread may wait for the
/// reader.
fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let file = options.custom_flags(at_once).open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

struct Log {
    path: PathBuf,
    file: File,
    looked: Instant,
    logged: Option<Instant>,
    counters: Arc<Counters>,
}

impl Log {
    fn write_all(mut self, records: &Receiver<FlowRecord>) {
        sched::yield_to_others();
        // One of them is SIGXFSZ, which would end the gateway where the file reaches a limit on its size.
        sched::leave_signals_to_others();
        let mut text = Vec::new();
        while let Ok(record) = records.recv() {
            text.clear();
            let more = std::iter::from_fn(|| records.try_recv().ok()).take(BATCH - 1);
            let mut lines = 0;
            for record in std::iter::once(record).chain(more) {
                text.extend_from_slice(line(&record).to_string().as_bytes());
                text.push(b'\n');
                lines += 1;
            }
            self.follow();
            if let Err(error) = self.file.write_all(&text) {
                self.counters.log_lost.many(lines);
                self.log(&error);
            }
        }
    }

    /// Opens a new file where log rotation has moved the old one away.
    fn follow(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let place = |about: std::fs::Metadata| (about.dev(), about.ino());
        let here = self.file.metadata().map(place).ok();
        if std::fs::metadata(&self.path).map(place).ok() == here {
            return;
        }
        match append(&self.path) {
            Ok(file) => self.file = file,
            Err(error) => self.log(&error),
        }
    }

    fn log(&mut self, error: &io::Error) {
        if self.logged.is_none_or(|logged| logged.elapsed() > TELL) {
            self.logged = Some(Instant::now());
            let path = self.path.display();
            tracing::warn!(%error, "the flow log {path} cannot be written: lines are lost");
        }
    }
}

/// The line; bytes by the direction that they went.
fn line(record: &FlowRecord) -> Value {
    let (lan, sat) = match record.from {
        LegId::Lan => (&record.near, &record.far),
        LegId::Sat => (&record.far, &record.near),
    };
    let leg = |info: &Info| {
        json!({
            "rtt": info.rtt.as_secs_f64(),
            "min_rtt": info.min_rtt.as_secs_f64(),
            "retransmitted": info.total_retrans,
        })
    };
    // The kernel counts the end of a stream as a byte.
    let fin = u64::from(record.end == "finished");
    let received = |info: &Info| info.bytes_received.0.saturating_sub(fin);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    json!({
        "ended": now.map_or(0.0, |time| time.as_secs_f64()),
        "client": record.client,
        "server": record.server,
        "from": record.from.name(),
        "seconds": record.lasted.as_secs_f64(),
        "end": record.end,
        "to_sat": received(lan),
        "to_lan": received(sat),
        "lan": leg(lan),
        "sat": leg(sat),
    })
}
