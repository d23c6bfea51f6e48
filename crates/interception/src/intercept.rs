//! Sets up the interception of new connections at the end of the forwarding path, and removes it. The nft tables go
//! with the process that owns them. Routing rules and routes do nothing without the tables; they go when [`Interception`]
//! is dropped, or are swept by the next start.

use crate::admission_switch::AdmissionSwitch;
use crate::ruleset::{CarrierPlace, HOOK_PRIORITY, PassReason, Ruleset, SwitchPosition};
use crate::table_thread::{TableEvent, TableThread};
use crate::time_wait_decoy::DecoyListener;
use bentpipe_base::Bytes;
use bentpipe_gateway_config::{Config, Interface};
use bentpipe_os::netlink::{Diversion, Family, Mark, Netlink, NetlinkError};
use bentpipe_os::nft::{
    Count, HoldTable, Holding, Hook, NftError, OwnerTable, Switch, TableFamily, Tally,
};
use bentpipe_sockets::epoll::Waker;
use bentpipe_sockets::nfqueue::Queues;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// The priority of our routing rules: before the main table, and before rules that others commonly have. It is not lower
/// than needed, because the kernel gives a rule without a priority the number before the lowest one, perhaps many times.
const RULE_PRIORITY: u32 = 32_763;

/// Interception could not be set up or changed.
#[derive(Debug, Error)]
pub enum InterceptError {
    /// The routing half.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The nft half.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// Its counters.
    #[error("cannot read the counters of nftables ({0}): see the kernel's reason")]
    Tally(#[source] io::Error),
    /// The switch in its table.
    #[error("cannot make the sockets that switch interception ({0}): see the kernel's reason")]
    Switch(#[source] io::Error),
    /// The thread that keeps the table.
    #[error("cannot keep the gateway's table ({0}): see the kernel's reason")]
    Thread(#[source] io::Error),
}

/// The interception of one gateway: made, but not begun.
#[derive(Debug)]
pub struct Interception {
    // In this order: without the table, the rule has nothing to divert.
    table_thread: TableThread,
    _hold: HoldTable,
    diversion: Arc<Diversion>,
    _decoy: DecoyListener,
    switch: Arc<AdmissionSwitch>,
    rules: Ruleset,
    on: bool,
    passed: Arc<PassCounters>,
    translates: Arc<AtomicBool>,
}

/// Reads what the tables have counted, from any thread: that in force, and those before it.
#[derive(Debug)]
pub struct PassCounters(Mutex<Tallied>);

#[derive(Debug)]
struct Tallied {
    tally: Tally,
    /// The name of the table.
    table: String,
    /// What it had counted when it was last read.
    last: Vec<Count>,
    /// What the tables before it had counted when they were last read.
    before: BTreeMap<String, (u64, Bytes)>,
}

impl Tallied {
    fn read(&mut self) -> io::Result<Vec<Count>> {
        let counts = self.tally.read(TableFamily::Inet, &self.table)?;
        // A table that is gone has no counters.
        if !counts.is_empty() {
            self.last = counts;
        }
        let mut all = self.last.clone();
        for count in &mut all {
            if let Some((packets, bytes)) = self.before.get(&count.name) {
                count.packets += packets;
                count.bytes.0 += bytes.0;
            }
        }
        Ok(all)
    }

    /// Another table is in force.
    fn follow(&mut self, table: &str) {
        // It is gone already where its process has ended.
        let _ = self.read();
        for count in self.last.drain(..) {
            let (packets, bytes) = self.before.entry(count.name).or_default();
            *packets += count.packets;
            bytes.0 += count.bytes.0;
        }
        table.clone_into(&mut self.table);
    }
}

impl PassCounters {
    /// The counters of the table.
    ///
    /// # Errors
    /// When the kernel does not list them.
    pub fn read(&self) -> io::Result<Vec<Count>> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.read()
    }

    pub(crate) fn follow(&self, table: &OwnerTable) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.follow(table.name());
    }
}

impl Interception {
    /// Where the kernel cannot hold SYNs, `rules` come to let them in at once. Returns the queues where it can:
    /// for each worker those of its entrances.
    ///
    /// # Errors
    /// See [`InterceptError`]; nothing is left behind.
    pub fn new(
        mut rules: Ruleset,
        decoy: DecoyListener,
        half_open: usize,
    ) -> Result<(Self, Vec<Queues>), InterceptError> {
        let families = if rules.has_v6() {
            &Family::ALL[..]
        } else {
            &[Family::V4]
        };
        let mark = Mark::exact(rules.marks.intercepted());
        let diversion = divert(&Netlink::open()?, families, mark)?;
        let (queues, hold) = match hold(&rules, half_open) {
            Some(made) => made,
            None => {
                rules.queued = false;
                (Vec::new(), load_hold(&rules, &[])?)
            }
        };
        let tally = Tally::open().map_err(InterceptError::Tally)?;
        let passed = Arc::new(PassCounters(Mutex::new(Tallied {
            tally,
            table: String::new(),
            last: Vec::new(),
            before: BTreeMap::new(),
        })));
        let switch = Switch::new(rules.marks.switch()).map_err(InterceptError::Switch)?;
        let switch = Arc::new(AdmissionSwitch::new(switch));
        let translates = Arc::<AtomicBool>::default();
        let table_thread = TableThread::start(
            rules.clone(),
            Arc::clone(&switch),
            Arc::clone(&passed),
            Arc::clone(&translates),
        );
        let interception = Self {
            table_thread: table_thread?,
            _hold: hold,
            diversion: Arc::new(diversion),
            _decoy: decoy,
            switch,
            rules,
            on: false,
            passed,
            translates,
        };
        Ok((interception, queues))
    }

    /// The switch that says what becomes of new connections.
    pub fn switch(&self) -> Arc<AdmissionSwitch> {
        Arc::clone(&self.switch)
    }

    /// Where packets wait for our own TCP, where that carries a leg.
    pub fn carrier_place(&self) -> Option<CarrierPlace> {
        self.rules.carrier
    }

    /// The rules and routes.
    pub fn diversion(&self) -> Arc<Diversion> {
        Arc::clone(&self.diversion)
    }

    /// Whether this namespace translates addresses: then what is dialled is tracked, so that it is translated
    /// as the forwarded SYN would have been.
    pub fn translates(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.translates)
    }

    /// The counters of the table, to be read from any thread.
    pub fn passed(&self) -> Arc<PassCounters> {
        Arc::clone(&self.passed)
    }

    /// By leg.
    pub fn interfaces(&self) -> &[Vec<Interface>; 2] {
        &self.rules.interfaces
    }

    /// Whether new connections are to be split.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// From now on new connections are split.
    pub fn resume(&mut self) {
        self.on = true;
        self.switch.set(SwitchPosition::Split);
    }

    /// From now on new connections pass end to end; established ones are still delivered.
    pub fn suspend(&mut self, reason: PassReason) {
        self.on = false;
        self.switch.set(SwitchPosition::Pass(reason));
    }

    /// Asks for new policies, for connections from when [`TableEvent::Renewed`] says that they are in force.
    pub fn renew(&mut self, config: &Config) {
        let mut rules = self.rules.clone();
        rules.policies.clone_from(&config.policies);
        rules.quic = config.quic;
        rules.mss = [config.lan.mss, config.sat.mss];
        self.table_thread.renew(rules);
    }

    /// What has happened to the table since the last call.
    pub fn events(&self) -> impl Iterator<Item = TableEvent> + '_ {
        self.table_thread.event_waker.drain();
        self.table_thread.events.try_iter()
    }

    /// Rings when there are [`Interception::events`].
    pub fn waker(&self) -> &Waker {
        &self.table_thread.event_waker
    }
}

/// The queues that SYNs are held in, one for each entrance and worker, and the rules that lead there; `None`, with a warning
/// in the log, where the kernel lacks something.
fn hold(rules: &Ruleset, half_open: usize) -> Option<(Vec<Queues>, HoldTable)> {
    let entrances = rules.entrances().count();
    // Beyond what may be held, room for those whose verdict is on its way.
    let most = half_open.saturating_mul(2).min(65_536) as u32;
    let made = Queues::open_for(rules.workers as u16, entrances as u16, most)
        .map_err(|error| format!("no queue for them ({error})"))
        .and_then(|queues| {
            let first = queues.first().map_or(0, Queues::first);
            let all = (0..entrances)
                .flat_map(|entrance| (0..rules.workers).map(move |worker| (entrance, worker)));
            let tags: Vec<_> = all
                .enumerate()
                .map(|(place, (entrance, worker))| {
                    (rules.marks.held(entrance, worker), first + place as u16)
                })
                .collect();
            let table = load_hold(rules, &tags).map_err(|e| e.to_string())?;
            Ok((queues, table))
        });
    made.inspect_err(|why| {
        tracing::warn!(
            "SYNs cannot be held: {why}: they are answered early, as by `handshake = \"early\"`, and nothing but the limit of flows bounds a flood of them; a kernel with CONFIG_NETFILTER_NETLINK_QUEUE and CONFIG_NFT_QUEUE can"
        );
    })
    .ok()
}

fn load_hold(rules: &Ruleset, queues: &[(u32, u16)]) -> Result<HoldTable, NftError> {
    let families = if rules.has_v6() {
        &[TableFamily::Ip, TableFamily::Ip6][..]
    } else {
        &[TableFamily::Ip]
    };
    let holding = Holding {
        hook: Hook::Forward,
        place: HOOK_PRIORITY + 1,
        queues,
        marked: None,
        looped: Some(rules.marks.for_workers()),
    };
    HoldTable::load(families, &holding)
}

/// Diverts by the first routing table of this process that no other gateway of it uses.
pub(crate) fn divert(
    netlink: &Netlink,
    families: &[Family],
    mark: Mark,
) -> Result<Diversion, NetlinkError> {
    let mut slot = 0;
    loop {
        match netlink.divert(families, mark, RULE_PRIORITY, slot) {
            Err(NetlinkError::Refused { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists && slot < 3 =>
            {
                slot += 1;
            }
            result => return result,
        }
    }
}
