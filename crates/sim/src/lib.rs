//! The deterministic simulator: the same links, TCP endpoints and proxies that carry real packets,
//! in virtual time.
#![forbid(unsafe_code)]
