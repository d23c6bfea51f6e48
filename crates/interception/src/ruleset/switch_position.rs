//! Chain `admission`: what becomes of new connections, by the position of the [switch](crate::AdmissionSwitch).

use bentpipe_os::nft::Switch;
use std::fmt::{self, Write as _};

/// The limit that is reached when new flows pass unsplit for want of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The limit of flows.
    Flows,
    /// The kernel gives no more file descriptors.
    Descriptors,
    /// The limit of bytes that wait in buffers.
    Buffered,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flows => "flows",
            Self::Descriptors => "descriptors",
            Self::Buffered => "buffered bytes",
        })
    }
}

/// Why new connections pass end to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassReason {
    /// A limit is reached.
    Limit(Limit),
    /// The operator wants it.
    Bypassed,
    /// The gateway is draining before its end.
    Draining,
}

/// What becomes of new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwitchPosition {
    /// They are split, unless a policy has it otherwise.
    Split,
    /// They pass end to end.
    Pass(PassReason),
}

/// A thread that reads a queue of packets of connections that stand, beside the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueReader {
    /// Lets packets of split connections skip the operator's input and output chains.
    Chains,
    /// Snoops.
    Snoop,
    /// Thins out acknowledgements.
    Acks,
    /// Carries a leg by our own TCP.
    Carrier,
    /// Carries clients' UDP by tunnels, beside their connections.
    Tunnels,
}

impl QueueReader {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Chains,
        Self::Snoop,
        Self::Acks,
        Self::Carrier,
        Self::Tunnels,
    ];

    /// The name of its thread.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chains => "chains",
            Self::Snoop => "snoop",
            Self::Acks => "acks",
            Self::Carrier => "carrier",
            Self::Tunnels => "tunnels",
        }
    }

    /// The position of the switch that it holds while it reads its queue, beside that of new connections: packets come to the
    /// queue only as long as it does. Packets of split connections, which rules of the operator's may drop or refuse, or which are
    /// carried, wait for their thread however long that takes.
    pub(crate) fn position(self) -> Option<u16> {
        match self {
            Self::Chains => None,
            Self::Snoop => Some(7),
            Self::Acks => Some(8),
            Self::Carrier => Some(9),
            Self::Tunnels => Some(10),
        }
    }

    /// What a rule says that is for TCP and UDP packets while the thread holds its position.
    pub(super) fn attends(self) -> String {
        self.position().map_or_else(String::new, Switch::matches)
    }
}

impl SwitchPosition {
    /// Its number on the switch.
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Split => 1,
            Self::Pass(reason) => reason.position(),
        }
    }
}

impl PassReason {
    const ALL: [Self; 5] = [
        Self::Limit(Limit::Flows),
        Self::Limit(Limit::Descriptors),
        Self::Limit(Limit::Buffered),
        Self::Bypassed,
        Self::Draining,
    ];

    fn position(self) -> u16 {
        match self {
            Self::Limit(Limit::Flows) => 2,
            Self::Limit(Limit::Descriptors) => 3,
            Self::Limit(Limit::Buffered) => 4,
            Self::Bypassed => 5,
            Self::Draining => 6,
        }
    }

    /// The name of its counter.
    fn counter(self) -> &'static str {
        match self {
            Self::Limit(Limit::Flows) => "limit_flows",
            Self::Limit(Limit::Descriptors) => "limit_descriptors",
            Self::Limit(Limit::Buffered) => "limit_buffered",
            Self::Bypassed => "bypassed",
            Self::Draining => "draining",
        }
    }
}

/// The chain that lets new connections pass unless they are to be split.
pub(super) fn chain() -> String {
    let split = Switch::matches(SwitchPosition::Split.number());
    let mut chain = format!("chain admission {{\n  {split} return\n  jump note_passed\n");
    for reason in PassReason::ALL {
        let matches = Switch::matches(reason.position());
        // Writing to a String cannot fail.
        let _ = writeln!(
            chain,
            "  {matches} counter name {} accept",
            reason.counter()
        );
    }
    chain + "  counter name unattended accept\n}\n"
}

#[cfg(test)]
mod tests {
    use super::super::COUNTERS;
    use super::*;

    #[test]
    fn each_position_has_a_number_and_a_counter_of_its_own() {
        let mut numbers: Vec<_> = PassReason::ALL.map(PassReason::position).into();
        numbers.push(SwitchPosition::Split.number());
        numbers.extend(
            QueueReader::ALL
                .into_iter()
                .filter_map(QueueReader::position),
        );
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert!(
            PassReason::ALL
                .map(PassReason::counter)
                .iter()
                .all(|name| COUNTERS.contains(name))
        );
    }
}
