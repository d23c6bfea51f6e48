//! The gateway's nft table, kept by a thread of its own.
//!
//! nft is another process, which may be slow, hang, or be killed. Only this thread waits for it. It gives the table new
//! rules on request, and makes the table again where nft has ended or does not answer any more.

use crate::admission_switch::AdmissionSwitch;
use crate::intercept::{InterceptError, PassCounters};
use crate::ipsec_detection::IpsecDetector;
use crate::nat_detection::NatDetector;
use crate::ruleset::Ruleset;
use bentpipe_os::nft::{NftError, OwnerTable, TableFamily};
use bentpipe_sockets::epoll::{Epoll, Events, Interest, Waker};
use bentpipe_sockets::timer;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

const ORDERS: u64 = 0;
const HOLDER: u64 = 1;
/// When a table that could not be made is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often it is looked whether somebody has begun to translate addresses, or has other policies of IPsec.
const TRANSLATION: Duration = Duration::from_secs(2);
/// How long making a table is tried again. Without a table nothing is delivered to established flows, so after that
/// time it is better to reset them.
const PATIENCE: Duration = Duration::from_secs(15);

/// What has happened to the table.
#[derive(Debug)]
pub enum TableEvent {
    /// The rules that were asked for last are in force, or refused.
    Renewed(Result<(), InterceptError>),
    /// The table is gone, and cannot be made again.
    Lost(InterceptError),
}

/// The thread and how to talk to it. Dropping it removes the table.
#[derive(Debug)]
pub(crate) struct TableThread {
    requests: Option<Sender<Ruleset>>,
    request_waker: Arc<Waker>,
    pub(crate) events: Receiver<TableEvent>,
    /// Rings when there is an event.
    pub(crate) event_waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl TableThread {
    /// Makes the table in the calling thread's namespace.
    pub(crate) fn start(
        rules: Ruleset,
        switch: Arc<AdmissionSwitch>,
        passed: Arc<PassCounters>,
        translates: Arc<AtomicBool>,
    ) -> Result<Self, InterceptError> {
        let mut nat = NatDetector::new(translates);
        nat.look(&rules);
        let mut ipsec = IpsecDetector::default();
        ipsec.look(&rules);
        let table = load(&rules, &switch)?;
        passed.follow(&table);
        let (requests, taken) = channel();
        let (tell, events) = channel();
        let (request_waker, event_waker) = wakers().map_err(InterceptError::Thread)?;
        let table_loop = TableLoop {
            epoll: Epoll::new().map_err(InterceptError::Thread)?,
            table,
            rules,
            switch,
            passed,
            requests: taken,
            request_waker: Arc::clone(&request_waker),
            events: tell,
            event_waker: Arc::clone(&event_waker),
            unresponsive: false,
            nat,
            ipsec,
        };
        let thread = std::thread::Builder::new()
            .name("table".to_owned())
            .spawn(move || table_loop.run());
        Ok(Self {
            requests: Some(requests),
            request_waker,
            events,
            event_waker,
            thread: Some(thread.map_err(InterceptError::Thread)?),
        })
    }

    /// Asks for other rules; [`TableEvent::Renewed`] tells what became of that.
    pub(crate) fn renew(&self, rules: Ruleset) {
        if let Some(requests) = &self.requests {
            // The thread ends before us only by a panic, which is reported when the table is missed.
            let _ = requests.send(rules);
            self.request_waker.wake();
        }
    }
}

impl Drop for TableThread {
    fn drop(&mut self) {
        self.requests = None;
        self.request_waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing, and a panic of it has been reported already.
            let _ = thread.join();
        }
    }
}

fn wakers() -> io::Result<(Arc<Waker>, Arc<Waker>)> {
    Ok((Arc::new(Waker::new()?), Arc::new(Waker::new()?)))
}

/// A table with its rules.
fn load(rules: &Ruleset, switch: &AdmissionSwitch) -> Result<OwnerTable, NftError> {
    let table = OwnerTable::load(TableFamily::Inet, "gateway", &rules.table(&switch.body()))?;
    table.apply(&rules.commands(&table.to_string()))?;
    Ok(table)
}

struct TableLoop {
    epoll: Epoll,
    table: OwnerTable,
    rules: Ruleset,
    switch: Arc<AdmissionSwitch>,
    passed: Arc<PassCounters>,
    requests: Receiver<Ruleset>,
    request_waker: Arc<Waker>,
    events: Sender<TableEvent>,
    event_waker: Arc<Waker>,
    /// nft has not answered a command, so it is unknown whether the command will still take effect.
    unresponsive: bool,
    nat: NatDetector,
    ipsec: IpsecDetector,
}

impl TableLoop {
    fn run(mut self) {
        if let Err(error) = self.watch() {
            return self.tell(TableEvent::Lost(InterceptError::Thread(error)));
        }
        let mut events = Events::with_capacity(2);
        let mut missing_since = None;
        loop {
            let pause = missing_since.map_or(TRANSLATION, |_| RETRY);
            if let Err(error) = self.epoll.wait(&mut events, Some(pause)) {
                return self.tell(TableEvent::Lost(InterceptError::Thread(error)));
            }
            self.nat.look(&self.rules);
            self.ipsec.look(&self.rules);
            self.request_waker.drain();
            match self.requests.try_recv() {
                Ok(rules) => {
                    let result = self.renew(rules);
                    self.tell(TableEvent::Renewed(result));
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
            if self.table.is_held() && !self.unresponsive {
                missing_since = None;
                continue;
            }
            let since = *missing_since.get_or_insert_with(|| {
                // Once the end of nft is known, epoll would report it at every wait.
                let _ = self.epoll.remove(&self.table);
                timer::now()
            });
            match self.replace(self.rules.clone()) {
                Ok(()) => {
                    tracing::warn!(
                        "the nft process that held the gateway's table ended or hung: the table is made again"
                    );
                    missing_since = None;
                }
                Err(error) if !self.unresponsive && timer::now().since(since) >= PATIENCE => {
                    return self.tell(TableEvent::Lost(error));
                }
                Err(error) => {
                    tracing::warn!(%error, "the gateway's table cannot be made again yet");
                }
            }
        }
    }

    fn watch(&self) -> io::Result<()> {
        self.epoll
            .add(&*self.request_waker, ORDERS, Interest::READ)?;
        self.epoll.add(&self.table, HOLDER, Interest::READ)
    }

    /// Gives the table other rules, or makes another where nft does not do that.
    fn renew(&mut self, rules: Ruleset) -> Result<(), InterceptError> {
        match self.table.apply(&rules.commands(&self.table.to_string())) {
            Ok(()) => {
                self.rules = rules;
                Ok(())
            }
            Err(error @ NftError::Refused { .. }) => Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "the gateway's table is made again, by another nft");
                self.unresponsive = true;
                self.replace(rules)
            }
        }
    }

    /// Makes another table in the place of the one that there is, or was.
    fn replace(&mut self, rules: Ruleset) -> Result<(), InterceptError> {
        let table = load(&rules, &self.switch)?;
        self.epoll
            .add(&table, HOLDER, Interest::READ)
            .map_err(InterceptError::Thread)?;
        self.passed.follow(&table);
        // Dropping the old table takes its descriptor out of the epoll set and kills its nft.
        drop(std::mem::replace(&mut self.table, table));
        // While there were two tables, the datagram threw the old one's switch.
        self.switch.hold();
        self.rules = rules;
        self.unresponsive = false;
        Ok(())
    }

    fn tell(&self, events: TableEvent) {
        // The receiver is gone only when the interception is being dropped.
        let _ = self.events.send(events);
        self.event_waker.wake();
    }
}
