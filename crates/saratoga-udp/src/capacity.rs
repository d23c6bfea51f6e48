//! How many sessions this process has descriptors and memory for, and what is said where these are few.

use crate::Error;
use bentpipe_base::Bytes;
use bentpipe_process::{cgroup, limits};
use rustix::io::Errno;

/// Descriptors that a session takes at most: a file, its directory, its record, and what is deleted afterwards.
const DESCRIPTORS: usize = 4;
/// Descriptors for all else.
const RESERVED: usize = 32;
/// Memory that a session takes, about, beside its stretches.
const MEMORY: u64 = 64 << 10;
/// Memory for all else, but for stretches.
const OTHER_MEMORY: u64 = 8 << 20;
/// Stretches that all sessions keep at most where there is memory: what has come, and what is to be sent again.
const STRETCHES: usize = 1 << 18;
/// Memory that a stretch takes, about: in the machine, and in the record of the part.
const STRETCH: u64 = 64;
/// Octets of all lists that a server makes and sends at most where there is memory: enough to make the longest that clients take (64 MiB),
/// whose names are in memory beside it then.
const LISTS: usize = 256 << 20;
/// A block that is longer is not kept for others when it is freed: lists are made by many threads, each of which would keep some.
const LONG_BLOCK: i32 = 128 << 10;

/// Sessions for which this process has descriptors.
pub(crate) fn most_at_once() -> usize {
    by_descriptors(limits::descriptors()).max(1)
}

/// Sessions for which `limit` descriptors are enough.
const fn by_descriptors(limit: usize) -> usize {
    limit.saturating_sub(RESERVED) / DESCRIPTORS
}

/// Sessions for which there is memory under `limit`.
fn by_memory(limit: Bytes) -> usize {
    let sessions = limit.0.saturating_sub(OTHER_MEMORY) / MEMORY;
    usize::try_from(sessions).unwrap_or(usize::MAX)
}

/// Stretches of all sessions for which there is memory: a quarter of what there is, at most.
pub(crate) fn stretches() -> usize {
    cgroup::memory_limit().map_or(STRETCHES, |Bytes(limit)| {
        let most = usize::try_from(limit / 4 / STRETCH).unwrap_or(usize::MAX);
        most.min(STRETCHES)
    })
}

/// Octets of all lists for which there is memory. From now on they leave nothing behind.
pub(crate) fn lists() -> usize {
    bentpipe_process::map_long_blocks(LONG_BLOCK);
    cgroup::memory_limit().map_or(LISTS, lists_within)
}

/// Octets of all lists under `limit`: a quarter of it, at most.
fn lists_within(limit: Bytes) -> usize {
    let most = usize::try_from(limit.0 / 4).unwrap_or(usize::MAX);
    most.min(LISTS)
}

/// Sessions that a server of `wanted` serves at once: fewer where this process may not have more, and the log says so.
///
/// # Errors
/// When there are descriptors for none.
pub(crate) fn serving(wanted: usize) -> Result<usize, Error> {
    let descriptors = limits::descriptors();
    let by_descriptors = by_descriptors(descriptors);
    if by_descriptors == 0 {
        return Err(Error::socket("serve anybody")(Errno::MFILE.into()));
    }
    if by_descriptors < wanted {
        let need = DESCRIPTORS.saturating_mul(wanted).saturating_add(RESERVED);
        tracing::warn!(
            "at most {by_descriptors} sessions at once, not {wanted}: this process may have {descriptors} files open; raise the limit \
             to {need} (`ulimit -Hn`, LimitNOFILE= of its unit), or say --max-sessions {by_descriptors}"
        );
    }
    let memory = cgroup::memory_limit();
    let by_memory = memory.map_or(usize::MAX, by_memory).max(1);
    if let Some(memory) = memory.filter(|_| by_memory < wanted) {
        let need = Bytes(
            MEMORY
                .saturating_mul(wanted as u64)
                .saturating_add(OTHER_MEMORY),
        );
        tracing::warn!(
            "at most {by_memory} sessions at once, not {wanted}: the cgroup of this process may have {memory} of memory; raise the limit \
             to {need} (MemoryMax= of its unit), or say --max-sessions {by_memory}"
        );
    }
    Ok(wanted.min(by_descriptors).min(by_memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_has_is_enough_for_so_many() {
        assert_eq!(
            [0, 35, 36, 64, 4128].map(by_descriptors),
            [0, 0, 1, 8, 1024]
        );
        assert_eq!(
            [4, 8, 24, 72].map(|mib| by_memory(Bytes(mib << 20))),
            [0, 0, 256, 1024]
        );
        assert_eq!(
            [64, 1024, 4096].map(|mib| lists_within(Bytes(mib << 20)) >> 20),
            [16, 256, 256]
        );
    }
}
