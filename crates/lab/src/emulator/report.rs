use super::counters::Traffic;
use super::histogram::{Lateness, milliseconds};
use serde::Serialize;
use std::time::Duration;

/// What an emulator did, and whether it can be believed.
///
/// A run is invalid when the emulator did something to packets that the link would not have done:
/// - the kernel dropped packets before they were read ([`Port::unread`]), or packets could not be
///   handed back ([`Port::write_errors`]);
/// - of the packets delivered, more than 1% came later than the limit
///   ([`crate::emulator::Spec::lateness_limit`]);
/// - a port failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Whether the emulator kept up.
    pub valid: bool,
    /// Why not, one line each.
    pub reasons: Vec<String>,
    /// Whether its thread was real-time (SCHED_FIFO).
    pub realtime: bool,
    /// From start to stop.
    #[serde(rename = "elapsed_ms", serialize_with = "milliseconds")]
    pub elapsed: Duration,
    /// Processor time of its thread: its own, and the kernel's work on packets that it writes.
    #[serde(rename = "cpu_ms", serialize_with = "milliseconds")]
    pub cpu: Duration,
    /// The lateness of every delivered packet: when it was written, less when the link had it arrive.
    pub lateness: Lateness,
    /// The lateness of 50 wake-ups a second without a packet, which a packet would have suffered then.
    pub probes: Lateness,
    /// The packets that A sent.
    pub from_a: Traffic,
    /// The packets that B sent.
    pub from_b: Traffic,
    /// The port at A.
    pub port_a: Port,
    /// The port at B.
    pub port_b: Port,
}

/// What happened at one port, outside the link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Packets that the kernel dropped because the emulator did not read them in time.
    pub unread: u64,
    /// Packets that the kernel refused to take back.
    pub write_errors: u64,
    /// Why the port can be used no more.
    pub failure: Option<String>,
}

impl Report {
    /// Judges by the rules above.
    pub(super) fn judge(mut self, lateness_limit: Duration) -> Self {
        let mut reasons = Vec::new();
        for (end, port) in [("A", &self.port_a), ("B", &self.port_b)] {
            if port.unread > 0 {
                let unread = port.unread;
                reasons.push(format!(
                    "{unread} packets were not read in time at port {end}"
                ));
            }
            if port.write_errors > 0 {
                let errors = port.write_errors;
                reasons.push(format!(
                    "{errors} packets could not be delivered to port {end}"
                ));
            }
            if let Some(failure) = &port.failure {
                reasons.push(format!("port {end} failed: {failure}"));
            }
        }
        if self.lateness.p99 > lateness_limit {
            reasons.push(format!(
                "1% of the packets were later than {:?}, the limit is {lateness_limit:?} \
                 (less beside the run, or --lateness-limit)",
                self.lateness.p99
            ));
        }
        self.valid = reasons.is_empty();
        self.reasons = reasons;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(p99: u64, port_b: Port) -> Report {
        let report = Report {
            valid: false,
            reasons: Vec::new(),
            realtime: true,
            elapsed: Duration::from_secs(10),
            cpu: Duration::from_secs(1),
            lateness: Lateness {
                p99: Duration::from_millis(p99),
                ..Lateness::default()
            },
            probes: Lateness::default(),
            from_a: Traffic::default(),
            from_b: Traffic::default(),
            port_a: Port::default(),
            port_b,
        };
        report.judge(Duration::from_millis(5))
    }

    #[test]
    fn each_fault_alone_makes_a_run_invalid() {
        let fine = report(5, Port::default());
        assert!(fine.valid && fine.reasons.is_empty(), "{:?}", fine.reasons);
        let unread = Port {
            unread: 1,
            ..Port::default()
        };
        let refused = Port {
            write_errors: 1,
            ..Port::default()
        };
        let failed = Port {
            failure: Some("gone".into()),
            ..Port::default()
        };
        let late = report(6, Port::default());
        for bad in [
            report(0, unread),
            report(0, refused),
            report(0, failed),
            late,
        ] {
            assert!(!bad.valid && bad.reasons.len() == 1, "{:?}", bad.reasons);
        }
    }

    #[test]
    fn it_is_written_with_units_in_the_names() {
        let json = serde_json::to_value(report(7, Port::default())).unwrap();
        assert_eq!(json["lateness"]["p99_ms"], 7.0);
        assert_eq!(json["elapsed_ms"], 10_000.0);
        assert_eq!(json["from_a"]["wait_max_ms"], 0.0);
        assert_eq!(json["from_b"]["bytes_in"], 0);
        assert_eq!(json["valid"], false);
    }
}
