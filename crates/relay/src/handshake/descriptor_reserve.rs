//! Descriptors that are kept back for clients that are answered already.
//!
//! A held SYN's dial takes the first of a flow's two descriptors, and accepting the client the second, when nothing else
//! than a reset is left if there is none. So both are had before the client is answered; where they are not to be had, its
//! SYN passes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// So many more than are needed stay for a while, for the SYNs that come next.
const FOR_THE_NEXT: usize = 8;

/// Descriptors of no use but to be closed.
#[derive(Debug, Default)]
pub struct DescriptorReserve(Vec<OwnedFd>);

impl DescriptorReserve {
    /// Keeps `count` descriptors back, or more, copies of `like`. Fails, with fewer, where the kernel has no more.
    pub(crate) fn keep(&mut self, count: usize, like: impl AsFd) -> io::Result<()> {
        while self.0.len() < count {
            self.0.push(like.as_fd().try_clone_to_owned()?);
        }
        Ok(())
    }

    /// Closes those above `count` but for a few.
    pub(crate) fn keep_about(&mut self, count: usize) {
        self.0.truncate(count + FOR_THE_NEXT);
    }

    /// Closes those above `count`; says whether there were any.
    pub(crate) fn keep_at_most(&mut self, count: usize) -> bool {
        let before = self.0.len();
        self.0.truncate(count);
        self.0.len() < before
    }

    /// Makes room for one descriptor; says whether there was one to close.
    pub(crate) fn spend(&mut self) -> bool {
        self.0.pop().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_follows_the_count_and_is_spent_once() {
        let like = std::fs::File::open("/dev/null").unwrap();
        let mut reserve = DescriptorReserve::default();
        reserve.keep(2, &like).unwrap();
        assert!(reserve.spend());
        reserve.keep(2, &like).unwrap();
        assert!(reserve.keep_at_most(1) && !reserve.keep_at_most(1));
        assert!(reserve.spend() && !reserve.spend());
        reserve.keep(20, &like).unwrap();
        reserve.keep_about(2);
        assert_eq!(reserve.0.len(), 2 + FOR_THE_NEXT);
    }
}
