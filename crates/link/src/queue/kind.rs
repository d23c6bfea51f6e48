//! The trait by which each queue's file declares its name, its keys in scenarios, and how it is made.

use super::{Discipline, Limit};
use crate::keys::{Fault, Key, Values};
use bentpipe_base::{Bytes, Rate};

/// What a queue may know of the link that it feeds.
#[derive(Clone, Copy, Debug)]
pub struct LinkInfo {
    /// The link's rate when the run begins; `None` where it has no limit.
    pub rate: Option<Rate>,
    /// The largest packet that the link takes.
    pub mtu: Bytes,
}

/// A kind of queue, as its file declares it.
pub trait QueueKind<P> {
    /// As scenarios name it.
    const NAME: &'static str;
    /// One line about it.
    const SUMMARY: &'static str;
    /// Its keys besides the limit.
    const KEYS: &'static [Key] = &[];

    /// What is wrong with a queue of this `limit` and these `values`.
    fn faults(_limit: Limit, _values: &Values) -> Vec<Fault> {
        Vec::new()
    }

    /// The queue.
    ///
    /// # Errors
    /// Values that [`faults`](Self::faults) would have refused.
    fn build(limit: Limit, values: &Values, link: &LinkInfo) -> Result<Discipline<P>, Fault>;
}

/// A kind of queue, of whatever packets.
#[derive(Clone, Copy, Debug)]
pub struct QueueSpec {
    /// As scenarios name it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Its keys besides the limit.
    pub keys: &'static [Key],
    /// What is wrong with a queue of such a limit and such values.
    pub faults: fn(Limit, &Values) -> Vec<Fault>,
}

impl PartialEq for QueueSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl QueueSpec {
    /// Each key at its default or its example.
    pub fn examples(&self) -> Values {
        Values::examples(self.keys)
    }
}

/// One kind of queue of packets `P`.
pub struct Entry<P> {
    /// What is the same for all packets.
    pub spec: QueueSpec,
    /// The queue of such a limit and such values.
    pub build: fn(Limit, &Values, &LinkInfo) -> Result<Discipline<P>, Fault>,
}

impl<P> Entry<P> {
    /// The entry of the kind `K`.
    pub(super) const fn of<K: QueueKind<P>>() -> Self {
        Self {
            spec: QueueSpec {
                name: K::NAME,
                summary: K::SUMMARY,
                keys: K::KEYS,
                faults: K::faults,
            },
            build: K::build,
        }
    }
}
