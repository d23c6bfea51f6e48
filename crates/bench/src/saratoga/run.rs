//! One transfer: two programs, and what they took.

use super::stage::{NAME, Stage};
use super::{Options, Sample, SaratogaBenchError, Subject};
use bentpipe_os::netns::spawn_bound;
use bentpipe_process::child::{self, Usage};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

/// Headers of IPv4 and UDP.
const HEADERS: u32 = 28;

/// A subject that is ready to run.
pub(super) struct Racer {
    pub(super) subject: Subject,
    program: PathBuf,
}

impl Racer {
    pub(super) fn ours(options: &Options) -> Result<Self, SaratogaBenchError> {
        let own = options.bentpipe.clone();
        let program = own.map_or_else(std::env::current_exe, |path| path.canonicalize());
        Ok(Self {
            subject: Subject::Bentpipe,
            program: program.map_err(SaratogaBenchError::NoBentpipe)?,
        })
    }

    /// iperf3 over UDP and TCP, if it is here.
    pub(super) fn rivals(options: &Options) -> Option<[Self; 2]> {
        let mut asked = Command::new(&options.iperf3);
        asked.arg("--version").stdout(Stdio::null());
        asked.status().ok().filter(ExitStatus::success)?;
        Some([Subject::IperfUdp, Subject::IperfTcp].map(|subject| Self {
            subject,
            program: options.iperf3.clone(),
        }))
    }

    /// Transfers once.
    pub(super) fn run(
        &self,
        stage: &Stage,
        options: &Options,
    ) -> Result<Sample, SaratogaBenchError> {
        let subject = self.subject;
        let failed = |source| SaratogaBenchError::Start { subject, source };
        let mut serve = stage.sender.command(&self.program);
        let mut fetch = stage.receiver.command(&self.program);
        let address = stage.address().to_string();
        match subject {
            Subject::Bentpipe => {
                serve.args(["saratoga", "serve"]).arg(stage.from());
                serve.args(["--rate", &options.rate.to_string()]);
                serve.arg(format!("--listen={address}:7542"));
                serve.arg(format!("--packet={}", options.mtu));
                fetch.args(["saratoga", "get", &address, NAME, "--to"]);
                fetch.arg(stage.to());
            }
            Subject::IperfUdp | Subject::IperfTcp => {
                let seconds = if options.quick { "1" } else { "2" };
                serve.args(["--server", "--one-off", "--forceflush"]);
                // The server sends, as ours does.
                fetch.args(["--client", &address, "--reverse", "--json"]);
                fetch.args(["--time", seconds]);
                if subject == Subject::IperfUdp {
                    fetch.args(["--udp", "--bitrate", "0"]);
                    fetch.arg(format!("--length={}", options.mtu.saturating_sub(HEADERS)));
                }
            }
        }
        if subject == Subject::Bentpipe {
            stage.clear().map_err(failed)?;
        }
        let server = Server::start(serve).map_err(failed)?;
        let start = Instant::now();
        let fetched = run_to_end(fetch).map_err(failed)?;
        let wall = start.elapsed().as_secs_f64();
        // iperf3's ends by itself after a transfer.
        let ask = subject == Subject::Bentpipe || !fetched.status.success();
        let served = server.end(ask).map_err(failed)?;
        if !fetched.status.success() {
            let said = fetched.said + &served.said;
            return Err(SaratogaBenchError::Failed { subject, said });
        }
        let (octets, seconds) = match subject {
            Subject::Bentpipe => {
                if !stage.is_right().map_err(failed)? {
                    return Err(SaratogaBenchError::Damaged);
                }
                (stage.size.0 as f64, wall)
            }
            _ => received(&fetched.said).ok_or_else(|| SaratogaBenchError::Failed {
                subject,
                said: fetched.said.clone(),
            })?,
        };
        let cpu = served.usage.cpu + fetched.usage.cpu;
        Ok(Sample {
            goodput: octets * 8.0 / seconds / 1e9,
            cpu: cpu.as_secs_f64() / (octets / 1e9),
            memory: [served, fetched].map(|side| side.usage.peak_memory as f64 / 1e6),
        })
    }
}

/// Octets and seconds at iperf3's receiver.
fn received(json: &str) -> Option<(f64, f64)> {
    let figures: serde_json::Value = serde_json::from_str(json).ok()?;
    let received = &figures["end"]["sum_received"];
    let (octets, seconds) = (received["bytes"].as_f64()?, received["seconds"].as_f64()?);
    (octets > 0.0 && seconds > 0.0).then_some((octets, seconds))
}

/// How a program ended.
struct Ended {
    status: ExitStatus,
    usage: Usage,
    /// Standard output, or where that is empty, errors.
    said: String,
}

fn run_to_end(mut command: Command) -> io::Result<Ended> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn_bound(command)?;
    let out = child.stdout.take().map(BufReader::new);
    finish(child, out)
}

/// What they say fits into the pipes: one after the other will do.
fn finish(mut child: Child, out: Option<BufReader<ChildStdout>>) -> io::Result<Ended> {
    let mut said = Vec::new();
    if let Some(mut out) = out {
        out.read_to_end(&mut said)?;
    }
    if let Some(mut errors) = child.stderr.take()
        && said.is_empty()
    {
        errors.read_to_end(&mut said)?;
    }
    let (status, usage) = child::wait(child)?;
    Ok(Ended {
        status,
        usage,
        said: String::from_utf8_lossy(&said).into_owned(),
    })
}

/// A server that listens; it dies with our process.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Server {
    fn start(mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn_bound(command)?;
        let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut out = BufReader::new(out);
        let mut line = String::new();
        while !line.contains("serving") && !line.contains("listening") {
            line.clear();
            if out.read_line(&mut line)? == 0 {
                let said = finish(child, Some(out))?.said;
                return Err(io::Error::other(said));
            }
        }
        Ok(Self { child, out })
    }

    /// Waits for its end, having asked for it if it does not come by itself.
    fn end(self, ask: bool) -> io::Result<Ended> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        if let Some(pid) = pid.filter(|_| ask) {
            kill_process(pid, Signal::INT)?;
        }
        finish(self.child, Some(self.out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_figures_are_read() {
        let json = r#"{"end": {"sum": {"bytes": 9, "seconds": 1},
            "sum_received": {"bytes": 250000000, "seconds": 2.0}}}"#;
        assert_eq!(received(json), Some((250e6, 2.0)));
        assert_eq!(received(r#"{"error": "refused"}"#), None);
    }
}
