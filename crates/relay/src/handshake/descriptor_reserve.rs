//! Descriptors that are kept back for clients that are answered already.
//!
//! A held SYN's dial takes the first of a flow's two descriptors, and accepting the client the second, when nothing else
//! than a reset is left if there is none. So both are had before the client is answered; where they are not to be had, its
//! SYN passes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Descriptors of no use but to be closed.
#[derive(Debug, Default)]
pub struct DescriptorReserve(Vec<OwnedFd>);

impl DescriptorReserve {
    /// Keeps `count` descriptors back, copies of `like`. Fails, with fewer, where the kernel has no more.
    pub(crate) fn keep(&mut self, count: usize, like: impl AsFd) -> io::Result<()> {
        while self.0.len() < count {
            self.0.push(like.as_fd().try_clone_to_owned()?);
        }
        self.keep_at_most(count);
        Ok(())
    }

    /// Closes those above `count`.
    pub(crate) fn keep_at_most(&mut self, count: usize) {
        self.0.truncate(count);
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
        reserve.keep_at_most(1);
        assert!(reserve.spend() && !reserve.spend());
    }
}
