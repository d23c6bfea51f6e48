//! What is written down beside the part of a file, so that a later session can go on: one line with
//! the METADATA in hexadecimal digits, then one for each stretch of octets that is stored.

use bentpipe_base::Ranges;
use bentpipe_saratoga::receiver::Kept;
use bentpipe_wire::saratoga::{Error, Frame, Metadata};

/// The record of `have`.
///
/// # Errors
/// That `metadata` cannot be a frame.
pub(crate) fn write(metadata: &Metadata, have: &Ranges) -> Result<String, Error> {
    let mut octets = Vec::new();
    Frame::Metadata(metadata.clone()).emit(&mut octets)?;
    let mut text: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    for (from, to) in have.iter() {
        text.push_str(&format!("\n{from}-{to}"));
    }
    Ok(text)
}

/// What the record `text` says of a part of `stored` octets; `None` where it cannot be believed.
pub(crate) fn read(text: &str, stored: u64) -> Option<Kept> {
    let mut lines = text.lines();
    let metadata = from_hex(lines.next()?)?;
    let Ok((Frame::Metadata(metadata), _)) = Frame::parse(&metadata) else {
        return None;
    };
    let mut have = Ranges::default();
    for line in lines {
        let (from, to) = line.split_once('-')?;
        have.insert(from.parse().ok()?, to.parse().ok()?);
    }
    // The record may be older than the part, but not newer.
    let whole = have.last().is_none_or(|(_, to)| to <= stored);
    whole.then_some(Kept { metadata, have })
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::saratoga::{Checksum, Entry, EntryKind, Kind, Time, Width};

    fn metadata() -> Metadata {
        Metadata {
            session: 7,
            width: Width::Bits32,
            kind: Kind::File,
            ended: false,
            unreliable: false,
            mode: Some(0o600),
            checksum: Checksum::None,
            entry: Entry {
                kind: EntryKind::File,
                width: Width::Bits32,
                unreliable: false,
                size: 1000,
                modified: Time(800_000_000),
                created: Time(800_000_000),
                path: "a".to_owned(),
            },
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut have = Ranges::default();
        have.insert(0, 100);
        have.insert(300, 500);
        let text = write(&metadata(), &have).unwrap();
        let metadata = metadata();
        assert_eq!(read(&text, 500), Some(Kept { metadata, have }));
        assert_eq!(read(&text, 499), None, "the part is shorter");
    }

    #[test]
    fn what_is_cut_or_changed_is_refused_or_claims_nothing_beyond_the_part() {
        let mut have = Ranges::default();
        have.insert(5, 40);
        let text = write(&metadata(), &have).unwrap();
        for length in 0..text.len() {
            let kept = read(&text[..length], 40);
            assert!(kept.is_none_or(|kept| kept.have.last().is_none_or(|(_, end)| end <= 40)));
        }
        for line in [
            "x",
            "-",
            "1-",
            "-1",
            "1-2-3",
            "1-99999999999999999999",
            "0-41",
            "é-1",
        ] {
            assert_eq!(read(&format!("{text}\n{line}"), 40), None, "{line}");
        }
        assert_eq!(read("", 40), None);
        assert_eq!(read("zz", 40), None);
    }
}
