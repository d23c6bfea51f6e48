//! Tells of a file system that does not answer. One thread drives all sessions, and a call that waits for such a file
//! system (a server of NFS that is gone, a FUSE program that is stuck) holds them all: another thread sees that no turn
//! ends, and says in the log what is waited for.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Looks in a row that find the same turn. Where the whole process was stopped, there were no looks either.
const LOOKS: u32 = 5;

/// See the file's head. Ends its thread when dropped.
pub(super) struct HangWatch {
    turns: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl HangWatch {
    /// Watches the thread that calls.
    pub(super) fn start() -> Self {
        let (turns, over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let watch = Self {
            turns: Arc::clone(&turns),
            over: Arc::clone(&over),
        };
        if let Ok(thread) = std::fs::read_link("/proc/thread-self") {
            let call = PathBuf::from("/proc").join(thread).join("syscall");
            let work = move || look(&call, &turns, &over);
            // Where there may be no thread more, nothing is told.
            let _ = std::thread::Builder::new()
                .name("hang-watch".to_owned())
                .spawn(work);
        }
        watch
    }

    /// A turn begins.
    pub(super) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for HangWatch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn look(call: &Path, turns: &AtomicU64, over: &AtomicBool) {
    let (mut last, mut same) = (0, 0u32);
    let mut told: Option<String> = None;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        let turn = turns.load(Ordering::Relaxed);
        if turn != last {
            last = turn;
            if let Some(path) = told.take() {
                tracing::warn!(path, seconds = same, "it answers again, and sessions go on");
            }
            same = 0;
            continue;
        }
        same = same.saturating_add(1);
        if same >= LOOKS
            && told.is_none()
            && let Some(path) = waited_for(call)
        {
            tracing::warn!(
                path,
                seconds = same,
                "the file system does not answer, and all sessions wait for it: see to it (its server, its program, its disk); \
                 what hangs may have a server of its own, of another directory and port"
            );
            told = Some(path);
        }
    }
}

/// The file or directory that a thread waits for in the system call of which the kernel says `call`.
fn waited_for(call: &Path) -> Option<String> {
    let call = std::fs::read_to_string(call).ok()?;
    // All those that name a file do so by a descriptor first. What computes is `running`.
    let mut words = call.split(' ');
    let number = words.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (descriptor, second) = (argument()?, argument()?);
    let path = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).ok()?;
    let name = BY_NAME.contains(&number).then(|| text_at(second)).flatten();
    let path = name.map_or(path.clone(), |name| path.join(name));
    Some(path.display().to_string())
}

/// System calls whose second argument is a path from the directory on that the first one names.
const BY_NAME: [libc::c_long; 7] = [
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_statx,
    libc::SYS_faccessat,
];

/// The text that ends with a zero at `address` in this process.
fn text_at(address: u64) -> Option<String> {
    let mut octets = [0; 1024];
    let memory = std::fs::File::open("/proc/self/mem").ok()?;
    let len = memory.read_at(&mut octets, address).ok()?;
    let text = octets[..len].split(|octet| *octet == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}
