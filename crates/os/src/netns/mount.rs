//! Names of namespaces: files under `/run/netns` with the namespace bound over them.

use super::{NetnsError, OF_THIS_THREAD};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = "/run/netns";

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Names in use, ours and others'.
pub(crate) fn names() -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(DIRECTORY) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Takes the name away. Processes inside keep the namespace itself; one that is already gone is
/// well.
fn remove(name: &str) -> io::Result<()> {
    let path = path(name);
    match unmount(&path, UnmountFlags::DETACH) {
        // INVAL: a file with nothing bound over it, from a process killed between the two steps.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        Err(e) => return Err(e.into()),
    }
    match fs::remove_file(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Takes away the name of a namespace whose owner is dead, and ends what still runs inside.
pub(crate) fn abandon(name: &str) -> io::Result<()> {
    if let Ok(namespace) = fs::metadata(path(name)) {
        super::command::end_processes(&namespace);
    }
    remove(name)
}

/// A name bound to a namespace, until dropped.
#[derive(Debug)]
pub(crate) struct Bound {
    name: String,
}

impl Bound {
    /// Binds the calling thread's namespace to `name`.
    pub(crate) fn this_thread(name: &str) -> Result<Self, NetnsError> {
        let failed = |doing: &'static str| {
            move |source: io::Error| NetnsError::Bind {
                name: name.to_owned(),
                doing,
                source,
            }
        };
        share_directory().map_err(failed("preparing the directory"))?;
        let path = path(name);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(failed("creating the file"))?;
        // From here on the drop removes the file.
        let bound = Self {
            name: name.to_owned(),
        };
        mount_bind(OF_THIS_THREAD, &path)
            .map_err(io::Error::from)
            .map_err(failed("mounting the namespace"))?;
        Ok(bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.name) {
            tracing::warn!(name = %self.name, %error, "cannot remove network namespace; the next sweep will try again");
        }
    }
}

/// Makes the directory a shared mount, as ip-netns(8) does, so that names bound here are seen (and
/// can be unbound) in other mount namespaces. Under a lock: two processes that both find it unshared
/// would stack two mounts, and names bound between the two would be hidden.
fn share_directory() -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let directory = File::open(DIRECTORY)?;
    flock(&directory, FlockOperation::LockExclusive)?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    match mount_change(DIRECTORY, shared) {
        // Not a mount of its own yet.
        Err(rustix::io::Errno::INVAL) => {
            mount_bind_recursive(DIRECTORY, DIRECTORY)?;
            mount_change(DIRECTORY, shared)?;
        }
        result => result?,
    }
    Ok(())
}
