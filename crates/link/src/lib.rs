//! A link as a state machine: queue, serialisation, channel errors, delay; the same code carries
//! simulated packets in virtual time and real ones in wall time.
//!
//! A packet's way over a [`Direction`]:
//!
//! ```text
//! input → queue (may refuse) → serialiser (rate) → channel (may corrupt or lose) → delay → transmit
//! ```
//!
//! Where a link is told so, its channels stand before the queue instead, as in ns-2. A queue that marks (RFC 3168) marks a
//! packet that is capable of it ([`Mark`]) where it would drop it at random. A serialiser may be faster than its rate for a
//! while ([`Burst`]).
//!
//! All else about a packet is decided the moment its first bit leaves: whether it arrives, and when. So a direction
//! keeps one ring of packets under way, its deadline is the head of that ring, and no event marks the end of a
//! transmission. Departures that fell due between two polls are made up for at their exact times, in order, so that the
//! result does not depend on how often a driver polls.
//!
//! Chance comes from [`bentpipe_base::Stream`]s named after the link, its direction, and the queue
//! or channel that draws, as many draws for each packet, in order of arrival at that stage: equal
//! seeds give equal fates, and neither direction moves the other's.
//!
//! It leaves out who sends and what packets mean. Begin with [`Direction`].
#![forbid(unsafe_code)]

mod burst;
pub mod channel;
mod direction;
mod jitter;
pub mod keys;
mod length;
mod link;
mod mark;
pub mod queue;
mod ring;
mod way;

pub use burst::Burst;
pub use channel::{Channel, Fate};
pub use direction::{Backlog, Change, Direction, Settings};
pub use length::Length;
pub use link::{End, Link};
pub use mark::Mark;
pub use queue::{Limit, Queue};
