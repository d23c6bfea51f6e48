//! The connection that a script speaks of: its addresses, and how the script's numbers are turned into true ones.

use crate::packet::Segment;
use crate::script::{Flags, Tcp, TcpOption};
use core::net::SocketAddr;
use std::collections::BTreeMap;

/// The peer's first sequence number: near the end of the space, so that numbers wrap.
const PEER_ISN: u32 = 0xffff_f000;

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// The end of the stack under test; its port is not known before it connects.
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// What the script calls 0 of the stack's numbers, once a SYN of it was seen.
    local_zero: Option<u32>,
    /// What the script calls 0 of the peer's numbers.
    remote_zero: u32,
    /// True values of the stack's timestamps, by the script's.
    stamps: BTreeMap<u32, u32>,
    /// How far the true ones are from the script's, by the first.
    stamp_offset: Option<u32>,
}

impl Connection {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local,
            remote,
            local_zero: None,
            remote_zero: PEER_ISN,
            stamps: BTreeMap::new(),
            stamp_offset: None,
        }
    }

    /// Whether `segment` is one that the stack sent by this connection.
    pub(crate) fn sent(&self, segment: &Segment) -> bool {
        let port = self.local.port();
        segment.destination == self.remote
            && segment.source.ip() == self.local.ip()
            && (port == 0 || segment.source.port() == port)
    }

    fn zero(&self) -> u32 {
        self.local_zero.unwrap_or(0)
    }

    /// The true number of the stack that the script calls `number`.
    pub(crate) fn local_number(&self, number: u32) -> u32 {
        self.zero().wrapping_add(number)
    }

    /// The segment that the script has the peer send.
    pub(crate) fn inbound(&self, tcp: &Tcp) -> Segment {
        let written = tcp.options.clone().unwrap_or_default();
        let options = written.into_iter().map(|option| match option {
            TcpOption::Sack(blocks) => {
                let blocks = blocks.into_iter();
                let edge = |number| self.local_number(number);
                TcpOption::Sack(blocks.map(|(a, b)| (edge(a), edge(b))).collect())
            }
            TcpOption::Timestamps { value, echo } => TcpOption::Timestamps {
                value,
                echo: self.true_stamp(echo),
            },
            option => option,
        });
        Segment {
            source: self.remote,
            destination: self.local,
            ecn: tcp.ecn.unwrap_or(0),
            flags: tcp.flags,
            seq: self.remote_zero.wrapping_add(tcp.seq),
            ack: tcp.ack.map_or(0, |ack| self.local_number(ack)),
            window: tcp.window.unwrap_or(0),
            urgent: tcp.urgent.unwrap_or(0),
            options: options.collect(),
            length: tcp.length,
        }
    }

    fn true_stamp(&self, echo: u32) -> u32 {
        match (self.stamps.get(&echo), self.stamp_offset) {
            (Some(stamp), _) => *stamp,
            (None, Some(offset)) if echo != 0 => echo.wrapping_add(offset),
            (None, _) => echo,
        }
    }

    /// What the stack sent, as the script would write it. `expected` tells what the script calls its numbers and
    /// timestamps, where this is the first time that they are seen.
    pub(crate) fn outbound(&mut self, segment: &Segment, expected: &Tcp) -> Tcp {
        if segment.flags.has(Flags::SYN) && self.local_zero.is_none() {
            self.local_zero = Some(segment.seq.wrapping_sub(expected.seq));
            self.local = segment.source;
        }
        let peer = |number: u32| number.wrapping_sub(self.remote_zero);
        let scripted = expected
            .options
            .iter()
            .flatten()
            .find_map(|option| match option {
                TcpOption::Timestamps { value, .. } => Some(*value),
                _ => None,
            });
        let mut options = Vec::new();
        for option in &segment.options {
            options.push(match option {
                TcpOption::Sack(blocks) => {
                    let blocks = blocks.iter();
                    TcpOption::Sack(blocks.map(|&(a, b)| (peer(a), peer(b))).collect())
                }
                TcpOption::Timestamps { value, echo } => {
                    if let Some(script) = scripted {
                        self.stamps.insert(script, *value);
                        let offset = value.wrapping_sub(script);
                        self.stamp_offset.get_or_insert(offset);
                    }
                    // The stack's clock is its own: its values are not compared. What it echoes is the peer's.
                    TcpOption::Timestamps {
                        value: scripted.unwrap_or(*value),
                        echo: *echo,
                    }
                }
                option => option.clone(),
            });
        }
        let acks = segment.flags.has(Flags::ACK);
        Tcp {
            ecn: Some(segment.ecn),
            flags: segment.flags,
            seq: segment.seq.wrapping_sub(self.zero()),
            length: segment.length,
            ack: acks.then(|| peer(segment.ack)),
            window: Some(segment.window),
            urgent: segment.flags.has(Flags(0x20)).then_some(segment.urgent),
            options: Some(options),
        }
    }
}

/// What differs between `expected` and what was `sent`, as a list for people; empty where nothing does.
pub(crate) fn differences(expected: &Tcp, sent: &Tcp) -> Vec<String> {
    let mut all = Vec::new();
    let mut differ = |what: &str, expected: String, sent: String| {
        if expected != sent {
            all.push(format!("{what}: expected {expected}, got {sent}"));
        }
    };
    differ("flags", expected.flags.to_string(), sent.flags.to_string());
    differ(
        "sequence number",
        expected.seq.to_string(),
        sent.seq.to_string(),
    );
    differ(
        "length",
        expected.length.to_string(),
        sent.length.to_string(),
    );
    let ack = |tcp: &Tcp| {
        tcp.ack
            .map_or_else(|| "none".to_owned(), |ack| ack.to_string())
    };
    differ("acknowledgement", ack(expected), ack(sent));
    if let (Some(expected), Some(sent)) = (expected.window, sent.window) {
        differ("window", expected.to_string(), sent.to_string());
    }
    if let (Some(expected), Some(sent)) = (expected.ecn, sent.ecn) {
        differ("ECN field", expected.to_string(), sent.to_string());
    }
    if expected.urgent.is_some() {
        let urgent = |tcp: &Tcp| format!("{:?}", tcp.urgent);
        differ("urgent pointer", urgent(expected), urgent(sent));
    }
    if expected.options.is_some() {
        differ("options", list(expected), list(sent));
    }
    all
}

fn list(tcp: &Tcp) -> String {
    let options: Vec<String> = tcp
        .options
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    format!("<{}>", options.join(","))
}
