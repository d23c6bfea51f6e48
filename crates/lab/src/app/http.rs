//! HTTP/1.1: nginx serves, curl fetches by GET or sends by PUT; or wget fetches.

use super::{App, NAME, Pair, Site, Ways, found};
use bentpipe_os::need::Need;
use std::fs;
use std::io;
use std::process::Command;

const SERVER: Need = Need::Program("nginx");

pub(super) const APP: App = App {
    name: "http",
    summary: "HTTP/1.1, nginx and curl",
    ways: Ways::Both,
    needs: &[SERVER, Need::Program("curl")],
    prepare: by_curl,
    report: None,
    interface: None,
};

pub(super) const WGET: App = App {
    name: "wget",
    summary: "HTTP/1.1, nginx and wget",
    ways: Ways::ToClient,
    needs: &[SERVER, Need::Program("wget")],
    prepare: by_wget,
    report: None,
    interface: None,
};

fn serve(site: &Site<'_>) -> io::Result<Command> {
    let (folder, served) = (site.folder.display(), site.served());
    // A body that comes counts as received while it waits for its end.
    let body = site.to().join(".body");
    let config = site.folder.join("nginx.conf");
    fs::write(
        &config,
        format!(
            "daemon off;\nmaster_process off;\npid \"{folder}/nginx.pid\";\nlock_file \"{folder}/nginx.lock\";\n\
             error_log stderr;\nevents {{ worker_connections 64; }}\n\
             http {{\naccess_log off;\nsendfile on;\ntcp_nopush on;\nsend_timeout 1h;\n\
             client_body_timeout 1h;\nclient_max_body_size 0;\nclient_body_temp_path \"{}\";\n\
             server {{ listen {}; root \"{}\"; dav_methods PUT; }}\n}}\n",
            body.display(),
            site.address,
            served.display(),
        ),
    )?;
    let mut server = site.serves(found("nginx")?)?;
    server.args(["-e", "stderr", "-p"]).arg(site.folder);
    server.arg("-c").arg(config);
    Ok(server)
}

fn by_wget(site: &Site<'_>) -> io::Result<Pair> {
    let server = serve(site)?;
    let mut client = site.asks("wget")?;
    client.args(["--no-config", "--no-verbose", "--no-proxy", "--tries=1"]);
    client.arg("--output-document").arg(site.target());
    client.arg(format!("http://{}/{NAME}", site.address));
    Ok(Pair { server, client })
}

fn by_curl(site: &Site<'_>) -> io::Result<Pair> {
    let server = serve(site)?;
    let mut client = site.asks("curl")?;
    // -q first: no file of settings is read.
    client.args([
        "-q",
        "--silent",
        "--show-error",
        "--fail",
        "--globoff",
        "--noproxy",
        "*",
    ]);
    if site.sends {
        client.arg("--upload-file").arg(site.source())
    } else {
        client.arg("--output").arg(site.target())
    };
    client.arg(format!("http://{}/{NAME}", site.address));
    Ok(Pair { server, client })
}
