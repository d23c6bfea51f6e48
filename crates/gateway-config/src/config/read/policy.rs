//! `[[policy]]`.

use super::leg::Interface;
use crate::config::{LegId, Profile};
use crate::policy::{Action, Policy, Quic};
use bentpipe_base::Prefix;
use bentpipe_config::network::{Many, Net, Ports, Whole, word};
use bentpipe_config::{Table, Value, Wrong};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use toml::de::DeValue;

pub(super) fn list(root: &mut Table<'_, '_>, profiles: &[Profile]) -> Vec<Policy> {
    let mut policies: Vec<Policy> = Vec::new();
    let mut names = HashSet::new();
    for (number, table) in (1..).zip(root.list("policy")) {
        let place = table.place();
        let document = table.document();
        let Some(policy) = policy(number, table, profiles) else {
            continue;
        };
        if !names.insert(policy.name.clone()) {
            let what = format!("this is the second policy that is called `{}`", policy.name);
            let expected = "a `name` of its own for each; without one, it is its number";
            document.problem(place, Wrong::new(what, expected));
        }
        policies.push(policy);
    }
    policies
}

fn policy(number: usize, mut table: Table<'_, '_>, profiles: &[Profile]) -> Option<Policy> {
    let action = table.required("action", "\"bypass\"");
    let name = table.optional("name").map(|Name(name)| name);
    let prefixes = |list| without_repetition(list_of(list, |Net(prefix)| prefix));
    let policy = Policy {
        name: name.unwrap_or_else(|| number.to_string()),
        from: prefixes(table.optional("from")),
        to: prefixes(table.optional("to")),
        ports: joined(list_of(table.optional("port"), |Ports(range)| range)),
        dscp: table.optional("dscp").map(|CodePoint(dscp)| dscp),
        arrives: table.optional("arrives"),
        interfaces: list_of(table.optional("interface"), |Interface(name)| name),
        vlans: list_of(table.optional("vlan"), |Whole::<1, 4094>(id)| id as u16),
        profile: profile(&mut table, profiles),
        action: action?,
    };
    if policy.profile.is_some() && policy.action != Action::Split {
        let what = "a `leg` for connections that are not split";
        table.problem("leg", Wrong::new(what, "`action = \"split\"`, or no `leg`"));
    }
    if !policy.is_for(true) && !policy.is_for(false) {
        let what = "`from` and `to` have no family in common";
        table.problem("to", Wrong::new(what, "addresses of one family at least"));
    }
    table.finish();
    Some(policy)
}

fn list_of<T, U>(list: Option<Many<T>>, each: impl Fn(T) -> U) -> Vec<U> {
    let list = list.map(|Many(list)| list).unwrap_or_default();
    list.into_iter().map(each).collect()
}

/// The profile that `leg` names, by its place.
fn profile(table: &mut Table<'_, '_>, profiles: &[Profile]) -> Option<usize> {
    let wanted: String = table.optional("leg")?;
    let place = profiles.iter().position(|profile| profile.name == wanted);
    if place.is_none() {
        let names: Vec<&str> = profiles.iter().map(|p| p.name.as_str()).collect();
        let what = format!("there is no table `[leg.{}]`", wanted.escape_default());
        table.problem("leg", Wrong::name(what, &wanted, &names));
    }
    place
}

/// Those that no other one of the list holds.
fn without_repetition(mut list: Vec<Prefix>) -> Vec<Prefix> {
    // Then each comes right behind the one that holds it, or behind others that this one holds.
    list.sort_by_key(|prefix| (prefix.network(), prefix.bits()));
    list.dedup_by(|next, last| last.holds(next));
    list
}

/// The ranges in rising order, those that touch made one.
fn joined(mut ranges: Vec<RangeInclusive<u16>>) -> Vec<RangeInclusive<u16>> {
    ranges.sort_by_key(|range| *range.start());
    let mut kept: Vec<RangeInclusive<u16>> = Vec::new();
    for range in ranges {
        match kept.last_mut() {
            Some(last) if *range.start() <= last.end().saturating_add(1) => {
                *last = *last.start()..=*last.end().max(range.end());
            }
            _ => kept.push(range),
        }
    }
    kept
}

/// What a policy is called: part of the name of an nft counter.
pub(super) struct Name(String);

impl Name {
    pub(super) const EXPECTED: &str = "1 to 32 letters, digits and `_`";

    pub(super) fn fits(name: &str) -> bool {
        (1..=32).contains(&name.len())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    }
}

impl Value for Name {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let name = String::read(value, source)?;
        if !Self::fits(&name) {
            let what = format!("`{}` cannot name a policy", name.escape_default());
            return Err(Wrong::new(what, Self::EXPECTED));
        }
        Ok(Self(name))
    }
}

/// A code point by number or name (RFC 2474, 2597, 3246, 5865, 8622).
struct CodePoint(u8);

const CODE_POINTS: [(&str, u8); 23] = [
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("va", 44),
    ("le", 1),
];

impl Value for CodePoint {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let Ok(text) = String::read(value, source) else {
            let Whole::<0, 63>(number) = Whole::read(value, source)?;
            return Ok(Self(number as u8));
        };
        let found = CODE_POINTS.iter().find(|(name, _)| *name == text);
        found.map(|(_, number)| Self(*number)).ok_or_else(|| {
            let names = CODE_POINTS.map(|(name, _)| name);
            let what = format!("`{}` is no code point", text.escape_default());
            Wrong::name(what, &text, &names)
        })
    }
}

impl Value for Action {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [
            ("split", Self::Split),
            ("bypass", Self::Bypass),
            ("snoop", Self::Snoop),
            ("reject", Self::Reject),
        ];
        word(value, source, "action", &all)
    }
}

impl Value for Quic {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [("count", Self::Count), ("reject", Self::Reject)];
        word(value, source, "treatment of QUIC", &all)
    }
}

impl Value for LegId {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [Self::Lan, Self::Sat].map(|which| (which.name(), which));
        word(value, source, "leg", &all)
    }
}
