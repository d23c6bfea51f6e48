//! What the endpoint does for the sake of ns-2 2.35 alone, the referee of its figures: nothing of it is in the RFCs,
//! and [`Quirks::NONE`] switches all of it off.
//!
//! - sizes on the link that are fixed, whatever the headers hold ([`WireSize`]);
//! - a window that grows by the acknowledgement ([`Growth`]), as a real number (`window.rs`);
//! - a first segment that counts as a SYN, and what a lost SYN leaves behind ([`LostSyn`]);
//! - round-trip times of one segment at a time;
//! - recoveries by ns-2's own rules, one file each (Reno and NewReno, which share a class there, one for both);
//! - the order of events at one instant ([`Connection::ack_delay`]).

mod common;
mod fack;
mod quirks;
mod reno_newreno;
mod sack;
mod tahoe;
mod vegas;
mod window;

pub use quirks::{Growth, LostSyn, Quirks, RecoveryRules, WireSize};

pub(crate) use fack::Fack;
pub(crate) use reno_newreno::Reno;
pub(crate) use sack::Sack;
pub(crate) use tahoe::Tahoe;
pub(crate) use vegas::Vegas;
pub(crate) use window::RENO;

use crate::{Config, Connection, recovery};
use bentpipe_base::Bytes;
use std::time::Duration;

impl Config {
    /// As ns-2 2.35 reckons, with the parameters of its reference runs: 500-byte segments that take
    /// 516 bytes on the wire, acknowledgements of 40, window that grows by the acknowledgement, RTO
    /// of 0.2 to 60 s in ticks of 10 ms, delayed acknowledgements of 100 ms, three SACK blocks, no
    /// timestamps. Both ends start with [`crate::Connection::established`].
    pub fn ns2() -> Self {
        Self {
            congestion: &RENO,
            recovery: recovery::find("ns2-sack").expect("the registry has it, see the test"),
            mss: 500,
            initial_window: 2,
            delayed_ack: Duration::from_millis(100),
            initial_rto: Duration::from_secs(3),
            min_rto: Duration::from_millis(200),
            max_retries: u32::MAX,
            sack_blocks: 3,
            timestamps: false,
            nagle: false,
            // Effectively infinite, and within what a scaled window field can say.
            receive_buffer: Bytes(1 << 30),
            clock_granularity: Duration::from_millis(10),
            ns2: Quirks {
                recovery_rules: RecoveryRules::Ns2,
                growth: Growth::Acks,
                first_is_syn: false,
                lost_syn: LostSyn::Timeout,
                one_timed_segment: true,
                wire_size: WireSize::Fixed { data: 16, bare: 40 },
            },
            ..Self::rfc()
        }
    }
}

impl Connection {
    /// How long the acknowledgement was delayed that is due at [`deadline`](Self::deadline); `None` where
    /// that is another timer. Of a timer and an arrival at one instant, ns-2 has that first which was set in motion
    /// first.
    pub fn ack_delay(&self) -> Option<Duration> {
        let due = self.deadline() == Some(self.rx.delack);
        due.then_some(self.config.delayed_ack)
    }
}
