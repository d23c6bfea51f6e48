//! The counters of a gateway, kept without locks.

use bentpipe_base::Bytes;
use bentpipe_interception::Limit;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The live counters of one worker; only that worker adds to them.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[doc = $doc])+ pub $name: Counter,)+
        }

        /// The counters of a gateway, read at one moment. All but `open` only ever grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Snapshot {
            /// Flows open now.
            pub open: u64,
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Snapshot {
            /// Adds those of one worker.
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.read();)+
            }

            /// Every counter that only grows, by its name.
            pub fn entries(&self) -> Vec<NamedCounter> {
                vec![$(NamedCounter {
                    name: stringify!($name),
                    what: concat!($($doc),+).trim(),
                    value: self.$name,
                },)+]
            }
        }
    };
}

/// One counter of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedCounter {
    /// Its name, as in [`Snapshot`].
    pub name: &'static str,
    /// What it counts, in a sentence.
    pub what: &'static str,
    /// How much.
    pub value: u64,
}

counters! {
    /// Connections accepted from clients.
    accepted,
    /// Connections that were established on both legs.
    connected,
    /// Dials that the far side refused.
    refused,
    /// Dials that failed otherwise: unreachable, timed out.
    unreachable,
    /// Dials from another port than the client's, because that one was taken.
    other_port,
    /// Flows of which both directions ended in order.
    finished,
    /// Flows that ended by a reset or an error of either side.
    reset,
    /// Of these, flows that ended because a side had not been heard of for too long (ETIMEDOUT).
    vanished,
    /// Connections made directly to the gateway's own port, and refused.
    direct,
    /// Connections reset because there was no room or no descriptor for them.
    starved,
    /// SYNs that passed unsplit because the dial for them, or for other SYNs of that client, got no answer.
    unanswered,
    /// SYNs held until the far side had answered.
    held,
    /// SYNs that came again, and were dropped while the far side was being dialled, or answered after they had been let
    /// in.
    repeated,
    /// Held SYNs given up: the far side was silent, or the client had gone when it answered.
    abandoned,
    /// SYNs that passed unsplit because `half_open` of them were held, or the share of that which one source
    /// prefix (a quarter) or destination (half) may have.
    over_half_open,
    /// SYNs that passed unsplit because the listeners would have answered them by SYN cookies.
    over_backlog,
    /// SYNs that passed unsplit because every answer would be a SYN cookie (net.ipv4.tcp_syncookies is 2).
    syn_cookies,
    /// SYNs that passed unsplit because more came at once than the queue's buffer holds.
    queue_overrun,
    /// SYNs that passed unsplit at the limit of flows before the kernel's rules let them pass.
    over_flows,
    /// SYNs that passed unsplit because their client had its share of `flows`: three times what others left.
    over_client_flows,
    /// SYNs that passed unsplit for want of descriptors before the kernel's rules let them pass.
    over_descriptors,
    /// SYNs that passed unsplit at the limit of buffered bytes before the kernel's rules let them pass.
    over_buffered,
    /// SYNs that passed unsplit because the gateway was frozen while they were held.
    unattended,
    /// SYNs answered before the far side was asked.
    early,
    /// SYNs that passed unsplit for an option that a split would break: MPTCP, TCP-MD5, TCP-AO, and
    /// any that is unknown.
    foreign_options,
    /// Flows reset because no byte had moved for the time of `idle`.
    idle,
    /// Flows given less room because their receivers took nothing when memory was short.
    shrunk,
    /// Flows reset because their receivers took nothing for too long when memory was short.
    stalled,
    /// Times that interception of new flows was suspended at a limit.
    suspended,
    /// Bytes carried from the terrestrial to the satellite leg.
    bytes_to_sat,
    /// Bytes carried from the satellite to the terrestrial leg.
    bytes_to_lan,
    /// How often a full sink made its pump stop reading, which holds the sender back.
    held_back,
    /// Dials that used another congestion control than the leg's, which the kernel had lost.
    other_control,
    /// Acknowledgements not sent because a newer one took their place.
    acks_thinned,
    /// Packets of split connections that went past input and output chains whose rules may drop some.
    past_chains,
    /// Data segments of snooped connections that were cached.
    snoop_cached,
    /// Data segments of snooped connections that found no room in the cache, and passed all the same.
    snoop_uncached,
    /// Segments of snooped connections that were sent again from the cache upon acknowledgements.
    snoop_retransmitted,
    /// Those that were sent again because the agent's timer expired.
    snoop_timeouts,
    /// Segments that were to be sent again, either way, and that the kernel did not take.
    snoop_unsent,
    /// Duplicate acknowledgements of snooped connections that were held back.
    snoop_suppressed,
    /// Packets of snooped connections that could not be read, and passed.
    snoop_unread,
    /// Copies of segments of snooped connections that gave way to others.
    snoop_evicted,
    /// Directions of snooped connections left to their senders, because what was sent again did not arrive, or was refused by the kernel.
    snoop_given_up,
    /// Packets of snooped connections beyond those that the agent has room for.
    snoop_unwatched,
    /// Connections whose satellite leg SCPS-TP carries.
    carried,
    /// Connections whose satellite leg the carrier carries as TCP, because the far end does not speak SCPS-TP.
    carried_plain,
    /// Data segments that the carrier sent again.
    carrier_sent_again,
    /// SNACKs from the far end that named bytes on their way.
    carrier_snacks,
    /// SNACKs that the carrier sent.
    carrier_snacks_sent,
    /// How often the carrier took a connection's link for out.
    carrier_outages,
    /// Packets of the carrier that the kernel did not take.
    carrier_unsent,
    /// SYNs from space that the carrier forgot before anybody had answered them, because there were more than `half_open`.
    carrier_over_half_open,
    /// Connections that the carrier did not carry, because it had `flows`.
    carrier_over_flows,
    /// Connections whose satellite leg is a tunnel over QUIC.
    tunnelled,
    /// New connections that found no far end of tunnels, and passed end to end or were refused.
    tunnel_down,
    /// Lines that the flow log should have had and that were lost.
    log_lost,
}

/// A number that one thread counts up and all may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one more.
    pub fn one(&self) {
        self.many(1);
    }

    /// Counts `count` more.
    pub fn many(&self, count: u64) {
        // One writer: a plain load and store, without the price of an atomic add.
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before.wrapping_add(count), Ordering::Relaxed);
    }

    /// The count so far.
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// The counter of the SYNs that pass at `limit`.
    pub(crate) fn over(&self, limit: Limit) -> &Counter {
        match limit {
            Limit::Flows => &self.over_flows,
            Limit::Descriptors => &self.over_descriptors,
            Limit::Buffered => &self.over_buffered,
        }
    }
}

impl Snapshot {
    /// SYNs that passed unsplit at any limit.
    pub fn over_limit(&self) -> u64 {
        self.over_half_open
            + self.over_backlog
            + self.over_flows
            + self.over_client_flows
            + self.over_descriptors
            + self.over_buffered
    }

    /// SYNs that passed unsplit by a worker's word, by the reason as `Meter::passed` of the gateway names it.
    pub fn unsplit(&self) -> [(&'static str, u64); 11] {
        [
            ("limit_flows", self.over_flows),
            ("client_flows", self.over_client_flows),
            ("limit_descriptors", self.over_descriptors),
            ("limit_buffered", self.over_buffered),
            ("unattended", self.unattended),
            ("foreign_options", self.foreign_options),
            ("half_open", self.over_half_open),
            ("backlog", self.over_backlog),
            ("syn_cookies", self.syn_cookies),
            ("queue_overrun", self.queue_overrun),
            ("unanswered", self.unanswered),
        ]
    }

    /// Bytes carried both ways.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.bytes_to_sat) + Bytes(self.bytes_to_lan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sums_the_workers() {
        let workers = [Counters::default(), Counters::default()];
        workers[0].bytes_to_sat.many(5);
        workers[1].bytes_to_sat.many(7);
        workers[1].accepted.one();
        let mut sum = Snapshot::default();
        workers.iter().for_each(|worker| sum.add(worker));
        assert_eq!((sum.accepted, sum.bytes()), (1, Bytes(12)));
        let entries = sum.entries();
        let carried = entries.iter().find(|entry| entry.name == "bytes_to_sat");
        assert_eq!(carried.unwrap().value, 12);
        assert_eq!(entries[0].what, "Connections accepted from clients.");
    }
}
