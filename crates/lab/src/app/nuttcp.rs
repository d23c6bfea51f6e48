//! nuttcp: a connection for the bytes, and one beside it that says what is measured. The receiver listens.

use super::{App, Pair, Site, Ways, found};
use bentpipe_os::need::Need;
use std::fs::File;
use std::io;

pub(super) const APP: App = App {
    name: "nuttcp",
    summary: "nuttcp, memory to memory but for a file at either end",
    ways: Ways::ToServer,
    needs: &[Need::Program("nuttcp")],
    prepare,
};

fn prepare(site: &Site<'_>) -> io::Result<Pair> {
    let port = site.address.port();
    // Flows' own ports lie below.
    let data = port.wrapping_add(20_000).to_string();
    let port = port.to_string();
    let family = if site.address.is_ipv4() { "-4" } else { "-6" };
    let mut server = site.serves(found("nuttcp")?)?;
    server.args(["--nofork", family, "-r", "-s", "-P", &port, "-p", &data]);
    server.stdout(File::create(site.target())?);
    let mut client = site.asks(found("nuttcp")?)?;
    client.args([family, "-t", "-s", "-P", &port, "-p", &data]);
    client.arg(site.address.ip().to_string());
    client.stdin(File::open(site.source())?);
    Ok(Pair { server, client })
}
