//! The memory that the C library hands out.

use bentpipe_base::Bytes;

/// From here on the heap grows into huge pages, its first `room`: one page fault where there would be 512.
/// In return what is freed is kept until the process ends. For a process that does one thing and
/// fills megabytes with it; before it has threads.
///
/// It is a wish. Nothing changes where the kernel gives no huge pages
/// (`/sys/kernel/mm/transparent_hugepage/enabled` is `never`), there is no room, or the C library is not glibc.
pub fn use_huge_pages(room: Bytes) {
    #[cfg(target_env = "gnu")]
    {
        let page = rustix::param::page_size();
        let mut space: Vec<u8> = Vec::new();
        // Large blocks are to come from the heap too, and it is not to shrink when `space` goes.
        // SAFETY: sets two numbers of the allocator.
        unsafe {
            libc::mallopt(libc::M_MMAP_MAX, 0);
            libc::mallopt(libc::M_TRIM_THRESHOLD, -1);
        }
        if space.try_reserve_exact(room.0 as usize).is_err() {
            return;
        }
        let skip = space.as_ptr().align_offset(page);
        let whole = space.capacity().saturating_sub(skip) / page * page;
        // SAFETY: the pages lie within `space`. The advice changes nothing of what they hold.
        unsafe {
            libc::madvise(
                space.as_mut_ptr().wrapping_add(skip).cast(),
                whole,
                libc::MADV_HUGEPAGE,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_in_huge_pages_works_as_before() {
        use_huge_pages(Bytes(8 << 20));
        let mut blocks: Vec<Vec<u8>> = (0..64).map(|i| vec![i; 100_000]).collect();
        blocks.retain(|block| block[0] % 2 == 0);
        blocks.extend((64..96).map(|i| vec![i; 200_000]));
        assert!(
            blocks
                .iter()
                .all(|block| block.iter().all(|byte| *byte == block[0]))
        );
        // Where there is no room nothing changes.
        use_huge_pages(Bytes(u64::MAX));
    }
}
