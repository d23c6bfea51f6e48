//! What the fuzz targets reach of the insides of this crate; compiled for them alone.

use crate::record::Record;
use bentpipe_base::Ranges;

/// A record, right or wrong, beside a part of `stored` octets: it claims no octet beyond these, and
/// written again it says the same.
pub fn part_record(text: &str, stored: u64) {
    let Some(record) = Record::read(text, stored, "this") else {
        return;
    };
    let within = |ranges: &Ranges| ranges.last().is_none_or(|(_, end)| end <= stored);
    assert!(within(&record.on_disk) && within(&record.written));
    let written = record.write("this").expect("it was a frame");
    assert_eq!(Record::read(&written, stored, "this"), Some(record));
}
