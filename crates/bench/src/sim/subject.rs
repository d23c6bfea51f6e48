//! The simulators that are compared, and how each is run.

use super::error::SimBenchError;
use super::run::{Course, Run};
use super::scratch::Scratch;
use super::{Options, Reported, Sample};
use bentpipe_process::child;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const TCL: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../bench/sim/satellite.tcl"
));
const CC: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../bench/sim/satellite.cc"
));
const TOML: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../bench/sim/satellite.toml"
));
const SPOOFING_TCL: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../bench/sim/spoofing.tcl"
));
const SPOOFING_TOML: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../bench/sim/spoofing.toml"
));
/// What the two files of the spoofing topology are told.
const FLOWS: &str = "200";
const PACKETS: &str = "400";

/// One line of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// ns-2, Debian's package `ns2`.
    Ns2,
    /// ns-3, Debian's package `libns3-dev`.
    Ns3,
    /// Ours.
    Bentpipe,
}

impl Subject {
    /// All, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Ns2, Self::Ns3, Self::Bentpipe];

    /// Its name in the table and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ns2 => "ns2",
            Self::Ns3 => "ns3",
            Self::Bentpipe => "bentpipe",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A subject that is ready to run.
pub(super) struct Racer {
    pub(super) subject: Subject,
    program: PathBuf,
}

/// What became of a subject.
pub(super) enum Entrant {
    /// It is ready.
    Ready(Racer),
    /// It is not here; what to do about it.
    Missing(String),
}

impl Racer {
    /// Makes `subject` ready, if it is here.
    pub(super) fn prepare(
        subject: Subject,
        options: &Options,
        scratch: &Scratch,
    ) -> Result<Entrant, SimBenchError> {
        let program = match subject {
            Subject::Ns2 => {
                if !runs(&options.ns2, "exit") {
                    let advice = "install it with `apt install ns2`".to_owned();
                    return Ok(Entrant::Missing(advice));
                }
                options.ns2.clone()
            }
            Subject::Ns3 => match compile(options, scratch)? {
                Ok(program) => program,
                Err(advice) => return Ok(Entrant::Missing(advice)),
            },
            Subject::Bentpipe => {
                let own = options.bentpipe.clone();
                let program = own.map_or_else(std::env::current_exe, |path| path.canonicalize());
                program.map_err(SimBenchError::NoBentpipe)?
            }
        };
        Ok(Entrant::Ready(Self { subject, program }))
    }

    /// ns-3 has neither Snoop nor a spoofer; ns-2 clocks the spoofing run without its set-up itself.
    pub(super) fn takes_part(&self, run: &Run) -> bool {
        match (self.subject, run.course) {
            (Subject::Ns3, Course::Satellite { snoop, .. }) => !snoop,
            (Subject::Ns3, Course::Spoofing) => false,
            (Subject::Ns2, Course::Spoofing) => !run.starts_only(),
            _ => true,
        }
    }

    /// Runs once, from the start of the process to its end.
    pub(super) fn run(
        &self,
        run: &Run,
        seed: usize,
        scratch: &Scratch,
    ) -> Result<Sample, SimBenchError> {
        let subject = self.subject;
        let arguments = self.arguments(run, seed, scratch)?;
        let failed = |source| SimBenchError::Start {
            subject,
            run: run.name,
            source,
        };
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut process = command.spawn().map_err(failed)?;
        // What they say fits into the pipes: one after the other will do.
        let said = read(process.stdout.take()).map_err(failed)?;
        let errors = read(process.stderr.take()).map_err(failed)?;
        let (status, usage) = child::wait(process).map_err(failed)?;
        let wall = start.elapsed();
        if !status.success() {
            return Err(SimBenchError::Failed {
                subject,
                run: run.name,
                status,
                said: errors + &said,
            });
        }
        let reported = self
            .reported(run, &said)
            .ok_or_else(|| SimBenchError::Output {
                subject,
                run: run.name,
                said: errors + &said,
            })?;
        Ok(Sample {
            wall: wall.as_secs_f64(),
            cpu: usage.cpu.as_secs_f64(),
            memory: usage.peak_memory as f64,
            reported,
        })
    }

    fn arguments(
        &self,
        run: &Run,
        seed: usize,
        scratch: &Scratch,
    ) -> Result<Vec<OsString>, SimBenchError> {
        let (seed, seconds) = (seed.to_string(), run.seconds.to_string());
        let file = |kind: &str, text: &str| {
            let path = scratch.write(&format!("{}.{kind}", run.name), text)?;
            Ok::<_, SimBenchError>(path.display().to_string())
        };
        let texts = match (self.subject, run.course) {
            (Subject::Bentpipe, _) => {
                let file = file("toml", &scenario(run))?;
                ["sim", "run", &file, "--json", "-", "--seed", &seed]
                    .map(str::to_owned)
                    .to_vec()
            }
            (Subject::Ns2, Course::Spoofing) => {
                let (flows, packets) = (FLOWS.to_owned(), PACKETS.to_owned());
                vec![file("tcl", SPOOFING_TCL)?, flows, packets, seed, seconds]
            }
            (
                Subject::Ns2,
                Course::Satellite {
                    bit_error_rate,
                    snoop,
                },
            ) => {
                let snoop = u8::from(snoop).to_string();
                vec![
                    file("tcl", TCL)?,
                    bit_error_rate.to_owned(),
                    seed,
                    snoop,
                    seconds,
                ]
            }
            (Subject::Ns3, Course::Satellite { bit_error_rate, .. }) => {
                vec![bit_error_rate.to_owned(), seed, seconds]
            }
            // It takes no part.
            (Subject::Ns3, Course::Spoofing) => Vec::new(),
        };
        Ok(texts.into_iter().map(OsString::from).collect())
    }

    fn reported(&self, run: &Run, said: &str) -> Option<Reported> {
        let mut reported = if self.subject == Subject::Bentpipe {
            let figures: serde_json::Value = serde_json::from_str(said).ok()?;
            Reported {
                segments: figures["flows"][0]["segments"].as_f64()?,
                simulated: figures["elapsed_s"].as_f64(),
                clocked: None,
            }
        } else {
            let mut words = said.lines().last()?.split_whitespace().map(str::parse);
            Reported {
                segments: words.next()?.ok()?,
                simulated: words.next().transpose().ok()?,
                clocked: words.next().transpose().ok()?,
            }
        };
        // Elsewhere each takes the same, and delivers another number.
        reported.simulated = reported
            .simulated
            .filter(|_| run.course == Course::Spoofing);
        Some(reported)
    }
}

fn read(pipe: Option<impl Read>) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether `program` is there: it is given `line` to read.
fn runs(program: &Path, line: &str) -> bool {
    let feed = || {
        let mut command = Command::new(program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut process = command.spawn()?;
        if let Some(mut input) = process.stdin.take() {
            io::Write::write_all(&mut input, line.as_bytes())?;
        }
        process.wait()
    };
    feed().is_ok()
}

/// The shipped scenario with the run's error rate, Snoop and time.
fn scenario(run: &Run) -> String {
    let time = format!("\"{}ms\"", (run.seconds * 1000.0).round());
    match run.course {
        Course::Satellite {
            bit_error_rate,
            snoop,
        } => TOML
            .replacen(
                "bit_error_rate = \"0\"",
                &format!("bit_error_rate = \"{bit_error_rate}\""),
                1,
            )
            .replace("enabled = false", &format!("enabled = {snoop}"))
            .replace("\"300s\"", &time),
        Course::Spoofing if run.starts_only() => SPOOFING_TOML
            .replace("\"3000s\"", &time)
            // Flows must start before the end.
            .replace("start = \"5s\"", "start = \"0s\""),
        Course::Spoofing => SPOOFING_TOML.replace("\"3000s\"", &time),
    }
}

/// Builds our ns-3 program against the machine's ns-3, or says what to do about it.
fn compile(options: &Options, scratch: &Scratch) -> Result<Result<PathBuf, String>, SimBenchError> {
    const LIBRARIES: [&str; 6] = [
        "applications",
        "internet",
        "point-to-point",
        "traffic-control",
        "network",
        "core",
    ];
    let source = scratch.write("satellite.cc", CC)?;
    let program = source.with_extension("");
    let compiled = Command::new(&options.compiler)
        .args(["-O3", "-o"])
        .args([&program, &source])
        .args(LIBRARIES.map(|name| format!("-lns3-{name}")))
        .output();
    let why = match compiled {
        Ok(output) if output.status.success() => return Ok(Ok(program)),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let error = said.lines().find_map(|line| line.split_once("error: "));
            error.map_or_else(
                || "its program does not compile".to_owned(),
                |(_, why)| why.to_owned(),
            )
        }
        Err(error) => format!("{}: {error}", options.compiler.display()),
    };
    Ok(Err(format!(
        "install it with `apt install libns3-dev g++` ({why})"
    )))
}

#[cfg(test)]
mod tests {
    use super::super::run::wanted;
    use super::*;
    use bentpipe_scenario::{Amount, Direction, Scenario, TrafficSource};

    #[test]
    fn each_run_is_the_shipped_scenario_with_its_own_values() {
        let parse = |text: &str| Scenario::parse("shipped.toml", text).unwrap();
        let shipped = parse(TOML);
        for run in wanted(&[], false).unwrap() {
            let own = parse(&scenario(&run));
            assert_eq!(own.time_limit.as_secs_f64(), run.seconds);
            assert_eq!(own.flows.len(), 1);
            let Course::Satellite {
                bit_error_rate,
                snoop,
            } = run.course
            else {
                let source = own.traffic.unwrap().source;
                assert!(
                    matches!(source, TrafficSource::Model { flows, .. } if flows.to_string() == FLOWS)
                );
                assert!(
                    matches!(own.flows[0].amount, Amount::Segments(n) if n.to_string() == PACKETS)
                );
                continue;
            };
            let errors = |way: &Direction| way.channels.chance("bit_error_rate").value();
            let rate = |scenario: &Scenario| errors(&scenario.links["space"].forward);
            let back = errors(&own.links["space"].reverse);
            assert_eq!(rate(&own), bit_error_rate.parse::<f64>().unwrap());
            assert_eq!((rate(&shipped), back), (0.0, 0.0));
            assert_eq!(own.peps["snoop"].enabled, snoop);
        }
    }
}
