//! What both engines derive from a scenario before they run it, written once, so that a file means the same in the
//! simulator and on the kernel's TCP in the lab: the settings of links ([`links`]), addresses and ports
//! ([`addresses`]), which sender is told which rate and shares which link ([`rates`]), what no flow can exceed
//! ([`limits`]), how a gateway splits ([`gateway`]), and what is the far end of a leg over QUIC ([`quic`]). Begin with [`links`].
//!
//! Not here: what a scenario knows itself, such as paths ([`bentpipe_scenario::Topology`]) and the sizes of headers
//! ([`bentpipe_scenario::Ip`]); the lab's namespaces, routes and sockets; the simulator's numbers of nodes and simplex
//! links.
#![forbid(unsafe_code)]

pub mod addresses;
pub mod gateway;
pub mod limits;
pub mod links;
pub mod quic;
pub mod rates;
