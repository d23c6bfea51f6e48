//! scp of OpenSSH, over SFTP as it has been since 9.0.

use super::{App, Pair, Site, Ways, ssh};
use bentpipe_os::need::Need;
use std::io;

pub(super) const APP: App = App {
    name: "scp",
    summary: "scp of OpenSSH",
    ways: Ways::Both,
    needs: &[ssh::CLIENT, ssh::SERVER, ssh::KEYS, Need::Program("scp")],
    prepare,
    report: None,
    interface: None,
};

fn prepare(site: &Site<'_>) -> io::Result<Pair> {
    let (server, config) = ssh::prepare(site)?;
    let mut client = site.asks("scp")?;
    client.arg("-q").arg("-F").arg(config);
    let there = |path: std::path::PathBuf| format!("{}:{}", ssh::PEER, path.display());
    if site.sends {
        client.arg(site.source()).arg(there(site.target()))
    } else {
        client.arg(there(site.source())).arg(site.target())
    };
    Ok(Pair { server, client })
}
