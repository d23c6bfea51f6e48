//! Remembers by which entrance (leg and profile) each SYN came that waits to be looped over `lo`.
//!
//! The copy that is looped crosses the operator's output, postrouting and prerouting chains, where its priority, which
//! tells the entrance, and its mark, which tells the worker, may be set anew (CLASSIFY and MARK, for tc). So the
//! priority is remembered by the connection, and the worker told by the hash that chose it.

use super::mss::{HEADERS, syn};
use super::{Ruleset, SYN, is};
use crate::mark::Marks;
use bentpipe_os::netlink::Mark;

/// How many SYNs are remembered, and for how long: while one may be held. Beyond, one is known by what it has.
const REMEMBERED: u32 = 1 << 16;
const SECONDS: u32 = 16;

/// The map from SYNs to priorities (of its key, see [`super::mss`]; the kernel's `update` leaves the value of a key
/// that is there as it is, so that the SYN's number is a part of it: the next connection of the same four numbers has another),
/// and chain `enter`, where SYNs that have their priority end. Without queues no worker sees that one comes again, which is then in no listener: it passes.
pub(super) fn sets(seed: u32, queued: bool) -> String {
    let passes = match queued {
        true => "",
        false => "  jump note_passed\n",
    };
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
    /// Sets `key` to `first`, and the number of the worker above that.
    pub(super) fn deal(&self, key: &str, ip: &str, first: u32) -> String {
        match self.workers {
            1 => format!("meta {key} set {first:#x}"),
            workers => format!(
                "meta {key} set jhash {ip} saddr . tcp sport mod {workers} seed {:#x} offset {first}",
                self.seed
            ),
        }
    }

    /// Rules that give looped SYNs their priority and mark again. Those of another gateway of this namespace, by their mark
    /// as it looped them or has delivered them before, are left to it: we may remember an older one of their numbers.
    pub(super) fn restore(&self) -> String {
        let holders = is("priority", self.marks.holders());
        let any = is("mark", Mark::GATEWAYS);
        let (ours, mask) = (self.marks.intercepted(), Marks::mask());
        let foreign = format!("  {any} meta mark & {mask:#x} != {ours:#x} accept\n");
        let rule = |ip| {
            let syn = syn(ip, self.seed);
            let mark = match self.queued {
                true => self.deal("mark", ip, self.marks.for_worker(0)),
                false => format!("meta mark set {:#x}", self.marks.for_any_worker()),
            };
            format!("  {SYN} meta priority set {syn} map @entering\n  {holders} {mark}\n")
        };
        foreign + &HEADERS.map(rule).concat()
    }
}
