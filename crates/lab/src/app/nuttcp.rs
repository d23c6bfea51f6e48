//! nuttcp: a connection or datagrams for the bytes, and a connection beside them that says what is measured. The
//! receiver listens.

use super::{App, Pair, Report, Site, Ways, found};
use bentpipe_os::need::Need;
use std::fs::{self, File};
use std::io;
use std::time::Duration;

pub(super) const APP: App = App {
    name: "nuttcp",
    summary: "nuttcp, memory to memory but for a file at either end",
    ways: Ways::ToServer,
    needs: &[Need::Program("nuttcp")],
    prepare,
    report: None,
    interface: None,
};

/// By datagrams nuttcp cannot move a file (6.1.2 writes its end marks into it, and waits for ever): memory to memory, and it
/// says itself how much came.
pub(super) const UDP: App = App {
    name: "nuttcp-udp",
    summary: "nuttcp over UDP at the rate of the path, memory to memory; what is lost stays lost",
    ways: Ways::ToServer,
    needs: &[Need::Program("nuttcp")],
    prepare: prepare_udp,
    report: Some(report),
    interface: None,
};

/// The ports of the connection that says what is measured, and of the bytes.
fn ports(site: &Site<'_>) -> [String; 2] {
    let port = site.address.port();
    // Flows' own ports lie below.
    [port, port.wrapping_add(20_000)].map(|port| port.to_string())
}

fn prepare(site: &Site<'_>) -> io::Result<Pair> {
    let [port, data] = ports(site);
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

fn prepare_udp(site: &Site<'_>) -> io::Result<Pair> {
    let rate = site.rate.ok_or_else(|| {
        io::Error::other("nuttcp over UDP must be told a rate, and no link on its way has one")
    })?;
    let (family, headers) = if site.address.is_ipv4() {
        ("-4", 20 + 8)
    } else {
        ("-6", 40 + 8)
    };
    let datagram = site.mtu.0.saturating_sub(headers).max(1);
    let datagrams = fs::metadata(site.source())?.len().div_ceil(datagram);
    let kbps = rate.bits_per_sec() / 1000 * datagram / (datagram + headers);
    let [port, data] = ports(site);
    let mut server = site.serves(found("nuttcp")?)?;
    server.args(["-S", "--nofork", "-1", family, "-P", &port]);
    let mut client = site.asks(found("nuttcp")?)?;
    client
        .args([family, "-t", "-u", "-fparse", "-P", &port, "-p", &data])
        .arg(format!("-R{}", kbps.max(1)))
        .arg(format!("-l{datagram}"))
        .arg(format!("-n{datagrams}"))
        .arg(site.address.ip().to_string());
    Ok(Pair { server, client })
}

/// `megabytes=9.5375 real_seconds=10.39 … drop=0 pkt=6794 data_loss=0.00000`, megabytes of 2^20 bytes.
fn report(said: &str) -> Option<Report> {
    let figure = |key: &str| -> Option<f64> {
        let mut words = said.split_ascii_whitespace().rev();
        words.find_map(|word| word.strip_prefix(key)?.parse().ok())
    };
    let bytes = figure("megabytes=")? * f64::from(1 << 20);
    let time = Duration::try_from_secs_f64(figure("real_seconds=")?).ok()?;
    // Written to a ten-thousandth of a megabyte.
    let bytes = bytes.round() as u64;
    Some(Report { bytes, time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_read_from_the_last_report() {
        let said = "nuttcp: Info: a line before\n\
                    megabytes=9.5375 real_seconds=10.39 rate_Mbps=7.6991 tx_cpu=66 rx_cpu=1 drop=0 pkt=6794 data_loss=0.00000\n";
        let wanted = Report {
            bytes: 10_000_794,
            time: Duration::from_millis(10_390),
        };
        assert_eq!(report(said), Some(wanted));
        assert_eq!(report("nuttcp-t: Error: server not responding\n"), None);
    }
}
