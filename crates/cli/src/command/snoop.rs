//! `bentpipe snoop`: the Snoop agent in a bridge of this machine.

use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use crate::terminal;
use anyhow::anyhow;
use bentpipe_base::Bytes;
use bentpipe_os::need::Need;
use bentpipe_snoop_bridge::{Settings, SnoopBridge};

/// Options of `snoop`. The two interfaces are ports of a bridge of the kernel, which carries the frames when this command
/// ends, is killed or hangs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The interface towards those who send the data that gets lost
    near: String,
    /// The interface towards the link that loses it
    far: String,
    /// Links on both sides lose: data towards NEAR is sent again too
    #[arg(long)]
    both: bool,
    /// The cache of one connection: what the far link holds in a round trip
    #[arg(long, value_name = "SIZE", default_value = "750kB")]
    cache: Bytes,
}

/// Does what `args` say.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    Need::check_all(&[Need::NetAdmin, Need::NetRaw, Need::Nft]).or_usage()?;
    if args.near == args.far {
        let why = anyhow!(
            "`{}` is both ends: give the command two interfaces",
            args.near
        );
        return Err(Failure::Usage(why));
    }
    let settings = Settings {
        near: args.near.clone(),
        far: args.far.clone(),
        both: args.both,
        cache: args.cache,
    };
    let stop = Stop::on_signals().or_usage()?;
    let bridge = SnoopBridge::new(&settings).or_usage()?;
    terminal::say(&format!(
        "snoops between `{}` and `{}`",
        args.near, args.far
    ));
    let tells = |report: &_| terminal::say(&format!("[{report}]"));
    bridge.run(|| stop.asked(), tells).or_run()?;
    Err(Failure::Interrupted)
}
