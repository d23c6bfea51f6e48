//! What the papers call a "TCP variant": a congestion control with a loss recovery.

use crate::ns2::{self, RecoveryRules};
use crate::recovery;
use bentpipe_cc as cc;
use thiserror::Error;

/// A congestion control with a loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
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
            .filter(|variant| cc::find(variant.congestion).is_some())
            .map(|variant| variant.name)
            .collect();
        Self {
            name: name.to_owned(),
            known: known.join(", "),
        }
    }
}

const fn variant(
    name: &'static str,
    congestion: &'static str,
    recovery: &'static str,
    ns2: &'static str,
) -> Variant {
    Variant {
        name,
        congestion,
        recovery,
        ns2,
    }
}

/// All variants.
pub const VARIANTS: &[Variant] = &[
    variant("tahoe", "reno", "tahoe", "ns2-tahoe"),
    variant("reno", "reno", "reno", "ns2-reno"),
    variant("newreno", "reno", "newreno", "ns2-newreno"),
    variant("sack", "reno", "sack", "ns2-sack"),
    variant("fack", "reno", "fack", "ns2-fack"),
    variant("vegas", "vegas", "reno", "ns2-vegas"),
    variant("hybla", "hybla", "sack", "ns2-sack"),
    variant("rate", "rate", "sack", "ns2-sack"),
    variant("bbr", "bbr", "sack", "ns2-sack"),
    variant("bbr1", "bbr1", "sack", "ns2-sack"),
    variant("bic", "bic", "sack", "ns2-sack"),
    variant("cubic", "cubic", "sack", "ns2-sack"),
    variant("compound", "compound", "sack", "ns2-sack"),
    variant("westwood", "westwood", "sack", "ns2-sack"),
];

/// The variant called `name`.
pub fn find(name: &str) -> Option<&'static Variant> {
    VARIANTS.iter().find(|variant| variant.name == name)
}

impl Variant {
    pub(crate) fn congestion(
        &self,
        recovery_rules: RecoveryRules,
        name: &str,
    ) -> Result<&'static cc::Algorithm, UnknownVariant> {
        if recovery_rules == RecoveryRules::Ns2 && self.congestion == ns2::RENO.name {
            return Ok(&ns2::RENO);
        }
        cc::find(self.congestion).ok_or_else(|| UnknownVariant::new(name))
    }

    pub(crate) fn recovery(
        &self,
        recovery_rules: RecoveryRules,
        name: &str,
    ) -> Result<&'static recovery::Algorithm, UnknownVariant> {
        recovery::find(match recovery_rules {
            RecoveryRules::Rfc => self.recovery,
            RecoveryRules::Ns2 => self.ns2,
        })
        .ok_or_else(|| UnknownVariant::new(name))
    }
}
