//! Why a scenario cannot be simulated.

use bentpipe_base::Bytes;
use bentpipe_link::keys::Fault;
use thiserror::Error;

/// Why a scenario cannot be simulated.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SimError {
    /// A key of a gateway's split that only the real gateway follows.
    #[error(
        "a simulated gateway does not know `{key}` in [gateways.{gateway}.split]: run this scenario with `bentpipe lab run`, \
         or leave it out"
    )]
    Gateway {
        /// Its name.
        gateway: String,
        /// The key.
        key: &'static str,
    },
    /// Cross traffic without handshakes over a split.
    #[error(
        "[traffic] without handshakes crosses gateway `{gateway}`, which splits and cannot tell where a flow's next \
         transfer begins: give its hosts `handshake = true`"
    )]
    Renewed {
        /// Its name.
        gateway: String,
    },
    /// Two proxies at one node and link.
    #[error(
        "`{}` and PEP `{}` are both at `{node}` on link `{link}`: enable one of them", .names[0], .names[1]
    )]
    Proxies {
        /// Their names.
        names: [String; 2],
        /// Where they are.
        node: String,
        /// On which link of that.
        link: String,
    },
    /// A congestion control that only the kernel has.
    #[error(
        "the simulator has no congestion control `{control}` for flow `{flow}`; it has {known}"
    )]
    Control {
        /// The flow.
        flow: String,
        /// What it asks for.
        control: String,
        /// What there is.
        known: String,
    },
    /// A program that the simulator does not have.
    #[error(
        "flow `{flow}` is moved by `{app}`, and of programs the simulator has only saratoga: run this \
         scenario with `bentpipe lab run`"
    )]
    App {
        /// The flow.
        flow: String,
        /// Its program.
        app: String,
    },
    /// A file by Saratoga without a rate.
    #[error(
        "flow `{flow}` by saratoga must be told a rate, and no link on its way has one: say `path_rate`"
    )]
    Unrated {
        /// The flow.
        flow: String,
    },
    /// An unknown loss recovery.
    #[error("there is no loss recovery `{recovery}` for flow `{flow}`; there are {known}")]
    Recovery {
        /// The flow.
        flow: String,
        /// What its host asks for.
        recovery: String,
        /// What there is.
        known: String,
    },
    /// An unknown TCP variant.
    #[error("flow `{flow}`: {why}")]
    Variant {
        /// The flow.
        flow: String,
        /// What is wrong, and what there is.
        why: bentpipe_tcp::UnknownVariant,
    },
    /// Two ends with presets that do not work together.
    #[error(
        "flow `{flow}` joins hosts of different presets, of which only one does a handshake; give both \
         the same `preset`"
    )]
    Presets {
        /// The flow.
        flow: String,
    },
    /// A leg's policy that the simulated split cannot follow.
    #[error("[gateways.{gateway}.split.{leg}]: {why}")]
    Leg {
        /// The gateway.
        gateway: String,
        /// `lan`, `sat` or `leg.NAME`.
        leg: String,
        /// What is wrong, and what there is.
        why: bentpipe_pep::split::LegError,
    },
    /// A traffic profile in a file that was not read.
    #[error("the profile of traffic `{file}` was not read; give a path relative to the scenario")]
    Profile {
        /// As the scenario names it.
        file: String,
    },
    /// Segments longer than a link takes.
    #[error(
        "segments of flow `{flow}` take {length} in a packet, but its path passes at most {mtu}; lower \
         `mss` or `syn_length`, or raise `mtu`"
    )]
    Mtu {
        /// The flow.
        flow: String,
        /// A full segment with its headers.
        length: Bytes,
        /// The least MTU of the path.
        mtu: Bytes,
    },
    /// A flow between hosts that no links join.
    #[error("no links lead from `{from}` to `{to}`; join them by links and routers")]
    Path {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
    /// An impossible property of a link.
    #[error("link `{link}`: {why}")]
    Link {
        /// The link.
        link: String,
        /// What is wrong with it.
        why: Fault,
    },
    /// A flow without end over links that take no time.
    #[error(
        "flow `{flow}` lasts a time, but nothing on its way, or on its leg before a split that holds whatever \
         comes, takes any: it would send for ever at one instant; give a link there a `rate` or a `delay` of at least a \
         microsecond, or the flow an amount in `bytes`"
    )]
    Timeless {
        /// Its name.
        flow: String,
    },
    /// Cross traffic without a pause over links that take no time.
    #[error(
        "[traffic] between `{}` and `{}` makes no pause between transfers, and no link on its way takes any time: its \
         transfers would follow each other for ever at one instant; give a link there a `rate` or a `delay`, or its \
         profile an `idle` or a `settle`, of at least a microsecond", .between[0], .between[1]
    )]
    TimelessTraffic {
        /// The two hosts.
        between: [String; 2],
    },
    /// More than the numbers of nodes, links and flows hold.
    #[error("the scenario is too large: at most {hosts} hosts, {links} links and {flows} flows")]
    TooLarge {
        /// Most hosts, and most routers.
        hosts: usize,
        /// Most links.
        links: usize,
        /// Most flows.
        flows: usize,
    },
    /// A packet that has no bytes, or whose bytes cannot be read: a mistake in this program.
    #[error("a packet could not be written to the wire and read back ({0}); please report this")]
    Wire(#[from] bentpipe_wire::Error),
    /// A host that does not dial: a mistake in this program.
    #[error("an end of a flow could not dial ({0}); please report this")]
    Dial(#[from] bentpipe_host::ConnectError),
    /// A host that does not listen: a mistake in this program.
    #[error("an end of a flow could not listen ({0}); please report this")]
    Listen(#[from] bentpipe_host::ListenError),
    /// A packet whose bytes read back as another: a mistake in this program.
    #[error("a packet came back from the wire as another; please report this")]
    Misread,
}
