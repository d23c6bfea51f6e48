//! Performance-enhancing proxies as machines without I/O: the simulator runs them in virtual time,
//! the gateway's packet plane on real packets.
#![forbid(unsafe_code)]
