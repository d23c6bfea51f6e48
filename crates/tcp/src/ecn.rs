//! Explicit congestion notification (RFC 3168): queues mark packets in place of dropping them, receivers echo the marks,
//! and senders reduce their window as for a loss.
//!
//! ```text
//! SYN          ECE and CWR where we ask; the second SYN does not ask any more, in case that was why the first was lost
//! SYN-ACK      ECE alone where the SYN asked
//! ECT(0)       on data sent for the first time; not on what is sent again, acknowledgements, SYNs or probes
//! CE arrives   each segment carries ECE from now on, the first one at once, until a segment with CWR comes
//! ECE arrives  the window is reduced as for a loss, by the congestion control, and the next new data carries CWR;
//!              not again before all that was in flight is acknowledged, nor within a window that was reduced for a loss
//! ```
//!
//! In the round trip after a reduction ([`Phase::Cwr`]) the window does not grow. With `prr-rack` and `rack-tlp` it
//! shrinks in proportion (RFC 9937) as in Linux; with other recoveries at once. The factor is that of a loss (RFC 9438, section
//! 4.6; Linux), not the gentler one of RFC 8511. Controls that take no threshold at a loss (`bbr`, `bbr1`, `rate` without a guard) do
//! not heed marks either, as their counterparts in Linux.
//!
//! A peer that lies with ECE in each segment reduces the window once a round trip, as RFC 3168 has it, and one to which we send
//! no ECT not at all. Deviations: after a SYN that did not ask we never set ECT (RFC 3168, section 6.1.1), where Linux does
//! if the answer has ECE; a window of one segment is not sent by the retransmission timer (section 6.1.2), as in Linux.

use crate::connection::Connection;
use crate::sender::Sender;
use bentpipe_base::Instant;
use bentpipe_cc::{Phase, Signal};
use bentpipe_wire::{Ecn, Flags, Segment};

/// Whether an endpoint speaks ECN, in the values of Linux (`net.ipv4.tcp_ecn`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EcnMode {
    /// Neither asks nor agrees (0).
    #[default]
    Off,
    /// Agrees where the peer asks (2, the kernel's default).
    Accept,
    /// Asks with each SYN, and agrees (1).
    Ask,
}

/// What a sender knows of ECN.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EcnSender {
    /// New data is sent with ECT, and echoes count.
    pub(crate) on: bool,
    /// The next new data carries CWR.
    cwr_due: bool,
    /// A SYN went out that did not ask.
    fell_back: bool,
    /// The end of all that was sent when the window was last reduced, for whatever reason.
    recover: u64,
}

/// The flags of a SYN that asks (RFC 3168, section 6.1.1).
const SETUP: Flags = Flags::from_bits(Flags::ECE.bits() | Flags::CWR.bits());

impl Sender {
    /// The window was reduced: the peer is to hear of it, and echoes of what is in flight count no more.
    pub(crate) fn note_reduction(&mut self) {
        if self.ecn.on {
            self.ecn.cwr_due = true;
            self.ecn.recover = self.max;
        }
    }

    /// Whether the window was reduced for marks less than a window ago.
    #[inline]
    pub(crate) fn is_in_cwr(&self) -> bool {
        self.phase == Phase::Cwr && self.una <= self.ecn.recover
    }

    /// The peer echoed marks with the acknowledgement of all before `ack`: reduces the threshold, unless that was done for what
    /// this acknowledges; whether it did.
    fn heed_marks(&mut self, ack: u64, now: Instant) -> bool {
        let recovering = matches!(self.phase, Phase::Recovery | Phase::Loss);
        if ack <= self.ecn.recover || self.una == self.max || recovering {
            return false;
        }
        if self.phase == Phase::Cwr {
            // The last reduction ends with this acknowledgement.
            self.ecn.recover = 0;
            self.end_cwr(now);
        }
        self.look(self.board.pipe());
        self.window.ssthresh = self.congestion.ssthresh(&self.window);
        self.enter(Phase::Cwr);
        self.note_reduction();
        self.counters.mark_reductions += 1;
        true
    }

    /// Ends the reduction for marks, once all is acknowledged that was in flight as it began, and something sent after it.
    #[inline]
    pub(crate) fn settle_cwr(&mut self, now: Instant) {
        if self.phase == Phase::Cwr && self.una > self.ecn.recover {
            self.end_cwr(now);
        }
    }

    #[cold]
    fn end_cwr(&mut self, now: Instant) {
        let known = self.window.ssthresh != u32::MAX;
        if known && !self.congestion.governs_recovery() {
            self.window.cwnd = self.window.ssthresh.max(1);
        }
        self.enter(Phase::Open);
        let window = &mut self.window;
        self.congestion.on_signal(window, Signal::Reduced, now);
    }
}

impl Connection {
    /// The flags of our SYN, as it goes out for the first time or again.
    pub(crate) fn ecn_syn(&mut self, again: bool) -> Flags {
        if self.config.ecn != EcnMode::Ask {
            return Flags::empty();
        }
        self.tx.ecn.fell_back |= again;
        if again { Flags::empty() } else { SETUP }
    }

    /// The flag of our answer to a SYN.
    pub(crate) fn ecn_answer(&self) -> Flags {
        if self.agreed.ecn {
            Flags::ECE
        } else {
            Flags::empty()
        }
    }

    /// A SYN came whose IP header says `ecn`. One that is marked, or capable of it, was tampered with, and asks for nothing
    /// (Linux `tcp_ecn_create_request`). Where both ends opened at once, ours must have asked too.
    pub(crate) fn ecn_asked(&mut self, syn: &Segment, ecn: Ecn) {
        let asks = syn.flags.contains(SETUP) && !ecn.is_capable();
        let agrees = match self.config.ecn {
            EcnMode::Off => false,
            EcnMode::Accept => self.passive,
            EcnMode::Ask => true,
        };
        self.agree_on_ecn(asks && agrees);
    }

    /// The SYN of a connection that is being opened came again: a peer that does not ask any more has given ECN up.
    pub(crate) fn ecn_asked_again(&mut self, syn: &Segment) {
        self.agree_on_ecn(self.agreed.ecn && syn.flags.contains(SETUP));
    }

    /// The answer to our SYN came. Who only returns our flags does not speak ECN.
    pub(crate) fn ecn_answered(&mut self, answer: &Segment) {
        let flags = answer.flags;
        let agrees = flags.contains(Flags::ECE) && !flags.contains(Flags::CWR);
        self.agree_on_ecn(agrees && self.config.ecn == EcnMode::Ask);
    }

    pub(crate) fn agree_on_ecn(&mut self, agreed: bool) {
        self.agreed.ecn = agreed;
        self.tx.ecn.on = agreed && !self.tx.ecn.fell_back;
    }

    /// What the IP header of a data segment says, which is `fresh` if it goes out for the first time; adds CWR to its
    /// `flags` where that is due.
    #[inline]
    pub(crate) fn ecn_of_data(&mut self, flags: &mut Flags, fresh: bool) -> Ecn {
        let ecn = &mut self.tx.ecn;
        if !(ecn.on && fresh) {
            return Ecn::NotCapable;
        }
        if core::mem::take(&mut ecn.cwr_due) {
            *flags = *flags | Flags::CWR;
        }
        Ecn::Capable0
    }

    /// A segment of the peer with data or a FIN, within the window, came by an IP header that says `ecn`.
    pub(crate) fn ecn_received(&mut self, segment: &Segment, ecn: Ecn) {
        if !self.agreed.ecn {
            return;
        }
        // Who has just reduced its window may have a single segment in flight (Linux `tcp_ecn_accept_cwr`).
        if segment.flags.contains(Flags::CWR) {
            self.agreed.echoes = false;
            self.rx.ack_now = true;
        }
        if ecn == Ecn::Marked {
            self.tx.counters.marks += 1;
            self.rx.ack_now |= !self.agreed.echoes;
            self.agreed.echoes = true;
        }
    }

    /// Heeds the echo of marks in a segment that acknowledges all before `ack`, before the rest of that is processed.
    pub(crate) fn ecn_echoed(&mut self, segment: &Segment, ack: u64, now: Instant) {
        let echoes = segment.flags.contains(Flags::ECE) && !segment.flags.contains(Flags::SYN);
        if !(echoes && self.tx.ecn.on) {
            return;
        }
        if !self.tx.heed_marks(ack, now) {
            return;
        }
        let gradually = self.recovery.on_marks(&mut self.tx.recovery_context());
        if !gradually && !self.tx.congestion.governs_recovery() {
            let window = &mut self.tx.window;
            window.cwnd = window.cwnd.min(window.ssthresh).max(1);
        }
    }

    /// What the IP header of the segment says that [`transmit`](Self::transmit) gave last.
    #[inline]
    pub fn ecn(&self) -> Ecn {
        self.ecn
    }

    /// Whether both ends agreed on ECN.
    pub fn speaks_ecn(&self) -> bool {
        self.agreed.ecn
    }
}
