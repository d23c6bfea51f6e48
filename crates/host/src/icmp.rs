//! Handles ICMP errors about packets of ours. Anyone can forge them, so only errors about bytes in flight are heard,
//! and none of them ends an established connection (RFC 5927).

use crate::Tuple;
use crate::host::Host;
use bentpipe_base::Instant;
use bentpipe_tcp::{Cause, State};
use bentpipe_wire::{IcmpError, IcmpKind, Ip};

impl Host {
    pub(crate) fn on_icmp_message(&mut self, ip: &Ip, body: &[u8], now: Instant) {
        let Ok(Some(error)) = IcmpError::parse(ip, body) else {
            self.counters.icmp_ignored += 1;
            return;
        };
        let tuple = Tuple {
            local: error.source,
            remote: error.destination,
        };
        let found = self.table.find(&tuple).and_then(|id| {
            let entry = self.table.get_mut(id)?;
            entry.sent(error.seq).then_some((id, entry))
        });
        let Some((id, entry)) = found else {
            self.counters.icmp_ignored += 1;
            return;
        };
        self.counters.icmp += 1;
        match error.kind {
            IcmpKind::TooBig(next_hop_mtu) => {
                let (remote, mtu) = (tuple.remote.ip(), self.largest_packet(id));
                let length = error.length.0;
                self.paths.too_big(remote, next_hop_mtu.0, length, mtu, now);
                // The connection may not have heard yet what was already known of its path.
                self.fit_path(id, now);
            }
            kind if entry.connection.state() == State::SynSent => {
                // As Linux does, and RFC 5461, section 4 describes: RFC 9293 (MUST-56) would have it wait for what may pass.
                let cause = match kind {
                    IcmpKind::Refused => Cause::Refused,
                    _ => Cause::Unreachable,
                };
                entry.connection.give_up(cause);
                self.wake(id);
            }
            // The error is ignored; if the peer cannot be reached, retransmissions will time out (RFC 5927, section
            // 5.2).
            _ => {}
        }
    }
}
