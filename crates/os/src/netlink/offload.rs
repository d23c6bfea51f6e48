//! Offloads, by the ethtool ioctl (linux/ethtool.h): what ethtool(8) does for `-K`.
//!
//! By the features' names, not by the older commands of one offload each, which leave newer kinds of
//! segmentation on (kernel 6.18: `tx-tcp-accecn-segmentation`).

use super::link::check_name;
use super::{Netlink, NetlinkError};
use std::io;
use std::os::fd::AsRawFd;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_SFEATURES: u32 = 0x3b;
/// The set of the features' names.
const ETH_SS_FEATURES: u32 = 4;
/// Bytes of each name.
const ETH_GSTRING_LEN: usize = 32;

impl Netlink {
    /// Switches an interface's segmentation (TSO, GSO), receive aggregation (GRO, LRO),
    /// scatter-gather and transmit checksum offloads off. What it never had is left out.
    ///
    /// # Errors
    /// Fails when there is no such interface, or without root.
    pub fn disable_offloads(&self, name: &str) -> Result<(), NetlinkError> {
        check_name(name)?;
        self.switch_off(name)
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ENODEV) => NetlinkError::NoInterface(name.to_owned()),
                _ => NetlinkError::Refused {
                    doing: format!("switch off the offloads of interface `{name}`"),
                    source,
                },
            })
    }

    fn switch_off(&self, interface: &str) -> io::Result<()> {
        let names = self.features(interface)?;
        // struct ethtool_sfeatures: command, number of blocks, and for each 32 features a block of
        // two words: those to change, and those to be on.
        let blocks = names.len().div_ceil(32);
        let mut request = vec![0; 2 + 2 * blocks];
        request[0] = ETHTOOL_SFEATURES;
        request[1] = word(blocks)?;
        for (bit, name) in names.iter().enumerate() {
            if is_offload(name) {
                request[2 + 2 * (bit / 32)] |= 1 << (bit % 32);
            }
        }
        self.ethtool(interface, &mut request)
    }

    /// The names of all features the kernel knows, in the order of their bits.
    fn features(&self, interface: &str) -> io::Result<Vec<String>> {
        // struct ethtool_sset_info: command, reserved, a mask of 64 bits, and the size of each set
        // in the mask.
        let mut sizes = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
        let mask = (1u64 << ETH_SS_FEATURES).to_ne_bytes();
        sizes[2] = u32::from_ne_bytes([mask[0], mask[1], mask[2], mask[3]]);
        sizes[3] = u32::from_ne_bytes([mask[4], mask[5], mask[6], mask[7]]);
        self.ethtool(interface, &mut sizes)?;
        let count = sizes[4] as usize;
        // struct ethtool_gstrings: command, set, number of names, and the names. The kernel writes
        // all it has, whatever the number: that is a constant of the running kernel.
        let mut strings = vec![0u32; 3 + count * ETH_GSTRING_LEN / 4];
        strings[0] = ETHTOOL_GSTRINGS;
        strings[1] = ETH_SS_FEATURES;
        strings[2] = word(count)?;
        self.ethtool(interface, &mut strings)?;
        let bytes: Vec<u8> = strings[3..]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let text = |name: &[u8]| {
            let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
            String::from_utf8_lossy(&name[..end]).into_owned()
        };
        Ok(bytes.chunks(ETH_GSTRING_LEN).map(text).collect())
    }

    /// The kernel answers interface ioctls on every kind of socket, in the socket's own namespace:
    /// so on the netlink socket too. `data` holds a structure of `linux/ethtool.h`, whole.
    fn ethtool(&self, interface: &str, data: &mut [u32]) -> io::Result<()> {
        // SAFETY: all-zero is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // `check_name` left room for the terminating zero.
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
        let fd = self.transport.fd().as_raw_fd();
        // SAFETY: SIOCETHTOOL reads an `ifreq` whose data points to the structure that belongs to
        // the command in its first word, and writes no further than that structure reaches.
        let answer = unsafe { libc::ioctl(fd, libc::SIOCETHTOOL, &raw mut request) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

fn word(number: usize) -> io::Result<u32> {
    u32::try_from(number).map_err(io::Error::other)
}

/// Whether a feature (net/ethtool/common.c has the names) makes packets on the wire other than what
/// the stack sends and receives.
fn is_offload(feature: &str) -> bool {
    ["tx-checksum-", "tx-scatter-gather", "tx-gso-", "rx-gro"]
        .iter()
        .any(|p| feature.starts_with(p))
        || feature.ends_with("-segmentation")
        || matches!(feature, "rx-lro" | "rx-udp-gro-forwarding")
}
