//! ICMP errors about our own sockets, by which the kernel learns what the path to the other end carries.
//!
//! Such an error comes from a router between us and that end, hence by the leg of the socket, or from this machine itself.
//! One that comes by the other leg is a client's who speaks of packets that never went its way: the path MTU that it names
//! would be that of everybody to this server. So it goes on as if there were no socket, to the client whose address it is
//! sent to; where that is this machine it is dropped, because the kernel would find the socket by itself.

use super::Ruleset;
use crate::mark::Marks;
use bentpipe_gateway_config::LegId;

/// What matches them, and ICMP besides. No other ICMP has a socket.
const ICMP: &str = "meta l4proto { icmp, ipv6-icmp }";

impl Ruleset {
    /// The chains of such errors: `name` does `then` with those that count, one chain for each leg.
    fn chains_of_legs(&self, name: &str, then: &str) -> String {
        let chain = |(leg, of)| {
            format!(
                "chain {name}_{of} {{\n  iifname {{ lo, {} }} {then}\n  fib daddr type local drop\n  accept\n}}\n",
                self.names(leg)
            )
        };
        [(LegId::Lan, "lan"), (LegId::Sat, "sat")]
            .map(chain)
            .concat()
    }

    /// The chains of those that are to be given to our sockets by `deliver`, for chains `take` and `deliver`.
    pub(super) fn icmp_errors(&self, deliver: &str) -> String {
        let legs = [LegId::Lan, LegId::Sat];
        let [lan, sat] = legs.map(|leg| self.marks.leg(leg));
        let [tracked_lan, tracked_sat] = legs.map(|leg| self.marks.tracked(leg));
        let carried = self.marks.carried();
        let (found, ours, mask) = (self.marks.found(), self.marks.intercepted(), Marks::mask());
        format!(
            "\
{}{}{}chain errors {{
  meta mark {{ {found:#x}, {ours:#x} }} accept
  socket mark vmap {{ {lan:#x} : goto error_lan, {sat:#x} : goto error_sat, {carried:#x} : goto error_sat, {tracked_lan:#x} : goto tracked_error_lan, {tracked_sat:#x} : goto tracked_error_sat }}
  socket transparent 1 jump unmarked
}}
chain late_errors {{
  socket mark vmap {{ {lan:#x} : goto late_error_lan, {sat:#x} : goto late_error_sat, {carried:#x} : goto late_error_sat, {tracked_lan:#x} : goto late_error_lan, {tracked_sat:#x} : goto late_error_sat }}
  socket mark & {mask:#x} == {ours:#x} accept
  socket transparent 1 jump late
}}
",
            self.chains_of_legs("error", "goto find"),
            self.chains_of_legs("tracked_error", "accept"),
            self.chains_of_legs("late_error", deliver),
        )
    }

    /// The rule that leads them to `chain`.
    pub(super) fn lead_errors(chain: &str) -> String {
        format!("  {ICMP} jump {chain}\n")
    }
}
