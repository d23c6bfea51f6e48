//! TCP Fast Open of a host (RFC 7413): the cookies that it gives to clients, how many connections may be opened early,
//! and the cookies that servers gave to it. What one connection does with them is in `bentpipe_tcp`.
//!
//! A cookie is 8 bytes of a keyed hash over both addresses and the day; that of the day before is good too, and
//! answered with today's. A connection that was opened early and is reset by the client before the handshake is complete
//! counts for another minute: an attacker who has a cookie and forges its address has such resets come from the victim
//! (RFC 7413, section 5.1).

use crate::Tuple;
use crate::host::{Event, Host};
use crate::listener::ListenerId;
use crate::secret::{Purpose, Secret};
use crate::table::ConnectionId;
use bentpipe_base::Instant;
use bentpipe_tcp::{self as tcp, Cause, Connection, FastOpenResult, fast_open_offered};
use bentpipe_wire::{FastOpenCookie, FastOpenOption, Segment};
use core::net::IpAddr;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// For how long one key makes cookies.
const PERIOD: Duration = Duration::from_secs(86_400);
/// For how long a connection counts that was reset before its handshake was complete , as in Linux (`reqsk_fastopen_remove`).
const RESET_COUNTS_FOR: Duration = Duration::from_secs(60);
/// Servers that are remembered at most.
const SERVERS: usize = 4_096;
/// After this many SYNs in a row that were lost, SYNs to that server go without the option for a while (as Linux once did).
const FAILURES: u32 = 2;
/// For so long after the first of them; twice as long after each more, up to 2^`DOUBLINGS` times.
const PAUSE: Duration = Duration::from_secs(60);
const DOUBLINGS: u32 = 10;

/// What is known of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerCookie {
    /// The cookie that it gave last.
    pub cookie: FastOpenCookie,
    /// Its MSS option.
    pub mss: u16,
}

/// The connections whose handshake is not complete, with their listeners.
pub(crate) type PendingFastOpens = HashMap<ConnectionId, ListenerId>;

/// How many connections of a listener may be opened early.
#[derive(Clone, Debug, Default)]
pub(crate) struct FastOpenLimit {
    /// At most (RFC 7413: PendingFastOpenRequests); 0: none, and no cookies are given.
    most: usize,
    pending: usize,
    /// When connections were reset that still count.
    resets: VecDeque<Instant>,
}

impl FastOpenLimit {
    fn has_room(&mut self, now: Instant) -> bool {
        while let Some(reset) = self.resets.front()
            && now.since(*reset) >= RESET_COUNTS_FOR
        {
            self.resets.pop_front();
        }
        self.pending + self.resets.len() < self.most
    }
}

/// What servers gave, and how attempts failed: by the addresses of both ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCookies(HashMap<(IpAddr, IpAddr), Server>);

#[derive(Clone, Copy, Debug)]
struct Server {
    given: Option<ServerCookie>,
    /// SYNs with the option in a row that were lost.
    failures: u32,
    /// When the last of them was, or whatever was learnt last.
    learnt: Instant,
}

impl Server {
    /// Whether SYNs go without the option, because it seems to be what is dropped.
    fn is_avoided(&self, now: Instant) -> bool {
        let over = self.failures.checked_sub(FAILURES);
        over.is_some_and(|over| now.since(self.learnt) < PAUSE * (1 << over.min(DOUBLINGS)))
    }
}

impl ServerCookies {
    /// Has `connection`, which is about to be opened, use what is known; `most`: the largest segment that the path takes.
    pub(crate) fn prepare(
        &self,
        connection: &mut Connection,
        tuple: &Tuple,
        most: u16,
        now: Instant,
    ) {
        let Some(server) = self.0.get(&ends(tuple)) else {
            return;
        };
        if server.is_avoided(now) {
            connection.forgo_fast_open();
        } else if let Some(ServerCookie { cookie, mss }) = server.given {
            connection.use_fast_open(cookie, mss.min(most));
        }
    }

    fn learn(&mut self, tuple: &Tuple, result: &FastOpenResult, failed: bool, now: Instant) {
        let server = self.entry(ends(tuple), now);
        server.learnt = now;
        server.failures = if failed {
            server.failures.saturating_add(1)
        } else {
            0
        };
        if let Some(cookie) = result.cookie {
            server.given = Some(ServerCookie {
                cookie,
                mss: result.mss,
            });
        } else if !failed && result.sent > 0 && result.acknowledged == 0 {
            // The server takes it no longer, and gave no other.
            server.given = None;
        }
    }

    fn entry(&mut self, ends: (IpAddr, IpAddr), now: Instant) -> &mut Server {
        if self.0.len() >= SERVERS && !self.0.contains_key(&ends) {
            // The oldest knowledge gives way.
            let oldest = self
                .0
                .iter()
                .min_by_key(|(ends, server)| (server.learnt, **ends))
                .map(|(ends, _)| *ends);
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        self.0.entry(ends).or_insert(Server {
            given: None,
            failures: 0,
            learnt: now,
        })
    }
}

const fn ends(tuple: &Tuple) -> (IpAddr, IpAddr) {
    (tuple.local.ip(), tuple.remote.ip())
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / PERIOD.as_nanos() as u64
}

/// The cookie of `tuple`'s client.
fn cookie(secret: &Secret, tuple: &Tuple, period: u64) -> Option<FastOpenCookie> {
    let (local, remote) = ends(tuple);
    let hash = secret.of_hosts(Purpose::FastOpen, local, remote, period);
    FastOpenCookie::new(&hash.to_be_bytes())
}

impl Host {
    /// Has a listener give Fast Open cookies, and take data of SYNs that bring one, while fewer than `most` such connections
    /// wait for the end of their handshakes; 0: none. A client whose SYN comes twice may have its data delivered
    /// twice, on two connections (RFC 7413, section 2.1): this is for requests that may be repeated.
    pub fn set_fast_open(&mut self, listener: ListenerId, most: usize) {
        if let Some(Some(listener)) = self.listeners.get_mut(listener.0) {
            listener.fast_open.most = most;
        }
    }

    /// The Fast Open cookie that the server at `remote` gave to `local`.
    pub fn server_cookie(&self, local: IpAddr, remote: IpAddr) -> Option<ServerCookie> {
        self.server_cookies.0.get(&(local, remote))?.given
    }

    /// Knows the cookie that a server gave before this host was.
    pub fn add_server_cookie(
        &mut self,
        (local, remote): (IpAddr, IpAddr),
        given: ServerCookie,
        now: Instant,
    ) {
        self.server_cookies.entry((local, remote), now).given = Some(given);
    }

    /// What the SYN of a `connection` says of Fast Open, and what is to be answered; whether it is opened early.
    pub(crate) fn judge_fast_open(
        &mut self,
        at: ListenerId,
        tuple: &Tuple,
        connection: &mut Connection,
        syn: &Segment,
        now: Instant,
    ) -> bool {
        let Some(offered) = fast_open_offered(syn) else {
            return false;
        };
        let crowded = self.is_crowded();
        let Some(Some(listener)) = self.listeners.get_mut(at.0) else {
            return false;
        };
        if listener.fast_open.most == 0 {
            return false;
        }
        let period = period(now);
        let current = cookie(&self.secret, tuple, period);
        let previous = period
            .checked_sub(1)
            .and_then(|period| cookie(&self.secret, tuple, period));
        let given = match offered {
            FastOpenOption::Request => None,
            FastOpenOption::Cookie(given) => Some(given),
        };
        let good = given.is_some() && (given == current || given == previous);
        self.counters.fast_open_cookies_false += u64::from(given.is_some() && !good);
        let accepts = good && !crowded && listener.fast_open.has_room(now);
        self.counters.fast_opens_refused += u64::from(good && !accepts);
        self.counters.fast_opens += u64::from(accepts);
        // Who has the current one is told nothing.
        let gives = current.filter(|_| given != current);
        self.counters.fast_open_cookies_sent += u64::from(gives.is_some());
        if gives.is_some() || accepts {
            connection.grant_fast_open(gives, accepts);
        }
        accepts
    }

    /// The connection can be accepted before its handshake is complete.
    pub(crate) fn open_early(&mut self, at: ListenerId, id: ConnectionId) {
        if let Some(Some(listener)) = self.listeners.get_mut(at.0) {
            listener.fast_open.pending += 1;
            listener.waiting.push_back(id);
            self.opened_early.insert(id, at);
            self.events.push_back(Event::Incoming(at));
        }
    }

    /// What `event` means for Fast Open; whether the connection had been opened early.
    pub(crate) fn note_fast_open(
        &mut self,
        id: ConnectionId,
        event: tcp::Event,
        now: Instant,
    ) -> bool {
        use tcp::Event::{Aborted, Closed, Connected};
        if !matches!(event, Connected | Closed | Aborted(_)) {
            return false;
        }
        self.learn_of_server(id, event == Connected, now);
        let Some(at) = self.opened_early.remove(&id) else {
            return false;
        };
        if let Some(Some(listener)) = self.listeners.get_mut(at.0) {
            let limit = &mut listener.fast_open;
            limit.pending -= 1;
            if event == Aborted(Cause::Reset) {
                limit.resets.push_back(now);
            }
        }
        true
    }

    /// A connection that we opened stands, or is over.
    fn learn_of_server(&mut self, id: ConnectionId, stands: bool, now: Instant) {
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let Some(result) = entry.connection.take_fast_open_result() else {
            return;
        };
        self.counters.fast_opens_answered += u64::from(result.acknowledged > 0);
        let failed = result.syn_lost || result.acknowledged < result.sent;
        self.counters.fast_opens_failed += u64::from(failed);
        // Who gave up before the answer came has learnt nothing.
        if stands || result.syn_lost {
            let failed = result.syn_lost;
            self.server_cookies
                .learn(&entry.tuple, &result, failed, now);
        }
    }
}
