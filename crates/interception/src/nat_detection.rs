//! Detects whether anybody translates addresses (NAT) in the gateway's namespace.
//!
//! Where somebody does, conntrack is at work already, and a table of ours asks it about SYNs. Elsewhere there is no
//! such table, because a rule that asks conntrack is what starts it.

use crate::ruleset::Ruleset;
use bentpipe_os::nft::{self, OwnerTable, TableFamily};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether addresses are translated, as of the last look, and the table that asks conntrack where they are.
#[derive(Debug)]
pub(crate) struct NatDetector {
    table: Option<OwnerTable>,
    translates: Arc<AtomicBool>,
}

impl NatDetector {
    pub(crate) fn new(translates: Arc<AtomicBool>) -> Self {
        Self {
            table: None,
            translates,
        }
    }

    /// Looks at the chains of the calling thread's namespace.
    pub(crate) fn look(&mut self, rules: &Ruleset) {
        let translates = match nft::translates() {
            Ok(translates) => translates,
            Err(error) => {
                tracing::warn!(%error, "cannot ask whether addresses are translated");
                return;
            }
        };
        let before = self.translates.swap(translates, Ordering::Relaxed);
        if !translates {
            self.table = None;
            return;
        }
        if self.table.as_ref().is_some_and(OwnerTable::is_held) {
            return;
        }
        if !before {
            tracing::info!(
                "addresses are translated here: what is dialled is tracked, and connections to a translated destination pass unsplit"
            );
            warn();
        }
        self.table = None;
        match OwnerTable::load(TableFamily::Inet, "nat", &rules.nat_table()) {
            Ok(table) => self.table = Some(table),
            Err(error) => {
                tracing::warn!(%error, "connections whose addresses are translated may fail");
            }
        }
    }
}

/// Warns of the operator's rules that match forwarded connections and not those that the gateway dials.
fn warn() {
    // Without it the gateway works as well: the connections pass.
    let Ok(survey) = nft::survey() else {
        return;
    };
    for rule in &survey.translating {
        tracing::warn!(
            "connections that this rule translates pass unsplit, the first of each client 3.5 s late, for it asks for what the gateway's own connections lack: `{rule}`; ask for addresses or oifname"
        );
    }
}
