//! Removes what killed processes of ours left behind.
//!
//! The kernel removes most of what we make when the process ends: owner tables, TUN interfaces, BPF links. The rest is
//! named after its owner, and found again here:
//!
//! | thing | where the owner stands |
//! |---|---|
//! | namespace (with all that is in it) | its name under `/run/netns` |
//! | temporary folder | its name |
//! | nft table without an owner | its name |
//! | interface (veth) | its alias |
//! | policy rule and its route | table number and metric: see [`crate::netlink::Diversion`] |
//! | connections of a gateway that nobody holds any more | their mark, which no listener has |
//!
//! A thing is removed only when its owner is dead: no running process has both its pid and its start time, and no
//! process shows by a socket in the thing's network namespace (`presence.rs`), or by the lock of a folder, that
//! it lives in another pid namespace. What carries no name of ours is never touched.

use crate::diag::{Diag, States};
use crate::folder;
use crate::netlink::{Mark, Netlink, NetlinkError, Table, owner_metric};
use crate::netns::{Netns, NetnsError, abandon, names};
use crate::nft;
use crate::owner::Owner;
use crate::presence::present;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::IpAddr;

/// What a sweep removed, each thing as its own tool would name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Network namespaces.
    pub namespaces: Vec<String>,
    /// Temporary folders.
    pub folders: Vec<String>,
    /// nft tables, with their family.
    pub tables: Vec<String>,
    /// Interfaces.
    pub interfaces: Vec<String>,
    /// Policy rules, as ip-rule(8) writes them.
    pub rules: Vec<String>,
    /// Routes, as ip-route(8) writes them.
    pub routes: Vec<String>,
    /// How many connections of gateways.
    pub connections: usize,
    /// What could not be looked at or removed, and why.
    pub failures: Vec<String>,
}

impl Report {
    /// Whether there was nothing to do, and nothing went wrong.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Report {
    /// A line for each thing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            ("removed namespace", &self.namespaces),
            ("removed folder", &self.folders),
            ("removed nft table", &self.tables),
            ("removed interface", &self.interfaces),
            ("removed rule", &self.rules),
            ("removed route", &self.routes),
            ("could not sweep", &self.failures),
        ];
        for (what, things) in kinds {
            for thing in things {
                writeln!(f, "{what} {thing}")?;
            }
        }
        match self.connections {
            0 => Ok(()),
            count => writeln!(f, "ended {count} connections of gateways that are gone"),
        }
    }
}

/// Removes what dead processes of ours left behind: all their namespaces, and in the calling
/// thread's namespace their tables, interfaces, rules, routes and connections. Goes on after a failure and
/// reports it.
pub fn sweep() -> Report {
    let mut report = Report::default();
    match Diag::open().and_then(|mut diag| end_connections(&mut diag)) {
        Ok(count) => report.connections = count,
        Err(error) => {
            let failure = format!("the connections of gateways that are gone ({error})");
            report.failures.push(failure);
        }
    }
    sweep_namespaces(&mut report);
    sweep_folders(&mut report);
    let living = match present() {
        Ok(living) => Living(living),
        Err(error) => {
            let failure = format!("this network namespace (who lives in it: {error})");
            report.failures.push(failure);
            return report;
        }
    };
    sweep_tables(&living, &mut report);
    match Netlink::open() {
        Ok(netlink) => {
            sweep_interfaces(&netlink, &living, &mut report);
            sweep_rules(&netlink, &living, &mut report);
        }
        Err(error) => report.failures.push(error.to_string()),
    }
    report
}

/// Ends what is left of the connections of ended gateways in the namespace of `diag`, and returns their number. Before
/// the kernel forwards a packet it looks for a socket with its addresses and ports, and drops the packet where there is
/// one, so that a new connection with the same addresses and ports would wait for the end of TIME_WAIT. Connections of
/// other programs that have such a mark are left alone: they are at an address of this machine, which a gateway's never
/// are.
///
/// # Errors
/// Where the kernel cannot end connections, or without CAP_NET_ADMIN.
pub fn end_connections(diag: &mut Diag) -> io::Result<usize> {
    let group = |mark: u32| mark & Mark::GATEWAY;
    let listeners = diag.connections(States::LISTENING)?;
    let living: HashSet<u32> = listeners.iter().map(|one| group(one.mark)).collect();
    let addresses = Netlink::open().and_then(|netlink| netlink.addresses());
    let own: HashSet<IpAddr> = addresses.map_err(io::Error::other)?.into_iter().collect();
    diag.end_orphans(|mark, local| {
        mark & Mark::GATEWAYS.mask == Mark::GATEWAYS.value
            && !living.contains(&group(mark))
            && !local.is_loopback()
            && !own.contains(&local)
    })
}

/// The owners that show that they live in a network namespace.
struct Living(HashSet<Owner>);

impl Living {
    /// Whether a name is of a process of ours that no longer runs.
    fn have_abandoned(&self, name: &str) -> bool {
        let owner = Owner::parse(name).map(|(owner, _)| owner);
        owner.is_some_and(|owner| !owner.is_alive() && !self.0.contains(&owner))
    }
}

/// Whether a name is of a process of ours that does not run in this pid namespace.
fn is_unknown(name: &str) -> bool {
    Owner::parse(name).is_some_and(|(owner, _)| !owner.is_alive())
}

/// Whether the owner of a namespace shows itself inside.
fn is_inhabited(name: &str) -> io::Result<bool> {
    match Netns::open(name).and_then(|netns| netns.run(present)) {
        Ok(living) => Ok(!Living(living?).have_abandoned(name)),
        // The file is only a name, with no namespace bound to it yet or any more.
        Err(NetnsError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(false)
        }
        Err(NetnsError::Enter { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
            Ok(false)
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

fn sweep_namespaces(report: &mut Report) {
    let names = match names() {
        Ok(names) => names,
        Err(error) => {
            report.failures.push(format!("the namespaces ({error})"));
            return;
        }
    };
    for name in names.into_iter().filter(|name| is_unknown(name)) {
        let swept = match is_inhabited(&name) {
            Ok(true) => continue,
            Ok(false) => abandon(&name),
            Err(error) => Err(error),
        };
        match swept {
            Ok(()) => report.namespaces.push(name),
            Err(error) => report.failures.push(format!("namespace {name} ({error})")),
        }
    }
}

fn sweep_folders(report: &mut Report) {
    let folders = match folder::owned() {
        Ok(folders) => folders,
        Err(error) => {
            let failure = format!("the temporary folders ({error})");
            return report.failures.push(failure);
        }
    };
    for folder in folders {
        let name = folder.file_name().and_then(OsStr::to_str);
        if !name.is_some_and(is_unknown) || folder::is_held(&folder) {
            continue;
        }
        let path = folder.display().to_string();
        match folder::remove(&folder) {
            Ok(()) => report.folders.push(path),
            Err(error) => report.failures.push(format!("folder {path} ({error})")),
        }
    }
}

fn sweep_tables(living: &Living, report: &mut Report) {
    let listing = match nft::list_rules() {
        Ok(listing) => listing,
        // Without nft there is no table of ours.
        Err(nft::NftError::Start(_)) => return,
        Err(error) => {
            report.failures.push(format!("the nft tables ({error})"));
            return;
        }
    };
    for line in listing.lines() {
        let Some(head) = line.strip_prefix("table ") else {
            continue;
        };
        let table = head.split(" {").next().unwrap_or_default();
        let name = table.split_whitespace().last();
        if !name.is_some_and(|name| living.have_abandoned(name)) {
            continue;
        }
        match nft::apply(&format!("delete table {table}")) {
            Ok(()) => report.tables.push(table.to_owned()),
            Err(error) => report.failures.push(format!("nft table {table} ({error})")),
        }
    }
}

fn sweep_interfaces(netlink: &Netlink, living: &Living, report: &mut Report) {
    let links = match netlink.links() {
        Ok(links) => links,
        Err(error) => {
            report.failures.push(error.to_string());
            return;
        }
    };
    for link in links {
        let alias = link.alias.as_deref();
        if !alias.is_some_and(|alias| living.have_abandoned(alias)) {
            continue;
        }
        match netlink.delete_link(&link.name) {
            Ok(()) => report.interfaces.push(link.name),
            // The interface was the other end of a pair that was just removed.
            Err(NetlinkError::NoInterface(_)) => {}
            Err(error) => report.failures.push(error.to_string()),
        }
    }
}

fn sweep_rules(netlink: &Netlink, living: &Living, report: &mut Report) {
    let (rules, routes) = match (netlink.rules(), netlink.owned_routes()) {
        (Ok(rules), Ok(routes)) => (rules, routes),
        (Err(error), _) | (_, Err(error)) => {
            report.failures.push(error.to_string());
            return;
        }
    };
    // Processes of one pid in several pid namespaces share a table: a rule of it may be of each of them.
    let is_dead = |table: Table| {
        let of_it = routes.iter().filter(|route| route.table == table);
        let mut metrics = of_it.map(|route| route.metric).peekable();
        match metrics.peek() {
            None => is_dead_table(table, None, living),
            Some(_) => metrics.all(|metric| is_dead_table(table, Some(metric), living)),
        }
    };
    for rule in rules {
        if !is_dead(rule.table) {
            continue;
        }
        match netlink.remove_rule(&rule) {
            Ok(()) => report.rules.push(rule.to_string()),
            Err(error) => report.failures.push(error.to_string()),
        }
    }
    for route in &routes {
        if !is_dead_table(route.table, Some(route.metric), living) {
            continue;
        }
        match netlink.remove_owned_route(route) {
            Ok(()) => report.routes.push(route.to_string()),
            Err(error) => report.failures.push(error.to_string()),
        }
    }
}

/// Whether a table's owner is dead, by the pid in its number and the start time in its route's
/// metric. A rule whose route is gone is inert; while its pid is in use it stays, for it might be
/// of that process.
fn is_dead_table(table: Table, metric: Option<u32>, living: &Living) -> bool {
    let Some(pid) = table.owner_pid() else {
        return false;
    };
    let is_theirs = |owner: &Owner| {
        owner.pid == pid && metric.is_none_or(|metric| owner_metric(*owner) == metric)
    };
    if living.0.iter().any(is_theirs) {
        return false;
    }
    match (Owner::running(pid), metric) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(owner), Some(metric)) => owner_metric(owner) != metric,
    }
}
