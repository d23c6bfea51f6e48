//! The rules that make packets wait in a queue ([`bentpipe_sockets::nfqueue`]), and that send a held SYN to this
//! machine.
//!
//! nft's language says the first with `queue`, which wants CONFIG_NFT_QUEUE; where the kernel has not
//! that but what iptables needs (CONFIG_NFT_COMPAT, CONFIG_NETFILTER_XT_TARGET_NFQUEUE), the same
//! is had by the expression that iptables-nft makes, which nft has no words for. So these tables
//! are made by netlink messages of our own (linux/netfilter/nf_tables.h), and only know packets by
//! their priority (`meta priority`), which a chain of an [`super::OwnerTable`] before them sets
//! (the mark stays the operator's), or by a mark. The tables have an owner like those: they go when our socket
//! closes.
//!
//! Behind the queue, a packet with a certain mark is looped: a copy of it (nft's `dup`) goes over
//! `lo` as if this machine had sent it to itself, with its addresses as they are, and the packet itself is
//! dropped. The copy has a route to this machine from the start, so that neither the routing table nor
//! rp_filter is asked again, and conntrack leaves it alone.

use super::{NftError, TableFamily};
use crate::netlink::Mark;
use crate::owner::Owner;
use bentpipe_sockets::netfilter::{self, NESTED, REQUEST};
use bentpipe_sockets::netlink_message::{nest, put};
use rustix::net::sockopt;
use std::net::{Ipv4Addr, Ipv6Addr};
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
const HOLD: &[u8] = b"hold\0";
const LOOP: &[u8] = b"loop\0";
/// NFT_REG_VERDICT, and the registers of 16 bytes.
const VERDICT: u32 = 0;
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const THIRD: u32 = 3;
/// NFT_META_PRIORITY, NFT_META_MARK.
const PRIORITY: u32 = 2;
const MARK: u32 = 3;
/// NFT_CMP_EQ, NFT_CMP_NEQ.
const EQUAL: u32 = 0;
const UNEQUAL: u32 = 1;
/// NF_DROP, NF_ACCEPT.
const DROP: u32 = 0;
const ACCEPT: u32 = 1;
/// The index of `lo` in every namespace.
const LOOPBACK: u32 = 1;

/// The part of a send buffer that is left for what the kernel adds to a message.
const HEADROOM: usize = 4096;

/// How a rule says "wait in that queue".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The expression behind nft's `queue`.
    Queue,
    /// The target of iptables.
    Target,
}

/// The hook in which packets are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Those that come, before it is known where they go.
    Prerouting,
    /// Those that are for this machine.
    Input,
    /// Those that this machine forwards.
    Forward,
    /// Those that this machine sends.
    Output,
}

/// What a [`HoldTable`] does.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// In which hook.
    pub hook: Hook,
    /// At which priority among its chains packets are held; they are looped at the next.
    pub place: i32,
    /// Packets of this priority (`meta priority`) wait in the queue of this number.
    pub queues: &'a [(u32, u16)],
    /// Packets with such a mark wait in the queue too.
    pub marked: Option<(Mark, u16)>,
    /// Packets with this mark are looped.
    pub looped: Option<Mark>,
}

/// Tables that make packets wait and loop, as long as this value and this process live.
#[derive(Debug)]
pub struct HoldTable {
    _socket: OwnedFd,
}

impl HoldTable {
    /// Makes the tables in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel may have no such rule: that is `NotFound`.
    pub fn load(families: &[TableFamily], holding: &Holding<'_>) -> Result<Self, NftError> {
        let owner = Owner::current()?;
        let attempt = |way| {
            // If a batch fails that has put a chain into a hook, the kernel removes that chain again and drops all
            // packets that wait in any queue of the namespace. So the batch is first tried with chains that are in no
            // hook.
            let trial = Holding {
                queues: holding.queues.get(..1).unwrap_or_default(),
                ..*holding
            };
            // The table gets another name each time. A program that is just being started still holds a copy of the
            // earlier table's socket, and until all copies are closed that table exists and only its owner can change
            // it.
            let name = || owner.unique_name("hold");
            Self::send(&batch((way, false), families, &name(), &trial))?;
            Self::send(&batch((way, true), families, &name(), holding))
        };
        attempt(Way::Queue)
            .or_else(|_| attempt(Way::Target))
            .map_err(|source| NftError::Io {
                doing: match (holding.queues, holding.marked) {
                    ([], None) => "make a rule that loops packets (nft_dup)".to_owned(),
                    _ => "make a rule that holds packets (NFQUEUE)".to_owned(),
                },
                source,
            })
    }

    fn send(batch: &[u8]) -> std::io::Result<Self> {
        let socket = netfilter::open()?;
        // The kernel takes no more in one message than the socket's buffer for sending holds.
        sockopt::set_socket_send_buffer_size_force(&socket, batch.len() + HEADROOM)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&socket, batch.len() + HEADROOM))?;
        netfilter::request(&socket, batch)?;
        Ok(Self { _socket: socket })
    }
}

/// The batch asks for no acknowledgements, because those of a thousand rules would overrun the socket. Errors are
/// reported all the same, and then nothing of the batch is done. No packet reaches its chains unless they are `hooked`.
fn batch(
    (way, hooked): (Way, bool),
    families: &[TableFamily],
    name: &str,
    holding: &Holding<'_>,
) -> Vec<u8> {
    let mut batch = Vec::new();
    let table = [name.as_bytes(), b"\0"].concat();
    netfilter::put(&mut batch, (BATCH_BEGIN, REQUEST), (0, NFTABLES), |_| {});
    for family in families {
        let number = protocol(*family);
        let create = REQUEST | CREATE;
        netfilter::put(&mut batch, (NEW_TABLE, create), (number, 0), |bytes| {
            put(bytes, 1, &table);
            put(bytes, 2, &OWNED.to_be_bytes());
        });
        let mut rules = Rules {
            batch: &mut batch,
            table: &table,
            family: number,
        };
        let place = |place| hooked.then_some((holding.hook, place));
        rules.chain(HOLD, place(holding.place));
        if let Some((mark, queue)) = holding.marked {
            rules.rule(HOLD, |list| {
                masked(list, MARK, EQUAL, mark);
                wait(list, way, queue);
            });
        }
        rules.hold(way, holding.queues);
        if let Some(mark) = holding.looped {
            rules.chain(LOOP, place(holding.place + 1));
            rules.rule(LOOP, |list| looping(list, *family, mark));
        }
    }
    netfilter::put(&mut batch, (BATCH_END, REQUEST), (0, NFTABLES), |_| {});
    batch
}

/// Appends chains and rules of one table to a batch.
struct Rules<'a> {
    batch: &'a mut Vec<u8>,
    table: &'a [u8],
    family: u8,
}

impl Rules<'_> {
    fn chain(&mut self, name: &[u8], place: Option<(Hook, i32)>) {
        let header = ((NEW_CHAIN, REQUEST | CREATE), (self.family, 0));
        netfilter::put(self.batch, header.0, header.1, |bytes| {
            put(bytes, 1, self.table);
            put(bytes, 3, name);
            let Some((hook, place)) = place else {
                return;
            };
            // NF_INET_PRE_ROUTING, NF_INET_LOCAL_IN, NF_INET_FORWARD, NF_INET_LOCAL_OUT.
            let number: u32 = match hook {
                Hook::Prerouting => 0,
                Hook::Input => 1,
                Hook::Forward => 2,
                Hook::Output => 3,
            };
            nest(bytes, 4 | NESTED, |hook| {
                put(hook, 1, &number.to_be_bytes());
                put(hook, 2, &place.to_be_bytes());
            });
            put(bytes, 7, b"filter\0");
        });
    }

    fn rule(&mut self, chain: &[u8], expressions: impl FnOnce(&mut Vec<u8>)) {
        let header = ((NEW_RULE, REQUEST | APPEND), (self.family, 0));
        netfilter::put(self.batch, header.0, header.1, |bytes| {
            put(bytes, 1, self.table);
            put(bytes, 2, chain);
            nest(bytes, 4 | NESTED, expressions);
        });
    }

    /// For each queue `meta priority TAG queue num QUEUE bypass`. One rule before them lets
    /// what has none of the tags go on, which is nearly all.
    fn hold(&mut self, way: Way, queues: &[(u32, u16)]) {
        let Some(&(one, _)) = queues.first() else {
            return;
        };
        let differ = queues.iter().fold(0, |bits, (tag, _)| bits | (tag ^ one));
        let common = u32::MAX
            .checked_shl(32 - differ.leading_zeros())
            .unwrap_or(0);
        self.rule(HOLD, |list| {
            masked(
                list,
                PRIORITY,
                UNEQUAL,
                Mark {
                    value: one & common,
                    mask: common,
                },
            );
            verdict(list, ACCEPT);
        });
        for (tag, queue) in queues {
            self.rule(HOLD, |list| {
                masked(list, PRIORITY, EQUAL, Mark::exact(*tag));
                wait(list, way, *queue);
            });
        }
    }
}

/// `meta KEY & MASK == VALUE`, or `!=`.
fn masked(list: &mut Vec<u8>, key: u32, comparison: u32, Mark { value, mask }: Mark) {
    let register = FIRST.to_be_bytes();
    expression(list, b"meta\0", |data| {
        put(data, 1, &register);
        put(data, 2, &key.to_be_bytes());
    });
    if mask != u32::MAX {
        expression(list, b"bitwise\0", |data| {
            put(data, 1, &register);
            put(data, 2, &register);
            put(data, 3, &4u32.to_be_bytes());
            nest(data, 4 | NESTED, |bits| put(bits, 1, &mask.to_ne_bytes()));
            nest(data, 5 | NESTED, |bits| put(bits, 1, &[0; 4]));
        });
    }
    expression(list, b"cmp\0", |data| {
        put(data, 1, &register);
        put(data, 2, &comparison.to_be_bytes());
        nest(data, 3 | NESTED, |bits| put(bits, 1, &value.to_ne_bytes()));
    });
}

/// `queue num QUEUE bypass`.
fn wait(list: &mut Vec<u8>, way: Way, queue: u16) {
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

/// `meta mark & MASK == VALUE dup to 127.0.0.1 device "lo" drop`, or `dup to ::1`.
fn looping(list: &mut Vec<u8>, family: TableFamily, mark: Mark) {
    masked(list, MARK, EQUAL, mark);
    let mut load = |register: u32, value: &[u8]| {
        expression(list, b"immediate\0", |data| {
            put(data, 1, &register.to_be_bytes());
            nest(data, 2 | NESTED, |inside| put(inside, 1, value));
        });
    };
    match family {
        TableFamily::Ip6 => load(SECOND, &Ipv6Addr::LOCALHOST.octets()),
        TableFamily::Ip | TableFamily::Inet | TableFamily::Netdev => {
            load(SECOND, &Ipv4Addr::LOCALHOST.octets())
        }
    }
    load(THIRD, &LOOPBACK.to_ne_bytes());
    expression(list, b"dup\0", |data| {
        put(data, 1, &SECOND.to_be_bytes());
        put(data, 2, &THIRD.to_be_bytes());
    });
    verdict(list, DROP);
}

fn verdict(list: &mut Vec<u8>, code: u32) {
    expression(list, b"immediate\0", |data| {
        put(data, 1, &VERDICT.to_be_bytes());
        nest(data, 2 | NESTED, |inside| {
            nest(inside, 2 | NESTED, |verdict| {
                put(verdict, 1, &code.to_be_bytes())
            });
        });
    });
}

fn expression(list: &mut Vec<u8>, name: &[u8], data: impl FnOnce(&mut Vec<u8>)) {
    nest(list, 1 | NESTED, |element| {
        put(element, 1, name);
        nest(element, 2 | NESTED, data);
    });
}

/// NFPROTO_IPV4, NFPROTO_IPV6, NFPROTO_INET, NFPROTO_NETDEV.
pub(super) fn protocol(family: TableFamily) -> u8 {
    match family {
        TableFamily::Ip => 2,
        TableFamily::Ip6 => 10,
        TableFamily::Inet => 1,
        TableFamily::Netdev => 5,
    }
}
