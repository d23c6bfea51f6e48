//! Long work beside the interpreter.

use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Between two looks at what the interpreter wants.
const PAUSE: Duration = Duration::from_millis(50);

/// Does `work` in a thread of its own without holding the interpreter. `between` is called now and then; where that fails, or a
/// signal has come (Ctrl-C), the flag that `work` is handed is raised, and once it has ended the error is returned.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&AtomicBool) -> T + Send,
    mut between: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let (cancel, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let waiter = thread::current();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = work(&cancel);
            done.store(true, Ordering::Release);
            waiter.unpark();
            result
        });
        let mut wanted = Ok(());
        while !done.load(Ordering::Acquire) && !worker.is_finished() {
            py.detach(|| thread::park_timeout(PAUSE));
            if wanted.is_ok() {
                wanted = py.check_signals().and_then(|()| between(py));
                cancel.store(wanted.is_err(), Ordering::Relaxed);
            }
        }
        match py.detach(|| worker.join()) {
            Ok(result) => wanted.map(|()| result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
