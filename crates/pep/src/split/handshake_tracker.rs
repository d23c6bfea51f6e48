//! Follows a handshake that passes through end to end, and derives from it the state with which the two legs begin.

use crate::Side;
use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Config, Connection, EcnMode, ScpsHandshake, Takeover, scps};
use bentpipe_wire::scps::CapabilityVector;
use bentpipe_wire::{Flags, Segment};

/// A handshake under way.
pub(super) struct HandshakeTracker {
    /// The side from which the SYN came.
    opener: Side,
    syn: SynInfo,
    answer: Option<SynInfo>,
    /// The window that the other end has told behind its answer, in bytes: more than a SYN can say.
    opened: Option<u64>,
    /// The maximum segment size of an end that does not announce one.
    default_mss: u16,
}

/// What became of the handshake with a packet.
pub(super) enum Progress {
    /// It goes on; the packet passes.
    Continues,
    /// The connection will not be split: something in it is not as expected.
    NotSplit,
    /// It is complete: the state of the leg towards the opener, and of the leg towards the other end.
    Complete { near: Takeover, far: Takeover },
}

/// What a SYN says of its sender.
#[derive(Clone, Copy)]
struct SynInfo {
    seq: Seq,
    mss: u16,
    sack: bool,
    scale: Option<u8>,
    window: u16,
    /// Its flags ECE and CWR (RFC 3168).
    ecn: (bool, bool),
    /// What it offers of SCPS-TP, if that.
    scps: Option<CapabilityVector>,
    /// What its sender's clock showed, and when it came.
    clock: Option<u32>,
    seen: Instant,
    /// It is not the first: which one was answered is not known (Karn's algorithm).
    is_again: bool,
}

impl SynInfo {
    /// `default_mss`: the maximum segment size where the SYN has no such option.
    fn new(segment: &Segment, default_mss: u16, now: Instant) -> Self {
        let options = segment.options.as_deref();
        let mss = options.and_then(|options| options.mss);
        Self {
            seq: segment.seq,
            mss: mss.unwrap_or(default_mss),
            sack: options.is_some_and(|options| options.sack_permitted),
            scale: options
                .and_then(|options| options.window_scale)
                .map(|shift| shift.min(14)),
            window: segment.window,
            ecn: (
                segment.flags.contains(Flags::ECE),
                segment.flags.contains(Flags::CWR),
            ),
            scps: scps::offered(segment),
            clock: segment.timestamps.map(|stamp| stamp.value),
            seen: now,
            is_again: false,
        }
    }

    /// What its sender's clock shows now, ticking in milliseconds.
    fn clock(&self, now: Instant) -> Option<u32> {
        let passed = now.since(self.seen).as_millis() as u32;
        Some(self.clock?.wrapping_add(passed))
    }
}

impl HandshakeTracker {
    pub(super) fn new(opener: Side, syn: &Segment, default_mss: u16, now: Instant) -> Self {
        Self {
            opener,
            syn: SynInfo::new(syn, default_mss, now),
            answer: None,
            opened: None,
            default_mss,
        }
    }

    /// Takes a packet of the connection from side `from`. It is `plain` if it has nothing that the legs would not pass on, such
    /// as unknown options.
    pub(super) fn see(
        &mut self,
        from: Side,
        segment: &Segment,
        plain: bool,
        now: Instant,
    ) -> Progress {
        let flags = segment.flags;
        let (syn, ack) = (flags.contains(Flags::SYN), flags.contains(Flags::ACK));
        let data = !segment.payload.is_empty() || flags.contains(Flags::FIN);
        if flags.contains(Flags::RST) || syn && (!plain || data) {
            return Progress::NotSplit;
        }
        match (syn, ack, from == self.opener) {
            (true, false, true) => {
                let mut again = SynInfo::new(segment, self.default_mss, now);
                if again.seq != self.syn.seq {
                    self.answer = None;
                }
                again.is_again = true;
                self.syn = again;
                Progress::Continues
            }
            (true, true, false) if segment.ack == self.syn.seq + 1 => {
                let mut answer = SynInfo::new(segment, self.default_mss, now);
                answer.is_again = self.answer.is_some();
                self.answer = Some(answer);
                self.opened = None;
                Progress::Continues
            }
            (false, true, true) => self.finish(segment, now),
            // An answer to an older SYN, or a challenge acknowledgement (RFC 5961).
            (_, true, false) if !data => {
                self.hear_window(segment);
                Progress::Continues
            }
            _ => Progress::NotSplit,
        }
    }

    /// Whether the other end has answered the opener's SYN.
    pub(super) const fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// Whether the opener has offered SCPS-TP.
    pub(super) const fn is_offered_scps(&self) -> bool {
        self.syn.scps.is_some()
    }

    /// An end that speaks SCPS-TP tells its whole window in an acknowledgement right behind its answer.
    fn hear_window(&mut self, segment: &Segment) {
        let scales = self
            .answer
            .and_then(|answer| self.syn.scale.zip(answer.scale));
        if let (Some(answer), Some((_, scale))) = (self.answer, scales)
            && !segment.flags.contains(Flags::SYN)
            && segment.seq == answer.seq + 1
            && segment.ack == self.syn.seq + 1
        {
            self.opened = Some(u64::from(segment.window) << scale);
        }
    }

    /// The third segment of the handshake: the opener acknowledges, and may send data with it.
    fn finish(&self, segment: &Segment, now: Instant) -> Progress {
        let Some(answer) = self.answer else {
            return Progress::NotSplit;
        };
        let ahead = segment.seq.offset_from(self.syn.seq + 1);
        if segment.ack != answer.seq + 1 || ahead < 0 {
            return Progress::NotSplit;
        }
        let syn = self.syn;
        let (mss, sack) = (syn.mss.min(answer.mss), syn.sack && answer.sack);
        let ecn = syn.ecn == (true, true) && answer.ecn == (true, false);
        let scales = syn.scale.zip(answer.scale);
        // What the opener and the other end have shown of their clocks, where both do. A leg goes on with the clock of the end
        // that it stands for; of its peer's it knows the last value, for that clock may tick more slowly than in milliseconds.
        let stamp = segment.timestamps.map(|stamp| stamp.value);
        let opener = syn.clock.map(|value| stamp.unwrap_or(value));
        let shown = opener.zip(answer.clock);
        let continued = stamp.or(syn.clock(now)).zip(answer.clock(now));
        let clocks = shown.zip(continued);
        let scps = |ours: SynInfo, theirs: SynInfo| {
            Some(ScpsHandshake {
                our_mss: ours.mss,
                peer_mss: theirs.mss,
                peer: theirs.scps?,
            })
        };
        let window = u64::from(segment.window) << scales.map_or(0, |(opener, _)| opener);
        Progress::Complete {
            near: Takeover {
                iss: answer.seq,
                irs: syn.seq,
                mss,
                sack,
                ecn,
                clocks: clocks.map(|((opener, _), (_, other))| (other, opener)),
                scales: scales.map(|(opener, other)| (other, opener)),
                window,
                scps: scps(answer, syn),
                rtt: (!answer.is_again).then(|| now.since(answer.seen)),
            },
            far: Takeover {
                iss: syn.seq,
                irs: answer.seq,
                mss,
                sack,
                ecn,
                clocks: clocks.map(|((_, other), (opener, _))| (opener, other)),
                scales,
                // That of a SYN is not scaled.
                window: self.opened.unwrap_or(answer.window.into()),
                scps: scps(syn, answer),
                rtt: (!syn.is_again).then(|| answer.seen.since(syn.seen)),
            },
        }
    }
}

/// The states of the leg towards the sender of the first data segment that was seen, and of the leg towards the other end,
/// where there was no handshake and both ends are configured like `ends`.
pub(super) fn unseen(segment: &Segment, ends: &Config) -> [Takeover; 2] {
    let scale = ends.window_scale();
    // The connection's very first segments may have been lost on the way here.
    let begin = |next: Seq| Seq(next.0.wrapping_sub(1) / Connection::ROUND * Connection::ROUND);
    let (first, expected) = (begin(segment.seq), begin(segment.ack));
    let stamps = segment.timestamps.filter(|_| ends.timestamps);
    let near = Takeover {
        iss: expected,
        irs: first,
        mss: ends.mss,
        sack: ends.sack_blocks > 0,
        ecn: ends.ecn == EcnMode::Ask,
        clocks: stamps.map(|stamp| (stamp.echo, stamp.value)),
        scales: ends.window_scaling.then_some((scale, scale)),
        window: ends.receive_buffer.0,
        scps: None,
        rtt: None,
    };
    let far = Takeover {
        iss: first,
        irs: expected,
        clocks: near.clocks.map(|(ours, peer)| (peer, ours)),
        ..near
    };
    [near, far]
}
