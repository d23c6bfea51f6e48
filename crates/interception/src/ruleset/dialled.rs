//! Keeps a dial from resetting a connection that stands already.
//!
//! Who sends a SYN with the four numbers of a connection that passes unsplit has it dialled for. The other end answers that
//! dial by a challenge ACK (RFC 5961, section 4.2), which has its exact sequence number, and a socket in SYN-SENT answers
//! such an acknowledgement by a reset with just this number (RFC 9293, section 3.10.7.3): one forged SYN would end the
//! connection. The same holds for a listener that answers early. So resets of this kind, which have no ACK flag, do not leave
//! for some seconds after a SYN of ours, for one that is held, or such an answer between the same ends. The worker finds that the
//! dial is not answered by what it is meant for, and gives it up (`silent_dials` of `bentpipe-relay`).
//!
//! A SYN-ACK ends that only where it acknowledges the dial's own number: the other end may have been answering an earlier SYN of the
//! client's, which passed and is not remembered, and a reset by the dial would end what it has begun.
//!
//! A client that was answered early is dialled for once it has confirmed that. Its dial resets what it is challenged for, as the
//! client would: it has no such connection any more, or is to prove itself to who protects the server from floods.

use super::mss;

/// How many ends are remembered, and for how long: the kernel repeats an answer after 1, 3 and 7 s, and keeps what it knows of
/// the SYN for 8 s more (`listen` of `bentpipe-relay`), in which it resets what else comes from the client.
const REMEMBERED: u32 = 1 << 16;
const SECONDS: u32 = 10;
/// The same for dials for held SYNs, whose first SYN alone is marked: as long as such a dial lasts, and a little more.
const HELD_SECONDS: u32 = 12;

/// The set of ends, by a hash ([`mss::map`] says why), that of the ends and numbers of dials for held SYNs, and chain `keep_resets`.
pub(super) fn set(seed: u32) -> String {
    let rules = mss::HEADERS.map(|ip| format!("  {} @dialled drop\n", mss::connection(ip, seed)));
    format!(
        "\
set dialled {{
  typeof meta length
  flags dynamic, timeout
  size {REMEMBERED}
  timeout {SECONDS}s
}}
set dial_numbers {{
  typeof meta length
  flags dynamic, timeout
  size {REMEMBERED}
  timeout {HELD_SECONDS}s
}}
chain keep_resets {{
{}}}
",
        rules.concat()
    )
}

/// Rules that forget the ends of a dial that has been answered by a SYN-ACK of its own: its resets are meant from then on.
pub(super) fn forget(seed: u32) -> String {
    let rule = |ip| {
        let (ends, its_own) = (mss::reverse(ip, seed), mss::acknowledged(ip, seed));
        format!(
            "  meta l4proto tcp tcp flags & (syn | ack) == syn | ack {its_own} @dial_numbers delete @dialled {{ {ends} }}\n"
        )
    };
    mss::HEADERS.map(rule).concat()
}

/// Rules that remember the ends of our SYNs with one of the priorities `for_held` and, where clients are answered `early`, of our
/// answers to theirs. Else an answer leaves only when the far side has accepted, which has no such connection then.
pub(super) fn remember(seed: u32, early: bool, looped: &str, for_held: [u32; 2]) -> String {
    let [one, other] = for_held;
    let rule = |ip| {
        let (ends, numbered) = (mss::connection(ip, seed), mss::numbered(ip, seed));
        let held = format!("  meta priority {{ {one:#x}, {other:#x} }}");
        let dial = format!(
            "{held} update @dialled {{ {ends} timeout {HELD_SECONDS}s }}\n{held} update @dial_numbers {{ {numbered} }}\n"
        );
        let answer = format!("  tcp flags & ack == ack update @dialled {{ {ends} }}\n");
        if early { dial + &answer } else { dial }
    };
    // The copy of a client's SYN that is looped has the same ends as the dial.
    format!("  {looped} return\n") + &mss::HEADERS.map(rule).concat()
}
