//! Opens files to read them, also those on which another process has a write lease (fcntl(2), F_SETLEASE), as Samba and the
//! kernel's NFS server have them for their clients.
//!
//! The kernel asks that process for the lease when somebody opens the file, and takes it away after its `lease-break-time`. It lets
//! open(2) wait for that, unless that is not to wait for anything (O_NONBLOCK), as ours: a pipe must not hold us up.

use crate::task::Cancel;
use bentpipe_sockets::timer;
use rustix::fs::{FileType, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use thiserror::Error;

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(50);
/// The kernel's `lease-break-time` unless it was told another; of 0 it waits for ever.
const BREAK_TIME: u64 = 45;

/// Why a file cannot be opened.
#[derive(Debug, Error)]
#[error("another process (Samba, an NFS server) has a lease on it and does not give it back")]
struct Leased;

/// Whether `error` says that another process has a lease on the file.
pub(crate) fn is_leased(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|why| why.is::<Leased>())
}

/// The file that `open` opens with the flags that it is given. Where another process has a lease on it, that is waited for until the
/// kernel takes it away, but no longer than `patience`.
///
/// # Errors
/// What `open` says, that a lease is in the way, and that nobody waits for it any more.
pub(crate) fn open(
    patience: Duration,
    cancel: &Cancel,
    open: impl Fn(OFlags) -> io::Result<OwnedFd>,
) -> io::Result<File> {
    let began = timer::now();
    loop {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let error = match open(flags) {
            Ok(file) => return Ok(File::from(file)),
            Err(error) => error,
        };
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        // So it may be of a device too, for other reasons. This looks at it without opening it.
        let found = rustix::fs::fstat(open(OFlags::PATH | OFlags::CLOEXEC)?)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(error);
        }
        if timer::now().since(began) >= patience.min(longest()) {
            return Err(io::Error::other(Leased));
        }
        cancel.check()?;
        std::thread::sleep(AGAIN);
    }
}

/// How long it takes until the kernel has taken a lease away.
fn longest() -> Duration {
    let told = std::fs::read_to_string("/proc/sys/fs/lease-break-time");
    let seconds = told.ok().and_then(|told| told.trim().parse().ok());
    let seconds = seconds.filter(|seconds| (1..=BREAK_TIME).contains(seconds));
    Duration::from_secs(seconds.unwrap_or(BREAK_TIME) + 1)
}

#[cfg(test)]
mod tests {
    use crate::Tree;
    use crate::task::Cancel;
    use bentpipe_wire::saratoga::Code;
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    #[test]
    fn a_lease_is_waited_for_and_named_where_it_is_not_given_back() {
        bentpipe_os::need!(Program("python3"));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "content").unwrap();
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../saratoga-udp/tests/support/lease.py"
        );
        let mut process = Command::new("python3")
            .arg(program)
            .arg(folder.path().join("a"))
            .arg("0.5")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let output = process.stdout.as_mut().unwrap();
        std::io::BufReader::new(output)
            .read_line(&mut said)
            .unwrap();
        assert!(!said.is_empty());
        let tree = Tree::open(folder.path()).unwrap();
        let refused = tree.file("a").unwrap_err();
        let why = refused.to_string();
        assert!(why.contains("has a lease on it"), "{why}");
        assert!(refused.is_leased() && refused.code() == Code::CANNOT_SEND);
        let (patience, cancel) = (Duration::from_secs(20), Cancel::default());
        let (file, _) = tree.file_within("a", patience, &cancel).unwrap();
        assert_eq!(std::io::read_to_string(file).unwrap(), "content");
        assert!(process.wait().unwrap().success());
    }
}
