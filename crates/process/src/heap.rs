//! The heap of a program: the C library's, whose long blocks get their memory in batches as they grow.

use core::alloc::{GlobalAlloc, Layout};
use std::alloc::System;

/// The C library's heap. Where a long block grows, the kernel is asked for the new pages at once (madvise(2),
/// `MADV_POPULATE_WRITE`, Linux 5.14): a queue or a vector grows because it is about to be filled, and a page that is
/// first met when it is written costs an exception of its own. A kernel that does not know the call gives pages as they
/// are met.
pub struct Heap;

/// The least size of a long block, in bytes.
const LONG: usize = 128 << 10;
/// The most bytes that are asked for at once, so that a block takes little that it may never use.
const BATCH: usize = 256 << 10;
/// The size of a page in bytes. Where pages are larger the kernel refuses most ranges, and gives pages as they are met.
const PAGE: usize = 4096;

/// From now on a block of at least so many `bytes` has pages of its own, which move with it when it grows and go with it when it is freed
/// (mallopt(3), `M_MMAP_THRESHOLD`). For a program of which a few blocks grow and grow, or long ones come and go by many threads: in
/// the heap they leave memory behind that was touched, and that nobody needs. Where such blocks come and go it costs a system call each
/// time. Without glibc everything stays as it is.
pub fn map_long_blocks(bytes: i32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: the C library changes a number of its own, under its own lock.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, bytes)
    };
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

impl Heap {
    /// Asks for the pages of `block` that lie whole between `from` and `to`, in bytes from its beginning.
    #[cold]
    fn populate(block: *mut u8, from: usize, to: usize) {
        let to = to.min(from.saturating_add(BATCH));
        // The page in which the old part ends is there already.
        let first = from + block.wrapping_add(from).align_offset(PAGE);
        if first < to {
            // SAFETY: the range lies in the block and begins with a page; what its bytes hold stays as it is.
            unsafe {
                libc::madvise(
                    block.add(first).cast(),
                    to - first,
                    libc::MADV_POPULATE_WRITE,
                )
            };
        }
    }
}

// SAFETY: all blocks are of `System`, to which every call goes with the caller's own arguments. Nothing here panics.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller vouches for it.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller vouches for it.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller vouches for it.
        unsafe { System.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller vouches for it.
        let grown = unsafe { System.realloc(block, layout, size) };
        if size >= LONG && !grown.is_null() {
            Self::populate(grown, layout.size(), size);
        }
        grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the first `len` bytes of `block` lie on pages that are there (mincore(2)).
    fn resident(block: *mut u8, len: usize) -> usize {
        let begun = (block as usize) % PAGE;
        let mut pages = vec![0; (begun + len).div_ceil(PAGE)];
        // SAFETY: the range begins with a page and lies in pages of the block, and there is room for a byte for each.
        let done =
            unsafe { libc::mincore(block.sub(begun).cast(), begun + len, pages.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 == 1).count() * PAGE
    }

    #[test]
    fn a_long_block_that_grows_keeps_its_bytes_and_has_a_batch_of_pages_at_once() {
        let (old, new) = (LONG, 8 * BATCH);
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        let bytes: Vec<u8> = (0..old).map(|i| (i % 251) as u8).collect();
        // SAFETY: the sizes are not 0, the block is used within its size, and freed with the layout that it has last.
        let there = unsafe {
            let block = Heap.alloc(layout(old));
            block.copy_from_nonoverlapping(bytes.as_ptr(), old);
            let block = Heap.realloc(block, layout(old), new);
            assert!(core::slice::from_raw_parts(block, old) == bytes);
            let there = resident(block, new);
            Heap.dealloc(block, layout(new));
            there
        };
        let expected = old + BATCH;
        assert!(
            there.abs_diff(expected) <= 2 * PAGE,
            "{there} of {expected} bytes"
        );
    }
}
