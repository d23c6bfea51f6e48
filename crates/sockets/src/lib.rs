//! Linux sockets and what drives them: TCP and UDP with their options, queues of packets ([`nfqueue`]), [`epoll`],
//! [`timer`]s, and [`splice`].
//!
//! One of the hand-written crates with `unsafe` (the others are `bentpipe-os`, `bentpipe-process` and `bentpipe-conformance`): it wraps what rustix has not. It knows
//! no protocol machine and no policy; interfaces, routes, tables and namespaces are in `bentpipe-os`. Begin with
//! [`socket`] and [`epoll`].

pub mod borrowed_address;
pub mod epoll;
pub mod netfilter;
pub mod netlink_message;
pub mod nfqueue;
pub mod packet;
pub mod raw_ip;
pub mod socket;
pub mod splice;
pub mod tcp;
pub mod timer;
pub mod udp;
