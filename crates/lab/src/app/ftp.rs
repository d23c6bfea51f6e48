//! FTP in passive mode (RFC 959, RFC 2428): vsftpd serves, lftp fetches or sends.

use super::{App, NAME, Pair, Site, Ways, found};
use bentpipe_os::need::Need;
use std::fs;
use std::io;
use std::net::IpAddr;

const NEEDS: &[Need] = &[Need::Program("vsftpd"), Need::Program("lftp")];

pub(super) const APP: App = App {
    name: "ftp",
    summary: "FTP, vsftpd and lftp",
    ways: Ways::Both,
    needs: NEEDS,
    prepare: |site| prepare(site, ""),
    report: None,
    interface: None,
};

/// A client whose window holds it to 730 kbit/s over 600 ms, as the NcFTP of Finch, Sullivan and Ivancic (2012) was held. (The
/// window of 12,000 bytes that their text reads off figure 2 would allow 160.) Linux gives a buffer twice as large as it is
/// asked for, and advertises half of it. It is the window of who fetches; who sends has some 100 kB under way.
pub(super) const SMALL_WINDOW: App = App {
    name: "ftp-55kB",
    summary: "FTP, vsftpd and an lftp with buffers of 55 kB",
    ways: Ways::Both,
    needs: NEEDS,
    prepare: |site| prepare(site, "set net:socket-buffer 54750; "),
    report: None,
    interface: None,
};

fn prepare(site: &Site<'_>, settings: &str) -> io::Result<Pair> {
    let empty = site.folder.join("empty");
    fs::create_dir(&empty)?;
    let (ip, port) = (site.address.ip(), site.address.port());
    let listen = match ip {
        IpAddr::V4(_) => format!("listen=YES\nlisten_address={ip}"),
        IpAddr::V6(_) => format!("listen=NO\nlisten_ipv6=YES\nlisten_address6={ip}"),
    };
    let config = site.folder.join("vsftpd.conf");
    // As the user that starts it, because nobody else may look into the flow's folder.
    fs::write(
        &config,
        format!(
            "{listen}\nlisten_port={port}\nbackground=NO\nrun_as_launching_user=YES\nseccomp_sandbox=NO\n\
             isolate=NO\nisolate_network=NO\nsecure_chroot_dir={}\nanonymous_enable=YES\nlocal_enable=NO\n\
             no_anon_password=YES\nanon_root={}\nanon_world_readable_only=NO\nwrite_enable=YES\n\
             anon_upload_enable=YES\nanon_other_write_enable=YES\nport_enable=NO\nxferlog_enable=NO\n\
             accept_timeout=3600\nconnect_timeout=3600\ndata_connection_timeout=3600\nidle_session_timeout=3600\n",
            empty.display(),
            site.served().display(),
        ),
    )?;
    let mut server = site.serves(found("vsftpd")?)?;
    server.arg(config);
    let does = if site.sends {
        format!("put \"{}\" -o {NAME}", site.source().display())
    } else {
        format!("get {NAME} -o \"{}\"", site.target().display())
    };
    let mut client = site.asks("lftp")?;
    client.arg("--norc").arg("-c").arg(format!(
        "set cmd:fail-exit yes; set net:timeout 3600; set net:max-retries 1; {settings}\
         open ftp://{}; {does}",
        site.address
    ));
    Ok(Pair { server, client })
}
