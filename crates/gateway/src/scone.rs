//! SCONE at the satellite leg's interfaces: QUIC connections that pass are told what the link has for them.

use bentpipe_bpf::scone::{SconeCounts, SconeElement, Way};
use bentpipe_gateway_config::{Config, SconeRates};
use bentpipe_os::netlink::{LinkPoint, Netlink};
use bentpipe_os::tcx::{Attached, Direction};
use bentpipe_wire::scone::Advice;
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What SCONE has done, and what it tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SconeStatus {
    /// What packets that leave for the satellite are to say at most, in bit/s.
    pub to_sat: Option<u64>,
    /// What those that come from there are to say.
    pub from_sat: Option<u64>,
    /// SCONE packets seen.
    pub seen: u64,
    /// Those that said more, or nothing.
    pub lowered: u64,
}

/// The elements of all interfaces. They are taken away when this is dropped, and by the kernel when the process dies.
#[derive(Debug)]
pub(crate) struct Scone(Mutex<Elements>);

#[derive(Debug)]
struct Elements {
    all: Vec<Attachment>,
    /// What they tell.
    told: SconeRates,
    /// What those have seen whose interfaces are gone.
    past: SconeCounts,
}

/// An element at an interface.
#[derive(Debug)]
struct Attachment {
    name: String,
    index: u32,
    element: SconeElement,
    _attached: [Attached; 2],
}

impl Attachment {
    fn advise(&self, rates: SconeRates) {
        let to_sat = (self.element).advise(Way::Leaving, rates.to_sat.map(Advice::within));
        let from_sat = (self.element).advise(Way::Arriving, rates.from_sat.map(Advice::within));
        if let Err(error) = to_sat.and(from_sat) {
            tracing::warn!(%error, "SCONE packets may be told an old rate");
        }
    }

    /// Adds what it has seen.
    fn count(&self, all: &mut SconeCounts) {
        for counts in Way::BOTH.map(|way| self.element.counts(way)) {
            all.seen += counts.seen;
            all.lowered += counts.lowered;
        }
    }
}

impl Scone {
    /// Attaches an element to each of the satellite leg's interfaces, where the configuration asks for it; what is lacking is
    /// logged, and told by the status.
    pub(crate) fn start(config: &Config, lacks: &mut Vec<String>) -> Option<Self> {
        if !config.sat.scone.is_some() {
            return None;
        }
        let attached = || {
            let netlink = Netlink::open().map_err(|error| error.to_string())?;
            let names = config.sat_interfaces.iter();
            names
                .map(|name| attach(&netlink, name))
                .collect::<Result<_, String>>()
        };
        match attached() {
            Ok(all) => {
                let (told, past) = (SconeRates::default(), SconeCounts::default());
                let scone = Self(Mutex::new(Elements { all, told, past }));
                scone.advise(config.sat.scone);
                Some(scone)
            }
            Err(why) => {
                let lack = format!("SCONE packets pass as they are: {why}");
                tracing::warn!("{lack}");
                lacks.push(lack);
                None
            }
        }
    }

    /// Tells `rates` from now on.
    pub(crate) fn advise(&self, rates: SconeRates) {
        let mut elements = self.elements();
        elements.all.iter().for_each(|one| one.advise(rates));
        elements.told = rates;
    }

    /// Interfaces that were removed and made again, as by a PPP daemon that dials anew, have their elements again.
    pub(crate) fn follow(&self, netlink: &Netlink) {
        let mut elements = self.elements();
        let Elements { all, told, past } = &mut *elements;
        for one in all {
            // While it is gone there is nothing to do.
            let is_another = |point: LinkPoint| point.index != one.index;
            if !netlink.link_point(&one.name).is_ok_and(is_another) {
                continue;
            }
            match attach(netlink, &one.name) {
                Ok(new) => {
                    one.count(past);
                    new.advise(*told);
                    *one = new;
                }
                Err(why) => tracing::warn!("SCONE packets pass as they are: {why}"),
            }
        }
    }

    fn elements(&self) -> MutexGuard<'_, Elements> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it has done, and tells.
    pub(crate) fn status(&self) -> SconeStatus {
        let elements = self.elements();
        let (rates, mut counts) = (elements.told, elements.past);
        elements.all.iter().for_each(|one| one.count(&mut counts));
        let told = |rate| Advice::within(rate).rate().map(|rate| rate.bits_per_sec());
        SconeStatus {
            to_sat: rates.to_sat.and_then(told),
            from_sat: rates.from_sat.and_then(told),
            seen: counts.seen,
            lowered: counts.lowered,
        }
    }
}

/// An element at the interface `name`, which tells nothing yet.
fn attach(netlink: &Netlink, name: &str) -> Result<Attachment, String> {
    let point = netlink
        .link_point(name)
        .map_err(|error| error.to_string())?;
    let before_ip = point.before_ip.ok_or_else(|| {
        format!("`{name}` is an interface of a kind whose packets it cannot read: Ethernet, TUN and PPP it can")
    })?;
    let element = SconeElement::load(before_ip).map_err(|error| error.to_string())?;
    let attach = |way, direction| {
        let attached = element.with_program(way, |program| {
            Attached::new(program, point.index, direction)
        });
        let attached = attached.unwrap_or_else(|| Err(std::io::ErrorKind::NotFound.into()));
        attached.map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidInput => format!(
                "this kernel attaches no programs to `{name}` ({error}): it takes Linux 6.6 with CONFIG_NET_XGRESS"
            ),
            _ => format!("the kernel attaches no program to `{name}` ({error})"),
        })
    };
    let attached = [
        attach(Way::Leaving, Direction::Leaving)?,
        attach(Way::Arriving, Direction::Arriving)?,
    ];
    Ok(Attachment {
        name: name.to_owned(),
        index: point.index,
        element,
        _attached: attached,
    })
}
