//! Structures as they lie in the memory of the C side.

use bentpipe_cc::fixed_point::{Params, RawAck, RawWindow};
use bentpipe_cc::guard::{Delays, Guard};
use bentpipe_cc::share::{Member, Receiver, Share, Slot};
use bentpipe_cc::{hybla, rate_control};

/// One field of a C structure.
pub(crate) enum Field<'a> {
    Half(&'a mut u16),
    Word(&'a mut u32),
    Long(&'a mut u64),
    Pad,
}
use Field::{Half, Long, Pad, Word};

/// A twin of a C structure: its fields in the order of the C side, padding named.
pub(crate) trait Image {
    fn fields(&mut self) -> Vec<Field<'_>>;

    fn write(&self, bytes: &mut Vec<u8>)
    where
        Self: Clone,
    {
        for field in self.clone().fields() {
            match field {
                Half(half) => bytes.extend(half.to_ne_bytes()),
                Word(word) => bytes.extend(word.to_ne_bytes()),
                Long(long) => bytes.extend(long.to_ne_bytes()),
                Pad => bytes.extend([0; 4]),
            }
        }
    }

    /// Takes its bytes off the front.
    fn read(&mut self, bytes: &mut &[u8]) {
        for field in self.fields() {
            let size = match field {
                Half(_) => 2,
                Word(_) | Pad => 4,
                Long(_) => 8,
            };
            let (head, rest) = bytes.split_at(size);
            match field {
                Half(half) => *half = u16::from_ne_bytes(head.try_into().expect("of this size")),
                Word(word) => *word = u32::from_ne_bytes(head.try_into().expect("of this size")),
                Long(long) => *long = u64::from_ne_bytes(head.try_into().expect("of this size")),
                Pad => {}
            }
            *bytes = rest;
        }
    }
}

impl Image for Params {
    fn fields(&mut self) -> Vec<Field<'_>> {
        vec![
            Long(&mut self.rate),
            Word(&mut self.rtt0_us),
            Word(&mut self.pace_q16),
            Word(&mut self.guard_us),
            Word(&mut self.overhead),
            Word(&mut self.flags),
            Word(&mut self.windows),
        ]
    }
}

impl Image for RawWindow {
    fn fields(&mut self) -> Vec<Field<'_>> {
        vec![
            Word(&mut self.cwnd),
            Word(&mut self.ssthresh),
            Word(&mut self.in_flight),
            Word(&mut self.mss),
            Word(&mut self.wire),
            Pad,
            Long(&mut self.pacing),
        ]
    }
}

impl Image for RawAck {
    fn fields(&mut self) -> Vec<Field<'_>> {
        vec![
            Long(&mut self.now_ns),
            Word(&mut self.rtt_us),
            Word(&mut self.srtt_us),
            Word(&mut self.acked),
            Word(&mut self.lost),
            Word(&mut self.sent),
            Word(&mut self.phase),
            Word(&mut self.flags),
            Word(&mut self.stamp_ms),
        ]
    }
}

impl Image for hybla::State {
    fn fields(&mut self) -> Vec<Field<'_>> {
        vec![
            Word(&mut self.min_rtt_us),
            Word(&mut self.rho),
            Word(&mut self.cents),
            Word(&mut self.flags),
            Long(&mut self.count),
            Word(&mut self.grown),
            Word(&mut self.delivered),
            Word(&mut self.acked),
            Word(&mut self.lost),
            Word(&mut self.train),
            Pad,
            Long(&mut self.train_ns),
        ]
    }
}

impl Image for rate_control::State {
    fn fields(&mut self) -> Vec<Field<'_>> {
        let Member {
            epoch,
            hungry,
            min_rtt_us,
            path,
            origin,
            origin_ms,
            transit_us,
            back_us,
            draining,
            receiver,
            joining,
        } = &mut self.member;
        let link = [epoch, hungry, min_rtt_us, path];
        let clock = [origin, origin_ms, transit_us, back_us];
        let words = link.into_iter().chain(clock);
        let words = words.chain([draining, receiver, joining]).map(Word);
        let flow = [&mut self.started, &mut self.near].map(Half);
        words.chain(flow).collect()
    }
}

impl Image for Slot {
    fn fields(&mut self) -> Vec<Field<'_>> {
        vec![
            Word(&mut self.epoch),
            Word(&mut self.flows),
            Word(&mut self.hungry),
            Word(&mut self.samples),
            Long(&mut self.excess_us),
            Long(&mut self.carried),
            Long(&mut self.others),
            Word(&mut self.receivers),
            Word(&mut self.hungry_receivers),
        ]
    }
}

impl Image for Guard {
    fn fields(&mut self) -> Vec<Field<'_>> {
        let Delays {
            modest_us,
            least_us,
            second_us,
            least_by,
            second_by,
            more,
        } = &mut self.delays;
        vec![
            Long(&mut self.cap),
            Long(&mut self.known),
            Long(&mut self.before),
            Long(&mut self.due_ns),
            Long(&mut self.test_ns),
            Long(&mut self.start_ns),
            Long(&mut self.last_ns),
            Long(&mut self.bytes),
            Long(&mut self.lost),
            Long(&mut self.lost_else),
            Long(&mut self.busy),
            Long(&mut self.busy_us),
            Word(modest_us),
            Word(least_us),
            Word(second_us),
            Word(least_by),
            Word(second_by),
            Word(more),
            Word(&mut self.samples),
            Word(&mut self.tick),
            Word(&mut self.level_us),
            Word(&mut self.floor_us),
            Word(&mut self.last_us),
            Word(&mut self.varies_us),
            Word(&mut self.seen_us),
            Word(&mut self.lossy),
            Word(&mut self.lost_by),
            Word(&mut self.age),
            Word(&mut self.step),
            Word(&mut self.path),
        ]
    }
}

impl Image for Receiver {
    fn fields(&mut self) -> Vec<Field<'_>> {
        let mut fields = vec![Word(&mut self.epoch)];
        for turnout in [&mut self.now, &mut self.past] {
            fields.extend([
                Word(&mut turnout.flows),
                Word(&mut turnout.hungry),
                Word(&mut turnout.joining),
            ]);
        }
        fields.push(Word(&mut self.unanswered));
        fields
    }
}

impl Image for Share {
    fn fields(&mut self) -> Vec<Field<'_>> {
        let mut fields = self.now.fields();
        fields.extend(self.past.fields());
        fields.extend(self.guard.fields());
        fields
    }
}

/// `struct step`. With `headers` the C side has to find by itself how long a full segment of `window` is on the wire.
pub(crate) fn context(
    params: &Params,
    window: &RawWindow,
    ack: &RawAck,
    what: u32,
    receiver: u32,
    headers: [u32; 2],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    let untold = RawWindow { wire: 0, ..*window };
    match headers {
        [0, _] => window.write(&mut bytes),
        _ => untold.write(&mut bytes),
    }
    ack.write(&mut bytes);
    bytes.extend(what.to_ne_bytes());
    bytes.extend(receiver.to_ne_bytes());
    bytes.extend(headers.map(u32::to_ne_bytes).concat());
    bytes
}

/// Where in it the window lies, and where it ends.
pub(crate) const WINDOW_AT: usize = 32;
pub(crate) const STEP: usize = 120;
/// Of `struct rate_step`: where `yields` lies, behind the flow, the share, and the receivers.
pub(crate) const YIELDS_AT: usize = STEP + 48;
pub(crate) const SHARE_AT: usize = STEP + 56;
pub(crate) const RECEIVERS_AT: usize = SHARE_AT + 264;
pub(crate) const RECEIVER: usize = 32;

pub(crate) fn read<T: Image + Default>(mut bytes: &[u8]) -> T {
    let mut image = T::default();
    image.read(&mut bytes);
    image
}
