//! Routes.

use super::rule::Table;
use super::{Family, Netlink, NetlinkError, Prefix};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::fmt;
use std::net::IpAddr;

/// The `protocol` number of our routes and rules (`proto 98` in ip-route(8)), so that they can be
/// told from the administrator's and every daemon's (linux/rtnetlink.h lists those taken).
pub(super) const PROTOCOL: u8 = b'b';

/// A route: where packets for a destination go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    destination: Prefix,
    gateway: Option<IpAddr>,
    device: Option<String>,
    table: Table,
    kind: Kind,
    metric: Option<u32>,
    control: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unicast,
    Local,
}

impl Route {
    /// `destination via gateway`.
    pub fn via(destination: Prefix, gateway: IpAddr) -> Self {
        Self {
            gateway: Some(gateway),
            ..Self::to(destination)
        }
    }

    /// `destination dev device`: the destination is on that wire, or behind that TUN interface.
    pub fn device(destination: Prefix, device: &str) -> Self {
        Self {
            device: Some(device.to_owned()),
            ..Self::to(destination)
        }
    }

    /// `local default dev lo`: every address of `family` is taken for our own, as a transparent
    /// listener needs it. Only for a table of its own that a mark selects.
    pub fn local_default(family: Family) -> Self {
        Self {
            kind: Kind::Local,
            ..Self::device(Prefix::all(family), "lo")
        }
    }

    fn to(destination: Prefix) -> Self {
        Self {
            destination,
            gateway: None,
            device: None,
            table: Table::MAIN,
            kind: Kind::Unicast,
            metric: None,
            control: None,
        }
    }

    /// The same route in another table than the main one.
    #[must_use]
    pub fn in_table(self, table: Table) -> Self {
        Self { table, ..self }
    }

    /// The same route with this metric; of two equal routes that with the lower one is taken.
    #[must_use]
    pub fn with_metric(self, metric: u32) -> Self {
        Self {
            metric: Some(metric),
            ..self
        }
    }

    /// The same route, over which TCP takes this congestion control, whatever the default is and the
    /// socket asked for (`congctl` in ip-route(8)). It may be one that only the first namespace could
    /// have for its default.
    #[must_use]
    pub fn with_control(self, name: &str) -> Self {
        Self {
            control: Some(name.to_owned()),
            ..self
        }
    }

    fn message(&self, netlink: &Netlink) -> Result<RouteMessage, NetlinkError> {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = family(self.destination.family());
        header.destination_prefix_length = self.destination.bits();
        header.protocol = RouteProtocol::Other(PROTOCOL);
        (header.kind, header.scope) = match self.kind {
            Kind::Local => (RouteType::Local, RouteScope::Host),
            Kind::Unicast if self.gateway.is_some() => (RouteType::Unicast, RouteScope::Universe),
            Kind::Unicast => (RouteType::Unicast, RouteScope::Link),
        };
        // The number of a high table does not fit the header, which says 0 then.
        message
            .attributes
            .push(RouteAttribute::Table(self.table.number()));
        if self.destination.bits() > 0 {
            message.attributes.push(RouteAttribute::Destination(address(
                self.destination.network(),
            )));
        }
        if let Some(gateway) = self.gateway {
            message
                .attributes
                .push(RouteAttribute::Gateway(address(gateway)));
        }
        if let Some(device) = &self.device {
            message
                .attributes
                .push(RouteAttribute::Oif(netlink.index(device)?));
        }
        if let Some(metric) = self.metric {
            message.attributes.push(RouteAttribute::Priority(metric));
        }
        if let Some(control) = &self.control {
            let control = RouteMetric::CcAlgo(control.clone());
            message
                .attributes
                .push(RouteAttribute::Metrics(vec![control]));
        }
        Ok(message)
    }
}

impl fmt::Display for Route {
    /// As ip-route(8) writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Kind::Local {
            f.write_str("local ")?;
        }
        write!(f, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(device) = &self.device {
            write!(f, " dev {device}")?;
        }
        if let Some(control) = &self.control {
            write!(f, " congctl {control}")?;
        }
        if self.table != Table::MAIN {
            write!(f, " table {}", self.table)?;
        }
        Ok(())
    }
}

/// A route that is removed when dropped.
#[derive(Debug)]
#[must_use = "the route is removed when the guard is dropped"]
pub struct RouteGuard {
    netlink: Netlink,
    message: RouteMessage,
    text: String,
}

impl RouteGuard {
    /// Whether it is a route of one of `families`.
    pub(super) fn is_of(&self, families: &[Family]) -> bool {
        let own = self.message.header.address_family;
        families.iter().any(|one| family(*one) == own)
    }

    /// Adds the route again; the kernel refuses that while it is there.
    pub(super) fn restore(&self) -> Result<(), NetlinkError> {
        self.netlink.change(
            RouteNetlinkMessage::NewRoute(self.message.clone()),
            NLM_F_CREATE | NLM_F_EXCL,
            || format!("add the route {} again", self.text),
        )
    }
}

impl Drop for RouteGuard {
    fn drop(&mut self) {
        let message = RouteNetlinkMessage::DelRoute(self.message.clone());
        let gone = self.netlink.transport.change(message, 0);
        super::rule::report_drop("route", &self.text, gone);
    }
}

impl Netlink {
    /// Adds a route for as long as its interface stays up.
    ///
    /// # Errors
    /// Fails when it is there already, its device is missing, or its gateway is not on a network of
    /// ours.
    pub fn add_route(&self, route: &Route) -> Result<(), NetlinkError> {
        self.insert_route(route).map(drop)
    }

    /// Adds a route until the guard is dropped. One in a table of our own ([`Table::owned`]) is
    /// swept after a kill if it carries the owner's metric: see [`super::Diversion`].
    ///
    /// # Errors
    /// As [`Netlink::add_route`].
    pub fn hold_route(&self, route: &Route) -> Result<RouteGuard, NetlinkError> {
        let message = self.insert_route(route)?;
        Ok(RouteGuard {
            netlink: self.clone(),
            message,
            text: route.to_string(),
        })
    }

    fn insert_route(&self, route: &Route) -> Result<RouteMessage, NetlinkError> {
        let message = route.message(self)?;
        self.change(
            RouteNetlinkMessage::NewRoute(message.clone()),
            NLM_F_CREATE | NLM_F_EXCL,
            || format!("add the route {route}"),
        )?;
        Ok(message)
    }

    /// Our routes in tables of our own: what the sweep looks through.
    pub(crate) fn owned_routes(&self) -> Result<Vec<OwnedRoute>, NetlinkError> {
        let mut found = Vec::new();
        for one in Family::ALL {
            let mut question = RouteMessage::default();
            question.header.address_family = family(one);
            let answers = self.list_family(
                one,
                RouteNetlinkMessage::GetRoute(question),
                "list the routes",
            )?;
            found.extend(
                answers
                    .into_iter()
                    .filter_map(|answer| OwnedRoute::read(one, answer)),
            );
        }
        Ok(found)
    }

    pub(crate) fn remove_owned_route(&self, route: &OwnedRoute) -> Result<(), NetlinkError> {
        self.change(
            RouteNetlinkMessage::DelRoute(route.message.clone()),
            0,
            || format!("remove the route in table {}", route.table),
        )
    }
}

impl fmt::Display for OwnedRoute {
    /// As ip-route(8) writes it; only local defaults are ever made in such tables.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "local default table {} metric {}",
            self.table, self.metric
        )
    }
}

/// A route in a table of some owner's.
#[derive(Debug)]
pub(crate) struct OwnedRoute {
    pub(crate) table: Table,
    pub(crate) metric: u32,
    message: RouteMessage,
}

impl OwnedRoute {
    /// `None` for the routes of others, and of another family: asked for IPv6, a kernel without it
    /// lists all it has.
    fn read(asked: Family, answer: RouteNetlinkMessage) -> Option<Self> {
        let RouteNetlinkMessage::NewRoute(message) = answer else {
            return None;
        };
        let header = &message.header;
        if header.protocol != RouteProtocol::Other(PROTOCOL)
            || header.address_family != family(asked)
        {
            return None;
        }
        let attribute =
            |pick: fn(&RouteAttribute) -> Option<u32>| message.attributes.iter().find_map(pick);
        let table = attribute(|a| match a {
            RouteAttribute::Table(number) => Some(*number),
            _ => None,
        })?;
        let metric = attribute(|a| match a {
            RouteAttribute::Priority(metric) => Some(*metric),
            _ => None,
        });
        let table = Table::from_number(table);
        table.owner_pid()?;
        Some(Self {
            table,
            metric: metric.unwrap_or(0),
            message,
        })
    }
}

pub(super) fn family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

fn address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(a) => RouteAddress::Inet(a),
        IpAddr::V6(a) => RouteAddress::Inet6(a),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;

    #[test]
    fn only_our_routes_of_the_family_asked_for_are_read() {
        let table = Table::owned(Owner { pid: 9, start: 1 }, 2);
        let message = |protocol, table: Table| {
            let mut message = RouteMessage::default();
            message.header.address_family = AddressFamily::Inet;
            message.header.protocol = protocol;
            message
                .attributes
                .push(RouteAttribute::Table(table.number()));
            message.attributes.push(RouteAttribute::Priority(1));
            RouteNetlinkMessage::NewRoute(message)
        };
        let ours = RouteProtocol::Other(PROTOCOL);
        let read = |family, answer| OwnedRoute::read(family, answer).map(|r| (r.table, r.metric));
        assert_eq!(read(Family::V4, message(ours, table)), Some((table, 1)));
        assert_eq!(read(Family::V6, message(ours, table)), None);
        assert_eq!(
            read(Family::V4, message(RouteProtocol::Static, table)),
            None
        );
        assert_eq!(read(Family::V4, message(ours, Table::MAIN)), None);
    }
}
