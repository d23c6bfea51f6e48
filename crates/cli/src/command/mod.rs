//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod gateway;
pub(crate) mod lab;
pub(crate) mod sim;
