//! Whether addresses are translated in the gateway's namespace, by whoever it is.
//!
//! Where they are, conntrack is at work already, and is asked about SYNs by a table of its own; nowhere
//! else, for to ask would put it to work.

use crate::ruleset::Ruleset;
use bentpipe_os::nft::{self, OwnerTable, TableFamily};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is known of it, and that table.
#[derive(Debug)]
pub(crate) struct Translation {
    table: Option<OwnerTable>,
    translates: Arc<AtomicBool>,
}

impl Translation {
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
        match OwnerTable::load(TableFamily::Inet, "nat", &rules.translation()) {
            Ok(table) => self.table = Some(table),
            Err(error) => {
                tracing::warn!(%error, "connections whose addresses are translated may fail");
            }
        }
    }
}

/// Names the rules that do not know what is dialled.
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
