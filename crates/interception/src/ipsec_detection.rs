//! Detects policies of IPsec by which the kernel judges what is for this machine otherwise than what it forwards.
//!
//! Packets of split connections are for this machine: the kernel asks policies of direction `in` about them, and those of
//! `fwd` about forwarded ones. Where both say the same, nothing changes by a split. What only one of them concerns passes
//! unsplit, by a table of its own.

use crate::ruleset::Ruleset;
use bentpipe_os::ipsec::{self, Prefix};
use bentpipe_os::nft::{OwnerTable, TableFamily};
use std::collections::BTreeSet;

/// What policies judge apart, as of the last look, and the table that has it pass.
#[derive(Debug, Default)]
pub(crate) struct IpsecDetector {
    table: Option<OwnerTable>,
    apart: BTreeSet<(Prefix, Prefix)>,
    /// It was said that policies cannot be asked for.
    told: bool,
}

impl IpsecDetector {
    /// Looks at the policies of the calling thread's namespace.
    pub(crate) fn look(&mut self, rules: &Ruleset) {
        let apart = match ipsec::judged_apart() {
            Ok(apart) => apart,
            Err(error) => {
                if !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(%error, "cannot ask for policies of IPsec (`ip xfrm policy`): where those of `in` and `fwd` differ, split connections may hang");
                }
                return;
            }
        };
        let held = self.table.as_ref().is_some_and(OwnerTable::is_held);
        if apart == self.apart && (apart.is_empty() || held) {
            return;
        }
        let ends = apart
            .iter()
            .map(|((source, source_bits), (destination, bits))| {
                format!("{source}/{source_bits} to {destination}/{bits}")
            });
        match ends.collect::<Vec<_>>().as_slice() {
            [] => tracing::info!("policies of IPsec for `in` and `fwd` are the same again"),
            ends if apart != self.apart => tracing::warn!(
                "policies of IPsec for `in` and `fwd` (`ip xfrm policy`) are not the same from {}: connections there, either way, pass unsplit; give both directions the same",
                ends.join(", ")
            ),
            _ => {}
        }
        self.table = None;
        if !apart.is_empty() {
            match OwnerTable::load(TableFamily::Inet, "ipsec", &rules.ipsec_table(&apart)) {
                Ok(table) => self.table = Some(table),
                Err(error) => {
                    // It is tried again at the next look.
                    tracing::warn!(%error, "connections that policies of IPsec concern may hang");
                    return;
                }
            }
        }
        self.apart = apart;
    }
}
