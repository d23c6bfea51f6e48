//! Makes packets of split connections skip the operator's input and output chains.
//!
//! Forwarded packets pass the forward chains. Packets of split connections belong to sockets of this machine, and would
//! pass the input and output chains instead, whose rules are meant for the gateway's own services. A rule `iifname wan
//! tcp dport 22 drop` would make connections to any server's port 22 hang, and so would each chain that accepts
//! nothing. The forward chains have already decided about the connection, at its SYN. But a verdict "accept" ends only
//! the chain that it is in; the single way in netfilter to skip the rest of a hook is the verdict NF_STOP of a program
//! that reads a queue ([`Verdict::PassHook`]). So where a survey of the rules finds some that may drop or refuse
//! packets of TCP, packets of the gateway are queued before these chains, and this thread lets all of them go on with
//! that verdict at once.
//!
//! That costs processor time for each packet (GSO and GRO keep their number small). Nothing is queued where no rule
//! requires it, or where the operator's table accepts packets with marks of gateways. Once begun, it lasts as long as
//! the gateway, because removing the queues' chains would make the kernel drop all held SYNs. While this thread hangs, the
//! packets wait, because the rules might refuse them; it answers heartbeats as the workers do.

use bentpipe_interception::{Marks, QueueReader};
use bentpipe_os::netlink::Mark;
use bentpipe_os::nft::{self, Generation, HoldTable, Holding, Hook, NftError, Survey, TableFamily};
use bentpipe_relay::{Counters, Lifecycle, Shared};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const QUEUE: u64 = 0;
const WAKE: u64 = 1;
/// The most packets that wait in a queue. Packets beyond it pass the chains.
const MOST: u32 = 8192;
/// The hooks whose chains are gone past, with the place in each: in the input hook before every chain of an operator; in
/// the output hook behind conntrack and the translation of destinations (-100), before filters (0).
const PLACES: [(Hook, i32); 2] = [(Hook::Input, -10_000), (Hook::Output, -99)];
/// How often it is checked whether the rules have changed.
const TICK: Duration = Duration::from_secs(1);
/// Where the rules change all the time, surveying them takes at most one part in so many of the time.
const PART: u32 = 20;
/// How long it waits before it tries again what the kernel has refused.
const PAUSE: Duration = Duration::from_secs(5);
/// The most rules that a message of the log names.
const NAMED: usize = 5;
/// So many looks in a row may fail before the rules are taken for some that drop packets.
const FAILURES: u32 = 3;

/// Makes packets of one gateway skip the chains, once it runs and some rule requires it.
pub(crate) struct FilterChainSkipper {
    /// What looks for rules that ask for it; `None` once all is made.
    watch: Option<Watch>,
    // Fields are dropped in this order, so that the tables, which send packets to the queues, go first.
    /// The tables of [`PLACES`], as far as they are made. What is made stays, whatever fails after it.
    tables: Vec<HoldTable>,
    queues: Option<Queues>,
    epoll: Epoll,
    marks: Marks,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
}

/// Looks at the rules whenever they have changed.
struct Watch {
    rules: Generation,
    /// The generation that was surveyed, and asked for nothing.
    seen: Option<u32>,
    due: Instant,
    /// What was found, where a table is made already and the kernel has refused the other. It is not surveyed
    /// again, for which packets would have to wait.
    found: Option<String>,
    /// The log knows that the kernel has refused.
    logged: bool,
    /// Looks in a row that have failed.
    failed: u32,
    /// The rules of prerouting chains that the log knows of, and those that give zones where addresses are translated.
    told: [Vec<String>; 2],
}

impl Watch {
    /// Surveys the rules where they have changed, and returns what there is that may drop packets.
    fn look(&mut self, survey: impl Fn() -> Result<Survey, NftError>) -> Option<String> {
        let begun = Instant::now();
        if begun < self.due {
            return None;
        }
        if self.found.is_some() {
            return self.found.clone();
        }
        // A generation that cannot be read is asked for again at the next look.
        let now = self.rules.read().ok()?;
        // Rules of the legacy iptables do not change nft's generation.
        if self.seen == Some(now) && !nft::iptables_may_filter() {
            return None;
        }
        self.seen = Some(now);
        let survey = survey();
        self.due = Instant::now() + begun.elapsed() * PART;
        let failed = std::mem::take(&mut self.failed);
        if let Ok(survey) = &survey {
            self.tell_of_tracking(survey);
        }
        match survey {
            Ok(survey) if !survey.shuts_local() => None,
            Ok(survey) => Some(name(&[&survey.closing[..], &survey.refusing].concat())),
            // No process can be started, or the machine has no time: what is begun now lasts.
            Err(_) if failed < FAILURES => {
                self.failed = failed + 1;
                self.seen = None;
                self.due = self.due.max(Instant::now() + PAUSE);
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Nothing leads packets past prerouting chains, and nothing undoes what conntrack was told.
    fn tell_of_tracking(&mut self, survey: &Survey) {
        let translates = !survey.zoning.is_empty() && nft::translates().unwrap_or(true);
        let zoning: &[String] = if translates { &survey.zoning } else { &[] };
        let words = [
            "rules of prerouting chains may drop packets of split connections, which are not tracked; connections of clients whose packets they drop break after seconds. Let them accept `ct state untracked` too",
            "rules of output chains give packets of split connections a zone of conntrack's, which has them tracked, and translated on both legs: such connections are reset or hang. Let these pass by a policy, or translate addresses without such rules",
        ];
        let found = [&survey.tracking[..], zoning];
        for ((known, found), words) in self.told.iter_mut().zip(found).zip(words) {
            if known == found {
                continue;
            }
            *known = found.to_vec();
            if !found.is_empty() {
                tracing::warn!("{words}: {}", name(found));
            }
        }
    }

    /// The kernel has refused: it is asked again after a pause, for what was `found` before or is found then.
    fn postpone(&mut self, found: Option<String>) {
        self.seen = None;
        self.found = found;
        self.due = self.due.max(Instant::now() + PAUSE);
        self.logged = true;
    }
}

impl FilterChainSkipper {
    /// Surveys the rules of the calling thread's namespace for the first time. Where they require it, packets of the
    /// gateway with `marks` are queued from now on.
    ///
    /// # Errors
    /// The process has no file descriptors left.
    pub(crate) fn new(
        marks: Marks,
        shared: Arc<Shared>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(shared.wake(), WAKE, Interest::READ | Interest::EDGE)?;
        let mut chains = Self {
            watch: Some(Watch {
                rules: Generation::open()?,
                seen: None,
                due: Instant::now(),
                found: None,
                logged: false,
                failed: 0,
                told: [const { Vec::new() }; 2],
            }),
            tables: Vec::with_capacity(PLACES.len()),
            queues: None,
            epoll,
            marks,
            shared,
            counters,
        };
        chains.look();
        Ok(chains)
    }

    /// Works until the gateway stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(2);
        while self.shared.lifecycle() != Lifecycle::Stopped {
            let pause = self.watch.is_some().then_some(TICK);
            self.epoll.wait(&mut events, pause)?;
            // Before there is a table nothing comes, and a survey may take long.
            let queues = self.queues.as_mut();
            if let Some(queues) = queues.filter(|_| !self.tables.is_empty()) {
                let_by(queues, &self.shared, &self.counters)?;
            }
            self.look();
        }
        Ok(())
    }

    /// Looks at the rules where they have changed, and has packets wait where they ask for it.
    fn look(&mut self) {
        let Some(found) = self
            .watch
            .as_mut()
            .and_then(|watch| watch.look(nft::survey))
        else {
            return;
        };
        match self.hold() {
            Ok(()) => {
                self.watch = None;
                tracing::info!(
                    "rules of input or output chains may drop packets of split connections, which go past them by a queue, at some cost of processor time; first in these chains, `meta mark and 0xff000000 == 0x62000000 accept` spares it: {found}"
                );
            }
            Err(why) => {
                let Some(watch) = &mut self.watch else {
                    return;
                };
                if !watch.logged {
                    tracing::warn!(
                        "rules of input or output chains may drop packets of split connections, which then hang, and they cannot be led past them ({why}); it is tried again: first in these chains, `meta mark and 0xff000000 == 0x62000000 accept` is needed: {found}"
                    );
                }
                watch.postpone((!self.tables.is_empty()).then_some(found));
            }
        }
    }

    /// Makes what is missing for packets to wait.
    fn hold(&mut self) -> Result<(), String> {
        let first = if let Some(queues) = &self.queues {
            queues.first()
        } else {
            let queues =
                Queues::open_blind(1, MOST).map_err(|error| format!("no queue ({error})"))?;
            let watched = self.epoll.add(&queues, QUEUE, Interest::READ);
            watched.map_err(|error| error.to_string())?;
            let first = queues.first();
            self.queues = Some(queues);
            first
        };
        let ours = self.marks.intercepted();
        for &(hook, place) in &PLACES[self.tables.len()..] {
            let mark = match hook {
                Hook::Input => Mark::exact(ours),
                // Packets from our sockets have the mark of their socket, or of the worker that they are for.
                Hook::Prerouting | Hook::Forward | Hook::Output => Mark {
                    value: ours,
                    mask: Marks::mask(),
                },
            };
            let holding = Holding {
                hook,
                place,
                queues: &[],
                marked: Some((mark, first)),
                looped: None,
            };
            let families = &[TableFamily::Ip, TableFamily::Ip6];
            let table = HoldTable::load(families, &holding).map_err(|error| error.to_string())?;
            self.tables.push(table);
        }
        Ok(())
    }
}

/// Gives all packets that have come the verdict that skips the chains.
fn let_by(queues: &mut Queues, shared: &Shared, counters: &Counters) -> io::Result<()> {
    loop {
        shared.reader_beats(QueueReader::Chains);
        if queues.receive()? == 0 {
            return Ok(());
        }
        let (mut count, mut last) = (0, None);
        while let Some(waiting) = queues.next_packet() {
            count += 1;
            last = Some((waiting.queue, waiting.id));
        }
        if let Some((queue, id)) = last {
            queues.give_up_to(queue, id, Verdict::PassHook);
            queues.tell()?;
        }
        counters.past_chains.many(count);
    }
}

fn name(all: &[String]) -> String {
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named = &all[..all.len().min(NAMED)];
    format!("`{}`{more}", named.join("`; `"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use bentpipe_os::need;

    /// What is begun after a look lasts as long as the gateway, so one that fails is made again first.
    #[test]
    fn a_look_that_fails_is_made_again() {
        need!(Root);
        let mut watch = Watch {
            rules: Generation::open().unwrap(),
            seen: None,
            due: Instant::now(),
            found: None,
            logged: false,
            failed: 0,
            told: [const { Vec::new() }; 2],
        };
        let fails = || {
            Err(NftError::Silent {
                doing: "list the rules".to_owned(),
                seconds: 10,
            })
        };
        for _ in 0..FAILURES {
            watch.due = Instant::now();
            assert_eq!(watch.look(fails), None);
            assert!(watch.due > Instant::now());
        }
        watch.due = Instant::now();
        assert!(watch.look(fails).is_some());
        // One that succeeds ends the row, and the next failure is the first again.
        watch.due = Instant::now();
        watch.seen = None;
        watch.look(|| Ok(Survey::default()));
        (watch.due, watch.seen) = (Instant::now(), None);
        assert_eq!(watch.look(fails), None);
    }
}
