//! sftp of OpenSSH, which keeps 64 requests of 32 KiB under way.

use super::{App, Pair, Site, Ways, ssh};
use bentpipe_os::need::Need;
use std::fs;
use std::io;

pub(super) const APP: App = App {
    name: "sftp",
    summary: "sftp of OpenSSH",
    ways: Ways::Both,
    needs: &[ssh::CLIENT, ssh::SERVER, ssh::KEYS, Need::Program("sftp")],
    prepare,
    report: None,
    interface: None,
};

fn prepare(site: &Site<'_>) -> io::Result<Pair> {
    let (server, config) = ssh::prepare(site)?;
    let does = if site.sends { "put" } else { "get" };
    let batch = site.folder.join("batch");
    let (source, target) = (site.source(), site.target());
    fs::write(
        &batch,
        format!("{does} \"{}\" \"{}\"\n", source.display(), target.display()),
    )?;
    let mut client = site.asks("sftp")?;
    client.arg("-q").arg("-F").arg(config).arg("-b").arg(batch);
    client.arg(ssh::PEER);
    Ok(Pair { server, client })
}
