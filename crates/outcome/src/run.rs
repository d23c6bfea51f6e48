//! What a run found.

use bentpipe_base::{Bytes, Rate};
use core::time::Duration;

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// From its start to its end.
    pub elapsed: Duration,
    /// In the order of the scenario; cross traffic is not among them.
    pub flows: Vec<Flow>,
    /// By name of the link: first the direction that leaves its first end, then the other.
    pub lines: Vec<Line>,
    /// By name.
    pub proxies: Vec<Proxy>,
    /// How late the emulators were: the 99th percentile of the worst; zero in virtual time.
    pub lateness: Duration,
}

/// What became of a flow. Times are from its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// What it was to send; `None` for one that lasts a time.
    pub size: Option<Bytes>,
    /// Propagation there and back.
    pub round_trip: Duration,
    /// What no TCP can exceed on its path; `None` where nothing limits the rate.
    pub limit: Option<Rate>,
    /// Payload that its receiver got in order.
    pub received: Bytes,
    /// The same in full segments, a last short one counted whole; `None` where nobody saw segments.
    pub segments: Option<u64>,
    /// Payload received over the time until the last byte was at the receiver; where there is no last one, over that of
    /// the flow.
    pub goodput: Rate,
    /// Until the last byte was at the receiver, where there is a last one.
    pub completion: Option<Duration>,
    /// Until the sender knew that all had arrived.
    pub acknowledged: Option<Duration>,
    /// Until the receiver sent its last acknowledgement; in the lab, which does not see that one, as `completion`.
    pub final_ack: Option<Duration>,
    /// Payload that the sender sent, what it repeated counted again.
    pub sent: Bytes,
    /// Of that what it had sent before.
    pub sent_again: Bytes,
    /// Expiries of the sender's retransmission timer.
    pub timeouts: u64,
    /// Recoveries that the sender entered without a timeout; `None` where nobody saw them.
    pub recoveries: Option<u64>,
    /// The sender's smoothed round-trip time at the end.
    pub srtt: Option<Duration>,
    /// By how much the sender's smoothed round-trip time exceeded `round_trip`, in milliseconds: one sample at the end
    /// in the simulator, one each tenth of a second but in the first 5 s in the lab.
    pub queueing: Samples,
}

/// Samples of which the mean is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Samples {
    /// Their sum.
    pub sum: f64,
    /// How many.
    pub count: u32,
}

impl FromIterator<f64> for Samples {
    fn from_iter<T: IntoIterator<Item = f64>>(samples: T) -> Self {
        let all = samples.into_iter();
        all.fold(Self::default(), |so_far, sample| Self {
            sum: so_far.sum + sample,
            count: so_far.count + 1,
        })
    }
}

/// What happened on one direction of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// The link's name.
    pub link: String,
    /// The node that the direction leaves.
    pub from: String,
    /// Packets that began their way over the link.
    pub packets: u64,
    /// Of those the ones of which bits were hit.
    pub corrupted: u64,
    /// Of those the ones that vanished.
    pub lost: u64,
    /// Packets for which the queue had no room.
    pub refused: u64,
    /// Of those the data segments of the scenario's flows, not of cross traffic; `None` where nobody told them apart.
    pub refused_data: Option<u64>,
    /// What all packets together waited in the queue.
    pub waited: Duration,
}

/// What a proxy counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Its name; in the lab that of the gateway.
    pub name: String,
    /// Its counts by name.
    pub counters: Vec<(&'static str, u64)>,
}
