//! Linux, and nothing but Linux: namespaces, interfaces, routes, nft tables, and the sweep of what killed runs left.
//!
//! It knows no protocol machine and no policy. Whatever it makes outside the process (namespaces, interfaces, rules,
//! tables) is undone by a guard when the value is dropped; what a killed process left behind carries its owner's name
//! ([`owner`]) and is removed by the next [`sweep`]. Sockets and waiting for them are in `bentpipe-sockets`,
//! what Linux gives a process in `bentpipe-process`; these three and `bentpipe-conformance` are the hand-written crates with `unsafe`. Begin with [`netns`], [`netlink`] and [`nft`].

pub mod conntrack;
pub mod diag;
pub mod folder;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod ipsec;
pub mod lease;
pub mod need;
pub mod neighbour;
pub mod netlink;
pub mod netns;
pub mod nft;
pub mod owner;
mod presence;
pub mod sweep;
pub mod tcx;
pub mod tun;
