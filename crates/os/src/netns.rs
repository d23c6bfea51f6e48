//! Network namespaces: made, entered, configured and removed again.
//!
//! A namespace of ours is bound to a file under `/run/netns`, as ip-netns(8) does it, so that
//! `ip netns list` and `ip netns exec` know it; its name carries its [`Owner`]. Only threads and
//! child processes ever enter one: the thread that calls stays where it is.

mod command;
mod mount;
mod sysctl;

pub(crate) use mount::{abandon, names};

pub use command::{die_with_thread, spawn_bound};
pub use sysctl::{SysctlError, read_sysctl, write_sysctl};

use crate::netlink::{Netlink, NetlinkError};
use crate::owner::{Owner, OwnerError};
use crate::presence::Presence;
use rustix::thread::UnshareFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;
use thiserror::Error;

/// The namespace of the calling thread. `/proc/self` would be that of the main thread.
const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// A network namespace: one that we made ([`Netns::create`]; dropping it removes its name, and the
/// kernel ends the namespace itself with its last process and socket), or one that exists.
#[derive(Debug)]
pub struct Netns {
    file: Arc<File>,
    netlink: OnceLock<Netlink>,
    name: Option<String>,
    /// The name of a namespace that we made; its drop unmounts and removes it.
    bound: Option<mount::Bound>,
    /// The sign in a namespace that we made that this process lives.
    _presence: Option<Presence>,
}

/// A namespace could not be made, found or entered.
#[derive(Debug, Error)]
pub enum NetnsError {
    /// The kernel refused a new namespace.
    #[error("cannot make a network namespace ({0}): run as root (CAP_SYS_ADMIN)")]
    Unshare(#[source] io::Error),
    /// Its name could not be bound under `/run/netns`.
    #[error(
        "cannot bind network namespace `{name}` under /run/netns, {doing} ({source}): run as root, with a writable /run"
    )]
    Bind {
        /// The namespace.
        name: String,
        /// The step that failed.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A named namespace could not be opened.
    #[error(
        "cannot open network namespace `{name}` ({source}): `ip netns list` shows those there are"
    )]
    Open {
        /// The namespace.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// A thread could not enter the namespace.
    #[error("cannot enter network namespace {name} ({source}): run as root (CAP_SYS_ADMIN)")]
    Enter {
        /// The namespace.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// No thread could be started to work inside the namespace.
    #[error(
        "cannot start a thread in network namespace {name} ({source}): check the limit on processes (ulimit -u)"
    )]
    Thread {
        /// The namespace.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// One of its settings could not be made.
    #[error("cannot configure a new network namespace: {0}")]
    Configure(#[source] Box<SysctlError>),
    /// Our own name is unknown.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// Its loopback interface could not be switched on.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl Netns {
    /// Makes a namespace named after this process and `label` (with a number behind, so equal labels
    /// do not collide), with `lo` up and nothing else.
    ///
    /// Interfaces that come into it skip IPv6 duplicate address detection
    /// (`net.ipv6.conf.default.accept_dad` is 0): nobody else assigns addresses there, and a router
    /// whose link-local address is still under test cannot ask for its neighbours for a second or
    /// two.
    ///
    /// # Errors
    /// Needs root.
    pub fn create(label: &str) -> Result<Self, NetnsError> {
        let name = Owner::current()?.unique_name(label);
        // A thread of its own, because a thread that left its namespace has to find its way back.
        on_thread(&name, || Self::create_here(name.clone()))?
    }

    fn create_here(name: String) -> Result<Self, NetnsError> {
        // SAFETY: NEWNET unshares nothing that memory safety rests on (file descriptors and memory
        // stay shared with the other threads).
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|e| NetnsError::Unshare(e.into()))?;
        let presence = Presence::show().map_err(|source| NetnsError::Enter {
            name: name.clone(),
            source,
        })?;
        let bound = mount::Bound::this_thread(&name)?;
        let netns = Self {
            file: Arc::new(open_this_thread(&name)?),
            netlink: OnceLock::new(),
            name: Some(name),
            bound: Some(bound),
            _presence: Some(presence),
        };
        skip_address_detection()?;
        netns.netlink()?.set_up("lo")?;
        Ok(netns)
    }

    /// The namespace of the calling thread. Dropping the value changes nothing.
    ///
    /// # Errors
    /// Fails where `/proc` is not mounted.
    pub fn current() -> Result<Self, NetnsError> {
        open_this_thread("of this thread").map(|file| Self::borrowed(file, None))
    }

    /// An existing namespace by the name that `ip netns list` shows. Dropping the value changes
    /// nothing.
    ///
    /// # Errors
    /// Fails when there is none of that name.
    pub fn open(name: &str) -> Result<Self, NetnsError> {
        let opened = if name.contains('/') || name.starts_with('.') {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a namespace's name",
            ))
        } else {
            File::open(mount::path(name))
        };
        opened
            .map(|file| Self::borrowed(file, Some(name.to_owned())))
            .map_err(|source| NetnsError::Open {
                name: name.to_owned(),
                source,
            })
    }

    fn borrowed(file: File, name: Option<String>) -> Self {
        Self {
            file: Arc::new(file),
            netlink: OnceLock::new(),
            name,
            bound: None,
            _presence: None,
        }
    }

    /// The name under `/run/netns`; `None` for one found by [`Netns::current`].
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Runs `f` on a thread inside the namespace and returns its value; a panic of `f` goes on in
    /// the caller. Sockets that `f` makes stay in the namespace wherever they are used later.
    ///
    /// # Errors
    /// Fails when no thread can be started or the namespace refuses us; `f` has not run then.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        on_thread(self.display(), || {
            self.enter()?;
            Ok(f())
        })?
    }

    /// Starts a thread named `name` that lives inside the namespace.
    ///
    /// # Errors
    /// As [`Netns::run`]; `f` has not run then.
    pub fn spawn_thread<T: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<thread::JoinHandle<T>, NetnsError> {
        // A thread starts in the namespace of the thread that makes it.
        self.run(|| thread::Builder::new().name(name.to_owned()).spawn(f))?
            .map_err(|source| self.no_thread(source))
    }

    /// A command whose process will run inside the namespace.
    ///
    /// Other mounts are left as they are: a program inside that reads `/sys/class/net` sees the
    /// interfaces of the namespace in which `/sys` was mounted.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command::enter(&mut command, Arc::clone(&self.file));
        command
    }

    /// Kills what still runs in this namespace, which must be one that we made; threads of this
    /// process are left alone.
    pub fn end_processes(&self) {
        if let (Some(_), Ok(namespace)) = (&self.bound, self.file.metadata()) {
            command::end_processes(&namespace);
        }
    }

    /// The netlink connection into this namespace, opened at the first call: interfaces, addresses,
    /// routes and rules.
    ///
    /// # Errors
    /// Fails when the namespace cannot be entered or no netlink socket be opened.
    pub fn netlink(&self) -> Result<&Netlink, NetnsError> {
        if let Some(open) = self.netlink.get() {
            return Ok(open);
        }
        let opened = self.run(Netlink::open)??;
        Ok(self.netlink.get_or_init(|| opened))
    }

    /// Reads a sysctl such as `net.ipv4.tcp_rmem` inside the namespace; see [`read_sysctl`].
    ///
    /// # Errors
    /// Fails when the kernel has no such setting or the namespace cannot be entered.
    pub fn sysctl(&self, key: &str) -> Result<String, SysctlError> {
        self.run(|| read_sysctl(key))?
    }

    /// Sets a sysctl inside the namespace; see [`write_sysctl`].
    ///
    /// # Errors
    /// Fails when the kernel has no such setting, refuses the value, or the namespace cannot be
    /// entered.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<(), SysctlError> {
        self.run(|| write_sysctl(key, value))?
    }

    /// Moves the calling thread into the namespace, for good.
    fn enter(&self) -> Result<(), NetnsError> {
        command::go_to(&self.file).map_err(|source| NetnsError::Enter {
            name: self.display().to_owned(),
            source,
        })
    }

    fn display(&self) -> &str {
        self.name().unwrap_or("(unnamed)")
    }

    fn no_thread(&self, source: io::Error) -> NetnsError {
        NetnsError::Thread {
            name: self.display().to_owned(),
            source,
        }
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn skip_address_detection() -> Result<(), NetnsError> {
    let key = "net.ipv6.conf.default.accept_dad";
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return Ok(());
    }
    write_sysctl(key, "0").map_err(|e| NetnsError::Configure(Box::new(e)))
}

fn open_this_thread(name: &str) -> Result<File, NetnsError> {
    File::open(OF_THIS_THREAD).map_err(|source| NetnsError::Open {
        name: name.to_owned(),
        source,
    })
}

/// Runs `f` on a thread that ends with it.
fn on_thread<T: Send>(name: &str, f: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .spawn_scoped(scope, f)
            .map_err(|source| NetnsError::Thread {
                name: name.to_owned(),
                source,
            })?;
        Ok(thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}
