//! How the gateway's other threads speak to the carrier's.

use bentpipe_sockets::epoll::Waker;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// What is known of the link, of no use to anybody but the carrier after it was taken.
const NOTHING: u8 = 0;
const DOWN: u8 = 1;
const UP: u8 = 2;

/// Gives orders to a carrier, from any thread. It may outlive the carrier.
#[derive(Clone, Debug)]
pub struct CarrierHandle(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    link: AtomicU8,
    /// One more than the connections that have not ended, and 0 where that is to be counted.
    unfinished: AtomicUsize,
    pub(crate) waker: Waker,
}

impl CarrierHandle {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inner {
            link: AtomicU8::new(NOTHING),
            unfinished: AtomicUsize::new(0),
            waker: Waker::new()?,
        })))
    }

    /// Whether the link carries anything, says who knows: a modem.
    pub fn set_link(&self, is_up: bool) {
        let order = if is_up { UP } else { DOWN };
        self.0.link.store(order, Ordering::Release);
        self.0.waker.wake();
    }

    /// Connections that have bytes to deliver or to wait for, counted since the last call; `None` where they have not been yet.
    pub fn unfinished(&self) -> Option<usize> {
        let told = self.0.unfinished.swap(0, Ordering::AcqRel);
        self.0.waker.wake();
        told.checked_sub(1)
    }
}

impl Inner {
    /// What was last said of the link, since this was last asked.
    pub(crate) fn take_link(&self) -> Option<bool> {
        match self.link.swap(NOTHING, Ordering::AcqRel) {
            UP => Some(true),
            DOWN => Some(false),
            _ => None,
        }
    }

    /// Tells how many connections have not ended, where somebody waits for it.
    pub(crate) fn tell(&self, unfinished: impl FnOnce() -> usize) {
        if self.unfinished.load(Ordering::Acquire) == 0 {
            self.unfinished.store(unfinished() + 1, Ordering::Release);
        }
    }
}
