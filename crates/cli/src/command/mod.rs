//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod gateway;
pub(crate) mod lab;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod saratoga;
pub(crate) mod sim;
pub(crate) mod study;
pub(crate) mod traffic;
