//! Interfaces: veth pairs, addresses, MTU, counters.

use super::{Netlink, NetlinkError, Prefix};
use crate::netns::{Netns, NetnsError};
use crate::owner::Owner;
use crate::presence::Presence;
use bentpipe_base::Bytes;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoPortKind, InfoVeth,
    InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// What an interface has carried since it was made.
///
/// "Transmitted" is the kernel's word: a packet that the kernel routes into a TUN interface is
/// transmitted, and read by the program behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets transmitted.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: Bytes,
    /// Bytes transmitted.
    pub tx_bytes: Bytes,
    /// Received packets that the kernel dropped.
    pub rx_dropped: u64,
    /// Packets dropped instead of transmitted: for a TUN interface, those that found its queue full
    /// because the program did not read fast enough.
    pub tx_dropped: u64,
}

/// An interface as the sweep sees it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
    pub(crate) vlan: Option<u16>,
    pub(crate) in_vrf: bool,
    index: u32,
    /// The interface that it is a port of: a bridge, for one.
    controller: Option<u32>,
}

impl Link {
    fn read(link: LinkMessage) -> Option<Self> {
        let (mut name, mut alias, mut vlan, mut in_vrf) = (None, None, None, false);
        let (index, mut controller) = (link.header.index, None);
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(text) => name = Some(text),
                LinkAttribute::IfAlias(text) => alias = Some(text),
                LinkAttribute::Controller(index) => controller = Some(index),
                LinkAttribute::LinkInfo(info) => {
                    vlan = vlan_of(&info);
                    in_vrf = info.contains(&LinkInfo::PortKind(InfoPortKind::Vrf));
                }
                _ => {}
            }
        }
        name.map(|name| Self {
            name,
            alias,
            vlan,
            in_vrf,
            index,
            controller,
        })
    }
}

/// Where programs at an interface find its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPoint {
    /// The number of the interface.
    pub index: u32,
    /// The octets before the IP header; `None`: this kind of interface is not known.
    pub before_ip: Option<u32>,
}

/// One end of a veth pair: where it is and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// The namespace it is made in.
    pub netns: &'a Netns,
    /// Its name there, at most 15 characters.
    pub name: &'a str,
}

/// A pair of Ethernet interfaces, each the other's wire; removed when dropped.
#[derive(Debug)]
pub struct Veth {
    ends: [(Netlink, String); 2],
    _presence: [Presence; 2],
}

impl Veth {
    /// Makes a pair, each end in its namespace at once, down and without addresses. Both ends carry
    /// the owner's name as their alias.
    ///
    /// # Errors
    /// Fails when a name is taken or impossible, or without root.
    pub fn create(near: VethEnd<'_>, far: VethEnd<'_>) -> Result<Self, NetnsError> {
        check_name(near.name)?;
        check_name(far.name)?;
        let near_link = near.netns.netlink()?.clone();
        let far_link = far.netns.netlink()?.clone();
        let show = |end: &VethEnd<'_>| -> Result<Presence, NetnsError> {
            Ok(end.netns.run(Presence::show)?.map_err(NetlinkError::Open)?)
        };
        let presence = [show(&near)?, show(&far)?];
        make_pair(&near_link, near.name, &far)?;
        // From here on the drop removes the pair.
        let veth = Self {
            ends: [
                (near_link, near.name.to_owned()),
                (far_link, far.name.to_owned()),
            ],
            _presence: presence,
        };
        let alias = Owner::current()?.name(near.name);
        veth.each(|netlink, name| netlink.set_alias(name, &alias))?;
        Ok(veth)
    }

    /// Switches both ends on.
    ///
    /// # Errors
    /// Fails without root.
    pub fn set_up(&self) -> Result<(), NetlinkError> {
        self.each(Netlink::set_up)
    }

    /// Sets the largest packet of both ends.
    ///
    /// # Errors
    /// Fails outside the 68 to 65,535 bytes that veth takes.
    pub fn set_mtu(&self, mtu: Bytes) -> Result<(), NetlinkError> {
        self.each(|netlink, name| netlink.set_mtu(name, mtu))
    }

    /// Switches segmentation, receive and checksum offloads off on both ends, so that every packet
    /// on the wire is at most the MTU and carries its true checksum.
    ///
    /// # Errors
    /// Fails without root.
    pub fn disable_offloads(&self) -> Result<(), NetlinkError> {
        self.each(Netlink::disable_offloads)
    }

    fn each(
        &self,
        act: impl Fn(&Netlink, &str) -> Result<(), NetlinkError>,
    ) -> Result<(), NetlinkError> {
        self.ends
            .iter()
            .try_for_each(|(netlink, name)| act(netlink, name))
    }
}

fn make_pair(netlink: &Netlink, name: &str, far: &VethEnd<'_>) -> Result<(), NetlinkError> {
    let mut peer = named(far.name);
    peer.attributes
        .push(LinkAttribute::NetNsFd(far.netns.as_fd().as_raw_fd()));
    let mut message = named(name);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    netlink.change(
        RouteNetlinkMessage::NewLink(message),
        NLM_F_CREATE | NLM_F_EXCL,
        || format!("make the veth pair `{name}` - `{}`", far.name),
    )
}

impl Drop for Veth {
    fn drop(&mut self) {
        let (netlink, name) = &self.ends[0];
        match netlink.delete_link(name) {
            // Gone with the namespace of either end.
            Ok(()) | Err(NetlinkError::NoInterface(_)) => {}
            Err(error) => {
                tracing::warn!(%name, %error, "cannot remove veth pair; the next sweep will try again")
            }
        }
    }
}

impl Netlink {
    /// Switches an interface on.
    ///
    /// # Errors
    /// Fails when there is none of that name, or without root.
    pub fn set_up(&self, name: &str) -> Result<(), NetlinkError> {
        let mut message = named(name);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.set_link(name, message, "switch on")
    }

    /// Switches an interface off; its routes go with it.
    ///
    /// # Errors
    /// Fails when there is none of that name, or without root.
    pub fn set_down(&self, name: &str) -> Result<(), NetlinkError> {
        let mut message = named(name);
        message.header.change_mask = LinkFlags::Up;
        self.set_link(name, message, "switch off")
    }

    /// Sets the largest packet (IP header included) of an interface.
    ///
    /// # Errors
    /// Fails when there is no such interface, or its kind cannot have that MTU.
    pub fn set_mtu(&self, name: &str, mtu: Bytes) -> Result<(), NetlinkError> {
        let value = u32::try_from(mtu.0).map_err(|_| NetlinkError::BadValue {
            doing: format!("set the MTU of `{name}` to {mtu}"),
            why: "an MTU has at most 65,535 bytes",
        })?;
        let mut message = named(name);
        message.attributes.push(LinkAttribute::Mtu(value));
        self.set_link(name, message, "set the MTU of")
    }

    /// Keeps the kernel from giving an interface a link-local IPv6 address when it comes up, and so
    /// from sending router solicitations on its own. Call it before [`Netlink::set_up`].
    ///
    /// # Errors
    /// Fails when there is no such interface or no IPv6.
    pub fn disable_link_local(&self, name: &str) -> Result<(), NetlinkError> {
        let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        let mut message = named(name);
        message
            .attributes
            .push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(
                vec![mode],
            )]));
        self.set_link(name, message, "switch off link-local addresses of")
    }

    fn set_alias(&self, name: &str, alias: &str) -> Result<(), NetlinkError> {
        let mut message = named(name);
        message
            .attributes
            .push(LinkAttribute::IfAlias(alias.to_owned()));
        self.set_link(name, message, "set the alias of")
    }

    /// Removes an interface.
    ///
    /// # Errors
    /// Fails when there is none of that name, or without root.
    pub fn delete_link(&self, name: &str) -> Result<(), NetlinkError> {
        check_name(name)?;
        let doing = || format!("remove interface `{name}`");
        self.change(RouteNetlinkMessage::DelLink(named(name)), 0, doing)
            .map_err(|e| no_such(name, e))
    }

    /// Gives an interface an address. An IPv6 address is usable at once: without duplicate address
    /// detection (RFC 4862 section 5.4), which would cost a second.
    ///
    /// # Errors
    /// Fails when there is no such interface or it has the address already.
    pub fn add_address(&self, name: &str, prefix: Prefix) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.index = self.index(name)?;
        message.header.prefix_len = prefix.bits();
        message.header.family = match prefix.address() {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => {
                message
                    .attributes
                    .push(AddressAttribute::Flags(AddressFlags::Nodad));
                AddressFamily::Inet6
            }
        };
        message
            .attributes
            .push(AddressAttribute::Address(prefix.address()));
        message
            .attributes
            .push(AddressAttribute::Local(prefix.address()));
        self.change(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
            || format!("give `{name}` the address {prefix}"),
        )
    }

    /// The addresses that the interfaces of the namespace have.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn addresses(&self) -> Result<Vec<IpAddr>, NetlinkError> {
        let answers = self.list(
            &RouteNetlinkMessage::GetAddress(AddressMessage::default()),
            "list the addresses",
        )?;
        let found = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => Some(message.attributes),
            _ => None,
        });
        let addresses = found.filter_map(|attributes| {
            let (mut local, mut address) = (None, None);
            for attribute in attributes {
                match attribute {
                    AddressAttribute::Local(this) => local = Some(this),
                    AddressAttribute::Address(this) => address = Some(this),
                    _ => {}
                }
            }
            // Where there are both, that is the other end's.
            local.or(address)
        });
        Ok(addresses.collect())
    }

    /// What an interface has carried.
    ///
    /// # Errors
    /// Fails when there is none of that name.
    pub fn link_stats(&self, name: &str) -> Result<LinkStats, NetlinkError> {
        let link = self.link(name)?;
        let stats = link
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                LinkAttribute::Stats64(s) => Some(LinkStats {
                    rx_packets: s.rx_packets,
                    tx_packets: s.tx_packets,
                    rx_bytes: Bytes(s.rx_bytes),
                    tx_bytes: Bytes(s.tx_bytes),
                    rx_dropped: s.rx_dropped,
                    tx_dropped: s.tx_dropped,
                }),
                _ => None,
            });
        stats.ok_or_else(|| NetlinkError::BadValue {
            doing: format!("read the counters of `{name}`"),
            why: "the kernel told none",
        })
    }

    /// Whether there is an interface of that name.
    ///
    /// # Errors
    /// Fails when the kernel does not answer.
    pub fn has_link(&self, name: &str) -> Result<bool, NetlinkError> {
        match self.link(name) {
            Ok(_) => Ok(true),
            Err(NetlinkError::NoInterface(_) | NetlinkError::BadName(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether there is an interface whose own name that is. (Asked for a name, the kernel knows an interface by its other
    /// names too, `altname`; nft does not.)
    ///
    /// # Errors
    /// Fails when the kernel does not answer.
    pub fn has_link_named(&self, name: &str) -> Result<bool, NetlinkError> {
        match self.link(name) {
            Ok(link) => {
                let own = LinkAttribute::IfName(name.to_owned());
                Ok(link.attributes.contains(&own))
            }
            Err(NetlinkError::NoInterface(_) | NetlinkError::BadName(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where programs at an interface find its packets.
    ///
    /// # Errors
    /// Fails when there is none of that name.
    pub fn link_point(&self, name: &str) -> Result<LinkPoint, NetlinkError> {
        let LinkMessage { header, .. } = self.link(name)?;
        let before_ip = match header.link_layer_type {
            LinkLayerType::Ether | LinkLayerType::Loopback => Some(14),
            LinkLayerType::None | LinkLayerType::Ppp | LinkLayerType::Rawip => Some(0),
            _ => None,
        };
        Ok(LinkPoint {
            index: header.index,
            before_ip,
        })
    }

    /// The interfaces of the namespace with the VLAN that each is of, if it is of one.
    ///
    /// # Errors
    /// Fails when the kernel does not answer.
    pub fn vlans(&self) -> Result<Vec<(String, Option<u16>)>, NetlinkError> {
        let links = self.links()?.into_iter();
        Ok(links.map(|link| (link.name, link.vlan)).collect())
    }

    /// The interfaces of the namespace that are in a VRF (virtual routing and forwarding): routed by a
    /// table of its own.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn in_vrfs(&self) -> Result<Vec<String>, NetlinkError> {
        let links = self.links()?.into_iter().filter(|link| link.in_vrf);
        Ok(links.map(|link| link.name).collect())
    }

    /// The interfaces of the namespace that are ports of another one (a bridge, a bond), and of which: what comes in by
    /// them comes by that one to whoever routes.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn ports(&self) -> Result<Vec<(String, String)>, NetlinkError> {
        let links = self.links()?;
        let name_of = |index| links.iter().find(|link| link.index == index);
        let ports = links.iter().filter(|link| !link.in_vrf).filter_map(|port| {
            let of = name_of(port.controller?)?;
            Some((port.name.clone(), of.name.clone()))
        });
        Ok(ports.collect())
    }

    /// All interfaces of the namespace.
    pub(crate) fn links(&self) -> Result<Vec<Link>, NetlinkError> {
        let answers = self.list(
            &RouteNetlinkMessage::GetLink(LinkMessage::default()),
            "list the interfaces",
        )?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(link),
                _ => None,
            })
            .filter_map(Link::read)
            .collect())
    }

    pub(super) fn index(&self, name: &str) -> Result<u32, NetlinkError> {
        self.link(name).map(|link| link.header.index)
    }

    fn link(&self, name: &str) -> Result<LinkMessage, NetlinkError> {
        check_name(name)?;
        let doing = || format!("find interface `{name}`");
        let answer = self
            .transport
            .one(RouteNetlinkMessage::GetLink(named(name)))
            .map_err(|source| NetlinkError::Refused {
                doing: doing(),
                source,
            })
            .map_err(|e| no_such(name, e))?;
        match answer {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            _ => Err(NetlinkError::NoInterface(name.to_owned())),
        }
    }

    fn set_link(&self, name: &str, message: LinkMessage, what: &str) -> Result<(), NetlinkError> {
        check_name(name)?;
        self.change(RouteNetlinkMessage::SetLink(message), 0, || {
            format!("{what} interface `{name}`")
        })
        .map_err(|e| no_such(name, e))
    }
}

/// The VLAN of an interface of type `vlan`.
fn vlan_of(info: &[LinkInfo]) -> Option<u16> {
    let data = info.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(data)) => Some(data),
        _ => None,
    });
    data?.iter().find_map(|item| match item {
        InfoVlan::Id(id) => Some(*id),
        _ => None,
    })
}

fn named(name: &str) -> LinkMessage {
    let mut message = LinkMessage::default();
    message
        .attributes
        .push(LinkAttribute::IfName(name.to_owned()));
    message
}

/// The kernel's rule (`dev_valid_name`).
pub(super) fn check_name(name: &str) -> Result<(), NetlinkError> {
    let good = (1..=15).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(|c: char| c == '/' || c == ':' || c.is_ascii_whitespace() || c == '\0');
    if good {
        Ok(())
    } else {
        Err(NetlinkError::BadName(name.to_owned()))
    }
}

fn no_such(name: &str, error: NetlinkError) -> NetlinkError {
    match error {
        NetlinkError::Refused { source, .. } if source.raw_os_error() == Some(libc::ENODEV) => {
            NetlinkError::NoInterface(name.to_owned())
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_in_a_vrf_is_told_from_one_of_a_bridge() {
        let read = |kind: Option<InfoPortKind>| {
            let mut message = named("eth0");
            let info = kind.map(LinkInfo::PortKind).into_iter().collect();
            message.attributes.push(LinkAttribute::LinkInfo(info));
            Link::read(message).expect("a name").in_vrf
        };
        assert!(read(Some(InfoPortKind::Vrf)));
        assert!(!read(Some(InfoPortKind::Bridge)) && !read(None));
    }
}
