//! smoltcp as a child process in a namespace: the example of that name in this crate.

use super::{BUFFER, PacketBenchError};
use bentpipe_os::netns::{Netns, spawn_bound};
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, Stdio};

/// The running rival. Dropping it ends the process; it dies with ours, too.
#[derive(Debug)]
pub(super) struct Rival(Child);

impl Rival {
    /// Starts `program` in `netns`: it makes interface `name` and has the address `address` there. `configure` is called
    /// when the interface is there and the rival does not read it yet.
    pub(super) fn start(
        program: &Path,
        netns: &Netns,
        (name, address, bits): (&str, IpAddr, u8),
        configure: impl FnOnce() -> Result<(), PacketBenchError>,
    ) -> Result<Self, PacketBenchError> {
        let failed = |error| PacketBenchError::Rival(format!("cannot be run: {error}"));
        let mut command = netns.command(program);
        command.args([name, &format!("{address}/{bits}"), &BUFFER.0.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut rival = Self(spawn_bound(command).map_err(failed)?);
        let mut said = String::new();
        if let Some(out) = rival.0.stdout.take() {
            BufReader::new(out).read_line(&mut said).map_err(failed)?;
        }
        if said.trim() != "ready" {
            let why = "ended before it had its interface; what it said is above";
            return Err(PacketBenchError::Rival(why.to_owned()));
        }
        configure()?;
        if let Some(go) = &mut rival.0.stdin {
            go.write_all(b"go\n").map_err(failed)?;
        }
        Ok(rival)
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        if let Err(error) = ended {
            tracing::warn!(%error, "cannot end smoltcp");
        }
    }
}
