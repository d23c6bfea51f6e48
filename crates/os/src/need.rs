//! What the machine must offer, asked before anything is made.
//!
//! The programs turn a [`Missing`] into one clear line and exit code 2; tests skip themselves with
//! [`crate::need!`].

mod probe;
mod skip;

pub use probe::find_program;
pub use skip::skip;

use std::fmt;

/// Something that the machine must offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// The right to make namespaces (CAP_SYS_ADMIN): in practice, root of the machine.
    Root,
    /// The right to change interfaces, routes and tables (CAP_NET_ADMIN).
    NetAdmin,
    /// The right to send whole packets (CAP_NET_RAW).
    NetRaw,
    /// The device behind TUN interfaces.
    Tun,
    /// The `nft` program, and a kernel with tables that go with their owner (5.12). Asking takes
    /// the right to make namespaces.
    Nft,
    /// A kernel that can hand connections for other machines to a local listener, in IPv4 and,
    /// where the kernel has it, IPv6. Asking takes the right to make namespaces.
    Tproxy,
    /// The kernel's type information, without which no BPF program of ours loads.
    Btf,
    /// A kernel that takes congestion controls written in BPF.
    StructOps,
    /// A kernel with VLAN interfaces (IEEE 802.1Q).
    Vlan,
    /// A program on the path or in the usual places for administration.
    Program(&'static str),
}

/// A need that is not met: one line that says what is missing, why it matters and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is not there.
    pub need: Need,
    /// What was found instead.
    what: String,
    /// What cannot be done without.
    why: &'static str,
    /// The next step.
    remedy: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.remedy)
    }
}

impl std::error::Error for Missing {}

impl Need {
    /// Whether the machine offers it. [`Need::Nft`] and [`Need::Tproxy`] try it out in a namespace
    /// made for that, once a process.
    ///
    /// # Errors
    /// Tells what is missing.
    pub fn check(self) -> Result<(), Missing> {
        let found = match self {
            Self::Root => probe::capability(probe::Capability::SysAdmin),
            Self::NetAdmin => probe::capability(probe::Capability::NetAdmin),
            Self::NetRaw => probe::capability(probe::Capability::NetRaw),
            Self::Tun => probe::tun(),
            Self::Nft => probe::nft(),
            Self::Tproxy => probe::tproxy(),
            Self::Btf => probe::btf(),
            Self::StructOps => probe::struct_ops(),
            Self::Vlan => probe::vlan(),
            Self::Program(name) => probe::program(name),
        };
        found.map_err(|what| Missing {
            need: self,
            what,
            why: self.why(),
            remedy: self.remedy(),
        })
    }

    /// Checks several, in order.
    ///
    /// # Errors
    /// Tells the first that is missing.
    pub fn check_all(needs: &[Self]) -> Result<(), Missing> {
        needs.iter().try_for_each(|need| need.check())
    }

    fn why(self) -> &'static str {
        match self {
            Self::Root => "network namespaces cannot be made",
            Self::NetAdmin => "interfaces, routes and nft tables cannot be changed",
            Self::NetRaw => "what Snoop sends again cannot leave",
            Self::Tun => "the emulated link has no interfaces",
            Self::Nft | Self::Tproxy => "connections cannot be intercepted",
            Self::Btf | Self::StructOps => "the BPF congestion controls cannot be loaded",
            Self::Vlan => "no interface can be of a VLAN",
            Self::Program(_) => "it is needed here",
        }
    }

    fn remedy(self) -> String {
        let text = match self {
            Self::Root => "run as root, in a container with --privileged",
            Self::NetAdmin => "run as root or with CAP_NET_ADMIN",
            Self::NetRaw => "run as root or with CAP_NET_RAW",
            Self::Tun => "load the module (`modprobe tun`) or give the container that device",
            Self::Nft => "`apt-get install nftables`, on a kernel 5.12 or later",
            Self::Tproxy => {
                "use a kernel with CONFIG_NFT_TPROXY, CONFIG_NFT_SOCKET, CONFIG_NFT_FIB_INET, CONFIG_NFT_DUP_IPV4 and, where there is IPv6, CONFIG_NFT_DUP_IPV6 (`modprobe -a nft_tproxy nft_socket nft_fib_inet nft_dup_ipv4 nft_dup_ipv6`)"
            }
            Self::Btf => "use a kernel with CONFIG_DEBUG_INFO_BTF, as distributions build it",
            Self::StructOps => {
                "use a kernel 6.4 or later with CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF"
            }
            Self::Vlan => {
                "load the module (`modprobe 8021q`) or use a kernel with CONFIG_VLAN_8021Q"
            }
            Self::Program(name) => return format!("`apt-get install {}`", probe::package(name)),
        };
        text.to_owned()
    }
}
