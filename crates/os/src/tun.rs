//! TUN interfaces: the kernel routes packets into the interface, and a program reads and writes whole packets.
//!
//! A port of the emulator and the packet plane. Packets are bare IP (no packet-information header), at most the MTU
//! long and with good checksums, unless offloads are announced ([`TunConfig::offloads`]). The interface lives as long as the value: when the descriptor closes, also by a kill,
//! the kernel removes it.

use crate::netlink::{LinkStats, Netlink, NetlinkError};
use bentpipe_base::Bytes;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use thiserror::Error;
use tun_rs::{DeviceBuilder, SyncDevice};

const DEVICE: &str = "/dev/net/tun";

/// How a TUN interface is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunConfig {
    /// The largest packet.
    pub mtu: Bytes,
    /// The packets that wait for the program at most; more are dropped and counted
    /// ([`LinkStats::tx_dropped`]).
    pub queue_packets: u32,
    /// What is read and written begins with a virtio header (`IFF_VNET_HDR`). A packet may then stand for several
    /// segments of one flow and leave its checksum to be computed, in both directions: only for programs that do not
    /// count segments.
    pub offloads: bool,
}

impl Default for TunConfig {
    /// 1500 bytes, and 1000 packets: 48 ms at 250 Mbit/s, more than a loaded machine keeps a
    /// real-time thread waiting.
    fn default() -> Self {
        Self {
            mtu: Bytes(1500),
            queue_packets: 1000,
            offloads: false,
        }
    }
}

/// A TUN interface, up and without addresses.
pub struct Tun {
    device: SyncDevice,
    netlink: Netlink,
    name: String,
    offloads: bool,
}

/// A TUN interface could not be made.
#[derive(Debug, Error)]
pub enum TunError {
    /// The kernel offers none.
    #[error(
        "there is no {DEVICE}: load the module (`modprobe tun`) or give the container that device"
    )]
    NoDevice,
    /// The name is in use.
    #[error("cannot make TUN interface `{0}`: there is an interface of that name already")]
    Taken(String),
    /// The kernel refused.
    #[error("cannot make TUN interface `{name}` ({source}): run as root (CAP_NET_ADMIN)")]
    Open {
        /// The interface.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// It was made but could not be configured.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

impl Tun {
    /// Makes interface `name` in the calling thread's namespace and switches it on, without any
    /// link-local address. Reads and writes never wait, from whatever thread they are made.
    ///
    /// # Errors
    /// Fails when the name is taken or the kernel has no TUN, and without root.
    pub fn open(name: &str, config: TunConfig) -> Result<Self, TunError> {
        // tun-rs would make a missing device node, which is not ours to do.
        if !Path::new(DEVICE).exists() {
            return Err(TunError::NoDevice);
        }
        let netlink = Netlink::open()?;
        // The kernel would hand over a persistent interface of that name.
        if netlink.has_link(name)? {
            return Err(TunError::Taken(name.to_owned()));
        }
        let device = open_device(name, config).map_err(|source| TunError::Open {
            name: name.to_owned(),
            source,
        })?;
        netlink.set_mtu(name, config.mtu)?;
        match netlink.disable_link_local(name) {
            // A kernel without IPv6 makes none anyway.
            Err(NetlinkError::Refused { source, .. })
                if source.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
            result => result?,
        }
        netlink.set_up(name)?;
        Ok(Self {
            device,
            netlink,
            name: name.to_owned(),
            offloads: config.offloads,
        })
    }

    /// Whether packets come and go behind a virtio header.
    pub const fn has_offloads(&self) -> bool {
        self.offloads
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet into `buffer` and returns its length, `None` when none waits. What does not
    /// fit the buffer is cut off: give it the MTU, or with offloads 65,535 bytes more than the virtio header has.
    ///
    /// # Errors
    /// Fails when the interface was removed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.device.recv(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Hands the kernel one packet, behind a virtio header with offloads, which it takes or drops at once.
    ///
    /// # Errors
    /// Fails when `packet` is not an IP packet or its virtio header contradicts it, or the interface was switched off or removed.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.device.send(packet).map(drop)
    }

    /// What it has carried; `tx_dropped` are the packets for which the queue was full.
    ///
    /// # Errors
    /// Fails when the interface is gone.
    pub fn stats(&self) -> Result<LinkStats, NetlinkError> {
        self.netlink.link_stats(&self.name)
    }
}

/// Whether the kernel had no memory for a packet at the moment.
pub fn is_out_of_buffers(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOBUFS)
}

fn open_device(name: &str, config: TunConfig) -> io::Result<SyncDevice> {
    let device = DeviceBuilder::new()
        .name(name)
        .packet_information(false)
        .offload(config.offloads)
        .tx_queue_len(config.queue_packets)
        .enable(false)
        .build_sync()?;
    device.set_nonblocking(true)?;
    Ok(device)
}

impl AsFd for Tun {
    /// Readable when a packet waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tun")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
