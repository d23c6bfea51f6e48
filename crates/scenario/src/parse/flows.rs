//! `[[flows]]`.

use super::LONGEST;
use crate::model::{Amount, Flow, FlowKind};
use crate::read::{Place, Table, Wrong};
use crate::values::{Control, Name, brief};
use bentpipe_base::{Bytes, Rate};
use core::time::Duration;

/// Where a flow's names stand.
#[derive(Clone, Debug)]
pub(super) struct Places {
    pub(super) name: Place,
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) opened_by: Place,
    pub(super) end: Place,
    pub(super) path_rate: Place,
}

pub(super) fn flows(root: &mut Table<'_, '_>, places: &mut super::Places) -> Option<Vec<Flow>> {
    let tables = root.list("flows");
    let count = tables.len();
    let mut flows = Vec::new();
    for (index, table) in tables.into_iter().enumerate() {
        let (flow, at) = flow(table, index);
        places.flows.push(at);
        flows.extend(flow);
    }
    (flows.len() == count).then_some(flows)
}

fn flow(mut table: Table<'_, '_>, index: usize) -> (Option<Flow>, Places) {
    let name = table.or("name", Name(format!("flow{}", index + 1)));
    kind(&mut table);
    let from = table.required::<Name>("from", "\"server\"");
    let to = table.required::<Name>("to", "\"terminal\"");
    let opened_by = table.optional::<Name>("opened_by");
    let start = table.or("start", Duration::ZERO);
    if start > LONGEST {
        let wrong = Wrong::new("a start after more than a day", "such as \"5s\"");
        table.problem("start", wrong);
    }
    let amount = amount(&mut table);
    let control = table.optional::<Control>("congestion_control");
    let path_rate = table.optional::<Rate>("path_rate");
    let places = Places {
        path_rate: table.place_of("path_rate"),
        name: table.place_of("name"),
        from: table.place_of("from"),
        to: table.place_of("to"),
        opened_by: table.place_of("opened_by"),
        end: table.place_of(if table.has("duration") {
            "duration"
        } else {
            "start"
        }),
    };
    table.finish();
    let flow = from.zip(to).zip(amount).map(|((from, to), amount)| Flow {
        name: name.0,
        kind: FlowKind::Bulk,
        opened_by: opened_by.map_or_else(|| from.0.clone(), |name| name.0),
        from: from.0,
        to: to.0,
        start,
        amount,
        congestion_control: control.map(|control| control.0),
        path_rate,
    });
    (flow, places)
}

fn kind(table: &mut Table<'_, '_>) {
    let kind = table.or("kind", "bulk".to_owned());
    if kind != "bulk" {
        let what = format!("unknown kind of flow `{}`", brief(&kind));
        table.problem("kind", Wrong::name(what, &kind, &["bulk"]));
    }
}

fn amount(table: &mut Table<'_, '_>) -> Option<Amount> {
    let bytes = table.optional::<Bytes>("bytes");
    let duration = table.optional::<Duration>("duration");
    if table.has("bytes") == table.has("duration") {
        let what = format!("{} does not say how much to send", table.title());
        let expected = "one of `bytes = \"2MB\"` and `duration = \"30s\"`";
        table.problem("duration", Wrong::new(what, expected));
        return None;
    }
    if bytes == Some(Bytes(0)) {
        let wrong = Wrong::new("a flow of no bytes", "at least \"1B\"");
        table.problem("bytes", wrong);
    }
    if duration.is_some_and(|duration| duration.is_zero() || duration > LONGEST) {
        let what = "a flow that lasts no time or more than a day";
        table.problem("duration", Wrong::new(what, "such as \"30s\""));
    }
    bytes.map(Amount::Bytes).or(duration.map(Amount::Duration))
}
