//! Remembers by which entrance (leg and profile) each SYN came that waits to be looped over `lo`.
//!
//! The looped copy crosses the operator's output, postrouting and prerouting chains. Rules there (CLASSIFY and MARK,
//! for tc) may overwrite its priority, which tells the entrance, and its mark, which tells the worker. So the table
//! remembers the priority of each such SYN, and finds the worker again by the hash that chose it.

use super::mss::{HEADERS, syn};
use super::{Ruleset, SYN, is};
use crate::mark::Marks;
use bentpipe_os::netlink::Mark;

/// How many SYNs are remembered, each for as long as it may be held. Beyond that number a SYN keeps whatever priority
/// and mark it arrives with.
const REMEMBERED: u32 = 1 << 16;
const SECONDS: u32 = 16;

/// The map from SYNs to priorities, and chain `enter`, which puts SYNs there that have been given their priority. The
/// key is a hash as in [`super::mss`], of which the sequence number is a part: the kernel's `update` keeps the value of
/// a key that exists, and the next connection between the same addresses and ports has another number. Without queues
/// no worker can see that a SYN comes again and has not reached a listener, so that such a SYN passes.
pub(super) fn sets(seed: u32, queued: bool) -> String {
    let passes = if queued { "" } else { "  jump note_passed\n" };
    let remember = HEADERS.map(|ip| {
        let syn = syn(ip, seed);
        format!("  update @entering {{ {syn} : meta priority }}\n")
    });
    format!(
        "\
map entering {{
  typeof meta length : meta priority
  flags dynamic, timeout
  size {REMEMBERED}
  timeout {SECONDS}s
}}
chain enter {{
{passes}{}  accept
}}
",
        remember.concat()
    )
}

impl Ruleset {
    /// Sets `key` to `first` plus the number of the worker.
    pub(super) fn deal(&self, key: &str, ip: &str, first: u32) -> String {
        match self.workers {
            1 => format!("meta {key} set {first:#x}"),
            workers => format!(
                "meta {key} set jhash {ip} saddr . tcp sport mod {workers} seed {:#x} offset {first}",
                self.seed
            ),
        }
    }

    /// Leaves a SYN alone whose mark shows that another gateway of this namespace has looped or delivered it, because our map may
    /// still have an older SYN of the same addresses and ports.
    pub(super) fn of_another(&self) -> String {
        let any = is("mark", Mark::GATEWAYS);
        let (ours, mask) = (self.marks.intercepted(), Marks::mask());
        format!("{any} meta mark & {mask:#x} != {ours:#x} accept")
    }

    /// The rule that restores the priority of a looped SYN whose header is `ip`.
    pub(super) fn restore_priority(&self, ip: &str) -> String {
        format!(
            "{SYN} meta priority set {} map @entering",
            syn(ip, self.seed)
        )
    }

    /// The rule that restores the mark of one whose priority is restored.
    pub(super) fn restore_mark(&self, ip: &str) -> String {
        if self.queued {
            self.deal("mark", ip, self.marks.for_worker(0))
        } else {
            format!("meta mark set {:#x}", self.marks.for_any_worker())
        }
    }
}
