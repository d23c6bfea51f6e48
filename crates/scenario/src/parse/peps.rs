//! `[peps.NAME]`.

use super::old_split;
use super::queue::limit;
use super::{LONGEST, Places, named};
use crate::model::{AckFilter, Pep, PepKind, Snoop, SnoopPreset};
use crate::names::Name;
use bentpipe_config::{Table, Wrong, brief};
use core::time::Duration;
use std::collections::BTreeMap;

pub(super) fn peps(root: &mut Table<'_, '_>, places: &mut Places) -> Option<BTreeMap<String, Pep>> {
    named(root, "peps", |name, _, mut table| {
        let kind = kind(&mut table);
        let node = table.required::<Name>("node", "\"hub\"");
        let link = table.required::<Name>("link", "\"space\"");
        let enabled = table.or("enabled", true);
        let at = [table.place_of("node"), table.place_of("link")];
        places.peps.insert(name.to_owned(), at);
        // What a kind of proxy that does not exist would understand is not known.
        kind.map(|read| {
            let kind = read(&mut table);
            table.finish();
            Some(Pep {
                node: node?.0,
                link: link?.0,
                enabled,
                kind,
            })
        })?
    })
}

/// What reads the settings of the kind of proxy that the table asks for, if there is one.
fn kind(table: &mut Table<'_, '_>) -> Option<fn(&mut Table<'_, '_>) -> PepKind> {
    let kind = table.required::<String>("kind", "\"snoop\"")?;
    match kind.as_str() {
        "ack-filter" => Some(|table| PepKind::AckFilter(ack_filter(table))),
        "snoop" => Some(|table| PepKind::Snoop(snoop(table))),
        "split" => {
            old_split::refuse(table);
            None
        }
        _ => {
            let what = format!("unknown kind of PEP `{}`", brief(&kind));
            let names = ["ack-filter", "snoop"];
            table.problem("kind", Wrong::name(what, &kind, &names));
            None
        }
    }
}

fn ack_filter(table: &mut Table<'_, '_>) -> AckFilter {
    let said = table.optional::<u64>("packets");
    let packets = said.and_then(|said| u32::try_from(said).ok());
    if said.is_some() && packets.is_none() {
        let wrong = Wrong::new("more packets than can be counted", "such as 100");
        table.problem("packets", wrong);
    }
    AckFilter { packets }
}

fn snoop(table: &mut Table<'_, '_>) -> Snoop {
    let preset = table.optional::<String>("preset");
    let preset = preset.map_or(SnoopPreset::default(), |name| {
        let found = SnoopPreset::ALL.iter().find(|known| known.name() == name);
        found.copied().unwrap_or_else(|| {
            let what = format!("unknown preset `{}`", brief(&name));
            let names = SnoopPreset::ALL.map(SnoopPreset::name);
            table.problem("preset", Wrong::name(what, &name, &names));
            SnoopPreset::default()
        })
    });
    let cache = table.table("cache").and_then(|mut cache| {
        let limit = limit(&mut cache, "the cache's size");
        cache.finish();
        limit
    });
    let min_timeout = table.optional::<Duration>("min_timeout");
    if min_timeout.is_some_and(|time| time.is_zero() || time > LONGEST) {
        let what = "a least timeout of nothing or of more than a day";
        table.problem(
            "min_timeout",
            Wrong::new(what, "at most a day (86400s), such as \"100ms\""),
        );
    }
    let most = table.optional::<u64>("max_retransmissions");
    let max_retransmissions = most.and_then(|most| u32::try_from(most).ok());
    if most.is_some() && max_retransmissions.is_none() {
        let wrong = Wrong::new("more retransmissions than can be counted", "such as 10");
        table.problem("max_retransmissions", wrong);
    }
    Snoop {
        preset,
        cache,
        min_timeout,
        max_retransmissions,
    }
}
