//! The routing half of transparent interception: rules and routes that bring marked packets to this machine.

use super::route::family;
use super::rule::{LOCAL_TABLE, Mark, Rule, RuleAction, RuleGuard, Table, owner_metric};
use super::{Family, Netlink, NetlinkError, Route, RouteGuard};
use crate::owner::Owner;
use crate::presence::Presence;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAttribute, RuleMessage};
use std::io;
use std::sync::{Mutex, PoisonError};

/// Marked packets that come in are delivered to this machine whatever their destination: the routing half of
/// transparent interception (the other half marks them: `tproxy` in [`crate::nft`]). Removed when
/// dropped, swept after a kill.
///
/// The rule is for packets that come in only. The kernel also asks its rules how it would reach the source of such a
/// packet, and with `net.ipv4.conf.*.src_valid_mark` it does so with the packet's mark. If the answer were that every
/// host is this machine, it would take all sources for forged ones. Such a look-up, like all of this machine's own, has
/// `lo` for its interface, and skips the rule.
///
/// The rules stand before all others but that of the local table: one before them would send the packets elsewhere.
#[derive(Debug)]
#[must_use = "packets are no longer diverted when it is dropped"]
pub struct Diversion {
    // Fields are dropped in this order, rules first.
    rules: Mutex<Vec<Diverting>>,
    routes: Vec<RouteGuard>,
    table: Table,
    mark: Mark,
    /// The highest priority that the first of a family's rules takes.
    highest: u32,
    /// This is dropped last, because a sweep elsewhere spares things whose owner lives.
    _presence: Presence,
}

/// See [`Netlink::turn_back`].
#[derive(Debug)]
#[must_use = "packets are no longer turned back when it is dropped"]
pub struct TurnedBack {
    // Fields are dropped in this order, so that a rule always finds the route that tells its owner.
    rule: Mutex<RuleGuard>,
    route: RouteGuard,
    _presence: Presence,
}

/// The rules of one family.
#[derive(Debug)]
struct Diverting {
    family: Family,
    /// The priority of the first.
    first: u32,
    // The diverting rule comes first, so that each rule is removed before those that it needs.
    rules: Vec<RuleGuard>,
}

/// How many rules, one behind the other, divert packets of one family.
const DIVERTING: u32 = 3;

impl Netlink {
    /// Diverts packets with `mark` in each of `families`: `ip rule fwmark MARK lookup TABLE` and
    /// `ip route local default dev lo table TABLE`, in this process's table number `slot` (0 to 3:
    /// one for each diversion that lives at the same time in one namespace). The rules take `highest` and the
    /// two numbers after it, or lower ones where others' rules would come before them.
    ///
    /// # Errors
    /// Fails when the slot is taken, when there is no room before the rules of others, or without root; nothing is
    /// left behind.
    pub fn divert(
        &self,
        families: &[Family],
        mark: Mark,
        highest: u32,
        slot: u8,
    ) -> Result<Diversion, NetlinkError> {
        let owner = Owner::current()?;
        let presence = Presence::show().map_err(NetlinkError::Open)?;
        let table = Table::owned(owner, slot);
        let mut routes = Vec::new();
        for family in families {
            let route = Route::local_default(*family)
                .in_table(table)
                .with_metric(owner_metric(owner));
            routes.push(self.hold_route(&route)?);
        }
        let mut rules = Vec::new();
        for family in families {
            let first = place(self.first_of_others(*family)?, highest)?;
            rules.push(self.divert_family(*family, mark, table, first)?);
        }
        Ok(Diversion {
            rules: Mutex::new(rules),
            routes,
            table,
            mark,
            highest,
            _presence: presence,
        })
    }

    /// Leads what this machine sends with `mark` to itself over `lo`, whatever its destination, by this process's table
    /// number `slot`, until the value is dropped.
    ///
    /// # Errors
    /// As [`Netlink::divert`]; nothing is left behind.
    pub fn turn_back(&self, one: Family, mark: Mark, slot: u8) -> Result<TurnedBack, NetlinkError> {
        let owner = Owner::current()?;
        let presence = Presence::show().map_err(NetlinkError::Open)?;
        let table = Table::owned(owner, slot);
        let route = Route::local_default(one)
            .in_table(table)
            .with_metric(owner_metric(owner));
        let route = self.hold_route(&route)?;
        let rule = self.hold_rule(&Rule {
            family: one,
            mark: Some(mark),
            action: RuleAction::Lookup,
            table,
            priority: place(self.first_of_others(one)?, u32::MAX)?,
        })?;
        Ok(TurnedBack {
            rule: Mutex::new(rule),
            route,
            _presence: presence,
        })
    }

    fn divert_family(
        &self,
        family: Family,
        mark: Mark,
        table: Table,
        first: u32,
    ) -> Result<Diverting, NetlinkError> {
        let mut rules = Vec::new();
        // The diverting rule is the last to be made and the first to go.
        let behind = first + 2;
        for (action, priority) in [
            (RuleAction::Nothing, behind),
            (RuleAction::SkipTo(behind), first),
            (RuleAction::Lookup, first + 1),
        ] {
            let rule = Rule {
                family,
                mark: Some(mark),
                action,
                table,
                priority,
            };
            rules.insert(0, self.hold_rule(&rule)?);
        }
        Ok(Diverting {
            family,
            first,
            rules,
        })
    }

    /// The lowest priority of the rules of others, that of the local table excepted.
    fn first_of_others(&self, one: Family) -> Result<u32, NetlinkError> {
        let mut question = RuleMessage::default();
        question.header.family = family(one);
        let question = RouteNetlinkMessage::GetRule(question);
        let answers = self.list_family(one, question, "list the rules")?;
        let lowest = answers.iter().filter_map(priority_of_another).min();
        Ok(lowest.unwrap_or(u32::MAX))
    }
}

/// The priority of a rule of somebody else's that may take packets before they come to the main table.
fn priority_of_another(answer: &RouteNetlinkMessage) -> Option<u32> {
    let RouteNetlinkMessage::NewRule(message) = answer else {
        return None;
    };
    if Rule::read(answer).is_some() || message.header.table == LOCAL_TABLE {
        return None;
    }
    let priority = message.attributes.iter().find_map(|one| match one {
        RuleAttribute::Priority(priority) => Some(*priority),
        _ => None,
    });
    // The kernel leaves a priority of 0 out.
    Some(priority.unwrap_or(0))
}

/// Where the first of our rules goes, before those of others, which begin at `others`.
fn place(others: u32, highest: u32) -> Result<u32, NetlinkError> {
    let room = others.checked_sub(DIVERTING);
    let first = room.ok_or_else(|| NetlinkError::BadValue {
        doing: "put routing rules before those there are".to_owned(),
        why: "one has a preference below 3: give it a higher one (`ip rule`)",
    })?;
    Ok(first.min(highest))
}

impl Diversion {
    /// The table that the packets are routed by.
    pub const fn table(&self) -> Table {
        self.table
    }

    /// Makes again what somebody has removed of `families`, and puts our rules before those that somebody has put
    /// before them; says whether that was anything. Where others have gone, ours go up again, so that room is left for the
    /// next that get a number from the kernel: it gives them that before the first of ours.
    ///
    /// # Errors
    /// Then a part of it may still be missing: with `lo` down, for example, there can be no route.
    pub fn restore(&self, families: &[Family]) -> Result<bool, NetlinkError> {
        let mut restored = false;
        for route in self.routes.iter().filter(|route| route.is_of(families)) {
            restored |= was_missing(route.restore())?;
        }
        let mut all = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = all.iter_mut().filter(|one| families.contains(&one.family));
        for one in meant {
            let Some(netlink) = one.rules.first().map(|rule| rule.netlink.clone()) else {
                continue;
            };
            let best = place(netlink.first_of_others(one.family)?, self.highest)?;
            let up = best >= one.first + DIVERTING;
            if best < one.first || up {
                *one = netlink.divert_family(one.family, self.mark, self.table, best)?;
                restored |= !up;
            }
            for rule in one.rules.iter().rev() {
                restored |= was_missing(netlink.add_rule(&rule.rule))?;
            }
        }
        Ok(restored)
    }
}

impl TurnedBack {
    /// As [`Diversion::restore`].
    ///
    /// # Errors
    /// As there.
    pub fn restore(&self) -> Result<bool, NetlinkError> {
        let mut restored = was_missing(self.route.restore())?;
        let mut rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        let (netlink, meant) = (rule.netlink.clone(), rule.rule);
        let best = place(netlink.first_of_others(meant.family)?, u32::MAX)?;
        let up = best >= meant.priority + DIVERTING;
        if best < meant.priority || up {
            *rule = netlink.hold_rule(&Rule {
                priority: best,
                ..meant
            })?;
            restored |= !up;
        }
        restored |= was_missing(netlink.add_rule(&rule.rule))?;
        Ok(restored)
    }
}

/// The kernel refuses to add what is there.
fn was_missing(added: Result<(), NetlinkError>) -> Result<bool, NetlinkError> {
    match added {
        Ok(()) => Ok(true),
        Err(NetlinkError::Refused { source, .. })
            if source.kind() == io::ErrorKind::AlreadyExists =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
