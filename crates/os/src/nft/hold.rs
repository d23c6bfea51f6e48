//! The rule that makes packets wait in a queue ([`crate::nfqueue`]).
//!
//! nft's language says that with `queue`, which wants CONFIG_NFT_QUEUE; where the kernel has not
//! that but what iptables needs (CONFIG_NFT_COMPAT, CONFIG_NETFILTER_XT_TARGET_NFQUEUE), the same
//! is had by the expression that iptables-nft makes, which nft has no words for. So these tables
//! are made by netlink messages of our own (linux/netfilter/nf_tables.h), and only know packets by
//! their priority (`meta priority`), which a chain of an [`super::OwnerTable`] before them sets
//! (the mark stays the operator's). The tables have an owner like those: they go when our socket
//! closes.

use super::{NftError, TableFamily};
use crate::message::{nest, put};
use crate::netfilter::{self, CHANGE, NESTED, REQUEST};
use crate::owner::Owner;
use std::os::fd::OwnedFd;

/// NFNL_SUBSYS_NFTABLES, and its messages.
pub(super) const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const NEW_RULE: u16 = NFTABLES << 8 | 6;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// NLM_F_CREATE, and with NLM_F_APPEND.
const CREATE: u16 = 0x400;
const APPEND: u16 = 0xc00;
/// NFT_TABLE_F_OWNER.
const OWNED: u32 = 2;
const CHAIN: &[u8] = b"hold\0";

/// How a rule says "wait in that queue".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The expression behind nft's `queue`.
    Queue,
    /// The target of iptables.
    Target,
}

/// Where in their way packets are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Those that arrive.
    Prerouting,
    /// Those that this machine sends.
    Output,
}

/// Tables that make packets wait, as long as this value and this process live.
#[derive(Debug)]
pub struct HoldTable {
    _socket: OwnedFd,
}

impl HoldTable {
    /// Packets whose priority is `tag + n`, for `n` below `count`, wait in queue `first + n`: in `hook`,
    /// at `place` among its chains. Made in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel may have no such rule: that is `NotFound`.
    pub fn load(
        families: &[TableFamily],
        hook: Hook,
        (tag, first, count): (u32, u16, u16),
        place: i32,
    ) -> Result<Self, NftError> {
        let name = Owner::current()?.unique_name("hold");
        let attempt = |way| {
            let socket = netfilter::open()?;
            let batch = batch(way, families, &name, (tag, first, count), (hook, place));
            netfilter::request(&socket, &batch).map(|()| Self { _socket: socket })
        };
        attempt(Way::Queue)
            .or_else(|_| attempt(Way::Target))
            .map_err(|source| NftError::Io {
                doing: "make a rule that holds packets (NFQUEUE)".to_owned(),
                source,
            })
    }
}

fn batch(
    way: Way,
    families: &[TableFamily],
    name: &str,
    (tag, first, count): (u32, u16, u16),
    (hook, place): (Hook, i32),
) -> Vec<u8> {
    // NF_INET_PRE_ROUTING, NF_INET_LOCAL_OUT.
    let number: u32 = match hook {
        Hook::Prerouting => 0,
        Hook::Output => 3,
    };
    let mut batch = Vec::new();
    let table = [name.as_bytes(), b"\0"].concat();
    netfilter::put(&mut batch, (BATCH_BEGIN, REQUEST), (0, NFTABLES), |_| {});
    for family in families {
        let family = protocol(*family);
        let create = CHANGE | CREATE;
        netfilter::put(&mut batch, (NEW_TABLE, create), (family, 0), |bytes| {
            put(bytes, 1, &table);
            put(bytes, 2, &OWNED.to_be_bytes());
        });
        netfilter::put(&mut batch, (NEW_CHAIN, create), (family, 0), |bytes| {
            put(bytes, 1, &table);
            put(bytes, 3, CHAIN);
            nest(bytes, 4 | NESTED, |hook| {
                put(hook, 1, &number.to_be_bytes());
                put(hook, 2, &place.to_be_bytes());
            });
            put(bytes, 7, b"filter\0");
        });
        for n in 0..count {
            let append = CHANGE | APPEND;
            netfilter::put(&mut batch, (NEW_RULE, append), (family, 0), |bytes| {
                put(bytes, 1, &table);
                put(bytes, 2, CHAIN);
                nest(bytes, 4 | NESTED, |list| {
                    expressions(list, way, tag + u32::from(n), first + n);
                });
            });
        }
    }
    netfilter::put(&mut batch, (BATCH_END, REQUEST), (0, NFTABLES), |_| {});
    batch
}

/// `meta priority TAG queue num QUEUE bypass`.
fn expressions(list: &mut Vec<u8>, way: Way, tag: u32, queue: u16) {
    // NFT_REG32_00; NFT_META_PRIORITY; NFT_CMP_EQ.
    let register = 8u32.to_be_bytes();
    expression(list, b"meta\0", |data| {
        put(data, 1, &register);
        put(data, 2, &2u32.to_be_bytes());
    });
    expression(list, b"cmp\0", |data| {
        put(data, 1, &register);
        put(data, 2, &0u32.to_be_bytes());
        nest(data, 3 | NESTED, |value| put(value, 1, &tag.to_ne_bytes()));
    });
    match way {
        Way::Queue => expression(list, b"queue\0", |data| {
            put(data, 1, &queue.to_be_bytes());
            put(data, 2, &1u16.to_be_bytes());
            // NFT_QUEUE_FLAG_BYPASS.
            put(data, 3, &1u16.to_be_bytes());
        }),
        Way::Target => expression(list, b"target\0", |data| {
            put(data, 1, b"NFQUEUE\0");
            put(data, 2, &3u32.to_be_bytes());
            // `struct xt_NFQ_info_v3`, padded: number, how many, NFQ_FLAG_BYPASS.
            let info: Vec<u8> = [queue, 1, 1, 0].map(u16::to_ne_bytes).concat();
            put(data, 3, &info);
        }),
    }
}

fn expression(list: &mut Vec<u8>, name: &[u8], data: impl FnOnce(&mut Vec<u8>)) {
    nest(list, 1 | NESTED, |element| {
        put(element, 1, name);
        nest(element, 2 | NESTED, data);
    });
}

/// NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_INET.
pub(super) fn protocol(family: TableFamily) -> u8 {
    match family {
        TableFamily::Ip => 2,
        TableFamily::Ip6 => 10,
        TableFamily::Inet => 1,
    }
}
