//! Tells by size and time whether a file is a copy of another, as the quick check of rsync does.

use crate::tree::posix_times;
use bentpipe_wire::saratoga::{Entry, Time};
use std::fs::Metadata;

/// A copy whose inode changed within fewer seconds of the time that the file has may be of what that file was earlier in
/// the same second: from its reading to the copy's name it takes the way there, repairs, and a disk that may be slow.
const RECENT: u32 = 10;

/// What a quick check knows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    size: u128,
    /// The last change of the content.
    modified: Time,
    /// The last change of the inode: of a copy, when it got its name.
    changed: Time,
}

impl Stamp {
    /// Whether this is a copy of `original`, by all that can be told. Times before 2000, which Saratoga does not have, tell
    /// nothing.
    pub fn is_copy_of(&self, original: &Self) -> bool {
        self.size == original.size
            && self.modified == original.modified
            && self.modified != Time::default()
            // A clock that is far off keeps nothing from being recognised.
            && self.changed.0.abs_diff(self.modified.0) >= RECENT
    }
}

impl From<&Entry> for Stamp {
    fn from(entry: &Entry) -> Self {
        Self {
            size: entry.size,
            modified: entry.modified,
            changed: entry.created,
        }
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        let (modified, changed) = posix_times(metadata);
        Self {
            size: metadata.len().into(),
            modified,
            changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(size: u128, modified: u32, changed: u32) -> Stamp {
        Stamp {
            size,
            modified: Time(modified),
            changed: Time(changed),
        }
    }

    #[test]
    fn a_copy_has_the_size_and_the_time_and_was_made_later() {
        let original = stamp(9, 1000, 1000);
        for (copy, is_one) in [
            (stamp(9, 1000, 1010), true),
            (stamp(8, 1000, 1010), false),
            (stamp(9, 999, 1010), false),
            (stamp(9, 1001, 5000), false),
            // The file may have been changed once more in that second.
            (stamp(9, 1000, 1009), false),
            (stamp(9, 1000, 1000), false),
            (stamp(9, 1000, 999), false),
            // A clock that has begun in 2000.
            (stamp(9, 1000, 0), true),
        ] {
            assert_eq!(copy.is_copy_of(&original), is_one, "{copy:?}");
        }
        assert!(!stamp(9, 0, 1000).is_copy_of(&stamp(9, 0, 0)));
    }
}
