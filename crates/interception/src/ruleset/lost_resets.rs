//! Repeats a reset of ours that its receiver has not taken.
//!
//! A reset may be lost, or overtake the data before it, also on this host, whose processors send side by side. A receiver that misses
//! data answers it by a challenge ACK (RFC 5961, section 3.2), and without a gateway that would be answered by a reset with the right
//! number. Here the socket is gone, and the packet would go on to the other end, whose own reset may find the TIME_WAIT of our dial in
//! its way: a receiver that only waits for data would wait for ever. So what comes for such a connection within some seconds is
//! answered by a reset, until there is a SYN between the same ends again.

use super::mss::{self, HEADERS};
use super::own_sockets::FLAGS;

/// How many resets are remembered, and for how long: some round trips of a satellite's, and repetitions of what is lost.
const REMEMBERED: u32 = 1 << 16;
const SECONDS: u32 = 10;
/// The sets of both hashes ([`mss::map`] says why these). One alone would now and then have a connection of others reset.
const SETS: [&str; 2] = ["resets_1", "resets_2"];

fn seeds(seed: u32) -> [(&'static str, u32); 2] {
    let [one, other] = SETS;
    [(one, seed), (other, !seed)]
}

/// The sets, chain `note_reset` for a reset that leaves, chain `connection_begins` for a SYN that comes, and chain `repeat_reset` for
/// what else does. Nearly always no reset is remembered for a SYN, and one set tells that.
pub(super) fn chains(seed: u32) -> String {
    let sets = SETS.map(|set| {
        format!(
            "set {set} {{\n  typeof meta length; size {REMEMBERED}; flags dynamic, timeout; timeout {SECONDS}s;\n}}\n"
        )
    });
    let note = HEADERS.map(|ip| {
        let update = |(set, seed)| format!(" update @{set} {{ {} }}", mss::reverse(ip, seed));
        format!(" {}\n", seeds(seed).map(update).concat())
    });
    let forget = HEADERS.map(|ip| {
        let delete = |(set, seed)| {
            let [this, that] = [mss::connection(ip, seed), mss::reverse(ip, seed)];
            format!(" delete @{set} {{ {this} }} delete @{set} {{ {that} }}")
        };
        format!(" {}\n", seeds(seed).map(delete).concat())
    });
    let begins = HEADERS.map(|ip| {
        let rule = |ends| format!("  {ends} @{} jump forget_resets\n", SETS[0]);
        [mss::connection(ip, seed), mss::reverse(ip, seed)]
            .map(rule)
            .concat()
    });
    let repeat = HEADERS.map(|ip| {
        let found = |(set, seed)| format!(" {} @{set}", mss::connection(ip, seed));
        let found = seeds(seed).map(found).concat();
        format!(" {found} meta l4proto tcp reject with tcp reset\n")
    });
    format!(
        "{}chain note_reset {{\n{}}}\nchain forget_resets {{\n{}}}\nchain connection_begins {{\n{}}}\nchain repeat_reset {{\n  {FLAGS} & 0x02 != 0 goto connection_begins\n  {FLAGS} & 0x04 != 0 return\n{}}}\n",
        sets.concat(),
        note.concat(),
        forget.concat(),
        begins.concat(),
        repeat.concat()
    )
}
