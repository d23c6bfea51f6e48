//! Writes standard output in a thread of its own, so that a reader that takes its time, such as a pager, holds up no
//! session. What has arrived and has not been read waits in a file without a name.

use crate::tree::sync;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Octets that are written at once.
const BLOCK: usize = 64 << 10;

/// See the file's head. Dropped, no more arrives.
#[derive(Debug)]
pub struct Stdout(Arc<StdoutQueue>);

/// What is written by the thread.
#[derive(Debug)]
pub struct StdoutQueue {
    spool: File,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Octets that have arrived in order, and may be written.
    arrived: u64,
    /// Octets that were written.
    written: u64,
    /// No more will arrive.
    ended: bool,
    /// Where it is a file, that has to be on the disk.
    to_disk: bool,
    /// All is written, and on the disk where it must be.
    settled: bool,
    fault: Option<io::Error>,
    /// The thread has begun.
    begun: bool,
}

impl Stdout {
    /// What arrives is kept in `spool`.
    pub fn new(spool: File) -> Self {
        Self(Arc::new(StdoutQueue {
            spool,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    pub(crate) fn spool(&self) -> &File {
        &self.0.spool
    }

    /// What has arrived in order, `[0, arrived)`, may be written.
    ///
    /// # Errors
    /// What writing gave, once; or the start of the thread.
    pub(crate) fn pass_on(&self, arrived: u64) -> io::Result<()> {
        let mut state = self.0.state();
        if let Some(fault) = state.fault.take() {
            return Err(fault);
        }
        state.arrived = arrived;
        if !state.begun && arrived > 0 {
            state.begun = true;
            let shared = Arc::clone(&self.0);
            let work = move || shared.write(&mut io::stdout(), || sync(io::stdout()));
            std::thread::Builder::new()
                .name("stdout".to_owned())
                .spawn(work)
                .map_err(crate::task::no_thread)?;
        }
        self.0.changed.notify_one();
        Ok(())
    }

    /// Whether something may have been written.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.state().begun
    }

    /// Tells how far it is written.
    pub(crate) fn output(&self) -> Arc<StdoutQueue> {
        Arc::clone(&self.0)
    }
}

impl Drop for Stdout {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.changed.notify_one();
    }
}

impl StdoutQueue {
    /// Whether all that has arrived is written.
    ///
    /// # Errors
    /// What writing gave, once.
    pub(crate) fn is_written(&self) -> io::Result<bool> {
        self.is(|state| state.written == state.arrived)
    }

    /// What is written must be on the disk before it is settled.
    pub(crate) fn sync_at_end(&self) {
        self.state().to_disk = true;
    }

    /// Whether no more will arrive and all is written, and on the disk where it must be.
    ///
    /// # Errors
    /// As [`Self::is_written`].
    pub(crate) fn is_settled(&self) -> io::Result<bool> {
        self.is(|state| state.settled || !state.begun)
    }

    fn is(&self, so: impl FnOnce(&State) -> bool) -> io::Result<bool> {
        let mut state = self.state();
        match state.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(so(&state)),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, out: &mut impl Write, sync: impl FnOnce() -> io::Result<()>) {
        let mut block = vec![0; BLOCK];
        let mut written = 0;
        loop {
            let state = self.state();
            let waits = |state: &mut State| state.arrived == written && !state.ended;
            let state = self.changed.wait_while(state, waits);
            let state = state.unwrap_or_else(PoisonError::into_inner);
            let (arrived, to_disk) = (state.arrived, state.to_disk);
            drop(state);
            if arrived == written {
                let synced = if to_disk { sync() } else { Ok(()) };
                let mut state = self.state();
                state.settled = synced.is_ok();
                state.fault = synced.err();
                return;
            }
            let want = (arrived - written).min(BLOCK as u64) as usize;
            let block = &mut block[..want];
            let done = self
                .spool
                .read_exact_at(block, written)
                .and_then(|()| out.write_all(block))
                .and_then(|()| out.flush());
            let mut state = self.state();
            if let Err(error) = done {
                state.fault = Some(error);
                return;
            }
            written += want as u64;
            state.written = written;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    struct Slow(Vec<u8>);

    impl Write for Slow {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            let len = octets.len().min(1000);
            self.0.extend_from_slice(&octets[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_has_arrived_is_written_in_order_and_to_its_end() {
        let content: Vec<u8> = (0..200_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut spool = tempfile::tempfile().unwrap();
        spool.write_all(&content).unwrap();
        let pipe = Stdout::new(spool);
        pipe.0.state().begun = true;
        let shared = Arc::clone(&pipe.0);
        let writer = std::thread::spawn(move || {
            let mut out = Slow(Vec::new());
            shared.write(&mut out, || Ok(()));
            out.0
        });
        for arrived in [1, 70_000, 70_000, 200_000] {
            pipe.pass_on(arrived).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(pipe);
        assert!(writer.join().unwrap() == content);
    }
}
