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
use super::own_sockets::FLAGS;

/// How many ends are remembered, and for how long: the kernel repeats an answer after 1, 3 and 7 s, and keeps what it knows of
/// the SYN for 8 s more (`listen` of `bentpipe-relay`), in which it resets what else comes from the client.
const REMEMBERED: u32 = 1 << 16;
const SECONDS: u32 = 10;
/// The same for dials for held SYNs, after their last SYN: as long as such a dial lasts, and a little more.
const HELD_SECONDS: u32 = 12;

/// The set of ends, by a hash ([`mss::map`] says why), that of the ends and numbers of dials for held SYNs, and the chains that a reset, a
/// dial and its answer are led to.
pub(super) fn sets(seed: u32) -> String {
    let keep = |ip| format!("  {} @dialled drop\n", mss::connection(ip, seed));
    let remember = |ip| {
        let (ends, numbered) = (mss::connection(ip, seed), mss::numbered(ip, seed));
        format!(
            "  update @dialled {{ {ends} timeout {HELD_SECONDS}s }} update @dial_numbers {{ {numbered} }}\n"
        )
    };
    let forget = |ip| {
        let (ends, its_own) = (mss::reverse(ip, seed), mss::acknowledged(ip, seed));
        format!("  {its_own} @dial_numbers delete @dialled {{ {ends} }}\n")
    };
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
chain remember_dial {{
{}}}
chain forget_dial {{
{}}}
",
        mss::HEADERS.map(keep).concat(),
        mss::HEADERS.map(remember).concat(),
        mss::HEADERS.map(forget).concat()
    )
}

/// The rule that forgets the ends of a dial that has been answered by a SYN-ACK of its own: its resets are meant from then on. Where
/// clients are answered `early`, none is remembered.
pub(super) fn forget(early: bool) -> String {
    if early {
        String::new()
    } else {
        format!("  {FLAGS} & 0x12 == 0x12 jump forget_dial\n")
    }
}

/// Rules that remember the ends of our answers to SYNs where clients are answered `early`. Else an answer leaves only when the far side
/// has accepted, which has no such connection then.
pub(super) fn remember_answers(seed: u32, early: bool) -> String {
    let rule = |ip| format!("  update @dialled {{ {} }}\n", mss::connection(ip, seed));
    if early {
        mss::HEADERS.map(rule).concat()
    } else {
        String::new()
    }
}
