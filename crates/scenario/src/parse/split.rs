//! `[peps.NAME]` of kind `split`.

use super::endpoint::{endpoint, initial_window, rto, sized};
use crate::model::{Split, SplitLeg, SplitSetup};
use crate::names::{Control, Word};
use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_config::{Table, Value, Wrong, brief};
use toml::de::DeValue;

pub(super) fn split(table: &mut Table<'_, '_>) -> Split {
    let endpoint = endpoint(table);
    let setup = setup(table);
    let buffer = table.optional::<Buffer>("buffer");
    Split {
        endpoint,
        setup,
        buffer: buffer.and_then(|Buffer(size)| size),
        flows: flows(table),
        idle: rto(table, "idle"),
        ground: leg(table, "ground"),
        space: leg(table, "space"),
    }
}

/// A size, or "infinite".
struct Buffer(Option<Bytes>);

impl Value for Buffer {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "\"infinite\", or a size of 1B or more such as \"375kB\"";
        if matches!(value, DeValue::String(text) if text == "infinite") {
            return Ok(Self(None));
        }
        match Bytes::read(value, source) {
            Ok(Bytes(0)) => Err(Wrong::new("a buffer that holds nothing", expected)),
            Ok(size) => Ok(Self(Some(size))),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

fn setup(table: &mut Table<'_, '_>) -> SplitSetup {
    let Some(name) = table.optional::<String>("setup") else {
        return SplitSetup::default();
    };
    let found = SplitSetup::ALL.iter().find(|known| known.name() == name);
    found.copied().unwrap_or_else(|| {
        let what = format!("unknown set-up `{}`", brief(&name));
        let names = SplitSetup::ALL.map(SplitSetup::name);
        table.problem("setup", Wrong::name(what, &name, &names));
        SplitSetup::default()
    })
}

fn flows(table: &mut Table<'_, '_>) -> Option<u32> {
    let flows = table.optional::<u64>("flows")?;
    if (1..=10_000_000).contains(&flows) {
        return u32::try_from(flows).ok();
    }
    let what = format!("a split of {flows} connections");
    table.problem("flows", Wrong::new(what, "1 to 10000000"));
    None
}

fn leg(split: &mut Table<'_, '_>, name: &'static str) -> SplitLeg {
    let Some(mut table) = split.table(name) else {
        return SplitLeg::default();
    };
    let variant = table.optional::<Word>("variant").map(|word| word.0);
    let control = table.optional::<Control>("congestion_control");
    if variant.is_some() && control.is_some() {
        let what = "`variant` beside `congestion_control`";
        table.problem("variant", Wrong::new(what, "one of the two"));
    }
    let leg = SplitLeg {
        variant,
        congestion_control: control.map(|control| control.0),
        initial_window: initial_window(&mut table),
        rate: table.optional::<Rate>("rate"),
        pacing: table.optional::<Probability>("pacing"),
        // A window scale of 14 is the most (RFC 7323, section 2.3).
        receive_window: sized(&mut table, "receive_window", 1..=65_535 << 14),
    };
    if leg.pacing.is_some_and(|share| share.value() <= 0.0) {
        let what = "flows that are paced at nothing";
        table.problem("pacing", Wrong::new(what, "more than 0, such as 0.985"));
    }
    if leg.pacing.is_some() && leg.rate.is_none() {
        let what = "`pacing` without the `rate` that it is a part of";
        table.problem("pacing", Wrong::new(what, "both, or neither"));
    }
    table.finish();
    leg
}
