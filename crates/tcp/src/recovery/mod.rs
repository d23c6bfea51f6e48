//! Loss recovery: which segments are taken for lost, when they are sent again, and how the window
//! is held meanwhile. One file each, apart from congestion control, as in ns-3 and Linux.

use std::fmt::Debug;

/// A loss recovery of one connection.
pub trait Recovery: Debug + Send {
    /// Its name in [`REGISTRY`].
    fn name(&self) -> &'static str;
}

/// One loss recovery by name.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// How scenarios and commands call it.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// It reads SACK blocks.
    pub sack: bool,
    /// Makes one.
    pub new: fn() -> Box<dyn Recovery>,
}

#[derive(Debug)]
struct Pending(&'static str);

impl Recovery for Pending {
    fn name(&self) -> &'static str {
        self.0
    }
}

/// All of them.
pub const REGISTRY: &[Variant] = &[
    Variant {
        name: "sack",
        summary: "selective retransmission by the pipe of RFC 6675",
        sack: true,
        new: || Box::new(Pending("sack")),
    },
    Variant {
        name: "ns2-sack",
        summary: "ns-2's Sack1",
        sack: true,
        new: || Box::new(Pending("ns2-sack")),
    },
];

/// The recovery called `name`.
pub fn find(name: &str) -> Option<&'static Variant> {
    REGISTRY.iter().find(|variant| variant.name == name)
}
