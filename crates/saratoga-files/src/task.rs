//! Runs work in threads of its own beside the loop that drives the sessions, so that a long sum or a slow disk holds up
//! no session.

use bentpipe_base::Instant;
use bentpipe_sockets::timer;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Tells a thread whether its work is still wanted.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// To be called between the steps of the work.
    ///
    /// # Errors
    /// When the work is no longer wanted.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            Err(io::Error::other("nobody waits for it any more"))
        } else {
            Ok(())
        }
    }
}

/// Work under way in a thread. Dropping it cancels the work.
#[derive(Debug)]
pub struct Task<T> {
    receiver: Receiver<T>,
    cancel: Cancel,
}

impl<T> Task<T> {
    /// The result of the work.
    ///
    /// # Errors
    /// When it is not done, or its thread is gone.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.receiver.try_recv()
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.cancel.0.store(true, Ordering::Relaxed);
    }
}

/// A thread without work yet: where none can be started, the work is still there, to be done later.
#[derive(Debug)]
pub(crate) struct Thread(mpsc::Sender<Box<dyn FnOnce() + Send>>);

impl Thread {
    /// Starts one called `name`.
    ///
    /// # Errors
    /// What [`spawn`] gives.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (given, work) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let run = move || {
            if let Ok(work) = work.recv() {
                work();
            }
        };
        let builder = std::thread::Builder::new().name(name.to_owned());
        builder.spawn(run).map_err(no_thread)?;
        Ok(Self(given))
    }

    /// Does `work`, until it is done or the task is dropped.
    pub(crate) fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&Cancel) -> T + Send + 'static,
    ) -> Task<T> {
        let (sender, receiver) = mpsc::channel();
        let cancel = Cancel::default();
        let seen = cancel.clone();
        // The thread waits for it.
        let _ = self.0.send(Box::new(move || {
            // Nobody waits for it any more when the session is over.
            let _ = sender.send(work(&seen));
        }));
        Task { receiver, cancel }
    }
}

/// Does `work` in a thread called `name`, until it is done or the task is dropped.
///
/// # Errors
/// When there is no thread for it: of kind `OutOfMemory` where there may be none more just now.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce(&Cancel) -> T + Send + 'static,
) -> io::Result<Task<T>> {
    Thread::start(name).map(|thread| thread.work(work))
}

/// Why there is no thread. What the kernel says for want of threads, EAGAIN, says elsewhere that somebody else has a file.
pub(crate) fn no_thread(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        io::Error::new(
            io::ErrorKind::OutOfMemory,
            "there may be no thread more; raise their limit (`ulimit -u`, LimitNPROC, TasksMax, pids.max)",
        )
    } else {
        error
    }
}

/// The address by which `peer` has its share of what there is: of an IPv6 address the first 64 bits, because a host has
/// all the rest to itself.
pub fn network(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
        ip => ip,
    }
}

/// Lets a few threads work at once, however many there are, and has those that wait take turns by the peer that they
/// work for: a semaphore that is fair among peers. Clones share it.
#[derive(Clone, Debug)]
pub struct FairSemaphore(Arc<(Mutex<Queue>, Condvar)>);

#[derive(Debug)]
struct Queue {
    free: usize,
    /// FairSemaphore that were given.
    given: u64,
    /// When those began that are held, and how many were taken for stuck and have made room.
    held: BTreeMap<u64, Instant>,
    stuck: usize,
    /// For whom threads wait: how many, and which turn was the last of their own.
    waiting: BTreeMap<IpAddr, (usize, u64)>,
}

/// A thread's turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: FairSemaphore,
    whom: IpAddr,
    since: Instant,
    number: u64,
    /// It was not given back meanwhile.
    held: bool,
}

/// Who has a turn for so long, and comes to no next step, waits for a file system that does not answer: another has its turn
/// beside it.
const STUCK: Duration = Duration::from_secs(5);
/// So many threads may be stuck so; beyond that, others wait for them.
const MOST_STUCK: usize = 64;

/// A turn that lasts longer is given back between two steps of the work, and taken again, where others wait.
const SLICE: Duration = Duration::from_millis(100);

/// Between two looks at whether what waits for its turn is still wanted.
const LOOK: Duration = Duration::from_millis(100);

impl FairSemaphore {
    /// `count` at once.
    pub fn new(count: usize) -> Self {
        let queue = Queue {
            free: count.max(1),
            given: 0,
            held: BTreeMap::new(),
            stuck: 0,
            waiting: BTreeMap::new(),
        };
        Self(Arc::new((Mutex::new(queue), Condvar::new())))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Self::take`], for the peer at `whom`, in a thread that has nothing else to do: it goes behind the loop and
    /// other programs.
    ///
    /// # Errors
    /// As there.
    pub fn take_in_background(&self, whom: SocketAddr, cancel: &Cancel) -> io::Result<Turn> {
        // Where that cannot be, they share.
        let _ = rustix::process::nice(10);
        self.take(network(whom), cancel)
    }

    /// Waits for a turn, on behalf of `whom`.
    ///
    /// # Errors
    /// When it is no longer wanted.
    pub fn take(&self, whom: IpAddr, cancel: &Cancel) -> io::Result<Turn> {
        let mut queue = self.queue();
        let given = queue.given;
        queue.waiting.entry(whom).or_insert((0, given)).0 += 1;
        let wanted = loop {
            if let Err(error) = cancel.check() {
                break Err(error);
            }
            let now = timer::now();
            if queue.free == 0 {
                queue.pass_by_stuck(now);
            }
            if queue.free > 0 && queue.next() == Some(whom) {
                queue.free -= 1;
                queue.given += 1;
                let number = queue.given;
                queue.held.insert(number, now);
                break Ok(Turn {
                    turns: self.clone(),
                    whom,
                    since: now,
                    number,
                    held: true,
                });
            }
            let waited = self.0.1.wait_timeout(queue, LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        let given = queue.given;
        if let Some((count, last)) = queue.waiting.get_mut(&whom) {
            *count -= 1;
            *last = given;
            if *count == 0 {
                queue.waiting.remove(&whom);
            }
        }
        drop(queue);
        // Another may be the next now.
        self.0.1.notify_all();
        wanted
    }
}

impl Queue {
    /// Who has waited for the most turns.
    fn next(&self) -> Option<IpAddr> {
        let next = self.waiting.iter().min_by_key(|(_, (_, last))| *last);
        next.map(|(whom, _)| *whom)
    }

    /// Makes room where the turn that was given first is stuck.
    fn pass_by_stuck(&mut self, now: Instant) {
        if let Some(first) = self.held.first_entry()
            && now.since(*first.get()) >= STUCK
            && self.stuck < MOST_STUCK
        {
            first.remove();
            self.stuck += 1;
            self.free += 1;
            tracing::warn!(
                stuck = self.stuck,
                "a list or checksum waits for a file system that does not answer; others go on beside it"
            );
        }
    }
}

impl Turn {
    /// A step of long work is done: others may have their turn before the next.
    ///
    /// # Errors
    /// When it is no longer wanted.
    pub(crate) fn pass_on(&mut self, cancel: &Cancel) -> io::Result<()> {
        cancel.check()?;
        if timer::now().since(self.since) < SLICE {
            return Ok(());
        }
        self.give_back();
        *self = self.turns.take(self.whom, cancel)?;
        Ok(())
    }

    fn give_back(&mut self) {
        if std::mem::take(&mut self.held) {
            let mut queue = self.turns.queue();
            match queue.held.remove(&self.number) {
                Some(_) => queue.free += 1,
                // Another had it meanwhile.
                None => queue.stuck -= 1,
            }
            drop(queue);
            self.turns.0.1.notify_all();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicUsize;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_few_work_at_once_and_who_is_not_wanted_waits_no_longer() {
        let turns = FairSemaphore::new(2);
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let _turn = turns.take(ONE, &Cancel::default()).unwrap();
                    let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    at_once.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
        let _all = [(); 2].map(|()| turns.take(ONE, &Cancel::default()).unwrap());
        let waiting = turns.clone();
        let task = spawn("waits", move |cancel| waiting.take(ONE, cancel).is_err()).unwrap();
        assert!(matches!(task.try_recv(), Err(TryRecvError::Empty)));
        task.cancel.0.store(true, Ordering::Relaxed);
        assert!(task.receiver.recv().unwrap());
        assert!(turns.queue().waiting.is_empty());
    }

    #[test]
    fn who_has_much_to_do_does_not_keep_others_waiting() {
        let turns = FairSemaphore::new(1);
        let first = turns.take(ONE, &Cancel::default()).unwrap();
        let (turns, order) = (&turns, &Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for whom in [ONE, ONE, ONE, ONE, OTHER] {
                let waiting = || turns.queue().waiting.values().map(|(count, _)| count).sum();
                let before: usize = waiting();
                scope.spawn(move || {
                    let turn = turns.take(whom, &Cancel::default()).unwrap();
                    order.lock().unwrap().push(whom);
                    drop(turn);
                });
                while waiting() == before {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        let order = order.lock().unwrap();
        assert!(order[..2].contains(&OTHER), "{order:?}");
    }

    /// Long work of one, and short work of another that comes later.
    #[test]
    fn who_works_for_long_lets_others_in_between() {
        let turns = FairSemaphore::new(1);
        let cancel = Cancel::default();
        let mut long = turns.take(ONE, &cancel).unwrap();
        let waiting = turns.clone();
        let short = spawn("short", move |cancel| waiting.take(OTHER, cancel).is_ok()).unwrap();
        let done = loop {
            long.pass_on(&cancel).unwrap();
            if let Ok(done) = short.try_recv() {
                break done;
            }
        };
        assert!(done && long.held);
        drop(long);
        assert_eq!(turns.queue().free, 1);
    }
}
