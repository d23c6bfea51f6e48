//! Files by Saratoga on Linux: the sockets, files and threads around the machines of
//! `bentpipe_saratoga`.
//!
//! A [`Node`] owns one UDP socket and any number of sessions, and drives them in one loop:
//! datagrams in, what is due out, wait for the next deadline. [`serve`] gives it a [`Tree`] of files
//! and what may be done with them; [`client`] gives it sessions to begin. Files are read and written
//! through the page cache, whose write-back is beside the network; checksums of whole files are
//! made in threads of their own.
//!
//! What arrives lies in a hidden file beside its place (`part`), with a record of what it is and
//! which stretches are there, and gets its name when its checksum is verified: a session that was
//! killed, on either side, goes on where it was.
#![forbid(unsafe_code)]

mod admission;
mod agenda;
mod announce;
mod aside;
mod authenticate;
mod batch;
pub mod beacon;
pub mod checksum;
pub mod client;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gather;
mod incoming;
mod job;
mod late;
mod leftovers;
mod node;
mod original;
mod outgoing;
mod part;
pub mod path;
mod pipe;
mod promise;
mod record;
mod seal;
pub mod serve;
mod session;
mod sink;
mod source;
mod tree;
mod ways;

pub use authenticate::Key;
pub use client::Client;
pub use error::Error;
pub use node::{Link, Node};
pub use serve::Server;
pub use tree::{Tree, is_of_a_part, posix_times};
