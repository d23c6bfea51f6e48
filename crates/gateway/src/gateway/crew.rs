//! The threads of a gateway, and what becomes of it when one of them fails.
//!
//! A thread that fails takes along what it held: its flows, by a reset. The others, and their flows, do
//! not suffer for it. New connections are for those that are left: a listener that has gone gets none.

use super::RunError;
use crate::shared::{Shared, Stage};
use std::io;
use std::thread::{Builder, JoinHandle};

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// It splits connections: a gateway without one such thread is none. Its number.
    Split(usize),
    /// Something that the others go on without. Its number, where it answers pulses.
    Aid(Option<usize>),
}

#[derive(Debug)]
struct Member {
    name: String,
    duty: Duty,
    thread: JoinHandle<io::Result<()>>,
}

/// The threads.
#[derive(Debug, Default)]
pub(super) struct Crew {
    members: Vec<Member>,
    /// Why the first that failed did.
    failed: Option<String>,
}

/// Wakes the gateway when a thread ends, also by a panic, and has nobody wait for its answer.
struct AtEnd(std::sync::Arc<Shared>, Duty);

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Duty::Split(number) | Duty::Aid(Some(number)) = self.1 {
            self.0.leave(number);
        }
        self.0.gateway_bell().ring();
    }
}

impl Crew {
    /// Starts a thread.
    pub(super) fn hire(
        &mut self,
        name: String,
        duty: Duty,
        shared: &std::sync::Arc<Shared>,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let at_end = AtEnd(std::sync::Arc::clone(shared), duty);
        let work = move || {
            let _at_end = at_end;
            work()
        };
        let thread = Builder::new().name(name.clone()).spawn(work)?;
        self.members.push(Member { name, duty, thread });
        Ok(())
    }

    /// Looks for those that have ended, which they only do by a failure while the gateway works.
    ///
    /// # Errors
    /// When none is left that splits: all are ended.
    pub(super) fn look(&mut self, shared: &Shared) -> Result<(), RunError> {
        for member in self
            .members
            .extract_if(.., |member| member.thread.is_finished())
        {
            let name = member.name.clone();
            let why = failure(member).unwrap_or_else(|| format!("`{name}`: it ended"));
            tracing::error!(
                "a thread of the gateway failed, {why}: its flows are reset, the others go on"
            );
            self.failed.get_or_insert(why);
        }
        let splits = |member: &Member| matches!(member.duty, Duty::Split(_));
        match self.members.iter().any(splits) {
            true => Ok(()),
            false => self.stop(shared),
        }
    }

    /// Ends all of them.
    ///
    /// # Errors
    /// When one of them has failed, now or before.
    pub(super) fn stop(&mut self, shared: &Shared) -> Result<(), RunError> {
        shared.enter(Stage::Stopped);
        for member in self.members.drain(..) {
            if let Some(why) = failure(member) {
                self.failed.get_or_insert(why);
            }
        }
        self.failed
            .take()
            .map_or(Ok(()), |why| Err(RunError::Worker(why)))
    }
}

/// How a thread that ends has failed, if it has.
fn failure(member: Member) -> Option<String> {
    let what = match member.thread.join() {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked".to_owned(),
    };
    Some(format!("`{}`: {what}", member.name))
}
