//! The threads of a gateway, and what becomes of the gateway when one of them fails.
//!
//! A thread that fails takes its flows along, which are reset. The other threads and their flows go on, and one of
//! them takes over its listeners; new connections that the failed thread would have held pass unsplit. A gateway
//! without any thread that splits ends.

use super::RunError;
use bentpipe_interception::QueueReader;
use bentpipe_relay::{Lifecycle, Shared};
use bentpipe_tunnel_sockets::Handle;
use std::io;
use std::thread::{Builder, JoinHandle};

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It splits connections, and has this number. A gateway ends when none such is left.
    Split(usize),
    /// It reads a queue of packets, which go on without it; the others do too.
    Reads(QueueReader),
    /// It does other work, and the others go on without it.
    Aids,
}

#[derive(Debug)]
struct GatewayThread {
    name: String,
    role: Role,
    thread: JoinHandle<io::Result<()>>,
}

/// The threads of one gateway.
#[derive(Debug, Default)]
pub(super) struct ThreadSet {
    members: Vec<GatewayThread>,
    /// Why the first thread that failed did so.
    failed: Option<String>,
    /// What is not done because its thread could not be made, and why.
    pub(super) lacks: Vec<String>,
    /// The tunnels, whose thread waits for nothing of ours but this.
    pub(super) tunnels: Option<Handle>,
}

/// When a thread ends, also by a panic, wakes the supervising thread and has nobody wait for its heartbeat.
struct EndGuard(std::sync::Arc<Shared>, Role);

impl Drop for EndGuard {
    fn drop(&mut self) {
        match self.1 {
            Role::Split(number) => self.0.worker_ended(number),
            Role::Reads(reader) => self.0.reader_ended(reader),
            Role::Aids => {}
        }
        self.0.gateway_waker().wake();
    }
}

impl ThreadSet {
    /// Starts a thread.
    pub(super) fn spawn(
        &mut self,
        name: String,
        role: Role,
        shared: &std::sync::Arc<Shared>,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let at_end = EndGuard(std::sync::Arc::clone(shared), role);
        let work = move || {
            let _at_end = at_end;
            work()
        };
        let thread = Builder::new().name(name.clone()).spawn(work)?;
        self.members.push(GatewayThread { name, role, thread });
        Ok(())
    }

    /// Looks for those that have ended, which they only do by a failure while the gateway works.
    ///
    /// # Errors
    /// When none is left that splits: all are ended.
    pub(super) fn check(&mut self, shared: &Shared) -> Result<(), RunError> {
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
        let splits = |member: &GatewayThread| matches!(member.role, Role::Split(_));
        if self.members.iter().any(splits) {
            Ok(())
        } else {
            self.stop(shared)
        }
    }

    /// Ends all of them.
    ///
    /// # Errors
    /// When one of them has failed, now or before.
    pub(super) fn stop(&mut self, shared: &Shared) -> Result<(), RunError> {
        shared.enter(Lifecycle::Stopped);
        if let Some(tunnels) = &self.tunnels {
            tunnels.stop();
        }
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
fn failure(member: GatewayThread) -> Option<String> {
    let what = match member.thread.join() {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it panicked".to_owned(),
    };
    Some(format!("`{}`: {what}", member.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Bytes;
    use bentpipe_gateway_config::{Leg, Limits};
    use bentpipe_relay::{FlowBounds, Impairment, LegPolicies, Settings, SocketPolicy};
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    /// The state of a gateway with two workers and room for a few flows.
    fn shared() -> Arc<Shared> {
        let leg = SocketPolicy {
            mark: 0,
            tracked: 0,
            tracked_ceiling: None,
            control: None,
            usual_control: false,
            ceiling: None,
            keepalive: None,
            without_ecn: None,
            leg: Leg::terrestrial(),
        };
        let legs = LegPolicies {
            plain: [leg.clone(), leg],
            profiles: Vec::new(),
        };
        let bounds = FlowBounds {
            suspend: 4,
            resume: 2,
            hard: 5,
        };
        let settings = Settings::new(legs, 1, &Limits::default());
        Arc::new(Shared::new((bounds, Bytes(100)), settings, 2).expect("eventfds"))
    }

    /// A set of two threads that split, each of which ends as it is told.
    fn thread_set(shared: &Arc<Shared>) -> (ThreadSet, Vec<Sender<io::Result<()>>>) {
        let mut thread_set = ThreadSet::default();
        let sender = (0..2).map(|number| {
            let (sender, receiver) = channel::<io::Result<()>>();
            shared.beat(number);
            thread_set
                .spawn(
                    format!("split-{number}"),
                    Role::Split(number),
                    shared,
                    move || {
                        // Without a word it panics.
                        receiver.recv().expect("a word")
                    },
                )
                .unwrap();
            sender
        });
        let sender = sender.collect();
        (thread_set, sender)
    }

    fn ended(thread_set: &ThreadSet, count: usize) {
        let until = Instant::now() + Duration::from_secs(10);
        while thread_set
            .members
            .iter()
            .filter(|member| member.thread.is_finished())
            .count()
            < count
        {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_thread_that_fails_takes_no_other_along() {
        for panics in [true, false] {
            let shared = shared();
            let (mut thread_set, mut sender) = thread_set(&shared);
            thread_set.check(&shared).unwrap();
            let asked = shared.request_heartbeat();
            shared.beat(1);
            let silent = shared.unanswered(asked);
            assert_eq!(silent, Some(Impairment::Worker(0)), "the first has not");
            let first = sender.remove(0);
            if panics {
                drop(first)
            } else {
                first.send(Err(io::Error::other("out of luck"))).unwrap()
            }
            ended(&thread_set, 1);
            assert!(shared.gateway_waker().drain(), "the supervisor is woken");
            assert_eq!(shared.unanswered(asked), None, "nobody waits for the dead");
            thread_set.check(&shared).unwrap();
            assert_eq!(shared.lifecycle(), Lifecycle::Serving);
            drop(sender);
            ended(&thread_set, 1);
            let error = thread_set.check(&shared).unwrap_err().to_string();
            let first = ["`split-0`: out of luck", "`split-0`: it panicked"];
            assert!(error.contains(first[usize::from(panics)]), "{error}");
            assert_eq!(shared.lifecycle(), Lifecycle::Stopped);
        }
    }

    #[test]
    fn an_orderly_end_is_no_failure() {
        let shared = shared();
        let (mut thread_set, sender) = thread_set(&shared);
        sender
            .iter()
            .for_each(|sender| sender.send(Ok(())).unwrap());
        thread_set.stop(&shared).unwrap();
    }
}
