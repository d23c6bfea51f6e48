//! `bentpipe trace`: what its arguments say, and the files that it reads and writes.
//!
//! What the connections of a capture did is found out and laid out in `bentpipe-trace`. Begin with [`run`].
#![forbid(unsafe_code)]

mod graphs;
mod page;

pub use graphs::time_sequence;

use anyhow::{Context, bail};
use bentpipe_trace::{
    Ending, Limits, ReadError, Recorder, Trace, brief, csv, expert, json, json_with_limits, long,
};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  bentpipe trace run.pcapng                      a line each connection
  bentpipe trace -l run.pcap | less              every count, as of `tcptrace -l -r`
  bentpipe trace -l -o 2,5 run.pcap              of connections 2 and 5
  bentpipe trace --expert run.pcap               what held each connection back, and when
  bentpipe trace --json run.pcap | jq '.connections[].b2a.rtt_avg'
  bentpipe trace run.pcap --html run.html        the graphs, in a page that loads nothing
  bentpipe trace run.pcap --svg out --xplot out  the graphs as files
  tcpdump -w - -s 96 tcp | bentpipe trace -      from a pipe, until it ends

Reads pcap and pcapng; what was cut off each packet does not matter, if its TCP header is there.
A capture that breaks off counts up to there. Definitions of the counts: docs/trace.md";

/// Options of `trace`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Captures, read one after the other; `-`: standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print every count of each connection
    #[arg(short, long)]
    long: bool,
    /// Only these connections, by their numbers
    #[arg(short = 'o', long, value_name = "N", value_delimiter = ',')]
    only: Vec<usize>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "long")]
    json: bool,
    /// Print a line of comma-separated values each connection
    #[arg(long, conflicts_with_all = ["long", "json"])]
    csv: bool,
    /// Say what held each direction back, with times and shares: windows, buffers, the application, losses; with --json as
    /// `limits`. The capture must be made at the sender
    #[arg(long, conflicts_with_all = ["long", "csv"])]
    expert: bool,
    /// Write a page with the graphs: time-sequence, throughput, outstanding bytes and round-trip times
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the time-sequence graph of each direction with data to DIR/A2B_tsg.svg
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write graphs for xplot to DIR: A2B_tsg.xpl, A2B_rtt.xpl, A2B_owin.xpl and A2B_tput.xpl
    #[arg(long, value_name = "DIR")]
    xplot: Option<PathBuf>,
}

/// Does what `args` say: results go to `print`, warnings to `say`.
///
/// # Errors
/// When a file is no capture, or cannot be read or written.
pub fn run(
    args: &Args,
    print: impl Fn(&str) -> io::Result<()>,
    say: impl Fn(&str),
) -> anyhow::Result<()> {
    let mut trace = Trace::new(Limits::default());
    if args.expert || args.html.is_some() || args.svg.is_some() || args.xplot.is_some() {
        trace.record(Recorder::new(&args.only));
    }
    for file in &args.files {
        let name = file.display();
        let ending = take(&mut trace, file).with_context(|| format!("cannot read `{name}`"))?;
        if let Some(words) = words(&ending) {
            say(&format!("warning: `{name}` {words}"));
        }
    }
    trace.finish();
    for warning in trace.warnings() {
        say(&format!("warning: {warning}"));
    }
    let count = trace.connections().len();
    if let Some(number) = args
        .only
        .iter()
        .find(|number| !(1..=count).contains(*number))
    {
        bail!("there is no connection {number}: the capture has {count}, counted from 1");
    }
    graphs::write(args, &trace)?;
    let mut out = Lines::new(print);
    let written = match args {
        Args {
            json: true,
            expert: true,
            ..
        } => json_with_limits(&mut out, &trace, &args.only),
        Args { expert: true, .. } => expert(&mut out, &trace, &args.only),
        Args { json: true, .. } => json(&mut out, &trace, &args.only),
        Args { csv: true, .. } => csv(&mut out, &trace, &args.only),
        Args { long: true, .. } => long(&mut out, &trace, &args.only),
        _ => summary(&mut out, &trace, &args.only),
    };
    out.end(written)
}

/// Prints what is written to it, many lines at a time.
struct Lines<P> {
    print: P,
    text: String,
    fault: Option<io::Error>,
}

/// Bytes that are printed at once.
const AT_ONCE: usize = 1 << 16;

impl<P: Fn(&str) -> io::Result<()>> Lines<P> {
    fn new(print: P) -> Self {
        Self {
            print,
            text: String::new(),
            fault: None,
        }
    }

    /// Prints what is left.
    fn end(mut self, written: fmt::Result) -> anyhow::Result<()> {
        if let Some(error) = self.fault {
            return Err(error.into());
        }
        written.context("what was found cannot be laid out")?;
        if self.text.ends_with('\n') {
            self.text.pop();
        }
        match self.text.is_empty() {
            true => Ok(()),
            false => Ok((self.print)(&self.text)?),
        }
    }
}

impl<P: Fn(&str) -> io::Result<()>> fmt::Write for Lines<P> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        // Whoever prints ends the last line.
        if self.text.len() >= AT_ONCE && self.text.ends_with('\n') {
            self.text.pop();
            let printed = (self.print)(&self.text);
            self.text.clear();
            if let Err(error) = printed {
                self.fault = Some(error);
                return Err(fmt::Error);
            }
        }
        Ok(())
    }
}

fn take(trace: &mut Trace, file: &Path) -> Result<Ending, ReadError> {
    if file.as_os_str() == "-" {
        return trace.take(io::stdin().lock());
    }
    trace.take(File::open(file)?)
}

fn words(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Whole => None,
        Ending::CutShort { at } => Some(format!(
            "ends in the middle of a packet, after {at} bytes: what came before counts"
        )),
        Ending::Corrupt { at } => Some(format!(
            "is corrupt after {at} bytes: what came before counts"
        )),
    }
}

fn summary(out: &mut dyn fmt::Write, trace: &Trace, chosen: &[usize]) -> fmt::Result {
    let (packets, segments) = (trace.packets(), trace.segments());
    write!(out, "{packets} packets, {segments} of TCP")?;
    match trace.connections().len() {
        0 => return writeln!(out, ": no connections"),
        1 => writeln!(out, ", 1 connection")?,
        count => writeln!(out, ", {count} connections")?,
    }
    brief(out, trace, chosen)
}
