//! Policy rules: packets with a mark go by a routing table of their own.
//!
//! **Whose rule is it?** Rules and routes have no name and outlive a killed process, so their owner
//! is written into numbers, and nothing has to be kept in a file:
//! - `protocol` of rule and route is 98 ("b"): it is bentpipe's;
//! - the table is `0x62000000 + slot * 2^22 + pid` (Linux pids have at most 22 bits): it is of that
//!   process, and two processes never share a table;
//! - the route's metric is the owner's start time, its low 32 bits, which tells a process from a
//!   later one of the same pid.
//!
//! A [`super::Diversion`] adds its routes before its rules and removes them after, so a rule in the tables
//! always finds the route that tells its owner. [`crate::sweep`] reads all that back.

use super::route::{PROTOCOL, family};
use super::{Family, Netlink, NetlinkError};
use crate::owner::Owner;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{self, RuleAttribute, RuleMessage};
use std::fmt;
use std::io;

const OWNED: u32 = (b'b' as u32) << 24;
const SLOT_SHIFT: u32 = 22;
const PID_MASK: u32 = (1 << SLOT_SHIFT) - 1;

/// A routing table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Table(u32);

impl Table {
    /// The table that `ip route` shows.
    pub const MAIN: Self = Self(254);

    /// The table of that number.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// A table that belongs to `owner` alone; it has four (`slot` is taken modulo 4).
    pub const fn owned(owner: Owner, slot: u8) -> Self {
        Self(OWNED | ((slot as u32 % 4) << SLOT_SHIFT) | (owner.pid & PID_MASK))
    }

    /// Its number, as ip-rule(8) shows it.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The process it belongs to, if it is one of ours.
    pub(crate) fn owner_pid(self) -> Option<u32> {
        let pid = self.0 & PID_MASK;
        (self.0 >> 24 == OWNED >> 24 && pid > 0).then_some(pid)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The metric that tells which of all processes of one pid made a route. Never 0: the kernel would
/// put a default in its place.
pub(crate) fn owner_metric(owner: Owner) -> u32 {
    ((owner.start & u64::from(u32::MAX)) as u32).max(1)
}

/// A packet mark and the bits of it that count: `0x1/0xff` matches marks whose low byte is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The value of the bits.
    pub value: u32,
    /// The bits that count.
    pub mask: u32,
}

impl Mark {
    /// What the marks of all gateways have in common.
    pub const GATEWAYS: Self = Self {
        value: OWNED,
        mask: 0xff << 24,
    };
    /// The bits that tell one gateway from others; those beyond tell roles.
    pub const GATEWAY: u32 = !0xff;

    /// All 32 bits count.
    pub const fn exact(value: u32) -> Self {
        Self {
            value,
            mask: u32::MAX,
        }
    }
}

impl fmt::Display for Mark {
    /// As ip-rule(8) writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

/// What a rule does with the packets that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleAction {
    /// They are routed by its table.
    Lookup,
    /// Look-ups by this machine itself, not by a packet that came in (`iif lo`), continue with the rules of this later
    /// priority.
    SkipTo(u32),
    /// It does nothing; it is a target for other rules to skip to.
    Nothing,
}

/// A rule: what becomes of packets of `family` with `mark`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// IPv4 or IPv6.
    pub family: Family,
    /// The packets it is for; `None` for all.
    pub mark: Option<Mark>,
    /// What it does with them.
    pub action: RuleAction,
    /// The table by which the packets are routed. In rules that route nothing it tells the owner.
    pub table: Table,
    /// Its place among the rules: the lowest number is tried first; the local table stands at 0, the
    /// main table at 32766.
    pub priority: u32,
}

/// RT_TABLE_LOCAL, as a rule's header has it.
pub(super) const LOCAL_TABLE: u8 = 255;
/// The interface of look-ups by this machine itself.
const LOOPBACK: &str = "lo";

impl Rule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = family(self.family);
        message.header.action = match self.action {
            RuleAction::Lookup => rule::RuleAction::ToTable,
            RuleAction::SkipTo(_) => rule::RuleAction::Goto,
            RuleAction::Nothing => rule::RuleAction::Nop,
        };
        message.attributes = vec![
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Table(self.table.number()),
            RuleAttribute::Protocol(RouteProtocol::Other(PROTOCOL)),
        ];
        if let RuleAction::SkipTo(target) = self.action {
            let local = RuleAttribute::Iifname(LOOPBACK.to_owned());
            message
                .attributes
                .extend([RuleAttribute::Goto(target), local]);
        }
        if let Some(mark) = self.mark {
            message.attributes.push(RuleAttribute::FwMark(mark.value));
            message.attributes.push(RuleAttribute::FwMask(mark.mask));
        }
        message
    }

    /// Reads a rule of ours; `None` for all others.
    pub(super) fn read(answer: &RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewRule(message) = answer else {
            return None;
        };
        let mut rule = Self {
            family: Family::ALL
                .into_iter()
                .find(|f| family(*f) == message.header.family)?,
            mark: None,
            action: match message.header.action {
                rule::RuleAction::Nop => RuleAction::Nothing,
                _ => RuleAction::Lookup,
            },
            table: Table(u32::from(message.header.table)),
            priority: 0,
        };
        let mut ours = false;
        let (mut value, mut mask) = (None, u32::MAX);
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(number) => rule.table = Table(*number),
                RuleAttribute::Goto(target) => rule.action = RuleAction::SkipTo(*target),
                RuleAttribute::Protocol(protocol) => {
                    ours = *protocol == RouteProtocol::Other(PROTOCOL)
                }
                RuleAttribute::FwMark(mark) => value = Some(*mark),
                RuleAttribute::FwMask(bits) => mask = *bits,
                _ => {}
            }
        }
        rule.mark = value.map(|value| Mark { value, mask });
        ours.then_some(rule)
    }
}

impl fmt::Display for Rule {
    /// As ip-rule(8) writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pref {}", self.priority)?;
        if let Some(mark) = self.mark {
            write!(f, " fwmark {mark}")?;
        }
        match self.action {
            RuleAction::Lookup => write!(f, " lookup {}", self.table),
            RuleAction::SkipTo(target) => write!(f, " iif {LOOPBACK} goto {target}"),
            RuleAction::Nothing => f.write_str(" nop"),
        }
    }
}

/// A rule that is removed when dropped.
#[derive(Debug)]
#[must_use = "the rule is removed when the guard is dropped"]
pub struct RuleGuard {
    pub(super) netlink: Netlink,
    pub(super) rule: Rule,
}

impl Drop for RuleGuard {
    fn drop(&mut self) {
        let message = RouteNetlinkMessage::DelRule(self.rule.message());
        let gone = self.netlink.transport.change(message, 0);
        report_drop("rule", &self.rule, gone);
    }
}

pub(super) fn report_drop(what: &str, thing: &dyn fmt::Display, result: io::Result<()>) {
    match result {
        Ok(()) => {}
        // Somebody else removed it, or the interface with all its routes went first.
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::ENOENT | libc::ESRCH | libc::ENODEV)
            ) => {}
        Err(error) => {
            tracing::warn!(%thing, %error, "cannot remove {what}; the next sweep will try again")
        }
    }
}

impl Netlink {
    /// Adds a rule for as long as the namespace lives.
    ///
    /// # Errors
    /// Fails when the very same rule is there already, or without root.
    pub fn add_rule(&self, rule: &Rule) -> Result<(), NetlinkError> {
        self.change(
            RouteNetlinkMessage::NewRule(rule.message()),
            NLM_F_CREATE | NLM_F_EXCL,
            || format!("add the rule {rule}"),
        )
    }

    /// Adds a rule until the guard is dropped.
    ///
    /// # Errors
    /// As [`Netlink::add_rule`].
    pub fn hold_rule(&self, rule: &Rule) -> Result<RuleGuard, NetlinkError> {
        self.add_rule(rule)?;
        Ok(RuleGuard {
            netlink: self.clone(),
            rule: *rule,
        })
    }

    /// The rules that bentpipe processes made, living or dead.
    ///
    /// # Errors
    /// Fails when the kernel does not answer.
    pub fn rules(&self) -> Result<Vec<Rule>, NetlinkError> {
        let mut found = Vec::new();
        for one in Family::ALL {
            let mut question = RuleMessage::default();
            question.header.family = family(one);
            let answers = self.list_family(
                one,
                RouteNetlinkMessage::GetRule(question),
                "list the rules",
            )?;
            found.extend(answers.iter().filter_map(Rule::read));
        }
        Ok(found)
    }

    /// Rules of others that match the interface of arrival or the mark, as ip-rule(8) would write them. By such rules
    /// packets that this machine sends for a client take another way than packets that it forwards.
    ///
    /// # Errors
    /// Fails when the kernel does not answer.
    pub fn rules_by_arrival(&self) -> Result<Vec<String>, NetlinkError> {
        let mut found = Vec::new();
        for one in Family::ALL {
            let mut question = RuleMessage::default();
            question.header.family = family(one);
            let question = RouteNetlinkMessage::GetRule(question);
            let answers = self.list_family(one, question, "list the rules")?;
            found.extend(answers.iter().filter_map(by_arrival));
        }
        Ok(found)
    }

    pub(crate) fn remove_rule(&self, rule: &Rule) -> Result<(), NetlinkError> {
        self.change(RouteNetlinkMessage::DelRule(rule.message()), 0, || {
            format!("remove the rule {rule}")
        })
    }
}

/// A rule of somebody else's that asks for a mark or an interface of arrival.
fn by_arrival(answer: &RouteNetlinkMessage) -> Option<String> {
    let RouteNetlinkMessage::NewRule(message) = answer else {
        return None;
    };
    if Rule::read(answer).is_some() {
        return None;
    }
    let (mut asked, mut priority, mut table) = (Vec::new(), 0, message.header.table.into());
    let mut masks = message
        .attributes
        .iter()
        .filter_map(|attribute| match attribute {
            RuleAttribute::FwMask(mask) => Some(*mask),
            _ => None,
        });
    let mask = masks.next().unwrap_or(u32::MAX);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Iifname(name) if name != LOOPBACK => asked.push(format!("iif {name}")),
            RuleAttribute::FwMark(value) if *value != 0 => {
                let mark = Mark {
                    value: *value,
                    mask,
                };
                asked.push(format!("fwmark {mark}"));
            }
            RuleAttribute::Priority(number) => priority = *number,
            RuleAttribute::Table(number) => table = *number,
            _ => {}
        }
    }
    let asked = (!asked.is_empty()).then(|| asked.join(" "))?;
    Some(format!("pref {priority} {asked} lookup {table}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_table_tells_its_owner(pid in 1u32..1 << 22, start: u64, slot in 0u8..4) {
            let owner = Owner { pid, start };
            let table = Table::owned(owner, slot);
            prop_assert_eq!(table.owner_pid(), Some(pid));
            prop_assert_ne!(table, Table::owned(owner, slot + 1));
            prop_assert!(owner_metric(owner) > 0);
        }

        #[test]
        fn a_table_out_of_our_range_has_no_owner(number: u32) {
            prop_assume!(number >> 24 != 0x62);
            prop_assert_eq!(Table::from_number(number).owner_pid(), None);
        }
    }

    #[test]
    fn a_rule_survives_the_journey_through_a_message() {
        for mark in [
            None,
            Some(Mark {
                value: 0x100,
                mask: 0xff00,
            }),
            Some(Mark::exact(7)),
        ] {
            for action in [
                RuleAction::Lookup,
                RuleAction::SkipTo(99),
                RuleAction::Nothing,
            ] {
                let rule = Rule {
                    family: Family::V6,
                    mark,
                    action,
                    table: Table::owned(Owner { pid: 9, start: 1 }, 0),
                    priority: 77,
                };
                assert_eq!(
                    Rule::read(&RouteNetlinkMessage::NewRule(rule.message())),
                    Some(rule)
                );
            }
        }
        let foreign = RouteNetlinkMessage::NewRule(RuleMessage::default());
        assert_eq!(Rule::read(&foreign), None);
    }
}
