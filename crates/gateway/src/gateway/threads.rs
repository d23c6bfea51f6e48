//! The threads of a gateway, and what becomes of it when one of them fails.
//!
//! A thread that fails takes along what it held: its flows, by a reset. The others, and their flows, do
//! not suffer for it. New connections are for those that are left: one of them serves its listeners, and those that
//! it would have held pass unsplit.

use super::RunError;
use bentpipe_relay::{Shared, Stage};
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

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Bytes;
    use bentpipe_gateway_config::{Leg, Limits};
    use bentpipe_relay::{Bounds, Legs, Prepared, Settings};
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};
    use std::time::{Duration, Instant};

    /// The state of a gateway with two workers and room for a few flows.
    fn shared() -> Arc<Shared> {
        let leg = Prepared {
            mark: 0,
            tracked: 0,
            control: None,
            usual_control: false,
            ceiling: None,
            keepalive: None,
            without_ecn: None,
            leg: Leg::terrestrial(),
        };
        let legs = Legs {
            plain: [leg.clone(), leg],
            profiles: Vec::new(),
        };
        let bounds = Bounds {
            suspend: 4,
            resume: 2,
            hard: 5,
        };
        let settings = Settings::new(legs, 1, &Limits::default());
        Arc::new(Shared::new((bounds, Bytes(100)), settings, 2).expect("eventfds"))
    }

    /// A crew of two that split, each of which ends as it is told.
    fn crew(shared: &Arc<Shared>) -> (Crew, Vec<Sender<io::Result<()>>>) {
        let mut crew = Crew::default();
        let tell = (0..2).map(|number| {
            let (tell, told) = channel::<io::Result<()>>();
            shared.beat(number);
            crew.hire(
                format!("split-{number}"),
                Duty::Split(number),
                shared,
                move || {
                    // Without a word it panics.
                    told.recv().expect("a word")
                },
            )
            .unwrap();
            tell
        });
        let tell = tell.collect();
        (crew, tell)
    }

    fn ended(crew: &Crew, count: usize) {
        let until = Instant::now() + Duration::from_secs(10);
        while crew
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
            let (mut crew, mut tell) = crew(&shared);
            crew.look(&shared).unwrap();
            let asked = shared.feel_pulse();
            shared.beat(1);
            assert!(!shared.have_answered(asked), "the first has not");
            let first = tell.remove(0);
            match panics {
                true => drop(first),
                false => first.send(Err(io::Error::other("out of luck"))).unwrap(),
            }
            ended(&crew, 1);
            assert!(shared.gateway_bell().silence(), "the supervisor is woken");
            assert!(shared.have_answered(asked), "nobody waits for the dead");
            crew.look(&shared).unwrap();
            assert_eq!(shared.stage(), Stage::Serving);
            drop(tell);
            ended(&crew, 1);
            let error = crew.look(&shared).unwrap_err().to_string();
            let first = ["`split-0`: out of luck", "`split-0`: it panicked"];
            assert!(error.contains(first[usize::from(panics)]), "{error}");
            assert_eq!(shared.stage(), Stage::Stopped);
        }
    }

    #[test]
    fn an_orderly_end_is_no_failure() {
        let shared = shared();
        let (mut crew, tell) = crew(&shared);
        tell.iter().for_each(|tell| tell.send(Ok(())).unwrap());
        crew.stop(&shared).unwrap();
    }
}
