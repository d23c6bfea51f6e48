//! Saratoga on Linux: sockets and sessions around the machines of `bentpipe_saratoga`, and the files of
//! `bentpipe_saratoga_files`.
//!
//! A [`Endpoint`] owns one UDP socket and any number of sessions, and drives them in one loop: datagrams in, what is due
//! out, wait for the next deadline. [`serve`] gives it a [`Tree`] of files and what may be done with them; [`client`]
//! gives it sessions to begin. Who asks shows first that it hears us (`address_validation`); with a [`Key`] requests
//! are authenticated (`authenticate`) and all else is sealed (`seal`). [`beacon`] finds servers.
//!
//! How content is read, written and verified is in `bentpipe-saratoga-files`; what the frames mean is in
//! `bentpipe-saratoga`. Begin with `endpoint.rs` and `session.rs`.
#![forbid(unsafe_code)]

mod address_validation;
mod answers;
mod authenticate;
mod batch;
pub mod beacon;
mod capacity;
pub mod client;
mod endpoint;
mod job;
mod job_queue;
mod preparing;
mod reachability;
mod seal;
pub mod serve;
mod session;
mod session_id;
mod update;

pub use authenticate::Key;
pub use bentpipe_saratoga_files::{
    Error, LocalFile, LocalFolder, Stamp, Tree, checksum, is_of_a_part, leftovers, path,
    posix_times,
};
pub use client::Client;
pub use endpoint::{Endpoint, Link};
pub use serve::Server;
pub use update::Update;
