//! Runs an interactive nft (`nft -i`), and finds out whether each command succeeded.
//!
//! nft executes its standard input line by line, says nothing of success (its standard output is
//! buffered besides), and writes errors to standard error, unbuffered. So each command goes between
//! two marks: inclusions of files that do not exist, whose names nft repeats in its complaint. What
//! it writes between the two complaints is its answer to the command: nothing means done.
//!
//! The command itself is an inclusion too, of a memory file that the child inherited: so it may have
//! many lines, is one transaction, and is not touched by the line editor of nft's prompt. Tried with
//! nft 1.0.6, with and without a terminal: 6 to 9 ms to start it and load a table, 0.3 to 0.5 ms for a
//! further command.

use super::NftError;
use crate::netns::spawn_bound;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, Stdio};
use std::time::{Duration, Instant};

/// A transaction waits for the kernel's grace periods, some 10 ms on an idle machine.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of commands for which a second more is waited: a policy may have hundreds of thousands of addresses, of which nft
/// takes some 12,000 in a second of a busy machine.
const BYTES_PER_SECOND: usize = 50_000;

#[derive(Debug)]
pub(super) struct Session {
    child: Child,
    input: ChildStdin,
    errors: ChildStderr,
    /// What the child includes.
    script: File,
    include: String,
    table: String,
    marks: u64,
}

impl Session {
    /// Starts nft in the calling thread's namespace.
    pub(super) fn start(table: &str) -> Result<Self, NftError> {
        let script = rustix::fs::memfd_create("bentpipe-nft", MemfdFlags::CLOEXEC)
            .map(File::from)
            .map_err(|e| NftError::Start(e.into()))?;
        let mut command = super::command();
        command
            .arg("-i")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let inherited = script.try_clone().map_err(NftError::Start)?;
        let include = format!("/proc/self/fd/{}", inherited.as_raw_fd());
        let keep_open = move || {
            rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty())
                .map_err(io::Error::from)
        };
        // SAFETY: between fork and exec the hooks make one system call each, the first on a
        // descriptor that it owns, and neither allocate nor lock.
        unsafe { command.pre_exec(keep_open).pre_exec(outlast_signals) };
        let mut child = spawn_bound(command).map_err(NftError::Start)?;
        let (Some(input), Some(errors)) = (child.stdin.take(), child.stderr.take()) else {
            return Err(NftError::Start(io::Error::other("its pipes are missing")));
        };
        Ok(Self {
            child,
            input,
            errors,
            script,
            include,
            table: table.to_owned(),
            marks: 0,
        })
    }

    /// A descriptor that becomes readable when nft has ended.
    pub(super) fn holder(&self) -> Result<OwnedFd, NftError> {
        // The pid is nft's own as long as nobody has waited for it.
        pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())
            .map_err(|e| NftError::Start(e.into()))
    }

    pub(super) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Has nft execute `commands` and waits for the outcome. `doing` completes "cannot ...".
    pub(super) fn tell(&mut self, commands: &str, doing: &str) -> Result<(), NftError> {
        let broken = |source| NftError::Io {
            doing: doing.to_owned(),
            source,
        };
        self.script.set_len(0).map_err(broken)?;
        // The parser wants a last newline.
        self.script
            .write_all_at(format!("{commands}\n").as_bytes(), 0)
            .map_err(broken)?;

        let before = self.next_mark();
        let after = self.next_mark();
        let lines = format!(
            "include \"{before}\"\ninclude \"{}\"\ninclude \"{after}\"\n",
            self.include
        );
        if let Err(source) = self.input.write_all(lines.as_bytes()) {
            return match source.kind() {
                io::ErrorKind::BrokenPipe => Err(self.ended("")),
                _ => Err(broken(source)),
            };
        }
        let said = self.listen_until(&after, patience(commands), doing)?;
        let message = answer(&said, &before, &after, &self.include);
        if message.is_empty() {
            return Ok(());
        }
        Err(NftError::Refused {
            doing: doing.to_owned(),
            message,
        })
    }

    fn next_mark(&mut self) -> String {
        self.marks += 1;
        // The closing bar keeps mark 1 from being found in mark 10.
        format!("/bentpipe-mark/{}|", self.marks)
    }

    fn listen_until(
        &mut self,
        mark: &str,
        patience: Duration,
        doing: &str,
    ) -> Result<String, NftError> {
        let deadline = Instant::now() + patience;
        let mut said = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&said);
            if text.contains(mark) {
                return Ok(text.into_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let ready = wait_readable(&self.errors, left).and_then(|ready| {
                if ready {
                    self.errors.read(&mut chunk).map(Some)
                } else {
                    Ok(None)
                }
            });
            match ready {
                Ok(None) => {
                    return Err(NftError::Silent {
                        doing: doing.to_owned(),
                        seconds: patience.as_secs(),
                    });
                }
                Ok(Some(0)) => return Err(self.ended(&text)),
                Ok(Some(length)) => said.extend_from_slice(&chunk[..length]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(NftError::Io {
                        doing: doing.to_owned(),
                        source,
                    });
                }
            }
        }
    }

    fn ended(&self, said: &str) -> NftError {
        let said = said.trim();
        let message = if said.is_empty() {
            "it said nothing"
        } else {
            said
        };
        NftError::Ended {
            table: self.table.clone(),
            message: message.to_owned(),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The kernel removes the table while it closes the dead process's socket, which is before
        // the wait returns.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            tracing::warn!(table = %self.table, %error, "cannot end the nft process that holds the table");
        }
    }
}

/// Ctrl-C at a terminal, and a service manager that stops a whole control group, signal the child
/// too. It must not go before us: the gateway drains its flows under the table's rules.
fn outlast_signals() -> io::Result<()> {
    // SAFETY: all-zero is a valid set, which `sigemptyset` then makes the empty one.
    let mut signals: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the calls get a valid set, signal numbers of this system, and no room for the old set.
    let failed = unsafe {
        libc::sigemptyset(&raw mut signals);
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGTSTP,
        ] {
            libc::sigaddset(&raw mut signals, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut())
    };
    if failed < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// How long nft may take for `commands`.
fn patience(commands: &str) -> Duration {
    PATIENCE + Duration::from_secs((commands.len() / BYTES_PER_SECOND) as u64)
}

fn wait_readable(source: &impl AsFd, patience: Duration) -> io::Result<bool> {
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    let mut ready = [PollFd::new(source, PollFlags::IN)];
    Ok(poll(&mut ready, Some(&patience))? > 0)
}

/// What nft said between the complaints about the marks, in terms of the caller's text. Of the
/// first complaint, the line with the mark may be followed by the source line and its underlining;
/// of the second, only what stands on the line of the mark has been waited for.
fn answer(said: &str, before: &str, after: &str, include: &str) -> String {
    let end = said
        .find(after)
        .map_or(said.len(), |at| line_start(said, at));
    let start = said[..end].rfind(before).map_or(0, |at| line_end(said, at));
    said.get(start..end)
        .unwrap_or_default()
        .lines()
        .skip_while(|line| line.chars().all(|c| matches!(c, '^' | '~' | ' ')))
        .filter(|line| !line.starts_with("In file included from <cmdline>"))
        .map(|line| line.replace(include, "ruleset"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

fn line_end(text: &str, at: usize) -> usize {
    text[at..]
        .find('\n')
        .map_or(text.len(), |newline| at + newline + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "/bentpipe-mark/1|";
    const AFTER: &str = "/bentpipe-mark/2|";

    fn complaint(mark: &str) -> String {
        format!("Error: File not found: {mark}\ninclude \"{mark}\"\n^^^^^^^^^^^^^\n")
    }

    #[test]
    fn long_commands_are_waited_for_longer() {
        assert_eq!(patience("list tables"), PATIENCE);
        let addresses = "10.0.0.1, ".repeat(300_000);
        assert_eq!(patience(&addresses), PATIENCE + Duration::from_secs(60));
    }

    #[test]
    fn nothing_between_the_marks_is_success() {
        let said = complaint(BEFORE) + &complaint(AFTER);
        assert_eq!(answer(&said, BEFORE, AFTER, "/proc/self/fd/9"), "");
        // The rest of an earlier complaint comes late.
        let said = format!("include \"old\"\n^^^^\n{said}");
        assert_eq!(answer(&said, BEFORE, AFTER, "/proc/self/fd/9"), "");
        // Read up to the first mention only.
        let cut = said.find(AFTER).unwrap() + AFTER.len();
        assert_eq!(answer(&said[..cut], BEFORE, AFTER, "/proc/self/fd/9"), "");
    }

    #[test]
    fn the_words_between_the_marks_are_the_answer() {
        let words = "In file included from <cmdline>:1:1-27:\n/proc/self/fd/9:1:28-28: Error: syntax error\nadd rule\n   ^\n";
        let said = complaint(BEFORE) + words + &complaint(AFTER);
        assert_eq!(
            answer(&said, BEFORE, AFTER, "/proc/self/fd/9"),
            "ruleset:1:28-28: Error: syntax error\nadd rule\n   ^"
        );
    }

    #[test]
    fn nft_outlasts_signals_and_is_told_dead() {
        crate::need!(Root, Nft);
        let netns = crate::netns::Netns::create("session").unwrap();
        let mut session = netns.run(|| Session::start("orphan").unwrap()).unwrap();
        session
            .tell("table ip orphan { flags owner; }", "load")
            .unwrap();
        // Neither Ctrl-C nor a service manager ends it before us.
        for signal in ["INT", "TERM", "HUP", "QUIT", "TSTP"] {
            let mut kill = std::process::Command::new("kill");
            assert!(
                kill.args(["-s", signal, &session.child.id().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
        }
        session
            .tell("add chain ip orphan a", "add a chain")
            .unwrap();
        let holder = session.holder().unwrap();
        let mut ended = [PollFd::new(&holder, PollFlags::IN)];
        let now = Timespec::default();
        assert_eq!(poll(&mut ended, Some(&now)).unwrap(), 0);
        assert!(session.runs());
        session.child.kill().unwrap();
        assert_eq!(poll(&mut ended, None).unwrap(), 1, "its end is told");
        assert!(!session.runs());
        let told = session
            .tell("add chain ip orphan c", "add a chain")
            .unwrap_err();
        assert!(matches!(told, NftError::Ended { .. }), "{told}");
        let left = netns
            .run(|| crate::nft::list(&["tables"]).unwrap())
            .unwrap();
        assert_eq!(left, "", "its table went with it");
    }
}
