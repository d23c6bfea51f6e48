//! Counts what passes between the legs, bounds its MSS, and refuses QUIC where the operator wants that.

use super::{HOOK_PRIORITY, Ruleset};
use bentpipe_gateway_config::LegId;

impl Ruleset {
    /// Counts what is forwarded between the legs, and thus not split.
    pub(super) fn passing(&self) -> String {
        let [lan, sat] = [LegId::Lan, LegId::Sat].map(|leg| self.set(leg));
        format!(
            "\
chain refuse_quic {{
}}
chain clamp {{
  type filter hook forward priority {}; policy accept;
}}
chain passing {{
  type filter hook forward priority {}; policy accept;
  iifname {lan} oifname {sat} jump by_kind
  iifname {sat} oifname {lan} jump by_kind
}}
chain by_kind {{
  meta l4proto tcp counter name unsplit_tcp accept
  udp dport 443 jump refuse_quic
  udp dport 443 counter name unsplit_quic accept
  udp sport 443 counter name unsplit_quic accept
  meta l4proto {{ esp, ah }} counter name unsplit_ipsec accept
  udp dport {{ 500, 4500 }} counter name unsplit_ipsec accept
  udp sport {{ 500, 4500 }} counter name unsplit_ipsec accept
  counter name unsplit_other
}}
",
            HOOK_PRIORITY + 4,
            HOOK_PRIORITY + 12,
        )
    }
}
