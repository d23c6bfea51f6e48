//! Named counters, read without the program nft: `nft list counters` (linux/netfilter/nf_tables.h).

use super::TableFamily;
use super::hold::{NFTABLES, protocol};
use bentpipe_base::Bytes;
use bentpipe_sockets::netfilter::{self, GENERAL, REQUEST};
use bentpipe_sockets::netlink_message::{attributes, dump, put};
use std::io;
use std::os::fd::OwnedFd;

/// NFT_MSG_GETOBJ, NLM_F_DUMP.
const GET_OBJECT: u16 = NFTABLES << 8 | 19;
const DUMP: u16 = 0x300;
/// NFT_OBJECT_COUNTER.
const COUNTER: u32 = 1;

/// What a named counter of a table has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Its name.
    pub name: String,
    /// Packets that came by.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: Bytes,
}

/// Reads counters in the namespace it was opened in, from any thread.
#[derive(Debug)]
pub struct Tally {
    socket: OwnedFd,
}

impl Tally {
    /// Opens it for the namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let socket = netfilter::open()?;
        Ok(Self { socket })
    }

    /// The counters of a table, by name; none when there is no such table. Whoever made it.
    pub fn read(&mut self, family: TableFamily, table: &str) -> io::Result<Vec<Count>> {
        let mut request = Vec::new();
        let header = (GET_OBJECT, REQUEST | DUMP);
        netfilter::put(&mut request, header, (protocol(family), 0), |bytes| {
            put(bytes, 1, &[table.as_bytes(), b"\0"].concat());
            put(bytes, 3, &COUNTER.to_be_bytes());
        });
        let mut found = Vec::new();
        dump(
            &self.socket,
            &request,
            &mut vec![0; 32 * 1024],
            |_, body| {
                // The table's alone, although older kernels list those of all.
                found.extend(count(body, table));
            },
        )?;
        found.sort_by(|a: &Count, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

pub(crate) fn count(body: &[u8], table: &str) -> Option<Count> {
    let text = |value: &[u8]| {
        String::from_utf8_lossy(value)
            .trim_end_matches('\0')
            .to_owned()
    };
    let (mut name, mut of, mut packets, mut bytes) = (None, None, 0, 0);
    for (kind, value) in attributes(body.get(GENERAL..)?) {
        // Nested ones are marked as such by some kernels.
        match kind & !netfilter::NESTED {
            1 => of = Some(text(value)),
            2 => name = Some(text(value)),
            4 => {
                for (kind, value) in attributes(value) {
                    let number = u64::from_be_bytes(value.get(..8)?.try_into().ok()?);
                    match kind {
                        1 => bytes = number,
                        2 => packets = number,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (of? == table).then_some(Count {
        name: name?,
        packets,
        bytes: Bytes(bytes),
    })
}
