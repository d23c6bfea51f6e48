//! Tells by size and time whether a file is a copy of another, as the quick check of rsync does.
//!
//! Times are seconds, and a file may change again in the second of the version that was read. So who puts for a later quick check
//! waits until that second is over, and what is got so and changed just before has a time of which the file will never be: it comes
//! once more.

use crate::tree::posix_times;
use bentpipe_wire::saratoga::{Entry, Time};
use core::time::Duration;
use std::fs::Metadata;
use std::time::{SystemTime, UNIX_EPOCH};

/// A copy whose inode changed within fewer seconds of the time that the file has may be of what that file was earlier in
/// the same second: from its reading to the copy's name it takes the way there, repairs, and a disk that may be slow.
const RECENT: u32 = 10;
/// The kernel gives files the time of its last tick.
const TICK: Duration = Duration::from_millis(20);

/// How long it takes until a file that changes then has another time than `modified`, in seconds of POSIX: nothing where it has now.
pub(crate) fn rest_of_second(modified: i64) -> Option<Duration> {
    let now = { SystemTime::now() - TICK }
        .duration_since(UNIX_EPOCH)
        .ok()?;
    let over = Duration::from_secs(u64::try_from(modified).ok()? + 1);
    let rest = over.checked_sub(now)?;
    // A time to come is somebody's own.
    (rest <= Duration::from_secs(1)).then_some(rest)
}

/// A clock that is further behind is none.
const BEHIND: u32 = 24 * 60 * 60;

/// The time of this machine.
pub(crate) fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Time::from_posix(now.map_or(0, |time| time.as_secs() as i64))
}

/// The time for a copy of what was asked for at `asked` and has the time `modified`. It may have been opened long after that, behind an
/// outage.
pub(crate) fn time_of_copy(modified: Time, asked: Time) -> Time {
    if asked.0 < modified.0.saturating_add(RECENT) && modified.0 < asked.0.saturating_add(BEHIND) {
        Time(modified.0.saturating_sub(1))
    } else {
        modified
    }
}

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
    /// Whether this is a copy of `original`, by all that can be told. Times before 2000 or after 2135, which Saratoga does not have,
    /// tell nothing.
    pub fn is_copy_of(&self, original: &Self) -> bool {
        self.size == original.size
            && self.modified == original.modified
            && ![0, u32::MAX].contains(&self.modified.0)
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
        for none in [0, u32::MAX] {
            assert!(!stamp(9, none, 1000).is_copy_of(&stamp(9, none, 0)));
        }
    }

    #[test]
    fn what_may_change_once_more_in_its_second_is_known() {
        let now = now();
        let seconds = now.posix();
        assert!(rest_of_second(seconds).is_some_and(|rest| !rest.is_zero()));
        for settled in [seconds - 2, seconds + 3, 0, -1] {
            assert_eq!(rest_of_second(settled), None);
        }
        for (later, earlier) in [
            (-100_000, 0),
            (-10, 0),
            (-9, 1),
            (0, 1),
            (60, 1),
            (100_000, 0),
        ] {
            let modified = Time(now.0.wrapping_add_signed(later));
            assert_eq!(time_of_copy(modified, now).0, modified.0 - earlier);
        }
    }
}
