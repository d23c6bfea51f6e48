//! Whether the rules of a namespace have changed.

use super::hold::NFTABLES;
use bentpipe_sockets::netfilter::{self, GENERAL, REQUEST};
use bentpipe_sockets::netlink_message::{NLMSG_ERROR, attributes, message, refusal};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::io;
use std::os::fd::OwnedFd;

/// NFT_MSG_GETGEN, and NFTA_GEN_ID of the answer.
const GET: u16 = NFTABLES << 8 | 16;
const ID: u16 = 1;

/// Reads the generation number of nft's rules in the namespace that it was opened in. Each change to rules increases
/// the number, whoever makes it; elements that packets add to sets do not.
#[derive(Debug)]
pub struct Generation(OwnedFd);

impl Generation {
    /// Opens it for the namespace of the calling thread.
    ///
    /// # Errors
    /// Without descriptors.
    pub fn open() -> io::Result<Self> {
        Ok(Self(netfilter::open()?))
    }

    /// The number now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<u32> {
        let mut request = Vec::new();
        netfilter::put(&mut request, (GET, REQUEST), (0, 0), |_| {});
        send(&self.0, &request, SendFlags::empty())?;
        let mut buffer = [0; 4096];
        let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
        let answer = message(&buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        if let (NLMSG_ERROR, body, _) = answer {
            return Err(refusal(body).unwrap_or(io::ErrorKind::InvalidData.into()));
        }
        let mut attributes = attributes(answer.1.get(GENERAL..).unwrap_or_default());
        let id = attributes.find(|(kind, _)| *kind == ID);
        let id = id.and_then(|(_, value)| value.get(..4)?.try_into().ok());
        Ok(u32::from_be_bytes(id.ok_or(io::ErrorKind::InvalidData)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::nft;

    #[test]
    fn each_change_of_the_rules_moves_it() {
        crate::need!(Root, Nft);
        let netns = Netns::create("generation").unwrap();
        netns
            .run(|| {
                let generation = Generation::open().unwrap();
                let before = generation.read().unwrap();
                assert_eq!(generation.read().unwrap(), before);
                nft::apply("add table inet t").unwrap();
                let after = generation.read().unwrap();
                assert_ne!(after, before);
                nft::apply("add chain inet t c").unwrap();
                assert_ne!(generation.read().unwrap(), after);
            })
            .unwrap();
    }
}
