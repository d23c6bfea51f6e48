use crate::LinkParams;
use crate::kernel;
use crate::layout;
use crate::object::{self, Control, LINKS, SHARES};
use crate::params::LinkShare;
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, PrintLevel};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
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
    /// The process may not load BPF programs, or the verifier does not accept them: both are EACCES.
    #[error(
        "not permitted to load BPF congestion controls: run as root in the first user namespace (a container needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON there), and see that no kernel lockdown forbids BPF; if it has them, the kernel's verifier refused the programs: debug logging shows its reasons"
    )]
    NotPermitted,
    /// Somebody else's control has our name.
    #[error(
        "another program has registered a congestion control `{name}`, which this process would: start again, or stop the other (`bpftool struct_ops show` lists them)"
    )]
    Taken {
        /// As the kernel knows it.
        name: String,
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
    /// There is no room.
    #[error(
        "cannot configure the link of mark {mark:#x}: all 1024 links of this process are in use"
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

/// Both controls under this process's names, and the links configured through this value.
///
/// All values of one process share one registration: it stands while one of them lives, and ends
/// with the process. Sockets that use a control keep it, and what was configured for their mark when
/// the process dies; an orderly drop forgets the marks.
#[derive(Debug)]
pub struct Controls {
    registered: Arc<Registered>,
    links: BTreeSet<u32>,
}

/// The programs in the kernel, and their maps.
#[derive(Debug)]
struct Registered {
    /// Parameters by socket mark.
    links: MapHandle,
    /// The state that the flows of a link share, by socket mark.
    shares: MapHandle,
    /// The registrations of both controls. The kernel's names go when they are dropped.
    _controls: Mutex<[Control; 2]>,
}

impl Registered {
    fn load() -> Result<Self, LoadError> {
        log_through_tracing();
        let kernel = kernel::probe()?;
        let hybla = Control::load(&object::HYBLA, kernel, None)?;
        let links = hybla.map(LINKS)?;
        let rate = Control::load(&object::RATE, kernel, Some(&links))?;
        Ok(Self {
            links,
            shares: rate.map(SHARES)?,
            _controls: Mutex::new([hybla, rate]),
        })
    }
}

impl Controls {
    /// Loads both controls and registers them, unless another value of this process has.
    ///
    /// # Errors
    /// Fails where the kernel lacks BTF or is older than 6.4, without the capabilities, or when a
    /// name is taken; nothing stays behind.
    pub fn load() -> Result<Self, LoadError> {
        static LIVING: Mutex<Weak<Registered>> = Mutex::new(Weak::new());
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        let registered = match living.upgrade() {
            Some(registered) => registered,
            None => Arc::new(Registered::load()?),
        };
        *living = Arc::downgrade(&registered);
        Ok(Self {
            registered,
            links: BTreeSet::new(),
        })
    }

    /// Sockets marked `mark` send over a link of these parameters from now on, also those that are
    /// open.
    ///
    /// # Errors
    /// Fails when a parameter makes no sense, or when the kernel refuses; what was configured before
    /// then stands.
    pub fn configure(&mut self, mark: u32, params: &LinkParams) -> Result<(), ConfigureError> {
        if let Some(what) = params.fault() {
            return Err(ConfigureError::Nonsense { mark, what });
        }
        let failed = |source: libbpf_rs::Error| match source.kind() {
            ErrorKind::TooBig => ConfigureError::Full { mark },
            _ => ConfigureError::Kernel { mark, source },
        };
        let key = mark.to_ne_bytes();
        let Registered { links, shares, .. } = &*self.registered;
        match shares.update(&key, &[0; layout::LINK], MapFlags::NO_EXIST) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        links
            .update(&key, &layout::encode(params), MapFlags::ANY)
            .map_err(failed)?;
        self.links.insert(mark);
        Ok(())
    }

    /// Sockets marked `mark` are no longer on a known link: Hybla goes on with its defaults, the
    /// rate control as Reno.
    pub fn forget(&mut self, mark: u32) {
        if self.links.remove(&mark) {
            self.registered.forget(mark);
        }
    }

    /// How the link of `mark` is shared; `None` when it is not configured.
    pub fn share(&self, mark: u32) -> Option<LinkShare> {
        let key = mark.to_ne_bytes();
        let value = self.registered.shares.lookup(&key, MapFlags::ANY).ok()??;
        layout::share(&value)
    }
}

impl Registered {
    fn forget(&self, mark: u32) {
        for map in [&self.links, &self.shares] {
            // It does no harm if the entry is gone already.
            let _ = map.delete(&mark.to_ne_bytes());
        }
    }
}

impl Drop for Controls {
    fn drop(&mut self) {
        for mark in &self.links {
            self.registered.forget(*mark);
        }
    }
}

/// libbpf would write to standard error.
pub(crate) fn log_through_tracing() {
    libbpf_rs::set_print(Some((PrintLevel::Info, |_, message| {
        tracing::debug!(target: "libbpf", "{}", message.trim_end());
    })));
}
