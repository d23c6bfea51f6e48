//! OpenSSH for those that go over it: keys and settings of the flow alone, no agent, nothing of the user.

use super::{Site, found};
use bentpipe_os::need::Need;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const CLIENT: Need = Need::Program("ssh");
pub(super) const SERVER: Need = Need::Program("sshd");
pub(super) const KEYS: Need = Need::Program("ssh-keygen");

/// The host by which the client's settings know the server.
pub(super) const PEER: &str = "peer";

/// Makes keys and settings; the server, and the client's settings file.
pub(super) fn prepare(site: &Site<'_>) -> io::Result<(Command, PathBuf)> {
    let path = |name: &str| site.folder.join(name);
    let own = key(&path("key"))?;
    let host = key(&path("host_key"))?;
    fs::write(path("authorized_keys"), own)?;
    fs::write(path("known_hosts"), format!("{PEER} {host}"))?;
    let (address, port) = (site.address.ip(), site.address.port());
    let folder = site.folder.display();
    let client = path("ssh_config");
    fs::write(
        &client,
        format!(
            "Host {PEER}\nHostName {address}\nPort {port}\nHostKeyAlias {PEER}\nUser root\n\
             IdentityFile \"{folder}/key\"\nIdentitiesOnly yes\nIdentityAgent none\nBatchMode yes\n\
             UserKnownHostsFile \"{folder}/known_hosts\"\nGlobalKnownHostsFile none\n\
             StrictHostKeyChecking yes\nLogLevel ERROR\n"
        ),
    )?;
    let config = path("sshd_config");
    fs::write(
        &config,
        format!(
            "ListenAddress {}\nHostKey \"{folder}/host_key\"\nPidFile none\n\
             AuthorizedKeysFile \"{folder}/authorized_keys\"\nAllowUsers root\nPermitRootLogin prohibit-password\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitUserRC no\nUsePAM no\n\
             StrictModes no\nUseDNS no\nLoginGraceTime 0\nSetEnv HOME=\"{folder}\"\nSubsystem sftp internal-sftp\n\
             LogLevel ERROR\n",
            site.address
        ),
    )?;
    // As its unit does: the empty folder of its unprivileged half.
    match fs::create_dir("/run/sshd") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // It starts itself anew and wants its full path for that.
    let mut server = site.serves(found("sshd")?)?;
    server.args(["-D", "-e", "-f"]).arg(config);
    Ok((server, client))
}

/// Makes a key at `path`; its public half.
fn key(path: &Path) -> io::Result<String> {
    let made = Command::new(found("ssh-keygen")?)
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(path)
        .stdin(Stdio::null())
        .output()?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        return Err(io::Error::other(format!("ssh-keygen: {}", said.trim())));
    }
    fs::read_to_string(path.with_extension("pub"))
}
