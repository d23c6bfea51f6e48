//! A worker takes over the listeners of workers that have failed.
//!
//! So clients whose SYN was looped before the failure are accepted, and dialled for anew. New connections that the
//! failed worker would hold pass unsplit, because its queue went with it.

use super::{LISTENER, Worker};
use bentpipe_sockets::epoll::Interest;
use std::io;
use std::sync::Arc;

impl Worker {
    /// Takes the listeners of workers that have failed.
    pub(super) fn on_abandoned_listeners(&mut self) {
        for worker in self.shared.take_abandoned() {
            if let Err(error) = self.serve(worker) {
                tracing::warn!(%error, "connections of a thread that failed have to wait");
                // It is tried again at the next pulse.
                self.shared.abandon_listeners(&[worker]);
            }
        }
    }

    /// Listens where worker number `worker` did. What is listened to already stays as it is.
    pub(super) fn serve(&mut self, worker: usize) -> io::Result<()> {
        let listeners = Arc::clone(&self.all_listeners);
        for listener in listeners.get(worker).into_iter().flatten() {
            if self.listeners.iter().any(|own| Arc::ptr_eq(own, listener)) {
                continue;
            }
            let interest = match self.paused {
                None => Interest::READ,
                Some(_) => Interest::NONE,
            };
            let token = LISTENER + self.listeners.len() as u64;
            self.epoll.add(&listener.socket, token, interest)?;
            self.listeners.push(Arc::clone(listener));
        }
        self.serves.push(worker);
        Ok(())
    }
}
