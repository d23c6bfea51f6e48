//! A call that blocks, on a thread of its own.

use super::clock;
use crate::object::Object;
use crate::script::{Call, Micros};
use crate::syscall::{self, Addresses, Descriptors, Outcome};
use anyhow::{Result, anyhow, bail};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// In real time, how long a call may take to fall asleep, or to return where it should have.
const PATIENCE: Duration = Duration::from_secs(5);

type Done = Result<(Outcome, Micros)>;

pub(super) struct Blocked {
    thread: JoinHandle<()>,
    done: Receiver<Done>,
}

impl Blocked {
    /// Begins `call` on a thread of its own, and returns when it sleeps or is over.
    pub(super) fn start(
        object: Arc<Object>,
        call: Call,
        addresses: Addresses,
        descriptors: Descriptors,
    ) -> Result<Self> {
        let (told, who) = mpsc::channel();
        let (finish, done) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("blocked".to_owned())
            .spawn(move || {
                // SAFETY: gettid has no arguments and cannot fail.
                let _gone = told.send(unsafe { libc::gettid() });
                let made = syscall::make(&object, &call, &addresses, &descriptors);
                let both = made.and_then(|outcome| Ok((outcome, clock::read(&object)?)));
                let _gone = finish.send(both);
            })?;
        let id = who.recv()?;
        let begun = Instant::now();
        while !thread.is_finished() && !sleeps(id)? {
            if begun.elapsed() > PATIENCE {
                bail!("a blocking call spins instead of sleeping");
            }
            thread::sleep(Duration::from_micros(100));
        }
        Ok(Self { thread, done })
    }

    pub(super) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// What it came to, and when, by the stack's clock.
    pub(super) fn join(self) -> Done {
        match self.done.recv_timeout(PATIENCE) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => Err(anyhow!("it was to return, and still blocks")),
            Err(RecvTimeoutError::Disconnected) => {
                Err(anyhow!("its thread ended without a result"))
            }
        }
    }
}

/// Whether thread `id` of this process sleeps: its state in `/proc/self/task` is `S`, the first word behind its name.
fn sleeps(id: libc::pid_t) -> Result<bool> {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")) else {
        // It has ended.
        return Ok(true);
    };
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    Ok(state == Some("S"))
}
