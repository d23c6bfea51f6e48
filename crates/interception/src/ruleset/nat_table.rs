//! The table for where addresses are translated.

use super::{HOOK_PRIORITY, Ruleset, SYN};

impl Ruleset {
    /// The body of another table, for where addresses are translated: what conntrack knows of a SYN, and of UDP that tunnels carry. And dials keep
    /// their destination, by a translation to itself before all others: what an operator does with the connections
    /// of the gateway's own programs (a proxy for them, say) is not for those that it forwards.
    pub(crate) fn nat_table(&self) -> String {
        let tracked = self.tracked();
        format!(
            "\
chain translated {{
  type filter hook forward priority {}; policy accept;
  {SYN} ct status dnat meta priority set {:#x}
{}}}
chain untranslated {{
  type nat hook output priority -199; policy accept;
  meta mark {tracked} dnat ip to ip daddr
  meta mark {tracked} dnat ip6 to ip6 daddr
}}
",
            HOOK_PRIORITY - 1,
            self.marks.translated(),
            self.translated_udp(),
        )
    }
}
