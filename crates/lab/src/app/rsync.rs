//! rsync over ssh. `--inplace` writes where the file shall be, so that what has come can be counted.

use super::{App, Pair, Site, Ways, ssh};
use bentpipe_os::need::Need;
use std::io;

pub(super) const APP: App = App {
    name: "rsync",
    summary: "rsync over ssh",
    ways: Ways::Both,
    needs: &[ssh::CLIENT, ssh::SERVER, ssh::KEYS, Need::Program("rsync")],
    prepare,
    report: None,
    interface: None,
};

fn prepare(site: &Site<'_>) -> io::Result<Pair> {
    let (server, config) = ssh::prepare(site)?;
    let mut client = site.asks("rsync")?;
    let shell = format!("ssh -F '{}'", config.display());
    client.args(["--inplace", "--whole-file", "--rsh", &shell]);
    let there = |path: std::path::PathBuf| format!("{}:{}", ssh::PEER, path.display());
    if site.sends {
        client.arg(site.source()).arg(there(site.target()))
    } else {
        client.arg(there(site.source())).arg(site.target())
    };
    Ok(Pair { server, client })
}
