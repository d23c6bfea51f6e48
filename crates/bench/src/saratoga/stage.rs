//! Two hosts, a wire, and a file in memory.

use super::ground;
use super::{Options, SaratogaBenchError};
use bentpipe_base::{Bytes, Probability};
use bentpipe_os::folder::Folder;
use bentpipe_os::need::Need;
use bentpipe_os::netlink::Veth;
use bentpipe_os::netns::Netns;
use bentpipe_os::nft;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;

const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const INTERFACE: &str = "eth0";
/// The file's name.
pub(super) const NAME: &str = "file";
/// Octets that are written and compared at once.
const BLOCK: usize = 1 << 20;

/// See the file's head. Dropping it undoes everything.
pub(super) struct Stage {
    _wire: Veth,
    /// Who has the file.
    pub(super) sender: Netns,
    /// Who wants it.
    pub(super) receiver: Netns,
    folder: Folder,
    pub(super) size: Bytes,
    mtu: u32,
    congestion: &'static str,
}

impl Stage {
    pub(super) fn build(size: Bytes, options: &Options) -> Result<Self, SaratogaBenchError> {
        let &Options { loss, mtu, .. } = options;
        Need::check_all(&[Need::Root])?;
        let (sender, _) = ground::host::<SaratogaBenchError>("bench_sender")?;
        let (receiver, congestion) = ground::host::<SaratogaBenchError>("bench_receiver")?;
        let ends = [
            (&sender, INTERFACE, SENDER),
            (&receiver, INTERFACE, RECEIVER),
        ];
        let wire = ground::wire::<SaratogaBenchError>(ends)?;
        wire.set_mtu(Bytes(mtu.into()))?;
        if loss != Probability::ZERO {
            Need::check_all(&[Need::Nft])?;
            for netns in [&sender, &receiver] {
                // Packets are to be lost one by one, not by the batch.
                netns.netlink()?.disable_offloads(INTERFACE)?;
                netns.run(|| nft::apply(&drops(loss)))??;
            }
        }
        let files = || {
            let folder = Folder::in_memory("bench_saratoga")?;
            for side in ["from", "to"] {
                fs::create_dir(folder.path().join(side))?;
            }
            // Also what is taken away before the first transfer.
            for side in ["from", "to"] {
                fill(
                    &mut File::create(folder.path().join(side).join(NAME))?,
                    size,
                )?;
            }
            Ok(folder)
        };
        let folder = files().map_err(|source| SaratogaBenchError::Files { size, source })?;
        Ok(Self {
            _wire: wire,
            sender,
            receiver,
            folder,
            size,
            mtu,
            congestion,
        })
    }

    /// Where the sender listens.
    pub(super) fn address(&self) -> Ipv4Addr {
        SENDER
    }

    /// The folder that is served.
    pub(super) fn from(&self) -> PathBuf {
        self.folder.path().join("from")
    }

    /// The folder that files come to.
    pub(super) fn to(&self) -> PathBuf {
        self.folder.path().join("to")
    }

    /// Takes away what arrived last. Right before the next transfer: the host of a virtual machine takes
    /// memory back that nobody uses, and needs longer to give it again than a transfer takes.
    pub(super) fn clear(&self) -> io::Result<()> {
        fs::remove_file(self.to().join(NAME))
    }

    /// Whether what has arrived is what was sent.
    pub(super) fn is_right(&self) -> io::Result<bool> {
        same(
            &mut File::open(self.from().join(NAME))?,
            &mut File::open(self.to().join(NAME))?,
        )
    }

    /// How hosts and files are: a line.
    pub(super) fn conditions(&self) -> String {
        format!(
            "Linux {}; a file of {} in memory; {}",
            rustix::system::uname().release().to_string_lossy(),
            self.size,
            ground::conditions(self.congestion, self.mtu)
        )
    }
}

/// Drops every packet of UDP that arrives with probability `loss`.
fn drops(loss: Probability) -> String {
    const WHOLE: f64 = 1_000_000.0;
    format!(
        "table inet loss {{\n\
         chain arriving {{\n\
         type filter hook prerouting priority raw; policy accept;\n\
         meta l4proto udp numgen random mod {WHOLE} < {:.0} drop\n\
         }}\n\
         }}\n",
        loss.value() * WHOLE
    )
}

/// Writes `size` octets, no two blocks alike.
fn fill(file: &mut File, size: Bytes) -> io::Result<()> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = vec![0; BLOCK];
    for eight in block.chunks_exact_mut(8) {
        // Xorshift (Marsaglia, 2003).
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        eight.copy_from_slice(&word.to_ne_bytes());
    }
    let mut at = 0;
    while at < size.0 {
        block[..8].copy_from_slice(&at.to_be_bytes());
        let len = (size.0 - at).min(BLOCK as u64);
        file.write_all(&block[..len as usize])?;
        at += len;
    }
    Ok(())
}

fn same(one: &mut File, other: &mut File) -> io::Result<bool> {
    let mut blocks = [vec![0; BLOCK], vec![0; BLOCK]];
    let mut left = one.metadata()?.len();
    if other.metadata()?.len() != left {
        return Ok(false);
    }
    while left > 0 {
        let len = left.min(BLOCK as u64) as usize;
        let [a, b] = &mut blocks;
        one.read_exact(&mut a[..len])?;
        other.read_exact(&mut b[..len])?;
        if a[..len] != b[..len] {
            return Ok(false);
        }
        left -= len as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn one_wrong_octet_is_seen() {
        let make = || {
            let mut file = tempfile::tempfile().unwrap();
            fill(&mut file, Bytes(2_500_001)).unwrap();
            file
        };
        let compared = |one: &File, other: &File| {
            let again = |file: &File| {
                let mut file = file.try_clone().unwrap();
                io::Seek::rewind(&mut file).unwrap();
                file
            };
            same(&mut again(one), &mut again(other)).unwrap()
        };
        let (one, other) = (make(), make());
        assert_eq!(one.metadata().unwrap().len(), 2_500_001);
        assert!(compared(&one, &other));
        other.write_all_at(b"x", 2_500_000).unwrap();
        assert!(!compared(&one, &other));
        other.set_len(2_500_000).unwrap();
        assert!(!compared(&one, &other));
    }
}
