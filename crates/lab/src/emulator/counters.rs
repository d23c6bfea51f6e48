use super::histogram::milliseconds;
use bentpipe_base::{Bytes, DropCause, Fact, Instant, Observer};
use bentpipe_link::Backlog;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What one direction of the link has done so far. Sizes are those of the packets, without framing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Packets that entered the link.
    pub packets_in: u64,
    /// Bytes that entered the link.
    #[serde(serialize_with = "bytes")]
    pub bytes_in: Bytes,
    /// Packets delivered.
    pub packets_out: u64,
    /// Bytes delivered.
    #[serde(serialize_with = "bytes")]
    pub bytes_out: Bytes,
    /// Packets refused by the queue.
    pub dropped_queue: u64,
    /// Packets that the queue marked in place of dropping them (ECN).
    pub marked: u64,
    /// Packets dropped for bit errors.
    pub dropped_corrupted: u64,
    /// Packets lost on the way.
    pub dropped_lost: u64,
    /// Packets struck by errors before they reached the queue.
    pub dropped_before_queue: u64,
    /// The longest wait in the queue.
    #[serde(rename = "wait_max_ms", serialize_with = "milliseconds")]
    pub wait_max: Duration,
    /// The mean wait in the queue, over all packets that left it.
    #[serde(rename = "wait_mean_ms", serialize_with = "milliseconds")]
    pub wait_mean: Duration,
    /// Packets in the queue now.
    pub waiting_packets: u64,
    /// Bytes in the queue now.
    #[serde(serialize_with = "bytes")]
    pub waiting_bytes: Bytes,
}

fn bytes<S: serde::Serializer>(bytes: &Bytes, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_u64(bytes.0)
}

/// The counters of one direction: written by the emulator's thread alone, read by any.
#[derive(Clone, Default)]
pub(super) struct Counters(Arc<Cells>);

#[derive(Default)]
struct Cells {
    packets_in: AtomicU64,
    bytes_in: AtomicU64,
    packets_out: AtomicU64,
    bytes_out: AtomicU64,
    queue: AtomicU64,
    marked: AtomicU64,
    corrupted: AtomicU64,
    lost: AtomicU64,
    before_queue: AtomicU64,
    departed: AtomicU64,
    waited: AtomicU64,
    wait_max: AtomicU64,
    waiting_packets: AtomicU64,
    waiting_bytes: AtomicU64,
}

/// One thread writes, so that no read-modify-write instruction is needed.
fn add(cell: &AtomicU64, value: u64) {
    cell.store(cell.load(Relaxed) + value, Relaxed);
}

impl Counters {
    pub(super) fn entered(&self, len: Bytes) {
        add(&self.0.packets_in, 1);
        add(&self.0.bytes_in, len.0);
    }

    pub(super) fn delivered(&self, len: Bytes) {
        add(&self.0.packets_out, 1);
        add(&self.0.bytes_out, len.0);
    }

    pub(super) fn waiting(&self, backlog: Backlog) {
        self.0
            .waiting_packets
            .store(backlog.packets as u64, Relaxed);
        self.0.waiting_bytes.store(backlog.bytes.0, Relaxed);
    }

    pub(super) fn read(&self) -> Traffic {
        let of = |cell: &AtomicU64| cell.load(Relaxed);
        let cells = &*self.0;
        let mean = of(&cells.waited) / of(&cells.departed).max(1);
        Traffic {
            packets_in: of(&cells.packets_in),
            bytes_in: Bytes(of(&cells.bytes_in)),
            packets_out: of(&cells.packets_out),
            bytes_out: Bytes(of(&cells.bytes_out)),
            dropped_queue: of(&cells.queue),
            marked: of(&cells.marked),
            dropped_corrupted: of(&cells.corrupted),
            dropped_lost: of(&cells.lost),
            dropped_before_queue: of(&cells.before_queue),
            wait_max: Duration::from_nanos(of(&cells.wait_max)),
            wait_mean: Duration::from_nanos(mean),
            waiting_packets: of(&cells.waiting_packets),
            waiting_bytes: Bytes(of(&cells.waiting_bytes)),
        }
    }
}

impl Observer for Counters {
    fn observe(&mut self, now: Instant, fact: &Fact) {
        let cells = &*self.0;
        match *fact {
            Fact::Departed { since, .. } => {
                let nanos = now.nanos_since(since);
                add(&cells.departed, 1);
                add(&cells.waited, nanos);
                cells
                    .wait_max
                    .store(cells.wait_max.load(Relaxed).max(nanos), Relaxed);
            }
            Fact::Marked { .. } => add(&cells.marked, 1),
            Fact::Dropped { cause, .. } => match cause {
                DropCause::Queue => add(&cells.queue, 1),
                DropCause::Corrupted => add(&cells.corrupted, 1),
                DropCause::Lost => add(&cells.lost, 1),
                DropCause::BeforeQueue => add(&cells.before_queue, 1),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_counted_by_kind() {
        let mut counters = Counters::default();
        let reader = counters.clone();
        let size = Bytes(1500);
        let now = Instant::ZERO + Duration::from_secs(1);
        let departed = |millis: u64| Fact::Departed {
            size,
            since: Instant::ZERO + Duration::from_millis(1000 - millis),
        };
        let dropped = |cause| Fact::Dropped { size, cause };
        let facts = [
            departed(0),
            departed(30),
            departed(60),
            dropped(DropCause::Queue),
            dropped(DropCause::Corrupted),
            dropped(DropCause::Corrupted),
            dropped(DropCause::Lost),
            dropped(DropCause::Lost),
            dropped(DropCause::Lost),
            dropped(DropCause::BeforeQueue),
            Fact::Marked { size },
            Fact::Marked { size },
        ];
        facts.iter().for_each(|fact| counters.observe(now, fact));
        counters.entered(Bytes(40));
        counters.entered(Bytes(60));
        counters.delivered(Bytes(40));
        counters.waiting(Backlog {
            packets: 7,
            bytes: Bytes(700),
        });
        let expected = Traffic {
            packets_in: 2,
            bytes_in: Bytes(100),
            packets_out: 1,
            bytes_out: Bytes(40),
            dropped_queue: 1,
            marked: 2,
            dropped_corrupted: 2,
            dropped_lost: 3,
            dropped_before_queue: 1,
            wait_max: Duration::from_millis(60),
            wait_mean: Duration::from_millis(30),
            waiting_packets: 7,
            waiting_bytes: Bytes(700),
        };
        assert_eq!(reader.read(), expected);
    }
}
