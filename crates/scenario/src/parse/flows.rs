//! `[[flows]]`.

use super::LONGEST;
use crate::model::{Amount, Flow, FlowKind};
use crate::names::{Control, Name, Word, check_name, unsaid_name};
use bentpipe_base::{Bytes, Rate};
use bentpipe_config::{Place, Table, Wrong, brief};
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
    pub(super) app: Place,
    pub(super) congestion_control: Place,
    pub(super) variant: Place,
}

pub(super) fn flows(root: &mut Table<'_, '_>, places: &mut super::Places) -> Option<Vec<Flow>> {
    let tables = root.list("flows");
    let count = tables.len();
    let (mut whole, mut flows) = (0, Vec::new());
    for (index, table) in tables.into_iter().enumerate() {
        let (flow, copies, at) = flow(table, index);
        let Some(flow) = flow else {
            continue;
        };
        whole += 1;
        for copy in 1..=copies {
            let name = match copies {
                1 => flow.name.clone(),
                _ => format!("{}-{copy}", flow.name),
            };
            places.flows.push(at.clone());
            flows.push(Flow {
                name,
                ..flow.clone()
            });
        }
    }
    (whole == count).then_some(flows)
}

/// Most flows of one `[[flows]]`.
const MOST_COPIES: u64 = 10_000;

/// How many flows like this one there are.
fn copies(table: &mut Table<'_, '_>, name: &str) -> u64 {
    let count = table.or("count", 1u64);
    if !(1..=MOST_COPIES).contains(&count) {
        let what = format!("{count} flows in one");
        let wrong = Wrong::new(what, format!("a `count` of 1 to {MOST_COPIES}"));
        table.problem("count", wrong);
        return 1;
    }
    // Copies are named after it and must be names themselves.
    if count > 1
        && let Err(wrong) = check_name(&format!("{name}-{count}"))
    {
        table.problem("name", wrong);
    }
    count
}

fn flow(mut table: Table<'_, '_>, index: usize) -> (Option<Flow>, u64, Places) {
    let name = table.or("name", Name(unsaid_name(index)));
    let copies = copies(&mut table, &name.0);
    let kind = kind(&mut table);
    let app = table.optional::<Word>("app");
    let from = table.required::<Name>("from", "\"server\"");
    let to = table.required::<Name>("to", "\"terminal\"");
    let opened_by = table.optional::<Name>("opened_by");
    let start = table.or("start", Duration::ZERO);
    if start > LONGEST {
        let wrong = Wrong::new(
            "a start after more than a day",
            "at most a day (86400s), such as \"5s\"",
        );
        table.problem("start", wrong);
    }
    let amount = amount(&mut table);
    let control = table.optional::<Control>("congestion_control");
    let variant = table.optional::<Word>("variant");
    if table.has("congestion_control") && variant.is_some() {
        let what = "a variant is a congestion control and a recovery";
        let wrong = Wrong::new(what, "either `variant` or `congestion_control`");
        table.problem("variant", wrong);
    }
    let path_rate = table.optional::<Rate>("path_rate");
    let places = Places {
        path_rate: table.place_of("path_rate"),
        app: table.place_of("app"),
        congestion_control: table.place_of("congestion_control"),
        variant: table.place_of("variant"),
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
    let ends = from.zip(to).zip(amount).zip(kind);
    let flow = ends.map(|(((from, to), amount), kind)| Flow {
        name: name.0,
        kind,
        app: app.map(|app| app.0),
        opened_by: opened_by.map_or_else(|| from.0.clone(), |name| name.0),
        from: from.0,
        to: to.0,
        start,
        amount,
        congestion_control: control.map(|control| control.0),
        variant: variant.map(|variant| variant.0),
        path_rate,
    });
    (flow, copies, places)
}

fn kind(table: &mut Table<'_, '_>) -> Option<FlowKind> {
    let kind = table.or("kind", "bulk".to_owned());
    match kind.as_str() {
        "bulk" => Some(FlowKind::Bulk),
        "request-response" => {
            let request = table.or("request", Bytes(200));
            let response = table.required::<Bytes>("response", "\"100kB\"");
            if request == Bytes(0) || response == Some(Bytes(0)) {
                let wrong = Wrong::new("a request or an answer of no bytes", "at least \"1B\"");
                table.problem("response", wrong);
            }
            let think = time(table, "think", "1s").unwrap_or_default();
            Some(FlowKind::RequestResponse {
                request,
                response: response?,
                think,
            })
        }
        "on-off" => {
            let on = phase(table, "on");
            let off = phase(table, "off");
            let rate = table.optional::<Rate>("rate");
            let exponential = table.or("exponential", false);
            Some(FlowKind::OnOff {
                on: on?,
                off: off?,
                rate,
                exponential,
            })
        }
        _ => {
            let what = format!("unknown kind of flow `{}`", brief(&kind));
            let names = ["bulk", "request-response", "on-off"];
            table.problem("kind", Wrong::name(what, &kind, &names));
            None
        }
    }
}

/// `on` or `off`.
fn phase(table: &mut Table<'_, '_>, key: &'static str) -> Option<Duration> {
    let time = table.required::<Duration>(key, "\"1s\"")?;
    if time.is_zero() || time > LONGEST {
        let what = format!("`{key}` of nothing or of more than a day");
        table.problem(
            key,
            Wrong::new(what, "at most a day (86400s), such as \"1s\""),
        );
        return None;
    }
    Some(time)
}

fn time(table: &mut Table<'_, '_>, key: &'static str, example: &str) -> Option<Duration> {
    let time = table.optional::<Duration>(key)?;
    if time <= LONGEST {
        return Some(time);
    }
    let wrong = Wrong::new(
        "a time of more than a day",
        format!("at most a day (86400s), such as \"{example}\""),
    );
    table.problem(key, wrong);
    None
}

fn amount(table: &mut Table<'_, '_>) -> Option<Amount> {
    let said = ["bytes", "segments", "duration"].map(|key| table.has(key));
    let bytes = table.optional::<Bytes>("bytes");
    let segments = table.optional::<u64>("segments");
    let duration = table.optional::<Duration>("duration");
    if said.into_iter().filter(|said| *said).count() != 1 {
        let what = format!("{} does not say how much to send", table.title());
        let expected = "one of `bytes = \"2MB\"`, `segments = 1000` and `duration = \"30s\"`";
        table.problem("duration", Wrong::new(what, expected));
        return None;
    }
    // No segments are a set-up and nothing more, in the simulator.
    if bytes == Some(Bytes(0)) {
        table.problem("bytes", Wrong::new("a flow of no bytes", "at least \"1B\""));
    }
    if duration.is_some_and(|duration| duration.is_zero() || duration > LONGEST) {
        let what = "a flow that lasts no time or more than a day";
        table.problem(
            "duration",
            Wrong::new(what, "at most a day (86400s), such as \"30s\""),
        );
    }
    let counted = bytes.map(Amount::Bytes).or(segments.map(Amount::Segments));
    counted.or(duration.map(Amount::Duration))
}
