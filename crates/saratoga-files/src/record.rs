//! The record beside the part of a file, by which a later session goes on: one line with the METADATA in hexadecimal
//! digits, `sealed` where all of it came under a key, then one line for each stretch of octets that is on the disk.
//!
//! What was written to the file outlives this process, but not a power cut, until it is on the disk. So a
//! line `boot` with the kernel's number of this start of the machine follows, and one for each stretch that is
//! written at all: these count as long as the machine was not started again.

use bentpipe_base::Ranges;
use bentpipe_saratoga::receiver::Kept;
use bentpipe_wire::saratoga::{Frame, FrameError, Metadata};

/// What stands before the number of a start.
const BOOT: &str = "boot ";

/// What stands in the record of what came under a key.
const SEALED: &str = "sealed";

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// What content it is about.
    pub(crate) metadata: Metadata,
    /// All that is stored came under a key.
    pub(crate) sealed: bool,
    /// The stretches that are on the disk.
    pub(crate) on_disk: Ranges,
    /// The stretches that are written.
    pub(crate) written: Ranges,
}

impl Record {
    /// As text, by a machine that was started as `boot`.
    ///
    /// # Errors
    /// That the METADATA cannot be a frame.
    pub(crate) fn write(&self, boot: &str) -> Result<String, FrameError> {
        let mut octets = Vec::new();
        Frame::Metadata(self.metadata.clone()).emit(&mut octets)?;
        let mut text: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        let mut list = |head: &str, ranges: &Ranges| {
            text.push_str(head);
            for (from, to) in ranges.iter() {
                text.push_str(&format!("\n{from}-{to}"));
            }
        };
        let sealed = self.sealed.then(|| format!("\n{SEALED}"));
        list(&sealed.unwrap_or_default(), &self.on_disk);
        list(&format!("\n{BOOT}{boot}"), &self.written);
        Ok(text)
    }

    /// What the record `text` says of a part of `stored` octets to a machine that was started as `boot`; `None` where
    /// it cannot be believed. What may be lost is not in it.
    pub(crate) fn read(text: &str, stored: u64, boot: &str) -> Option<Self> {
        let mut lines = text.lines();
        let metadata = from_hex(lines.next()?)?;
        let Ok((Frame::Metadata(metadata), _)) = Frame::parse(&metadata) else {
            return None;
        };
        let (mut on_disk, mut written) = (Ranges::default(), Ranges::default());
        let (mut since, mut sealed) = (None, false);
        for line in lines {
            if line == SEALED {
                sealed = true;
                continue;
            }
            if let Some(start) = line.strip_prefix(BOOT) {
                since = Some(start);
                continue;
            }
            let (from, to) = line.split_once('-')?;
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            // The record may be older than the part, but not newer.
            let is_there = from < to && to <= stored;
            match since {
                None if is_there => {
                    on_disk.insert(from, to);
                    written.insert(from, to);
                }
                // What was lost with the power may have been the end of the file.
                Some(start) if start != boot || boot.is_empty() => {}
                Some(_) if is_there => written.insert(from, to),
                _ => return None,
            }
        }
        Some(Self {
            metadata,
            sealed,
            on_disk,
            written,
        })
    }

    /// What a receiver goes on from.
    pub(crate) fn kept(&self) -> Kept {
        Kept {
            metadata: self.metadata.clone(),
            have: self.written.clone(),
        }
    }
}

/// The kernel's number of this start of the machine. Empty where it tells none: then nothing counts but what is on
/// the disk.
pub(crate) fn boot() -> String {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot_id.unwrap_or_default().trim().to_owned()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::saratoga::{Entry, Kind, Time};

    fn metadata() -> Metadata {
        let entry = Entry {
            modified: Time(800_000_000),
            created: Time(800_000_000),
            ..Entry::file("a", 1000)
        };
        Metadata {
            mode: Some(0o600),
            ..Metadata::new(7, Kind::File, entry)
        }
    }

    fn ranges(list: &[(u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        list.iter().for_each(|(from, to)| ranges.insert(*from, *to));
        ranges
    }

    fn record(on_disk: &[(u64, u64)], written: &[(u64, u64)]) -> Record {
        Record {
            metadata: metadata(),
            sealed: true,
            on_disk: ranges(on_disk),
            written: ranges(written),
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_after_another_start_only_what_is_on_the_disk() {
        let record = record(&[(0, 100), (300, 350)], &[(0, 200), (300, 500)]);
        let text = record.write("one").unwrap();
        assert_eq!(Record::read(&text, 500, "one"), Some(record.clone()));
        assert_eq!(Record::read(&text, 499, "one"), None, "the part is shorter");
        let on_disk = Record {
            written: record.on_disk.clone(),
            ..record.clone()
        };
        assert_eq!(Record::read(&text, 500, "two"), Some(on_disk.clone()));
        // The end of the part was lost with the power, too.
        assert_eq!(Record::read(&text, 350, "two"), Some(on_disk));
        assert_eq!(Record::read(&text, 349, "two"), None);
        // A machine that tells no start believes no other's, nor its own.
        let text = record.write("").unwrap();
        for boot in ["", "one"] {
            let kept = Record::read(&text, 500, boot).unwrap();
            assert_eq!(kept.written, record.on_disk);
        }
    }

    #[test]
    fn what_is_cut_or_changed_is_refused_or_claims_nothing_beyond_the_part() {
        let text = record(&[(5, 20)], &[(5, 40)]).write("one").unwrap();
        let read = |text: &str, stored| Record::read(text, stored, "one");
        for length in 0..text.len() {
            let kept = read(&text[..length], 40);
            assert!(kept.is_none_or(|kept| kept.written.last().is_none_or(|(_, end)| end <= 40)));
        }
        for line in [
            "x",
            "-",
            "1-",
            "-1",
            "1-2-3",
            "1-99999999999999999999",
            "0-41",
            "7-7",
            "9-7",
            "é-1",
        ] {
            assert_eq!(read(&format!("{text}\n{line}"), 40), None, "{line}");
        }
        assert_eq!(read("", 40), None);
        assert_eq!(read("zz", 40), None);
    }
}
