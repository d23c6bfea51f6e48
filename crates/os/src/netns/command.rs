//! Child processes inside a namespace, and children that do not outlive us.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// Makes the child of `command` enter `namespace` before it runs its program.
pub(super) fn enter(command: &mut Command, namespace: Arc<File>) {
    let hook = move || go_to(&namespace);
    // SAFETY: between fork and exec the hook makes one system call on a descriptor that it owns,
    // and neither allocates nor locks.
    unsafe { command.pre_exec(hook) };
}

/// Has the kernel kill the child (SIGKILL) when the thread that spawned it ends, however it ends.
///
/// The *thread*, not the process (PR_SET_PDEATHSIG, prctl(2)): spawn from a thread that lives as
/// long as the child should, or use [`spawn_bound`].
pub fn die_with_thread(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    let hook = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have died before the signal was asked for: then nobody will send it.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::OWNERDEAD));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes two system calls, and neither allocates nor locks.
    unsafe { command.pre_exec(hook) };
    command
}

/// Spawns a child that the kernel kills when this *process* ends, even by kill -9, whatever becomes
/// of the calling thread: one thread that lives as long as the process does the spawning.
///
/// Like every child, it starts in the namespace of the calling thread, unless the command was made
/// by [`super::Netns::command`].
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn_bound(mut command: Command) -> io::Result<Child> {
    die_with_thread(&mut command);
    let (answer, child) = sync_channel(1);
    let request = Request {
        command,
        namespace: File::open(super::OF_THIS_THREAD)?,
        answer,
    };
    spawner()?
        .send(request)
        .map_err(|_| io::Error::other("the thread that spawns child processes is gone"))?;
    child
        .recv()
        .map_err(|_| io::Error::other("the thread that spawns child processes is gone"))?
}

struct Request {
    command: Command,
    /// The namespace of the thread that asks.
    namespace: File,
    answer: SyncSender<io::Result<Child>>,
}

fn spawner() -> io::Result<SyncSender<Request>> {
    static SPAWNER: OnceLock<Mutex<Option<SyncSender<Request>>>> = OnceLock::new();
    let mut slot = SPAWNER
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = slot.as_ref() {
        return Ok(sender.clone());
    }
    let (sender, requests) = sync_channel(0);
    thread::Builder::new()
        .name("spawner".to_owned())
        .spawn(move || spawn_all(&requests))?;
    Ok(slot.insert(sender).clone())
}

fn spawn_all(requests: &Receiver<Request>) {
    while let Ok(Request {
        mut command,
        namespace,
        answer,
    }) = requests.recv()
    {
        let child = spawn_inside(&namespace, &mut command);
        if let Err(unheard) = answer.send(child)
            && let Ok(mut child) = unheard.0
        {
            // The asking thread no longer waits for the child.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Goes into the namespace for the time of the spawning only: a thread that stayed would keep it
/// alive.
fn spawn_inside(namespace: &File, command: &mut Command) -> io::Result<Child> {
    let home = File::open(super::OF_THIS_THREAD)?;
    if same_file(&home, namespace)? {
        return command.spawn();
    }
    go_to(namespace)?;
    let child = command.spawn();
    go_to(&home)?;
    child
}

/// Kills the processes whose namespace `namespace` is, but not this one.
pub(crate) fn end_processes(namespace: &Metadata) {
    let Ok(listed) = std::fs::read_dir("/proc") else {
        return;
    };
    let pids = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    for pid in pids.filter(|pid| *pid != std::process::id() as i32) {
        let own = std::fs::metadata(format!("/proc/{pid}/ns/net"));
        if own.is_ok_and(|own| (own.dev(), own.ino()) == (namespace.dev(), namespace.ino()))
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            // The process may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn same_file(a: &File, b: &File) -> io::Result<bool> {
    let (a, b) = (a.metadata()?, b.metadata()?);
    Ok(a.dev() == b.dev() && a.ino() == b.ino())
}

/// Moves the calling thread.
pub(super) fn go_to(namespace: &File) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(
        namespace.as_fd(),
        Some(rustix::thread::LinkNameSpaceType::Network),
    )
    .map_err(io::Error::from)
}
