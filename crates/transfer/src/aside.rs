//! Work in a thread of its own, beside the loop that drives the sessions.

use std::io;
use std::sync::mpsc::{self, Receiver};

/// Does `work` in a thread called `name`; what it comes to is received when it is done.
pub(crate) fn aside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Receiver<T>> {
    let (tell, told) = mpsc::channel();
    let work = move || {
        // Nobody waits for it any more when the session is over.
        let _ = tell.send(work());
    };
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(work).map(|_| told)
}
