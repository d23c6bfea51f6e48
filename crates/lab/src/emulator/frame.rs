use bentpipe_base::Bytes;
use bentpipe_link::{Length, Mark};
use std::cell::RefCell;

thread_local! {
    /// Buffers that wait to be used again by this thread; all of one size.
    static POOL: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A packet inside the emulator. Its buffer comes from a pool of the emulator's thread and goes
/// back when the packet is delivered or dropped: in the steady state nothing is allocated.
pub struct Frame {
    buffer: Box<[u8]>,
    len: usize,
}

impl Frame {
    /// A frame with `room` for a packet, filled by `read`, which returns the packet's length;
    /// `None` when `read` finds none.
    ///
    /// # Errors
    /// What `read` gives.
    pub(super) fn fill<E>(
        room: usize,
        read: impl FnOnce(&mut [u8]) -> Result<Option<usize>, E>,
    ) -> Result<Option<Self>, E> {
        let pooled = POOL.with_borrow_mut(Vec::pop);
        let buffer = pooled.filter(|buffer| buffer.len() == room);
        let mut frame = Self {
            buffer: buffer.unwrap_or_else(|| vec![0; room].into()),
            len: 0,
        };
        // On failure the frame is dropped, and its buffer is back in the pool.
        Ok(read(&mut frame.buffer)?.map(|len| {
            frame.len = len.min(room);
            frame
        }))
    }

    /// The packet.
    pub fn packet(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Length for Frame {
    fn length(&self) -> Bytes {
        Bytes(self.len as u64)
    }
}

/// Marks stand in the bytes of the packet, and its checksum follows.
impl Mark for Frame {
    fn is_capable(&self) -> bool {
        self.packet().is_capable()
    }

    fn mark(&mut self) {
        self.buffer[..self.len].mark();
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        // At the end of a thread the pool may be gone before the last frame.
        let _ = POOL.try_with(|pool| {
            if let Ok(mut pool) = pool.try_borrow_mut() {
                pool.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn frame(bytes: &[u8]) -> Frame {
        let fill = |buffer: &mut [u8]| {
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, Infallible>(Some(bytes.len()))
        };
        Frame::fill(100, fill).unwrap().unwrap()
    }

    #[test]
    fn buffers_are_used_again() {
        let first = frame(b"one");
        let second = frame(b"three");
        assert_eq!(
            (first.packet(), second.packet()),
            (&b"one"[..], &b"three"[..])
        );
        assert_eq!(second.length(), Bytes(5));
        let address = first.buffer.as_ptr();
        drop(first);
        let third = frame(b"x");
        assert_eq!(third.buffer.as_ptr(), address);
        assert_eq!(third.packet(), b"x");
    }

    #[test]
    fn what_is_not_filled_goes_back() {
        let address = frame(b"x").buffer.as_ptr();
        for found in [Ok(None), Err("broken")] {
            assert_eq!(
                Frame::fill(100, |_| found).map(|f| f.is_some()),
                found.map(|_| false)
            );
        }
        assert_eq!(frame(b"y").buffer.as_ptr(), address);
    }
}
