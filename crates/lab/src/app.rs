//! Programs that move a file, one file each: a server at the end that accepts, a client at the end that
//! opens, both the real ones, in their hosts' namespaces.
//!
//! A new one is a file here and a line of [`APPS`]. Its keys and settings go into the flow's own
//! folder; it finds none of the user's: the environment is empty and `HOME` is that folder.

mod ftp;
mod http;
mod nuttcp;
mod rsync;
mod saratoga;
mod scp;
mod scps;
mod sftp;
mod ssh;

use bentpipe_base::{Bytes, Rate};
use bentpipe_os::need::{Need, find_program};
use bentpipe_os::netns::Netns;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that moves a file.
#[derive(Clone, Copy, Debug)]
pub struct App {
    /// As scenarios name it.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Which ways it moves one.
    pub ways: Ways,
    /// What must be installed.
    pub(crate) needs: &'static [Need],
    /// Both its sides, ready to be started.
    pub(crate) prepare: fn(&Site<'_>) -> io::Result<Pair>,
    /// Of a program that sends nothing again: reads what came of it from what the client says at its end.
    pub(crate) report: Option<fn(&str) -> Option<Report>>,
    /// Of a program with a TCP of its own: the name of the interface by which it listens at a port.
    pub(crate) interface: Option<fn(u16) -> String>,
}

/// What came of all that a program sent once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) bytes: u64,
    /// From its first byte to its last.
    pub(crate) time: Duration,
}

/// Between the client, which opens the connection, and the server: which ways files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// The client fetches or sends.
    Both,
    /// The client fetches.
    ToClient,
    /// The client sends.
    ToServer,
}

/// All of them.
pub const APPS: &[App] = &[
    saratoga::APP,
    scps::APP,
    scp::APP,
    sftp::APP,
    rsync::APP,
    http::APP,
    http::WGET,
    ftp::APP,
    ftp::SMALL_WINDOW,
    nuttcp::APP,
    nuttcp::UDP,
];

/// The names of [`APPS`].
pub fn app_names() -> Vec<&'static str> {
    APPS.iter().map(|app| app.name).collect()
}

/// A server and the client that moves the file.
pub(crate) struct Pair {
    pub(crate) server: Command,
    pub(crate) client: Command,
}

/// Where a file is moved from and to. The client fetches it, or sends it where it has it.
pub(crate) struct Site<'a> {
    /// The flow's own folder. It has `from` with the file and `to` without it.
    pub(crate) folder: &'a Path,
    /// The namespaces of server and client.
    pub(crate) server: &'a Netns,
    pub(crate) client: &'a Netns,
    /// Where the server listens.
    pub(crate) address: SocketAddr,
    /// Whether the client has the file.
    pub(crate) sends: bool,
    /// What Saratoga and SCPS-TP are told of the way.
    pub(crate) rate: Option<Rate>,
    pub(crate) mtu: Bytes,
    /// Its congestion control.
    pub(crate) control: &'a str,
    /// This program.
    pub(crate) program: &'a Path,
}

/// The file's name.
pub(crate) const NAME: &str = "file";

impl Site<'_> {
    /// The file that is moved.
    pub(crate) fn source(&self) -> PathBuf {
        self.folder.join("from").join(NAME)
    }

    /// Where it shall be.
    pub(crate) fn target(&self) -> PathBuf {
        self.to().join(NAME)
    }

    /// The folder it comes into; all in it counts as received.
    pub(crate) fn to(&self) -> PathBuf {
        self.folder.join("to")
    }

    /// The folder that the server serves.
    pub(crate) fn served(&self) -> PathBuf {
        if self.sends {
            self.to()
        } else {
            self.folder.join("from")
        }
    }

    /// `program` as the server; what it says goes into `server.log`.
    pub(crate) fn serves(&self, program: impl AsRef<OsStr>) -> io::Result<Command> {
        self.command(self.server, program, "server.log")
    }

    /// `program` as the client; what it says goes into `client.log`.
    pub(crate) fn asks(&self, program: impl AsRef<OsStr>) -> io::Result<Command> {
        self.command(self.client, program, "client.log")
    }

    fn command(&self, at: &Netns, program: impl AsRef<OsStr>, log: &str) -> io::Result<Command> {
        let said = File::create(self.folder.join(log))?;
        let mut command = at.command(program);
        command
            .env_clear()
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .env("HOME", self.folder)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said);
        Ok(command)
    }
}

/// The full path of `program`, whose need was checked.
fn found(program: &str) -> io::Result<PathBuf> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, format!("`{program}` is not there"));
    find_program(program).ok_or_else(missing)
}
