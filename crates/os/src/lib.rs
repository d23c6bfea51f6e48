//! Linux, and nothing but Linux: namespaces, interfaces, interception, sockets, splice, timers.
//!
//! The one hand-written crate with `unsafe`. It knows no protocol machine and no policy. Whatever it
//! makes outside the process (namespaces, interfaces, rules, tables) is undone by a guard when the
//! value is dropped; what a killed process left behind carries its owner's name ([`owner`]) and is
//! removed by the next [`sweep`].

pub mod child;
pub mod conntrack;
pub mod diag;
pub mod epoll;
pub mod folder;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod lease;
pub mod limits;
mod message;
pub mod need;
pub mod neighbour;
mod netfilter;
pub mod netlink;
pub mod netns;
pub mod nfqueue;
pub mod nft;
pub mod owner;
mod presence;
pub mod sched;
pub mod socket;
pub mod splice;
pub mod sweep;
pub mod tcp;
pub mod timer;
pub mod tun;
pub mod udp;
