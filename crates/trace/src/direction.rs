//! One direction of a connection: what an endpoint sent, and what came back for it.

use crate::sent::{Acked, Sent};
use crate::sequence::Places;
use bentpipe_base::Instant;

/// Least, greatest, mean and deviation of times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statistics {
    /// How many.
    pub count: u64,
    /// The least, in nanoseconds.
    pub min: u64,
    /// The greatest, in nanoseconds.
    pub max: u64,
    sum: f64,
    squares: f64,
}

impl Statistics {
    pub(crate) fn add(&mut self, nanos: u64) {
        self.min = match self.count {
            0 => nanos,
            _ => self.min.min(nanos),
        };
        self.max = self.max.max(nanos);
        self.count += 1;
        self.sum += nanos as f64;
        self.squares += (nanos as f64).powi(2);
    }

    /// The mean, in nanoseconds.
    pub fn mean(&self) -> f64 {
        match self.count {
            0 => 0.0,
            count => self.sum / count as f64,
        }
    }

    /// The standard deviation of a sample, in nanoseconds; zero for fewer than three times, as tcptrace says it.
    pub fn deviation(&self) -> f64 {
        if self.count < 3 {
            return 0.0;
        }
        let count = self.count as f64;
        let variance = (self.squares - self.sum * self.sum / count) / (count - 1.0);
        variance.max(0.0).sqrt()
    }
}

/// Round-trip times of what this direction sent, as seen where the capture was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rtt {
    /// Of segments sent once.
    pub samples: Statistics,
    /// Of segments sent again, from the last time.
    pub ambiguous: Statistics,
    /// From the SYN to its acknowledgement, in nanoseconds; zero when it was not seen.
    pub handshake: u64,
    /// Acknowledgements of repairs: no sample.
    pub after_loss: u64,
    /// Segments that an acknowledgement covered with later ones.
    pub cumulative: u64,
    /// Duplicate acknowledgements as RFC 5681 defines them.
    pub duplicate: u64,
    /// Third duplicates in a row: an update of the window or data between them begins another.
    pub triple: u64,
    /// Between two times that a segment was sent, before it was acknowledged.
    pub retransmissions: Statistics,
    /// The most times that one segment was sent again.
    pub most_retransmissions: u32,
}

/// What one endpoint sent. Times are in nanoseconds.
#[derive(Debug, Default)]
pub struct Direction {
    /// Segments.
    pub packets: u64,
    /// With RST.
    pub resets: u64,
    /// With ACK.
    pub acks: u64,
    /// With ACK and nothing else.
    pub pure_acks: u64,
    /// With SACK blocks.
    pub sacks: u64,
    /// With a SACK block that reports a duplicate (RFC 2883).
    pub dsacks: u64,
    /// Most SACK blocks in one segment.
    pub most_sack_blocks: u64,
    /// Bytes of data sent for the first time.
    pub unique_bytes: u64,
    /// Segments with data.
    pub data_packets: u64,
    /// Bytes of data.
    pub data_bytes: u64,
    /// Segments some of which had been sent before.
    pub retransmitted_packets: u64,
    /// Bytes that had been sent before.
    pub retransmitted_bytes: u64,
    /// Segments sent against a closed window.
    pub window_probes: u64,
    /// Bytes of data in them.
    pub window_probe_bytes: u64,
    /// Segments that filled a hole before what was seen already.
    pub out_of_order: u64,
    /// Segments with data and PSH.
    pub pushed: u64,
    /// With SYN.
    pub syns: u64,
    /// With FIN.
    pub fins: u64,
    /// Whether its SYN has the window scale option.
    pub requests_window_scale: bool,
    /// Whether it sends timestamps.
    pub requests_timestamps: bool,
    /// Whether its SYN permits SACK.
    pub permits_sack: bool,
    /// The scale of its windows, if both ends have the option.
    pub window_scale: u8,
    /// Segments with data and URG.
    pub urgent_packets: u64,
    /// Sum of their urgent pointers.
    pub urgent_bytes: u64,
    /// The MSS that it asks for.
    pub mss: u16,
    /// The longest data of a segment.
    pub longest: u32,
    /// The shortest.
    pub shortest: u32,
    /// The windows that it advertised.
    pub windows: Windows,
    /// Bytes of data before the first acknowledgement of data.
    pub initial_window_bytes: u64,
    /// Segments with data before that.
    pub initial_window_packets: u64,
    /// Bytes between the least and the greatest that nobody acknowledged yet, seen from the capture.
    pub outstanding: Outstanding,
    /// Bytes that were not kept in the capture.
    pub truncated_bytes: u64,
    /// Segments of these.
    pub truncated_packets: u64,
    /// First and last data.
    pub data_times: Option<(Instant, Instant)>,
    /// The longest time without a segment.
    pub longest_idle: u64,
    /// Round-trip times.
    pub rtt: Rtt,
    /// When it last sent.
    pub(crate) last: Option<Instant>,
    pub(crate) sent: Sent,
    pub(crate) places: Places,
    /// Place of the last SYN.
    pub(crate) syn: Option<u64>,
    /// Place of the last FIN.
    pub(crate) fin: Option<u64>,
    /// Where the last segment ended.
    pub(crate) latest: u64,
    /// The highest that the peer has acknowledged.
    pub(crate) acknowledged: Option<u64>,
    /// Something behind its SYN was acknowledged.
    pub(crate) data_acknowledged: bool,
    /// The window that it last advertised.
    pub(crate) window: u64,
    /// Duplicates in a row of the last acknowledgement.
    duplicates: u32,
}

/// Windows as they were advertised, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windows {
    /// The greatest.
    pub max: u64,
    /// The least that is not zero.
    pub min: u64,
    /// How often it was zero.
    pub zero: u64,
    sum: u64,
    count: u64,
    /// Windows of SYNs are not scaled: with the first scaled one all begins anew.
    scaled: bool,
}

impl Windows {
    /// The mean; RST have none, yet count as segments.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }

    pub(crate) fn count_packet(&mut self) {
        self.count += 1;
    }

    /// A segment advertised `window`, scaled or not.
    pub(crate) fn see(&mut self, window: u64, scaled: bool) {
        self.max = self.max.max(window);
        if window > 0 && scaled && !self.scaled {
            *self = Self {
                max: window,
                min: window,
                count: 1,
                scaled: true,
                ..*self
            };
            self.sum = 0;
        } else if window > 0 && (self.min == 0 || window < self.min) {
            self.min = window;
        }
        self.sum += window;
    }
}

/// Bytes in flight as seen where the capture was made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outstanding {
    /// The most.
    pub max: u64,
    sum: u128,
    count: u64,
}

impl Outstanding {
    /// The mean over what was sent for the first time.
    pub fn mean(&self) -> u64 {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or(0);
        u64::try_from(mean).unwrap_or(u64::MAX)
    }

    pub(crate) fn see(&mut self, bytes: u64) {
        self.max = self.max.max(bytes);
        self.sum += u128::from(bytes);
        self.count += 1;
    }
}

impl Direction {
    /// The length of the stream from SYN to FIN, or to the last segment where a reset cut it.
    pub fn stream_length(&self) -> Option<u64> {
        let (syn, fin) = (self.syn?, self.fin?);
        let end = if self.resets > 0 { self.latest } else { fin };
        Some(end.saturating_sub(syn).saturating_sub(1))
    }

    /// Bytes of the stream that are not in the capture.
    pub fn missed(&self) -> Option<u64> {
        let length = self.stream_length()?;
        Some(length.saturating_sub(self.unique_bytes))
    }

    /// The peer acknowledged all before `place`. A `bare` segment has no data, SYN, FIN or RST and the same window as the one
    /// before: it may be a duplicate. Whether it is one, and the round-trip time that it gives.
    pub(crate) fn acknowledge(
        &mut self,
        place: u64,
        bare: bool,
        now: Instant,
    ) -> (bool, Option<u64>) {
        let rtt = &mut self.rtt;
        let mut sample = None;
        let duplicate = self.acknowledged == Some(place) && bare && self.sent.is_outstanding();
        if duplicate {
            self.duplicates += 1;
            rtt.duplicate += 1;
            rtt.triple += u64::from(self.duplicates == 3);
        } else {
            self.duplicates = 0;
        }
        let of_syn = self.syns == 1 && self.syn.map(|syn| syn + 1) == Some(place);
        self.sent.acknowledge(place, now, |acked| match acked {
            Acked::Sample(took) => {
                rtt.samples.add(took);
                sample = Some(took);
                if of_syn {
                    rtt.handshake = took;
                }
            }
            Acked::Ambiguous(took) => rtt.ambiguous.add(took),
            Acked::AfterLoss => rtt.after_loss += 1,
            Acked::Cumulative => rtt.cumulative += 1,
        });
        self.acknowledged = self.acknowledged.max(Some(place));
        (duplicate, sample)
    }
}
