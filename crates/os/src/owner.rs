//! The owner of a thing outside the process, whose name every namespace, nft table and interface of ours carries.
//!
//! An owner is a process: its pid and the time it started (field 22 of `/proc/PID/stat`, see
//! proc(5)), because a pid alone comes round again. A thing is swept ([`crate::sweep`]) when its
//! owner is dead, and never before. A process in another pid namespace cannot see that by the pid: what
//! lives shows itself there by other means too ([`crate::sweep`]).

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use thiserror::Error;

const PREFIX: &str = "bentpipe_";
/// Room for the longest label that still fits every kernel name (nft tables: 255 bytes).
const LABEL_MAX: usize = 64;

/// A process that makes things outside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Process id, as `/proc` shows it.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

/// Our own process could not be identified.
#[derive(Debug, Error)]
#[error(
    "cannot read this process's start time from /proc/self/stat{}: is /proc mounted, and may more files be opened (ulimit -n)?",
    .source.as_ref().map(|e| format!(" ({e})")).unwrap_or_default()
)]
pub struct OwnerError {
    source: Option<std::io::Error>,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// Fails where `/proc` is not mounted.
    pub fn current() -> Result<Self, OwnerError> {
        let stat = std::fs::read("/proc/self/stat").map_err(|e| OwnerError { source: Some(e) })?;
        Stat::parse(&stat)
            .map(|stat| stat.owner)
            .ok_or(OwnerError { source: None })
    }

    /// Whether that very process still runs: same pid, same start time, and not a zombie without threads (a
    /// killed process whose parent has yet to collect it holds nothing any more; but while threads of it
    /// are still ending, they hold its files, and the first may be a zombie before them).
    pub fn is_alive(&self) -> bool {
        std::fs::read(format!("/proc/{}/stat", self.pid))
            .ok()
            .and_then(|stat| Stat::parse(&stat))
            .is_some_and(|stat| stat.owner == *self && !stat.has_ended())
    }

    /// The process that has this pid now, if one runs.
    pub(crate) fn running(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let owner = Stat::parse(&stat)?.owner;
        owner.is_alive().then_some(owner)
    }

    /// The name of this owner's thing `label`: `bentpipe_<pid>_<start>_<label>`.
    ///
    /// Letters are put in lower case, and whatever nft would not take in a name becomes `_`; an
    /// empty label becomes `_`, one of more than 64 characters is cut.
    pub fn name(&self, label: &str) -> String {
        let mut name = self.to_string();
        name.push('_');
        let clean = label.chars().take(LABEL_MAX).map(|c| match c {
            'a'..='z' | '0'..='9' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '_',
        });
        let before = name.len();
        name.extend(clean);
        if name.len() == before {
            name.push('_');
        }
        name
    }

    /// Like [`Owner::name`] with a number behind the label that this process has not used before,
    /// so that two things of one label live side by side.
    pub fn unique_name(&self, label: &str) -> String {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        // The number goes first into the budget: a cut label must not lose it.
        let label: String = label.chars().take(LABEL_MAX - 11).collect();
        self.name(&format!("{label}_{serial}"))
    }

    /// Reads a name that [`Owner::name`] made; `None` for every other text.
    pub fn parse(name: &str) -> Option<(Self, &str)> {
        let rest = name.strip_prefix(PREFIX)?;
        let (pid, rest) = rest.split_once('_')?;
        let (start, label) = rest.split_once('_')?;
        let owner = Self {
            pid: number(pid)?,
            start: number(start)?,
        };
        let well_formed = (1..=LABEL_MAX).contains(&label.len())
            && label
                .bytes()
                .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        well_formed.then_some((owner, label))
    }
}

impl fmt::Display for Owner {
    /// `bentpipe_<pid>_<start>`: the common part of all names of this owner.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_{}", self.pid, self.start)
    }
}

/// A decimal number exactly as we print it: no sign, no leading zero.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let printed =
        text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    printed.then(|| text.parse().ok()).flatten()
}

struct Stat {
    owner: Owner,
    state: u8,
    threads: u32,
}

impl Stat {
    /// Whether the last thread has ended.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// Field 2 is the command name in parentheses and may itself hold spaces and parentheses, so
    /// the fields behind it are counted from the last `)`.
    fn parse(stat: &[u8]) -> Option<Self> {
        let open = stat.iter().position(|b| *b == b'(')?;
        let close = stat.iter().rposition(|b| *b == b')')?;
        let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim();
        let mut fields = std::str::from_utf8(stat.get(close + 1..)?)
            .ok()?
            .split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        // The state is field 3, the number of threads field 20, the start time field 22.
        let threads = fields.nth(16)?;
        let start = fields.nth(1)?;
        Some(Self {
            owner: Owner {
                pid: pid.parse().ok()?,
                start: start.parse().ok()?,
            },
            state,
            threads: threads.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAIL: &str = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";

    #[test]
    fn start_time_is_found_behind_any_command_name() {
        for comm in ["bash", "a b", "a) R 1 2 (b", "((", "))", ")", ""] {
            let stat = Stat::parse(format!("17 ({comm}) S {TAIL}").as_bytes()).unwrap();
            assert_eq!(
                stat.owner,
                Owner {
                    pid: 17,
                    start: 4711
                },
                "comm {comm:?}"
            );
            assert_eq!(stat.state, b'S');
        }
        assert!(Stat::parse(b"17 (bash) S 1 2").is_none());
        assert!(Stat::parse(b")(").is_none());
    }

    #[test]
    fn we_are_alive_and_others_with_our_pid_are_not() {
        let me = Owner::current().unwrap();
        assert_eq!(me.pid, std::process::id());
        assert!(me.is_alive());
        let earlier = Owner {
            start: me.start - 1,
            ..me
        };
        assert!(!earlier.is_alive(), "same pid, other start time");
        assert!(
            !Owner {
                pid: u32::MAX,
                start: 1
            }
            .is_alive()
        );
    }

    #[test]
    fn a_zombie_whose_threads_are_still_ending_is_not_dead_yet() {
        let stat = |state, threads| {
            let fields = TAIL.replace(" 17 ", &format!(" {threads} "));
            Stat::parse(format!("17 (bash) {state} {fields}").as_bytes()).unwrap()
        };
        assert!(!stat("Z", 2).has_ended());
        assert!(stat("Z", 1).has_ended());
        assert!(!stat("S", 1).has_ended());
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let stat = std::fs::read(format!("/proc/{}/stat", child.id())).unwrap();
        let owner = Stat::parse(&stat).unwrap().owner;
        assert!(owner.is_alive());
        child.kill().unwrap();
        let mut waited = 0;
        while owner.is_alive() && waited < 200 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            waited += 1;
        }
        assert!(
            !owner.is_alive(),
            "a killed child that nobody has collected yet"
        );
        child.wait().unwrap();
    }

    #[test]
    fn names_are_fit_for_nft_and_read_back() {
        let owner = Owner { pid: 7, start: 42 };
        assert_eq!(owner.name("Sat-Side 1"), "bentpipe_7_42_sat_side_1");
        assert_eq!(
            Owner::parse("bentpipe_7_42_sat_side_1"),
            Some((owner, "sat_side_1"))
        );
        assert_eq!(owner.name(""), "bentpipe_7_42__");
        let long = owner.unique_name(&"x".repeat(1000));
        assert!(Owner::parse(&long).is_some(), "{long}");
        assert_ne!(owner.unique_name("a"), owner.unique_name("a"));
        for other in [
            "bentpipe_7_42_",
            "bentpipe_7_42",
            "bentpipe_07_42_x",
            "bentpipe_+7_42_x",
            "bentpipe__42_x",
            "bentpipe_7_42_X",
            "bentpipe_7_42_a b",
            "bentpipe_99999999999_1_x",
            "my_bentpipe_7_42_x",
        ] {
            assert_eq!(Owner::parse(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn a_name_reads_back(pid: u32, start: u64, label in "[a-z0-9_]{1,64}") {
            let owner = Owner { pid, start };
            let name = owner.name(&label);
            prop_assert_eq!(Owner::parse(&name), Some((owner, label.as_str())));
        }

        #[test]
        fn what_reads_is_what_we_would_have_written(text in "(bentpipe_)?[0-9a-zA-Z_+]{0,12}_[0-9_]{0,8}\\PC{0,6}") {
            if let Some((owner, label)) = Owner::parse(&text) {
                prop_assert_eq!(owner.name(label), text);
            }
        }
    }
}
