//! Saratoga: our own `bentpipe saratoga`, at the rate of the way.

use super::{App, NAME, Pair, Site, Ways};
use std::io;

pub(super) const APP: App = App {
    name: bentpipe_scenario::SARATOGA,
    summary: "Saratoga over UDP at the rate of the path, `bentpipe saratoga`",
    ways: Ways::Both,
    needs: &[],
    prepare,
    report: None,
    interface: None,
};

fn prepare(site: &Site<'_>) -> io::Result<Pair> {
    let rate = site.rate.ok_or_else(|| {
        io::Error::other(
            "Saratoga must be told a rate, and no link on its way has one: say `path_rate`",
        )
    })?;
    let rate = format!("--rate={rate}");
    let way = [
        format!("--packet={}", site.mtu.0),
        format!("--congestion={}", site.control),
    ];
    let mut server = site.serves(site.program)?;
    server
        .args(["saratoga", "serve", &rate, "--allow=put"])
        .arg(format!("--listen={}", site.address))
        .args(&way)
        .arg(site.served());
    let mut client = site.asks(site.program)?;
    client.arg("saratoga");
    let address = site.address.to_string();
    if site.sends {
        client.args(["put", &address, &rate]).arg(site.source())
    } else {
        client.args(["get", &address, NAME, "--to"]).arg(site.to())
    };
    client.args(&way);
    Ok(Pair { server, client })
}
