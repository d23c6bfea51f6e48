//! What the papers call a "TCP variant": a congestion control with a loss recovery.

use crate::recovery;
use bentpipe_cc as cc;
use thiserror::Error;

/// Whose rules a recovery follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The RFCs.
    Rfc,
    /// ns-2 2.35.
    Ns2,
}

/// A congestion control with a loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The papers' name.
    pub name: &'static str,
    /// In [`cc::REGISTRY`].
    pub congestion: &'static str,
    /// In [`recovery::REGISTRY`], by the RFCs.
    pub recovery: &'static str,
    /// In [`recovery::REGISTRY`], as ns-2 does it.
    pub ns2: &'static str,
}

/// No variant has that name, or its congestion control is not built in.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no TCP variant is called `{name}`; there are {known}")]
pub struct UnknownVariant {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: String,
}

impl UnknownVariant {
    pub(crate) fn new(name: &str) -> Self {
        let known: Vec<_> = VARIANTS
            .iter()
            .filter(|pair| cc::find(pair.congestion).is_some())
            .map(|pair| pair.name)
            .collect();
        Self {
            name: name.to_owned(),
            known: known.join(", "),
        }
    }
}

const fn pair(
    name: &'static str,
    congestion: &'static str,
    recovery: &'static str,
    ns2: &'static str,
) -> Pair {
    Pair {
        name,
        congestion,
        recovery,
        ns2,
    }
}

/// All variants.
pub const VARIANTS: &[Pair] = &[
    pair("tahoe", "reno", "tahoe", "ns2-tahoe"),
    pair("reno", "reno", "reno", "ns2-reno"),
    pair("newreno", "reno", "newreno", "ns2-newreno"),
    pair("sack", "reno", "sack", "ns2-sack"),
    pair("fack", "reno", "fack", "ns2-fack"),
    pair("vegas", "vegas", "reno", "ns2-vegas"),
    pair("hybla", "hybla", "sack", "ns2-sack"),
    pair("rate", "rate", "sack", "ns2-sack"),
    pair("bic", "bic", "sack", "ns2-sack"),
    pair("cubic", "cubic", "sack", "ns2-sack"),
    pair("compound", "compound", "sack", "ns2-sack"),
    pair("westwood", "westwood", "sack", "ns2-sack"),
];

/// The variant called `name`.
pub fn find(name: &str) -> Option<&'static Pair> {
    VARIANTS.iter().find(|pair| pair.name == name)
}

impl Pair {
    pub(crate) fn congestion(
        &self,
        reference: Reference,
        name: &str,
    ) -> Result<&'static cc::Variant, UnknownVariant> {
        if reference == Reference::Ns2 && self.congestion == recovery::NS2_RENO.name {
            return Ok(&recovery::NS2_RENO);
        }
        cc::find(self.congestion).ok_or_else(|| UnknownVariant::new(name))
    }

    pub(crate) fn recovery(
        &self,
        reference: Reference,
        name: &str,
    ) -> Result<&'static recovery::Variant, UnknownVariant> {
        recovery::find(match reference {
            Reference::Rfc => self.recovery,
            Reference::Ns2 => self.ns2,
        })
        .ok_or_else(|| UnknownVariant::new(name))
    }
}
