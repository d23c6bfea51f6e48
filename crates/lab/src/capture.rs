//! Captures at both ends of every link, by dumpcap (Wireshark): named as those of the simulator.

use crate::LabError;
use crate::stage::Stage;
use bentpipe_os::need::Need;
use bentpipe_scenario::Scenario;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

/// What dumpcap keeps of packets before they are written, in MiB.
const BUFFER: &str = "32";
/// The kernel hands packets over a quarter of a second late at most (libpcap's time limit in dumpcap).
const HANDED_OVER: Duration = Duration::from_millis(300);
/// A file that still grows after the flows have ended is not waited for any longer.
const GROWS: Duration = Duration::from_secs(10);

/// The captures of a run, while it goes on. Dropped before they are stopped they end at once.
pub(crate) struct Captures {
    running: Vec<Capture>,
}

struct Capture {
    file: PathBuf,
    dumpcap: Child,
    said: BufReader<ChildStderr>,
}

impl Captures {
    /// Begins a capture at each end of each link in `folder`, made if it is not there: `LINK-NODE.pcapng`.
    pub(crate) fn start(
        folder: &Path,
        scenario: &Scenario,
        stage: &Stage,
    ) -> Result<Self, LabError> {
        Need::Program("dumpcap").check()?;
        fs::create_dir_all(folder).map_err(|source| LabError::Output {
            path: folder.to_owned(),
            source,
        })?;
        let mut captures = Self {
            running: Vec::new(),
        };
        for (link, spec) in &scenario.links {
            for node in &spec.ends {
                let file = folder.join(format!("{link}-{node}.pcapng"));
                let capture = Capture::start(stage, link, node, file);
                let failed = |what| LabError::Capture {
                    link: link.clone(),
                    node: node.clone(),
                    what,
                };
                captures.running.push(capture.map_err(failed)?);
            }
        }
        Ok(captures)
    }

    /// Ends them when all that was seen is written; says what the kernel dropped, a sentence each.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let began = Instant::now();
        let sizes = |captures: &Self| -> Vec<u64> {
            let running = captures.running.iter();
            let size = |it: &Capture| fs::metadata(&it.file).map_or(0, |file| file.len());
            running.map(size).collect()
        };
        let mut before = sizes(&self);
        while began.elapsed() < GROWS {
            std::thread::sleep(HANDED_OVER);
            let now = sizes(&self);
            if now == before {
                break;
            }
            before = now;
        }
        self.running.iter().for_each(Capture::interrupt);
        let running = std::mem::take(&mut self.running);
        running.into_iter().filter_map(Capture::end).collect()
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        for capture in &mut self.running {
            // It may have ended by itself.
            let _ = capture.dumpcap.kill();
            let _ = capture.dumpcap.wait();
        }
    }
}

impl Capture {
    /// Interfaces bear the names of their links.
    fn start(stage: &Stage, link: &str, node: &str, file: PathBuf) -> Result<Self, String> {
        let mut command = stage.node(node).command("dumpcap");
        command
            .args(["-q", "-B", BUFFER, "-i", link, "-w"])
            .arg(&file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut dumpcap = command.spawn().map_err(|error| error.to_string())?;
        let Some(stderr) = dumpcap.stderr.take() else {
            return Err("its messages cannot be read".to_owned());
        };
        let mut capture = Self {
            file,
            dumpcap,
            said: BufReader::new(stderr),
        };
        match capture.wait_until_ready() {
            Ok(()) => Ok(capture),
            Err(what) => {
                let _ = capture.dumpcap.kill();
                let _ = capture.dumpcap.wait();
                Err(what)
            }
        }
    }

    /// dumpcap names its file when it has begun.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let mut said = String::new();
        loop {
            let begin = said.len();
            match self.said.read_line(&mut said) {
                Ok(0) => return Err(format!("dumpcap ended: {}", said.trim())),
                Ok(_) if said[begin..].starts_with("File:") => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn interrupt(&self) {
        if let Some(pid) = Pid::from_raw(self.dumpcap.id() as i32) {
            // It may have ended by itself, which its messages tell.
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// What is missing in it.
    fn end(mut self) -> Option<String> {
        let mut said = String::new();
        let read = self.said.read_to_string(&mut said);
        let ended = self.dumpcap.wait();
        let file = self.file.display();
        match (read, ended) {
            (Ok(_), Ok(status)) if status.success() => {
                let dropped = dropped(&said).filter(|count| *count > 0)?;
                Some(format!(
                    "{dropped} packets are missing in `{file}`: the host was too busy"
                ))
            }
            _ => Some(format!(
                "the capture `{file}` ended early; dumpcap said: {}",
                said.trim()
            )),
        }
    }
}

/// From `Packets received/dropped on interface 'x': 12/3 (...)`.
fn dropped(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find(|line| line.starts_with("Packets received/dropped"))?;
    let counts = line.rsplit_once("': ")?.1;
    counts
        .split_once('/')?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::dropped;

    #[test]
    fn what_dumpcap_dropped_is_read() {
        let said = "Packets captured: 9\nPackets received/dropped on interface 'wire': 12/3 (pcap:3/dumpcap:0/flushed:0/ps_ifdrop:0) (75.0%)\n";
        assert_eq!(dropped(said), Some(3));
        assert_eq!(dropped("File: x"), None);
    }
}
