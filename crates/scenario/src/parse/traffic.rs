//! `[traffic]`.

use super::Places;
use crate::model::{Traffic, TrafficSource};
use crate::names::{Name, Word};
use bentpipe_config::{Table, Wrong, brief};
use bentpipe_traffic::{Kind, Model};

/// Most flows of cross traffic.
const MOST_FLOWS: u64 = 10_000;

/// `None` where something is there that cannot be read; `Some(None)` where nothing is.
pub(super) fn traffic(root: &mut Table<'_, '_>, places: &mut Places) -> Option<Option<Traffic>> {
    let Some(mut table) = root.table("traffic") else {
        return Some(None);
    };
    places.traffic = Some([table.place_of("between"), table.place_of("variant")]);
    let example = "[\"h3\", \"h4\"]";
    if !table.has("between") {
        let wrong = Wrong::new(
            "[traffic] lacks `between`",
            format!("`between = {example}`"),
        );
        table.problem("between", wrong);
    }
    let between = table.array::<Name, 2>("between", example);
    let variant = table.optional::<Word>("variant").map(|word| word.0);
    let source = if table.has("profile") {
        profile(&mut table)
    } else {
        model(&mut table)
    };
    table.finish();
    Some(Some(Traffic {
        source: source?,
        between: between?.map(|name| name.0),
        variant,
    }))
}

fn profile(table: &mut Table<'_, '_>) -> Option<TrafficSource> {
    let file = table.required::<String>("profile", "\"profile.csv\"")?;
    for key in ["model", "flows"] {
        if table.has(key) {
            let wrong = Wrong::new(
                format!("`{key}` beside a profile, which says it itself"),
                "either `profile` or `model` with `flows`",
            );
            table.problem(key, wrong);
            return None;
        }
    }
    Some(TrafficSource::Profile {
        file,
        profile: None,
    })
}

fn model(table: &mut Table<'_, '_>) -> Option<TrafficSource> {
    let name = table.or("model", Kind::default().name().to_owned());
    let flows = table.required::<u64>("flows", "50");
    let Some(kind) = Kind::find(&name) else {
        let what = format!("unknown model of traffic `{}`", brief(&name));
        let names = Kind::ALL.map(Kind::name);
        table.problem("model", Wrong::name(what, &name, &names));
        return None;
    };
    let flows = flows?;
    if flows > MOST_FLOWS {
        let what = format!("{flows} flows of traffic");
        table.problem("flows", Wrong::new(what, format!("0 to {MOST_FLOWS}")));
        return None;
    }
    Some(TrafficSource::Model {
        model: Model::of(kind),
        flows: flows as usize,
    })
}
