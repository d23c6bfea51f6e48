//! The maps that all loaders on this kernel share, found by name and layout.
//!
//! A process that loads looks for maps of its kind first and puts its programs on them, so that one
//! map usually serves all. Two processes that load in the same instant may each make one; what is
//! configured is therefore written to every map found, whoever's programs are registered.

use crate::layout;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

/// A kind of map: its name, and the size of its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    value: u32,
}

/// Parameters by socket mark.
pub(crate) const LINKS: Kind = Kind {
    name: "bentpipe_links2",
    value: layout::PARAMS as u32,
};
/// What the flows of a link have in common, by socket mark.
pub(crate) const SHARES: Kind = Kind {
    name: "bentpipe_share3",
    value: layout::LINK as u32,
};

impl Kind {
    /// Every map of this kind that exists now, oldest first.
    pub(crate) fn all(self) -> Vec<MapHandle> {
        MapInfoIter::default()
            .filter(|info| {
                info.name == self.name
                    && info.ty == MapType::Hash
                    && info.key_size == 4
                    && info.value_size == self.value
            })
            // A map may go between the listing and the opening.
            .filter_map(|info| MapHandle::from_map_id(info.id).ok())
            .collect()
    }
}

/// The value at `mark`.
pub(crate) fn read(map: &MapHandle, mark: u32) -> Option<Vec<u8>> {
    map.lookup(&mark.to_ne_bytes(), MapFlags::ANY)
        .ok()
        .flatten()
}

/// Every mark in `map`.
pub(crate) fn marks(map: &MapHandle) -> Vec<u32> {
    map.keys()
        .filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)))
        .collect()
}
