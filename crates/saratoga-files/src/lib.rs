//! The files of Saratoga: where the content of a session comes from and goes to, without a network.
//!
//! [`Incoming`] and [`Outgoing`] join the machines of `bentpipe_saratoga` to content: a [`Tree`] of files that peers may
//! see into and nothing outside it, memory for lists, standard input and output. What arrives lies in a hidden file
//! beside its place ([`Part`]), with a record of what it is and which stretches are there, and gets its name when its
//! checksum is verified: a session that was killed, on either side, goes on where it was. Files are read and written
//! through the page cache; checksums of whole files are made in threads of their own ([`spawn`]), which take turns.
//!
//! Sockets, sessions by their peers, keys, server and client are in `bentpipe-saratoga-udp`. [`Error`] is that of a whole
//! transfer, and so here, below both. Begin with `incoming.rs` and `tree.rs`.
#![forbid(unsafe_code)]

pub mod checksum;
mod checksum_on_read;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gather;
mod incoming;
mod leased;
pub mod leftovers;
mod list_memory;
mod list_room;
mod local;
mod metadata;
mod original;
mod outgoing;
mod part;
pub mod path;
mod permissions;
mod placed;
mod quick_check;
mod record;
mod reservation;
mod sink;
mod source;
mod stdout;
mod task;
mod tree;
mod unnamed;

pub use checksum::Sum;
pub use checksum_on_read::ChecksumOnRead;
pub use error::Error;
pub use incoming::Incoming;
pub use list_memory::ListMemory;
pub use list_room::{List, ListRoom, ListShare};
pub use local::{LocalFile, LocalFolder};
pub use metadata::{WIDEST, announce, entry, stream};
pub use original::Original;
pub use outgoing::Outgoing;
pub use part::Part;
pub use quick_check::Stamp;
pub use sink::{Sink, passed_on};
pub use source::{Source, Spool, known_size};
pub use stdout::{Stdout, StdoutQueue};
pub use task::{Cancel, FairSemaphore, Task, Turn, network, spawn};
pub use tree::{Folder, Tree, is_of_a_part, mode, posix_times};
pub use unnamed::unnamed_file;
