//! `bentpipe tcp`: streams by our own TCP, over a TUN interface, with whoever speaks TCP.

mod cookies;
mod plane;
mod stream;

use crate::failure::{Blame, Failure};
use anyhow::anyhow;
use bentpipe_base::{Bytes, Prefix, Rate};
use bentpipe_cc as cc;
use bentpipe_tcp::recovery;
use clap::Subcommand;
use plane::Plane;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use stream::{Sink, Source, Stream};

/// What to do by our own TCP.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send a file, or standard input, to whoever listens at ADDRESS:PORT
    #[command(after_help = "\
Examples:
  nc -l -p 5000 >copy &  sudo bentpipe tcp send FILE 100.64.0.1:5000
  sudo bentpipe tcp send FILE 192.0.2.7:5000 --control hybla --trace window.csv --pcap send.pcapng
  sudo bentpipe tcp send FILE 192.0.2.7:5000 --scps --rate 8Mbit/s
  sudo bentpipe tcp send FILE 192.0.2.7:5000 --fast-open --cookies COOKIES     twice: the second SYN carries data

100.64.0.1 is this machine's kernel, as the interface's other end. To reach other machines let the kernel forward
(`sysctl net.ipv4.ip_forward=1`) and translate (`nft … masquerade`) what comes by the interface.
Exit codes: 0 all was acknowledged; 1 the connection failed; 2 wrong use; 130 stopped.")]
    Send(Send),
    /// Receive what ADDRESS:PORT sends, until it closes
    #[command(after_help = "\
Examples:
  nc -l -p 5000 <FILE &  sudo bentpipe tcp get 100.64.0.1:5000 --to copy
  sudo bentpipe tcp get 100.64.0.1:5000 | tar x")]
    Get(Get),
    /// Listen at PORT: take what is sent, or send a file to everyone
    #[command(after_help = "\
Examples:
  sudo bentpipe tcp serve 5000                    what is sent is counted, and dropped
  sudo bentpipe tcp serve 5000 --to copy --once   the first to come fills the file
  sudo bentpipe tcp serve 5000 --send FILE        nc 100.64.0.2 5000 gets it

Ends by Ctrl-C, or with --once after the first connection.")]
    Serve(Serve),
}

/// Options of `tcp send`.
#[derive(Debug, clap::Args)]
pub(crate) struct Send {
    /// The file; `-`: standard input
    file: PathBuf,
    /// Who listens: address and port, such as 100.64.0.1:5000
    to: SocketAddr,
    /// Keep the server's Fast Open cookie in FILE from one run to the next
    #[arg(long, value_name = "FILE", requires = "fast_open")]
    cookies: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Options of `tcp get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// Who sends, such as 100.64.0.1:5000
    from: SocketAddr,
    /// Where to write it; `-`: standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    to: PathBuf,
    /// Keep the server's Fast Open cookie in FILE from one run to the next
    #[arg(long, value_name = "FILE", requires = "fast_open")]
    cookies: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Options of `tcp serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The port
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Send this file to everyone who connects
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    send: Option<PathBuf>,
    /// Write what the one who connects sends to this file; `-`: standard output
    #[arg(long, value_name = "FILE", requires = "once")]
    to: Option<PathBuf>,
    /// Serve one connection, and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    common: Common,
}

/// Options of all.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The address of our TCP, and the network of the interface
    #[arg(long, value_name = "ADDRESS/BITS", default_value = "100.64.0.2/30")]
    address: Prefix,
    /// The kernel's address in it [default: the network's first]
    #[arg(long, value_name = "ADDRESS")]
    kernel: Option<IpAddr>,
    /// The interface that is made for it
    #[arg(long, value_name = "NAME", default_value = "bentpipe0")]
    tun: String,
    /// The largest packet
    #[arg(long, value_name = "SIZE", default_value = "1500B")]
    mtu: Bytes,
    /// Exchange single segments with the kernel, not packets of up to 64 kB that stand for several
    #[arg(long)]
    no_offloads: bool,
    /// Speak SCPS-TP with a peer that does: SNACK, and all losses are corruption; TCP with any other
    #[arg(long, requires = "rate")]
    scps: bool,
    /// Ask for ECN (RFC 3168), not only agree where the peer asks
    #[arg(long)]
    ecn: bool,
    /// TCP Fast Open (RFC 7413): data with the SYN to a server whose cookie is known, and of clients that bring ours
    #[arg(long, conflicts_with = "scps")]
    fast_open: bool,
    /// Congestion control, of `bentpipe list` [default: cubic; with --scps rate]
    #[arg(long, value_name = "NAME")]
    control: Option<String>,
    /// Loss recovery, of `bentpipe list` [default: rack-tlp; with --scps snack]
    #[arg(long, value_name = "NAME")]
    recovery: Option<String>,
    /// What the path carries, or our share of it, for controls that heed it
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Send and receive buffer of a connection
    #[arg(long, value_name = "SIZE", default_value = "8MB")]
    buffer: Bytes,
    /// Write all packets to FILE (pcapng)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Write the sender's window, round-trip time and flight to FILE (CSV), every 10 ms
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write what was measured to FILE; `-`: to stdout
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Send(args) => send(args),
        Command::Get(args) => get(args),
        Command::Serve(args) => serve(args),
    }
}

fn send(args: &Send) -> Result<(), Failure> {
    let source = Source::open(&args.file).or_usage()?;
    let mut plane = Plane::new(&args.common)?;
    let id = plane.connect(args.to, args.cookies.as_deref())?;
    let stream = Stream::new(id, args.to, Some(source), None);
    plane.run(vec![stream], None, true)
}

fn get(args: &Get) -> Result<(), Failure> {
    let to_stdout = |file: Option<&PathBuf>| file.is_some_and(|file| file.as_os_str() == "-");
    if to_stdout(Some(&args.to)) && to_stdout(args.common.json.as_ref()) {
        let why =
            anyhow!("stream and figures cannot both go to stdout: give --to or --json a file");
        return Err(Failure::Usage(why));
    }
    let sink = Sink::create(&args.to).or_usage()?;
    let mut plane = Plane::new(&args.common)?;
    let id = plane.connect(args.from, args.cookies.as_deref())?;
    let stream = Stream::new(id, args.from, None, Some(sink));
    plane.run(vec![stream], None, true)
}

fn serve(args: &Serve) -> Result<(), Failure> {
    if let Some(file) = &args.send {
        // A mistake is told now, not to the first who connects.
        Source::open(file).or_usage()?;
    }
    let sink = args
        .to
        .as_deref()
        .map(Sink::create)
        .transpose()
        .or_usage()?;
    let mut plane = Plane::new(&args.common)?;
    plane.listen(args.port)?;
    plane.run(Vec::new(), Some((args.send.clone(), sink)), args.once)
}

/// The entries of the registries that `common` names.
fn variant(
    common: &Common,
) -> anyhow::Result<(&'static cc::Algorithm, &'static recovery::Algorithm)> {
    let (control, recovery) = if common.scps {
        ("rate", "snack")
    } else {
        ("cubic", "rack-tlp")
    };
    let name = common.control.as_deref().unwrap_or(control);
    let control = cc::find(name).ok_or_else(|| {
        anyhow!("there is no congestion control `{name}`: `bentpipe list` names them")
    })?;
    let name = common.recovery.as_deref().unwrap_or(recovery);
    let recovery = recovery::find(name)
        .ok_or_else(|| anyhow!("there is no loss recovery `{name}`: `bentpipe list` names them"))?;
    Ok((control, recovery))
}
