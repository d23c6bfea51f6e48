//! What the fuzz targets reach of the insides of this crate; compiled for them alone.

use crate::record;

/// A record, right or wrong, beside a part of `stored` octets: it claims no octet beyond these, and
/// written again it says the same.
pub fn part_record(text: &str, stored: u64) {
    let Some(kept) = record::read(text, stored) else {
        return;
    };
    assert!(kept.have.last().is_none_or(|(_, end)| end <= stored));
    let written = record::write(&kept.metadata, &kept.have).expect("it was a frame");
    assert_eq!(record::read(&written, stored), Some(kept));
}
