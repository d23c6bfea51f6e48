//! Offloads, by the ethtool ioctl (linux/ethtool.h): what ethtool(8) does for `-K`.

use super::link::check_name;
use super::{Netlink, NetlinkError};
use std::io;
use std::os::fd::AsRawFd;

const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_SSG: u32 = 0x19;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

impl Netlink {
    /// Switches an interface's segmentation (TSO, GSO), receive aggregation (GRO), scatter-gather
    /// and transmit checksum offloads off. What the interface never had is left out.
    ///
    /// # Errors
    /// Fails when there is no such interface, or without root.
    pub fn disable_offloads(&self, name: &str) -> Result<(), NetlinkError> {
        check_name(name)?;
        // Segmentation rests on scatter-gather and checksums: those last.
        for command in [
            ETHTOOL_SGRO,
            ETHTOOL_STSO,
            ETHTOOL_SGSO,
            ETHTOOL_SSG,
            ETHTOOL_STXCSUM,
        ] {
            match self.ethtool(name, command, 0) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {
                    return Err(NetlinkError::NoInterface(name.to_owned()));
                }
                Err(source) => {
                    let doing = format!("switch off the offloads of interface `{name}`");
                    return Err(NetlinkError::Refused { doing, source });
                }
            }
        }
        Ok(())
    }

    /// The kernel answers interface ioctls on every kind of socket, in the socket's own namespace:
    /// so on the netlink socket too.
    fn ethtool(&self, name: &str, command: u32, data: u32) -> io::Result<()> {
        let mut value = Value { command, data };
        // SAFETY: all-zero is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // `check_name` left room for the terminating zero.
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: SIOCETHTOOL reads an `ifreq` whose data points to an `ethtool_value` for these
        // commands; both live until the call returns.
        let answer = unsafe {
            libc::ioctl(
                self.transport.fd().as_raw_fd(),
                libc::SIOCETHTOOL,
                &raw mut request,
            )
        };
        if answer < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}
