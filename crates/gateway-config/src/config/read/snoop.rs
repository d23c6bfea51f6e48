//! `[snoop]`.

use crate::LegId;
use crate::snoop::{Snoop, Toward};
use bentpipe_base::Bytes;
use bentpipe_config::network::{sized, word};
use bentpipe_config::{Table, Value, Wrong};
use toml::de::DeValue;

pub(super) fn snoop(mut table: Table<'_, '_>) -> Snoop {
    let mut snoop = Snoop::default();
    snoop.toward = table.or("toward", snoop.toward);
    snoop.cache = table.optional("cache").map(|Cache(size)| size);
    table.finish();
    snoop
}

impl Value for Toward {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [
            ("sat", Self::Leg(LegId::Sat)),
            ("lan", Self::Leg(LegId::Lan)),
            ("both", Self::Both),
        ];
        word(value, source, "link that loses packets", &all)
    }
}

/// What one connection's cache holds.
struct Cache(Bytes);

impl Value for Cache {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let range = "from 16KiB to 1GiB, such as \"750kB\"";
        sized(value, source, 16 << 10, 1 << 30, range).map(Self)
    }
}
