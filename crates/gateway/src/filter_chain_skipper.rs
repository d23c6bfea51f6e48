//! Leads packets of split connections past the operator's input and output chains.
//!
//! What is forwarded meets the forward chains. What is split is for sockets of this machine, and meets input and output chains
//! instead, whose rules are meant for the gateway's own services: `iifname wan tcp dport 22 drop` would have connections
//! to any server's port 22 hang, and so would each chain that lets nothing in. The forward chains have been asked
//! already, at the SYN. But a verdict "accept" ends one chain and no other, and netfilter knows just one way to leave
//! out the rest of a hook: the word of whoever reads a queue ([`Verdict::PassHook`]). So where the survey of the
//! rules finds some that may drop or refuse packets of TCP, ours wait in queues before these chains, and all that have
//! come go on at once.
//!
//! That costs processor time for each packet (GSO and GRO keep them few). Where no rule asks for it nothing is queued; an operator
//! who lets packets with marks of gateways by in such a table, spares it too. Once begun it lasts as long as the gateway:
//! when a chain of the queues went from the namespace, the kernel would drop all SYNs that are held.

use bentpipe_interception::Marks;
use bentpipe_os::netlink::Mark;
use bentpipe_os::nfqueue::{Queues, Verdict};
use bentpipe_os::nft::{self, Generation, HoldTable, Holding, Hook, Survey, TableFamily};
use bentpipe_relay::{Counters, Lifecycle, Shared};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const QUEUE: u64 = 0;
const WAKE: u64 = 1;
/// Packets that wait at most; those beyond meet the chains.
const MOST: u32 = 8192;
/// Where in the input hook: before every chain of an operator.
const INPUT: i32 = -10_000;
/// Where in the output hook: behind conntrack and the translation of destinations (-100), before filters (0).
const OUTPUT: i32 = -99;
/// How often it is seen whether the rules have changed.
const TICK: Duration = Duration::from_secs(1);
/// Of the time between two looks at rules that change all the while, the part that looking may take.
const PART: u32 = 20;
/// Rules that the log names.
const NAMED: usize = 5;

/// Leads packets of one gateway past the chains, once it runs and rules ask for it.
pub(crate) struct FilterChainSkipper {
    state: State,
    epoll: Epoll,
    marks: Marks,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
}

enum State {
    /// No rule has asked for it so far.
    Watching {
        rules: Generation,
        seen: Option<u32>,
        due: Instant,
    },
    // In this order: without the tables nothing comes to the queues.
    Past {
        _holds: [HoldTable; 2],
        queues: Queues,
    },
    /// The kernel cannot: the chains are met.
    Unable,
}

impl FilterChainSkipper {
    /// Looks at the rules of the calling thread's namespace for the first time; where they ask for it, packets of the
    /// gateway with `marks` wait from now on.
    ///
    /// # Errors
    /// Without descriptors.
    pub(crate) fn new(
        marks: Marks,
        shared: Arc<Shared>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(shared.wake(), WAKE, Interest::READ | Interest::EDGE)?;
        let mut chains = Self {
            state: State::Watching {
                rules: Generation::open()?,
                seen: None,
                due: Instant::now(),
            },
            epoll,
            marks,
            shared,
            counters,
        };
        chains.look()?;
        Ok(chains)
    }

    /// Works until the gateway stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(2);
        while self.shared.lifecycle() != Lifecycle::Stopped {
            let pause = matches!(self.state, State::Watching { .. }).then_some(TICK);
            self.epoll.wait(&mut events, pause)?;
            match &mut self.state {
                State::Past { queues, .. } => let_by(queues, &self.counters)?,
                State::Watching { .. } => self.look()?,
                State::Unable => {}
            }
        }
        Ok(())
    }

    /// Looks at the rules where they have changed.
    fn look(&mut self) -> io::Result<()> {
        let State::Watching { rules, seen, due } = &mut self.state else {
            return Ok(());
        };
        let begun = Instant::now();
        // It is asked for again.
        let Ok(now) = rules.read() else {
            return Ok(());
        };
        // The older iptables' rules do not count there.
        if begun < *due || *seen == Some(now) && !nft::iptables_may_filter() {
            return Ok(());
        }
        *seen = Some(now);
        let survey = nft::survey();
        *due = Instant::now() + begun.elapsed() * PART;
        let found = match survey {
            Ok(survey) if !survey.shuts_local() => return Ok(()),
            Ok(survey) => name(&survey),
            Err(error) => error.to_string(),
        };
        self.state = match self.hold() {
            Ok(state) => {
                tracing::info!(
                    "rules of input or output chains may drop packets of split connections, which go past them by a queue, at some cost of processor time; first in these chains, `meta mark and 0xff000000 == 0x62000000 accept` spares it: {found}"
                );
                state
            }
            Err(why) => {
                tracing::warn!(
                    "rules of input or output chains may drop packets of split connections, which then hang, and they cannot be led past them ({why}): first in these chains, `meta mark and 0xff000000 == 0x62000000 accept` is needed: {found}"
                );
                State::Unable
            }
        };
        Ok(())
    }

    /// Has packets wait from now on.
    fn hold(&self) -> Result<State, String> {
        let queues = Queues::open_blind(1, MOST).map_err(|error| format!("no queue ({error})"))?;
        let ours = self.marks.intercepted();
        let sent = Mark {
            value: ours,
            mask: Marks::mask(),
        };
        let load = |hook, place, mark| {
            let holding = Holding {
                hook,
                place,
                queues: &[],
                marked: Some((mark, queues.first())),
                looped: None,
            };
            let families = &[TableFamily::Ip, TableFamily::Ip6];
            HoldTable::load(families, &holding).map_err(|error| error.to_string())
        };
        // What is for our sockets has the one mark; what is from them has that of its socket, or of the worker that it
        // is for.
        let holds = [
            load(Hook::Input, INPUT, Mark::exact(ours))?,
            load(Hook::Output, OUTPUT, sent)?,
        ];
        let watched = self.epoll.add(&queues, QUEUE, Interest::READ);
        watched.map_err(|error| error.to_string())?;
        Ok(State::Past {
            _holds: holds,
            queues,
        })
    }
}

/// Lets go on all that has come.
fn let_by(queues: &mut Queues, counters: &Counters) -> io::Result<()> {
    while queues.receive()? > 0 {
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
    Ok(())
}

fn name(survey: &Survey) -> String {
    let all = [&survey.closing[..], &survey.refusing].concat();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let named: Vec<_> = all.into_iter().take(NAMED).collect();
    format!("`{}`{more}", named.join("`; `"))
}
