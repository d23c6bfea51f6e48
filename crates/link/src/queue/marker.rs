use super::DropTail;
use crate::Mark;
use crate::keys::{Key, Value, Values};
use bentpipe_base::Bytes;

/// The key by which a scenario has a queue mark packets in place of dropping them, where they are capable of it.
pub(super) const KEY: Key = Key::optional("ecn", || Value::Flag(true));

/// Marks packets in place of dropping them at random, where a queue is told to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marker {
    on: bool,
    marked: u64,
}

impl Marker {
    pub(super) const fn new(on: bool) -> Self {
        Self { on, marked: 0 }
    }

    /// Whether `values` say so.
    pub(super) fn is_on(values: &Values) -> bool {
        values.flag(KEY.name)
    }

    /// Packets marked so far.
    pub(super) const fn marked(&self) -> u64 {
        self.marked
    }

    /// Marks `packet` of `len` bytes, which is to be dropped otherwise, if it can be and `fifo` has room for it; whether it
    /// did.
    pub(super) fn spares<P: Mark + Send>(
        &mut self,
        packet: &mut P,
        len: Bytes,
        fifo: &DropTail<P>,
    ) -> bool {
        let marks = self.on && packet.is_capable() && fifo.admits(len);
        if marks {
            packet.mark();
            self.marked += 1;
        }
        marks
    }
}
