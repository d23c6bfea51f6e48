//! nftables: tables that vanish with their owner, and one-time commands.
//!
//! An [`OwnerTable`] has `flags owner` (kernel 5.12, nft(8)): nobody else can change or delete it,
//! `flush ruleset` passes it by, and the kernel removes it when the netlink socket that made it
//! closes. That socket is held by a child, `nft -i`, which ends with us however we end: the kernel
//! kills it with our process (PR_SET_PDEATHSIG), and its standard input ends with us too. Should
//! the child end before us (somebody, or the kernel for want of memory, kills it), the table is
//! gone: whoever needs it waits for that on the table's descriptor.

mod count;
mod generation;
mod hold;
mod nat;
mod session;
mod survey;
mod switch;
mod takeover;

#[cfg(fuzzing)]
pub(crate) use count::count;
pub use count::{Count, Tally};
pub use generation::Generation;
pub use hold::{HoldTable, Holding, Hook};
pub use nat::translates;
pub use survey::{Survey, iptables_may_filter, survey};
pub use switch::{LIFE, Switch};
pub use takeover::Takeover;

use crate::need;
use crate::owner::{Owner, OwnerError};
use crate::presence::Presence;
use session::Session;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use thiserror::Error;

/// The packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableFamily {
    /// IPv4.
    Ip,
    /// IPv6.
    Ip6,
    /// IPv4 and IPv6.
    Inet,
    /// Frames of all kinds, at interfaces.
    Netdev,
}

impl fmt::Display for TableFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip => "ip",
            Self::Ip6 => "ip6",
            Self::Inet => "inet",
            Self::Netdev => "netdev",
        })
    }
}

/// nftables could not do what it was told.
#[derive(Debug, Error)]
pub enum NftError {
    /// No nft.
    #[error("cannot run nft ({0}): {hint}", hint = start_hint(.0))]
    Start(#[source] io::Error),
    /// nft said no; its own words follow.
    #[error("nft refused to {doing}:\n{message}")]
    Refused {
        /// What it was told.
        doing: String,
        /// Its error messages.
        message: String,
    },
    /// The nft that holds the table is gone, and the table with it.
    #[error(
        "the nft process that holds table `{table}` ended ({message}): its table is gone, load it again"
    )]
    Ended {
        /// The table.
        table: String,
        /// What it last said.
        message: String,
    },
    /// The nft that holds the table does not answer.
    #[error(
        "nft did not answer within {seconds} s while told to {doing}: is the machine overloaded?"
    )]
    Silent {
        /// What it was told.
        doing: String,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A pipe or file between us and nft broke.
    #[error("cannot talk to nft to {doing} ({source}){}", talk_hint(.source))]
    Io {
        /// What it was to be told.
        doing: String,
        /// Why.
        source: io::Error,
    },
    /// Our own name is unknown.
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

fn start_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "`apt-get install nftables`",
        _ => "see the limits on processes (ulimit -u) and open files (ulimit -n)",
    }
}

/// A table that lives as long as this value, and not a second longer than this process.
#[derive(Debug)]
pub struct OwnerTable {
    session: Mutex<Session>,
    /// A pidfd of the process that holds the table.
    holder: OwnedFd,
    family: TableFamily,
    name: String,
    _presence: Presence,
}

impl OwnerTable {
    /// Makes a table in the calling thread's namespace, named after this process and `label`.
    /// `body` is what stands between the braces of a table in nft(8)'s language (chains, sets,
    /// counters ...), over as many lines as it likes; it is taken whole or not at all.
    ///
    /// # Errors
    /// With nft's own words, which count the lines of the whole ruleset: the body starts on line 3.
    pub fn load(family: TableFamily, label: &str, body: &str) -> Result<Self, NftError> {
        let name = Owner::current()?.unique_name(label);
        let presence = Presence::show().map_err(NftError::Start)?;
        let mut session = Session::start(&name)?;
        let ruleset = format!("table {family} {name} {{\nflags owner;\n{body}\n}}\n");
        session.tell(&ruleset, &format!("load table `{family} {name}`"))?;
        Ok(Self {
            holder: session.holder()?,
            session: Mutex::new(session),
            family,
            name,
            _presence: presence,
        })
    }

    /// The table's name, without its family.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the process that holds the table still runs: when it has ended, the table is gone,
    /// and only [`OwnerTable::load`] brings it back, under another name.
    pub fn is_held(&self) -> bool {
        self.session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .runs()
    }

    /// Gives further commands to the process that owns the table: only it may change the table. All
    /// of them are done or none. The table prints itself as commands name it:
    /// `table.apply(&format!("delete chain {table} intercept"))`.
    ///
    /// # Errors
    /// With nft's own words.
    pub fn apply(&self, commands: &str) -> Result<(), NftError> {
        let first = commands.trim().lines().next().unwrap_or_default();
        self.session
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tell(commands, &format!("do `{first}`"))
    }

    /// The table as the kernel has it, in nft's language. Asks in the calling thread's namespace.
    ///
    /// # Errors
    /// With nft's own words.
    pub fn list(&self) -> Result<String, NftError> {
        list(&["table", &self.family.to_string(), &self.name])
    }
}

impl AsFd for OwnerTable {
    /// Readable once the process that holds the table has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.holder.as_fd()
    }
}

impl fmt::Display for OwnerTable {
    /// Family and name, as nft's commands want them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

/// Gives nft commands (nft(8)'s language, many lines allowed; all are done or none) in the calling
/// thread's namespace. What they make stays: for tables of the program's own use [`OwnerTable`].
///
/// # Errors
/// With nft's own words.
pub fn apply(commands: &str) -> Result<(), NftError> {
    let first = commands.trim().lines().next().unwrap_or_default();
    run(&["-f", "-"], commands, &format!("do `{first}`")).map(drop)
}

/// What `nft list ...` says in the calling thread's namespace, for example `&["ruleset"]` or
/// `&["tables"]`.
///
/// # Errors
/// With nft's own words.
pub fn list(what: &[&str]) -> Result<String, NftError> {
    let mut arguments = vec!["list"];
    arguments.extend(what);
    run(&arguments, "", &format!("list {}", what.join(" ")))
}

/// All rules of the calling thread's namespace, as `nft --terse list ruleset` shows them: without the elements of sets and maps that
/// have a name. Of an operator's hundred thousand addresses nft would make text for seconds.
///
/// # Errors
/// With nft's own words.
pub fn list_rules() -> Result<String, NftError> {
    run(&RULES, "", "list ruleset")
}

const RULES: [&str; 3] = ["--terse", "list", "ruleset"];

fn talk_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::FileTooLarge => {
            ": a bound on the size of files (`ulimit -f`, LimitFSIZE=) leaves no room for the rules, raise it"
        }
        _ => "",
    }
}

fn command() -> Command {
    // A service's or user's path often lacks /usr/sbin, where nft is.
    let mut command = Command::new(need::find_program("nft").unwrap_or_else(|| "nft".into()));
    // Interactively, nft keeps a history file at home.
    command.env("HOME", "/dev/null").env("LC_ALL", "C");
    command
}

fn run(arguments: &[&str], input: &str, doing: &str) -> Result<String, NftError> {
    let mut child = command()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(NftError::Start)?;
    let io = |source| NftError::Io {
        doing: doing.to_owned(),
        source,
    };
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(input.as_bytes()) {
            // It refused before it had read everything: its words come below.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            result => result.map_err(io)?,
        }
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().map_err(io)?;
    if !status.success() {
        return Err(NftError::Refused {
            doing: doing.to_owned(),
            message: String::from_utf8_lossy(&stderr).trim_end().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
