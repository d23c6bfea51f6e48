//! `bentpipe saratoga`: files over Saratoga.

mod client;
mod fetch;
mod progress;
mod send;

use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_base::{Bytes, Rate, parse_duration};
use bentpipe_process::limits;
use bentpipe_saratoga::HoleEnd;
use bentpipe_saratoga::sender::Congestion;
use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::serve::ServerConfig;
use bentpipe_saratoga_udp::{Key, Link, Server, Tree, beacon};
use bentpipe_wire::saratoga::PORT;
use clap::{Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// What to do with files.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory until Ctrl-C
    #[command(after_help = "\
Examples:
  bentpipe saratoga serve /data --rate 8Mbit/s                 read only
  bentpipe saratoga serve /data --rate 8Mbit/s --allow put     peers may also send
  bentpipe saratoga serve /data --rate 8Mbit/s --allow put,delete --key-file key

Prints `serving ADDRESS` on stdout when it listens. The rate is what the line carries, IP headers
included: Saratoga does not look for it, and on a shared path needs --congestion tfrc.")]
    Serve(Serve),
    /// Fetch files or, with -r, directories
    #[command(after_help = "\
Examples:
  bentpipe saratoga get 10.0.0.1 images/a.tif
  bentpipe saratoga get 10.0.0.1 -r images --to /archive
  bentpipe saratoga get 10.0.0.1 log.txt --to - | less

Run the same command again after an interruption: it goes on where it was, with -ru without what is here.")]
    Get(fetch::Get),
    /// Fetch files, and delete them at the server once they are here and verified
    #[command(after_help = "\
Examples:
  bentpipe saratoga take 10.0.0.1 images/a.tif --to /archive")]
    Take(fetch::Get),
    /// Send files or, with -r, directories
    #[command(after_help = "\
Examples:
  bentpipe saratoga put 10.0.0.1 a.tif --rate 8Mbit/s
  bentpipe saratoga put 10.0.0.1 -r images --to archive --rate 8Mbit/s
  tar c . | bentpipe saratoga put 10.0.0.1 - --as backup.tar --rate 8Mbit/s

Run the same command again after an interruption: it goes on where it was (a stream does not),
with -ru without what is there.")]
    Put(send::Put),
    /// Send files, and delete them here once they are there and verified
    #[command(after_help = "\
Examples:
  bentpipe saratoga give 10.0.0.1 a.tif --rate 8Mbit/s")]
    Give(send::Put),
    /// List a directory
    #[command(after_help = "\
Examples:
  bentpipe saratoga ls 10.0.0.1
  bentpipe saratoga ls 10.0.0.1 images --json")]
    Ls(client::List),
    /// Delete files at the server
    #[command(after_help = "\
Examples:
  bentpipe saratoga rm 10.0.0.1 images/a.tif --key-file key")]
    Rm(client::Remove),
    /// Listen for the beacons of peers on the local link
    #[command(after_help = "\
Examples:
  bentpipe saratoga peers
  bentpipe saratoga peers --time 30s --json")]
    Peers {
        /// How long; servers send a beacon every 5 s
        #[arg(long, value_name = "TIME", default_value = "6s", value_parser = parse_duration)]
        time: Duration,
        /// One JSON object on stdout
        #[arg(long)]
        json: bool,
    },
}

/// What a server may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Allow {
    /// Peers may write files, also over others
    Put,
    /// Peers may delete files, by rm and take
    Delete,
}

/// Options of `saratoga serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// The directory; nothing outside it is reached, symbolic links are not followed
    dir: PathBuf,
    /// What the line to and from the peers carries: all sessions together send no faster, and peers are
    /// told it
    #[arg(long, value_name = "RATE")]
    rate: Rate,
    #[command(flatten)]
    way: Way,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from(([0u16; 8], PORT)))]
    listen: SocketAddr,
    /// What peers may do besides reading
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    allow: Vec<Allow>,
    /// The longest file that peers may send
    #[arg(long, value_name = "SIZE", default_value = "100GB")]
    max_size: Bytes,
    /// Sessions at once; one peer may have a quarter of them
    #[arg(long, value_name = "N", default_value = "1024")]
    max_sessions: NonZeroUsize,
    /// The name in beacons; without it no beacons are sent
    #[arg(long, value_name = "NAME")]
    beacon: Option<String>,
}

/// Options of both sides.
#[derive(Debug, clap::Args)]
struct Way {
    /// Octets of an IP packet at most; those to a peer are no longer than the path takes, as far as it is
    /// known
    #[arg(long, value_name = "OCTETS", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(200..=65_000))]
    packet: u32,
    /// What to do about others on the path: tfrc yields to congestion (RFC 5348), none does not
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = Congestion::ALL.map(Congestion::name))]
    congestion: String,
    /// How long a peer may say nothing, at least 1s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = silence)]
    silence: Duration,
    /// The checksum over files that are sent: none, crc32c, md5 or sha1
    #[arg(long, value_name = "NAME", default_value = "crc32c")]
    checksum: Algorithm,
    /// A file with a key that both peers have: authenticates REQUESTs (ours, not in the draft)
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Write the ends of holes as older implementations do, one octet further
    #[arg(long)]
    exclusive_holes: bool,
    /// Send DATA without timestamps, for older implementations; a server then sends files to forged addresses
    /// too: for networks of one's own only
    #[arg(long, conflicts_with = "congestion")]
    no_timestamps: bool,
    /// Speak from and to Saratoga's port alone, whatever port a peer sends from, as older implementations do:
    /// one peer behind an address, and no server beside a client
    #[arg(long)]
    fixed_port: bool,
}

/// Less than a second would give up every peer over a satellite, and none at all everybody.
fn silence(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if time >= Duration::from_secs(1) => Ok(time),
        Ok(_) => Err("a peer has less than a second to answer: expected at least 1s".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Way {
    /// The way to peers that listen at `port`.
    fn link(&self, rate: Rate, port: u16) -> Link {
        Link {
            rate,
            packet: self.packet,
            congestion: Congestion::find(&self.congestion).expect("clap takes no other name"),
            silence: self.silence,
            hole_end: if self.exclusive_holes {
                HoleEnd::Exclusive
            } else {
                HoleEnd::Inclusive
            },
            timestamps: !self.no_timestamps,
            peer_port: self.fixed_port.then_some(port),
        }
    }

    /// The key. To be loaded once: a pipe has it only then.
    fn key(&self) -> Result<Option<Key>, Failure> {
        let path = self.key_file.as_deref();
        path.map(Key::load).transpose().or_usage()
    }
}

/// Does what `command` says.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    // Each session has files open, and the usual soft limit is for programs that cannot stand more.
    limits::raise_descriptors().or_run()?;
    match command {
        Command::Serve(args) => serve(args),
        Command::Get(args) => fetch::get(args, false),
        Command::Take(args) => fetch::get(args, true),
        Command::Put(args) => send::put(args, false),
        Command::Give(args) => send::put(args, true),
        Command::Ls(args) => client::list(args),
        Command::Rm(args) => client::remove(args),
        Command::Peers { time, json } => peers(*time, *json),
    }
}

fn serve(args: &Serve) -> Result<(), Failure> {
    let tree = Tree::open(&args.dir).or_usage()?;
    let port = match args.listen.port() {
        0 => PORT,
        port => port,
    };
    let config = ServerConfig {
        listen: args.listen,
        link: args.way.link(args.rate, port),
        put: args.allow.contains(&Allow::Put),
        delete: args.allow.contains(&Allow::Delete),
        key: args.way.key()?,
        max_size: args.max_size.0,
        max_sessions: args.max_sessions.get(),
        checksum: args.way.checksum,
        name: args.beacon.clone(),
    };
    let stop = Stop::on_signals().or_usage()?;
    let mut server = Server::new(tree, config)
        .with_context(|| format!("cannot listen on {}", args.listen))
        .or_usage()?;
    let address = server.address().or_usage()?;
    if let Err(error) = terminal::print(&format!("serving {address}")) {
        tracing::warn!(%error, %address, "cannot print where it serves to standard output: it serves all the same");
    }
    server.run(&stop.flag()).or_run()
}

fn peers(time: Duration, json: bool) -> Result<(), Failure> {
    let heard = beacon::listen(time).or_run()?;
    if json {
        let peers: Vec<_> = heard
            .iter()
            .map(|(address, beacon)| {
                let (name, rate) = beacon::name_and_rate(beacon);
                serde_json::json!({
                    "address": address.to_string(),
                    "name": name,
                    "rate": rate.map(|rate| rate.to_string()),
                    "free_kib": beacon.free.and_then(|free| u64::try_from(free.kib).ok()),
                    "sends": format!("{:?}", beacon.capabilities.send).to_lowercase(),
                    "receives": format!("{:?}", beacon.capabilities.receive).to_lowercase(),
                })
            })
            .collect();
        return terminal::print(&serde_json::json!({ "peers": peers }).to_string()).or_run();
    }
    if heard.is_empty() {
        return Err(anyhow!(
            "no beacon was heard in {time:?}; servers send them with --beacon, and only on the local link"
        ))
        .or_run();
    }
    for (address, beacon) in heard {
        let free = beacon
            .free
            .map_or_else(String::new, |free| format!(", {} KiB free", free.kib));
        let (name, rate) = beacon::name_and_rate(&beacon);
        let rate = rate.map_or_else(String::new, |rate| format!(", takes {rate}"));
        let name = terminal::one_line(&name.escape_debug().to_string());
        let line = format!("{address}  {name}{rate}{free}");
        terminal::print(&line).or_run()?;
    }
    Ok(())
}
