//! What is lost on the way, measured where the packets arrive, and told to who sends them.

use bentpipe_base::Probability;

/// The losses of one direction, as its receiver has measured them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The share of packets lost, in 65,536ths.
    pub loss: u16,
    /// The mean number of packets lost in a row, in 16ths; 0: nothing was measured yet.
    pub burst: u8,
}

impl Report {
    pub(crate) const fn from_wire([high, low, burst]: [u8; 3]) -> Self {
        Self {
            loss: u16::from_be_bytes([high, low]),
            burst,
        }
    }

    pub(crate) const fn to_wire(self) -> [u8; 3] {
        let [high, low] = self.loss.to_be_bytes();
        [high, low, self.burst]
    }

    /// The share of packets lost; `None` before anything was measured.
    pub fn share(self) -> Option<Probability> {
        let share = Probability::new(f64::from(self.loss) / 65_536.0);
        share.filter(|_| self.burst > 0)
    }

    /// The mean number of packets lost in a row.
    pub fn mean_burst(self) -> f64 {
        f64::from(self.burst) / 16.0
    }
}

/// Means over this many packets, exponentially weighted.
const MEMORY: f64 = 2048.0;
/// Packets after which the first report is made.
const FIRST: u64 = 256;
/// More packets lost in a row than this are an outage, which no code repairs, and not counted.
pub(crate) const OUTAGE: u64 = 64;

/// Measures loss from the fates of packets, in the order in which they were sent.
#[derive(Debug, Default)]
pub(crate) struct LossMeter {
    /// Packets whose fates it has seen.
    seen: u64,
    /// Packets lost in a row, up to the latest.
    row: u64,
    /// The share of packets lost.
    lost: f64,
    /// The number of rows of lost packets, a packet.
    rows: f64,
}

impl LossMeter {
    /// The next packet `arrived`, or was lost.
    pub(crate) fn packet(&mut self, arrived: bool) {
        if !arrived {
            self.row += 1;
            return;
        }
        let row = core::mem::take(&mut self.row);
        if row > OUTAGE {
            return;
        }
        for index in 0..=row {
            self.seen += 1;
            let gain = (self.seen as f64).min(MEMORY).recip();
            let lost = f64::from(u8::from(index < row));
            let first = f64::from(u8::from(index == 0 && row > 0));
            self.lost += (lost - self.lost) * gain;
            self.rows += (first - self.rows) * gain;
        }
    }

    /// What its receiver tells the sender.
    pub(crate) fn report(&self) -> Report {
        if self.seen < FIRST {
            return Report::default();
        }
        let burst = if self.rows > 0.0 {
            self.lost / self.rows
        } else {
            1.0
        };
        // A number that is too large for its type becomes the largest of it.
        Report {
            loss: (self.lost * 65_536.0).round() as u16,
            burst: (burst * 16.0).round().max(1.0) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(arrived: impl Fn(u64) -> bool) -> (f64, f64) {
        let mut meter = LossMeter::default();
        (0..20_000).for_each(|id| meter.packet(arrived(id)));
        let report = Report::from_wire(meter.report().to_wire());
        (report.share().unwrap().value(), report.mean_burst())
    }

    #[test]
    fn share_and_bursts_are_those_of_the_losses() {
        assert_eq!(measured(|_| true), (0.0, 1.0));
        let (share, burst) = measured(|id| id % 50 != 0);
        assert!(
            (share - 0.02).abs() < 0.001 && burst == 1.0,
            "{share} {burst}"
        );
        let (share, burst) = measured(|id| id % 100 >= 3);
        assert!(
            (share - 0.03).abs() < 0.001 && burst == 3.0,
            "{share} {burst}"
        );
    }

    #[test]
    fn an_outage_is_no_loss_that_a_code_could_repair() {
        let (share, _) = measured(|id| id % 100 != 0 && !(10_000..11_000).contains(&id));
        assert!((share - 0.01).abs() < 0.002, "{share}");
    }

    #[test]
    fn few_packets_say_nothing() {
        let mut meter = LossMeter::default();
        (0..100).for_each(|id| meter.packet(id % 2 == 0));
        assert_eq!(meter.report(), Report::default());
        assert_eq!(meter.report().share(), None);
    }
}
