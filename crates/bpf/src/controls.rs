use crate::layout::{self, Owner};
use crate::maps::{self, LINKS, SHARES};
use crate::object::Control;
use crate::params::{LinkParams, LinkShare};
use crate::{HYBLA, RATE, kernel, kernel_name};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, PrintLevel};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use thiserror::Error;

/// The controls cannot be loaded or registered.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux), which BPF congestion controls need: boot one built with CONFIG_DEBUG_INFO_BTF=y, as distributions' are"
    )]
    NoBtf,
    /// The kernel has no BPF congestion controls at all.
    #[error(
        "this kernel was built without BPF congestion controls: boot one with CONFIG_BPF_SYSCALL=y, CONFIG_BPF_JIT=y and CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoStructOps,
    /// The kernel cannot tie a registration to its process.
    #[error(
        "kernel {release} cannot register a BPF congestion control through a link: boot Linux 6.4 or later"
    )]
    TooOld {
        /// `uname -r`.
        release: String,
    },
    /// The kernel's `cong_control` is neither of the two that are known.
    #[error(
        "kernel {release} has a tcp_congestion_ops that this version does not know: update bentpipe"
    )]
    Unknown {
        /// `uname -r`.
        release: String,
    },
    /// The process may not load BPF programs.
    #[error(
        "not permitted to load BPF congestion controls: run as root in the first user namespace (a container needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON there), and see that no kernel lockdown forbids BPF"
    )]
    NotPermitted,
    /// Somebody else's control has our name.
    #[error(
        "congestion control `{name}` is registered by a program that is not this version of bentpipe: stop it (`bpftool struct_ops show` lists the holders)"
    )]
    Taken {
        /// The name.
        name: &'static str,
    },
    /// The kernel refused.
    #[error(
        "the kernel refused the BPF congestion controls while {doing} ({source:#}): run with debug logging to see its reasons"
    )]
    Kernel {
        /// What was being done.
        doing: &'static str,
        /// Its answer.
        source: libbpf_rs::Error,
    },
}

/// A link cannot be configured.
#[derive(Debug, Error)]
pub enum ConfigureError {
    /// A parameter makes no sense.
    #[error("cannot configure the link of mark {mark:#x}: {what}")]
    Nonsense {
        /// The socket mark.
        mark: u32,
        /// What is wrong.
        what: String,
    },
    /// Another live process configured the same mark.
    #[error("cannot configure the link of mark {mark:#x}: process {pid} has it; use another mark")]
    MarkTaken {
        /// The socket mark.
        mark: u32,
        /// The other process.
        pid: u32,
    },
    /// There is no room.
    #[error(
        "cannot configure the link of mark {mark:#x}: all 1024 links of this kernel are in use; stop other gateways"
    )]
    Full {
        /// The socket mark.
        mark: u32,
    },
    /// The kernel refused.
    #[error(
        "cannot configure the link of mark {mark:#x}: the kernel refused to write the map ({source:#})"
    )]
    Kernel {
        /// The socket mark.
        mark: u32,
        /// Its answer.
        source: libbpf_rs::Error,
    },
}

/// Both controls, loaded and registered, and the links configured for them.
///
/// They are registered while this value, or another process's, lives: dropping it, or the death of
/// the process, takes the names away, unless another process holds them. Sockets that use a control
/// keep it, and what was configured for their mark when the process dies; an orderly drop forgets
/// the marks.
#[derive(Debug)]
pub struct Controls {
    controls: Vec<Control>,
    links: BTreeMap<u32, LinkParams>,
    me: Owner,
}

impl Controls {
    /// Loads both controls and registers them; where another process has, its registration serves.
    ///
    /// # Errors
    /// Fails where the kernel lacks BTF or is older than 6.4, without the capabilities, or when a
    /// name belongs to a stranger; nothing stays behind.
    pub fn load() -> Result<Self, LoadError> {
        Self::load_as([HYBLA, RATE].map(|name| (name, kernel_name(name))))
    }

    /// Like [`Controls::load`], registered under other names (at most 15 characters): so tests do
    /// not meet a gateway at work.
    ///
    /// # Errors
    /// As [`Controls::load`].
    #[doc(hidden)]
    pub fn load_renamed(hybla: &str, rate: &str) -> Result<Self, LoadError> {
        Self::load_as([(HYBLA, hybla), (RATE, rate)])
    }

    fn load_as(names: [(&'static str, &str); 2]) -> Result<Self, LoadError> {
        log_through_tracing();
        let signature = kernel::probe()?;
        let strangers = LINKS.all().is_empty();
        let mut controls = Vec::new();
        for (name, alias) in names {
            let control = Control::load(name, alias, signature)?;
            // A holder of this version has a map, which was there to be found, or was made in the
            // instant since.
            if !control.is_registered() && strangers && LINKS.all().len() < 2 {
                return Err(LoadError::Taken { name });
            }
            controls.push(control);
        }
        let controls = Self {
            controls,
            links: BTreeMap::new(),
            me: myself(),
        };
        controls.sweep();
        Ok(controls)
    }

    /// Registers again what another process held and let go of: call it when `setsockopt` answers
    /// ENOENT. Says whether both names are available now.
    ///
    /// # Errors
    /// Fails when the kernel refuses the registration.
    pub fn refresh(&mut self) -> Result<bool, LoadError> {
        let mut all = true;
        let offered = kernel::offered();
        for control in &mut self.controls {
            let ours = control.register()?;
            all &= ours || offered.contains(&control.name);
        }
        let links: Vec<_> = self
            .links
            .iter()
            .map(|(mark, params)| (*mark, params.clone()))
            .collect();
        for (mark, params) in links {
            // Programs that take over may sit on another map than those that left.
            if let Err(error) = self.write(mark, &params) {
                tracing::warn!("{error}");
            }
        }
        Ok(all)
    }

    /// Whether the registration of `name` is this process's own.
    pub fn holds(&self, name: &str) -> bool {
        self.controls
            .iter()
            .any(|control| control.name == kernel_name(name) && control.is_registered())
    }

    /// Sockets marked `mark` send over a link of these parameters from now on, also those that are
    /// open.
    ///
    /// # Errors
    /// Fails when a parameter makes no sense, when another live process configured that mark, or
    /// when the kernel refuses; what was configured before then stands.
    pub fn configure(&mut self, mark: u32, params: &LinkParams) -> Result<(), ConfigureError> {
        if let Some(what) = params.fault() {
            return Err(ConfigureError::Nonsense { mark, what });
        }
        self.write(mark, params)?;
        self.links.insert(mark, params.clone());
        Ok(())
    }

    /// Sockets marked `mark` are no longer on a known link: Hybla goes on with its defaults, the
    /// rate control as Reno.
    pub fn forget(&mut self, mark: u32) {
        if self.links.remove(&mark).is_some() {
            self.erase(mark);
        }
    }

    /// How the link of `mark` is shared; `None` when it is not configured.
    pub fn share(&self, mark: u32) -> Option<LinkShare> {
        SHARES
            .all()
            .iter()
            .filter_map(|map| layout::share(&maps::read(map, mark)?))
            .max_by_key(|(epoch, _)| *epoch)
            .map(|(_, share)| share)
    }

    fn write(&self, mark: u32, params: &LinkParams) -> Result<(), ConfigureError> {
        let failed = |source: libbpf_rs::Error| match source.kind() {
            ErrorKind::TooBig => ConfigureError::Full { mark },
            _ => ConfigureError::Kernel { mark, source },
        };
        let (links, shares) = (LINKS.all(), SHARES.all());
        for map in &links {
            let other = maps::read(map, mark).and_then(|value| layout::owner(&value));
            if let Some(other) = other.filter(|other| *other != self.me && is_alive(*other)) {
                return Err(ConfigureError::MarkTaken {
                    mark,
                    pid: other.pid,
                });
            }
        }
        let key = mark.to_ne_bytes();
        for map in &shares {
            match map.update(&key, &[0; layout::LINK], MapFlags::NO_EXIST) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(failed(error));
                }
                _ => {}
            }
        }
        let value = layout::encode(params, self.me);
        links
            .iter()
            .try_for_each(|map| map.update(&key, &value, MapFlags::ANY))
            .map_err(failed)
    }

    fn erase(&self, mark: u32) {
        for map in LINKS.all() {
            let owner = maps::read(&map, mark).and_then(|value| layout::owner(&value));
            if owner == Some(self.me) {
                remove(&map, mark);
                SHARES.all().iter().for_each(|map| remove(map, mark));
            }
        }
    }

    /// Forgets the links of processes that died without doing so.
    fn sweep(&self) {
        for map in LINKS.all() {
            for mark in maps::marks(&map) {
                let owner = maps::read(&map, mark).and_then(|value| layout::owner(&value));
                if owner.is_some_and(|owner| owner.pidns == self.me.pidns && !is_alive(owner)) {
                    remove(&map, mark);
                    SHARES.all().iter().for_each(|map| remove(map, mark));
                }
            }
        }
    }
}

impl Drop for Controls {
    fn drop(&mut self) {
        for mark in std::mem::take(&mut self.links).into_keys() {
            self.erase(mark);
        }
    }
}

fn remove(map: &MapHandle, mark: u32) {
    // Gone already is as good.
    let _ = map.delete(&mark.to_ne_bytes());
}

fn myself() -> Owner {
    Owner {
        pid: std::process::id(),
        pidns: std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino() as u32),
        start: start_time("self").unwrap_or(0),
    }
}

/// Whether that process lives, as far as can be seen: one of another pid namespace may.
fn is_alive(owner: Owner) -> bool {
    owner.pidns != myself().pidns || start_time(&owner.pid.to_string()) == Some(owner.start)
}

/// When the process started: field 22 of /proc/PID/stat (proc(5)); `None` when there is no such
/// process, or one that is dead but not yet collected.
fn start_time(pid: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in field 2 may hold spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    fields
        .nth(18)?
        .parse()
        .ok()
        .filter(|_| !matches!(state, "Z" | "X" | "x"))
}

/// libbpf would write to standard error.
fn log_through_tracing() {
    libbpf_rs::set_print(Some((PrintLevel::Info, |_, message| {
        tracing::debug!(target: "libbpf", "{}", message.trim_end());
    })));
}
