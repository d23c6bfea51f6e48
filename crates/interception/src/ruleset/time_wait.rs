//! Ends the TIME_WAIT of a dial when its four numbers are those of a connection that passes.
//!
//! A client that closed first has left us with the TIME_WAIT of the dial: its own address and port, and the server's. When it
//! uses these again and its SYN passes (by another policy than before, say), the server's answer finds that socket, which
//! would take it: a SYN-ACK for a second, and a refusal for a minute. Whatever is forwarded finds such a socket too, and the
//! kernel drops it then. So the TIME_WAIT has to go. The kernel ends one for a SYN, where nft's `tproxy` finds a listener
//! ([`crate::DecoyListener`]); for `tproxy` alone the answer is therefore made a SYN.

use super::Ruleset;
use std::fmt::Write as _;

/// Packets of TCP that answer a SYN: a SYN-ACK, and a refusal (RFC 9293, section 3.10.7.1).
const ANSWERS: [&str; 2] = [
    "tcp flags & (fin | syn | rst | ack) == syn | ack",
    "tcp flags & (fin | syn | rst | ack) == rst | ack tcp sequence 0",
];
/// The flags that an answer may have, with those of ECN (RFC 3168) and Accurate ECN.
const FLAGS: [&str; 5] = [
    "syn | ack",
    "syn | ack | ecn",
    "syn | ack | cwr",
    "syn | ack | ecn | cwr",
    "rst | ack",
];

impl Ruleset {
    /// Chain `answered`, for an answer that has found a socket of ours, or of another transparent proxy. It leaves alone those
    /// that show their mark, which is one of `shown`.
    pub(super) fn answered(&self, shown: [&str; 2]) -> String {
        let [mut chains, mut places] = [String::new(), String::new()];
        for (number, flags) in FLAGS.iter().enumerate() {
            let end = self.to_listeners(&self.decoy, "", "");
            // Writing to a String cannot fail.
            let _ = write!(
                chains,
                "chain answered_{number} {{\n  tcp flags set syn\n{end}  tcp flags set {flags}\n}}\n"
            );
            let _ = write!(places, "{flags} : goto answered_{number}, ");
        }
        format!(
            "{chains}chain answered {{\n  {} return\n  {} return\n  tcp flags vmap {{ {} }}\n}}\n",
            shown[0],
            shown[1],
            places.trim_end_matches(", ")
        )
    }

    /// Rules that lead answers there; those to a socket that stands come before or are not for it.
    pub(super) fn to_answered(&self) -> String {
        let rule =
            |answer| format!("  meta l4proto tcp {answer} socket transparent 1 jump answered\n");
        ANSWERS.map(rule).concat()
    }
}
