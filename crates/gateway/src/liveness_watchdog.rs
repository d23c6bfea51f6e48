//! The watchdog of the admission switch: new connections are split only while everything that splitting needs is in
//! order.
//!
//! A thread of its own asks every worker, and every thread that packets wait for, for a sign of life ten times a second, watches the rules and routes that bring
//! packets to us and makes again what somebody removes, and, as long as all is well, holds the switch in the gateway's
//! table. It does not hold the switch while one of them hangs or rules cannot be made again, and it cannot while the
//! process is stopped, frozen or starved. Within [`LIFE`] the kernel then lets new connections pass end to end. As soon
//! as the switch is held again, they are split.
//!
//! The thread never waits for nft or for the supervising thread, and no error that it meets ends the gateway.

use crate::scone::Scone;
use bentpipe_base::Instant;
use bentpipe_gateway_config::{Interface, LegId};
use bentpipe_interception::AdmissionSwitch;
use bentpipe_os::netlink::{Diversion, Family, Netlink, NetlinkError, Watch};
use bentpipe_os::nft::LIFE;
use bentpipe_relay::{Impairment, Lifecycle, Shared};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::timer;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the switch is held again; changes of the routes are looked at no more often.
const PERIOD: Duration = Duration::from_millis(100);
/// How often the rules and routes are looked at without being told of a change.
const ROUND: Duration = Duration::from_secs(5);

/// How long the same warning is not repeated.
const AGAIN: Duration = Duration::from_secs(60);

/// What the watchdog watches.
pub(crate) struct Watchdog {
    switch: Arc<AdmissionSwitch>,
    shared: Arc<Shared>,
    diversion: Arc<Diversion>,
    legs: LegInterfaces,
    scone: Weak<Scone>,
    routes: Watch,
    epoll: Epoll,
    /// The heartbeat that was asked for and has not been answered by all.
    asked: u64,
    /// How often rules and routes were made again, and when that was last logged.
    restored: u64,
    reported_restored: Option<Instant>,
    /// Why rules and routes could not be made again the last time.
    obstacle: Option<NetlinkError>,
    /// When rules and routes were last found complete; `None` where they have to be looked at.
    whole: Option<Instant>,
    /// When all was last well.
    well: Instant,
    reported: Option<Impairment>,
}

impl Watchdog {
    /// A watchdog for the calling thread's namespace. The workers must exist already.
    pub(crate) fn new(
        switch: Arc<AdmissionSwitch>,
        diversion: Arc<Diversion>,
        legs: LegInterfaces,
        scone: Weak<Scone>,
        shared: Arc<Shared>,
    ) -> io::Result<Self> {
        let (routes, epoll) = (Watch::open()?, Epoll::new()?);
        epoll.add(shared.wake(), 0, Interest::READ | Interest::EDGE)?;
        Ok(Self {
            switch,
            asked: shared.request_heartbeat(),
            shared,
            diversion,
            legs,
            scone,
            routes,
            epoll,
            restored: 0,
            reported_restored: None,
            obstacle: None,
            whole: None,
            well: timer::now(),
            reported: None,
        })
    }

    /// Works until the gateway stops.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1);
        let mut next = timer::now();
        while self.shared.lifecycle() != Lifecycle::Stopped {
            let now = timer::now();
            if now < next {
                // The waker that wakes workers may wake this thread too; only the last time, when the gateway ends,
                // concerns it.
                let wait = next.since(now);
                if self.epoll.wait(&mut events, Some(wait)).is_err() {
                    std::thread::sleep(wait);
                }
                continue;
            }
            next = now + PERIOD;
            self.look(now);
        }
    }

    fn look(&mut self, now: Instant) {
        let impaired = self.impairment(now);
        if impaired.is_none() {
            self.well = now;
            self.shared.mark_healthy(now);
            if self.reported.take().is_some() {
                tracing::warn!("all is well again: new flows are split as before");
            }
        } else if let Some(why) = impaired
            && now.since(self.well) >= LIFE
            && self.reported.replace(why) != Some(why)
        {
            match &self.obstacle {
                Some(error) if why == Impairment::Routes => {
                    tracing::error!("new flows pass unsplit: {why}: {error}");
                }
                _ => tracing::error!("new flows pass unsplit: {why}"),
            }
        }
    }

    /// Returns why new flows cannot be split; holds the switch where nothing prevents it.
    fn impairment(&mut self, now: Instant) -> Option<Impairment> {
        let unanswered = self.shared.unanswered(self.asked);
        let pulse = self.shared.request_heartbeat();
        if !self.is_diverted(now) {
            return Some(Impairment::Routes);
        }
        if let Some(leg) = self.legs.without_interface() {
            return Some(Impairment::Interfaces(leg));
        }
        if unanswered.is_some() {
            return unanswered;
        }
        self.asked = pulse;
        (!self.switch.hold()).then_some(Impairment::Table)
    }

    /// Whether the rules and routes that divert marked packets to us are there; makes them again where they are not.
    fn is_diverted(&mut self, now: Instant) -> bool {
        if self.routes.may_have_lost(self.diversion.table())
            || self.whole.is_some_and(|whole| now.since(whole) >= ROUND)
        {
            self.whole = None;
        }
        if self.whole.is_some() {
            return true;
        }
        self.legs.look();
        if let Some(scone) = self.scone.upgrade() {
            scone.follow(&self.legs.netlink);
        }
        match self.diversion.restore(self.legs.families()) {
            Ok(restored) => {
                self.restored += u64::from(restored);
                let reported = self.reported_restored;
                if restored && reported.is_none_or(|reported| now.since(reported) >= AGAIN) {
                    self.reported_restored = Some(now);
                    tracing::warn!(
                        times = self.restored,
                        "somebody removed rules or routes of the gateway, or put a rule before its own: they are made again"
                    );
                }
                self.whole = Some(now);
            }
            Err(error) => self.obstacle = Some(error),
        }
        self.whole.is_some()
    }
}

/// The interfaces of the legs, which others may rename, remove and make again.
#[derive(Debug)]
pub(crate) struct LegInterfaces {
    netlink: Netlink,
    /// By [`LegId`]: each interface, and whether it is there.
    interfaces: [Vec<(String, bool)>; 2],
}

impl LegInterfaces {
    /// The interfaces of both legs in the calling thread's namespace.
    pub(crate) fn new(interfaces: &[Vec<Interface>; 2]) -> Result<Self, NetlinkError> {
        let there = |leg: &Vec<Interface>| leg.iter().map(|one| (one.name.clone(), true)).collect();
        Ok(Self {
            netlink: Netlink::open()?,
            interfaces: interfaces.each_ref().map(there),
        })
    }

    /// Looks which interfaces exist, and logs which have gone or come. A port of a bridge counts as missing, because
    /// its packets reach routing by the bridge's interface.
    fn look(&mut self) {
        let ports = match self.netlink.ports() {
            Ok(ports) => ports,
            Err(error) => return tracing::debug!(%error, "cannot ask for the interfaces"),
        };
        for (name, is_there) in self.interfaces.iter_mut().flatten() {
            let exists = match self.netlink.has_link_named(name) {
                Ok(exists) => exists,
                Err(error) => return tracing::debug!(%error, "cannot ask for the interfaces"),
            };
            let port = ports.iter().find(|(port, _)| port == name);
            let before = std::mem::replace(is_there, exists && port.is_none());
            match (before, *is_there, port) {
                (true, false, Some((_, of))) => tracing::warn!(
                    "interface {name} has become a port of {of}: nothing that crosses it is split until it is none any more; name {of} in the leg instead"
                ),
                (true, false, None) => tracing::warn!(
                    "interface {name} is gone: nothing that crosses it is split until it is there again under that name"
                ),
                (false, true, _) => tracing::warn!("interface {name} is there again"),
                _ => {}
            }
        }
    }

    /// A leg that has no interface left, if there is one.
    fn without_interface(&self) -> Option<LegId> {
        let is_empty = |leg: &LegId| {
            let mut all = self.interfaces[*leg as usize].iter();
            !all.any(|(_, is_there)| *is_there)
        };
        [LegId::Lan, LegId::Sat].into_iter().find(is_empty)
    }

    /// The address families that need routes. IPv6 may be switched off while the gateway runs (`disable_ipv6`); then
    /// the kernel accepts no route of it, and none is needed.
    fn families(&self) -> &'static [Family] {
        let takes_v6 = |name: &str| {
            let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
        };
        let mut all = self.interfaces.iter().flatten();
        if all.any(|(name, _)| takes_v6(name)) {
            &Family::ALL
        } else {
            &[Family::V4]
        }
    }
}
