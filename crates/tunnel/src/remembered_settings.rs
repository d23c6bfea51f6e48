//! SETTINGS of a peer, remembered from one connection to the next, so that the first flight of the next can carry requests (RFC 9114,
//! section 7.2.4.2).
//!
//! The engine asks nothing of a peer whose SETTINGS it has not heard. So it hears the remembered ones, as the beginning of a control
//! stream; the beginning of the real one is compared with them when it comes, and what follows it is that stream's rest.

use crate::endpoint::{Event, Role, Side};
use crate::http3::{Http, engine_config, engine_id};
use bentpipe_quic::{Code, ConnectionId, Quic, StreamId, StreamRef};
use bytes::Bytes;
use h3wire::{Config, Connection, H3Code, PeerSettings, UniKind};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// By this name the engine has the peer's control stream that begins with remembered SETTINGS. No peer opens so many streams.
pub(crate) const CONTROL: h3wire::StreamId = h3wire::StreamId((1 << 62) - 1);
/// Bytes of streams of one way that wait for SETTINGS.
const WAITING: usize = 16 << 10;
/// Peers whose SETTINGS are remembered.
const PEERS: usize = 64;

/// What a peer's SETTINGS allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    connect: bool,
    datagrams: bool,
    fields: Option<u64>,
}

impl Remembered {
    fn of(settings: &PeerSettings) -> Self {
        Self {
            connect: settings.enable_connect_protocol,
            datagrams: settings.h3_datagram,
            fields: settings.max_field_section_size,
        }
    }

    /// Whether all that was allowed still is: it may be what was done already.
    fn is_kept_by(self, now: Self) -> bool {
        let more = |before: bool, now: bool| now || !before;
        let longest = |it: Self| it.fields.unwrap_or(u64::MAX);
        more(self.connect, now.connect)
            && more(self.datagrams, now.datagrams)
            && longest(now) >= longest(self)
    }

    /// A control stream that begins with them.
    fn control_stream(self) -> Vec<u8> {
        let mut config = Config::default();
        config.enable_connect_protocol = self.connect;
        config.h3_datagram = self.datagrams;
        config.max_field_section_size = self.fields;
        config.grease = false;
        let mut peer = Connection::new(h3wire::Role::Server, config);
        // A server's first stream of one way is what a fresh engine takes.
        let first = h3wire::StreamId(3);
        let _ = peer.bind_uni(UniKind::Control, first);
        peer.poll_send(first).unwrap_or_default().to_vec()
    }
}

/// Why a connection is ended.
type Broken = (H3Code, &'static str);

/// The beginnings of the peer's streams of one way, until its SETTINGS are among them.
pub(crate) struct Beginnings {
    remembered: Remembered,
    /// Reads them as the connection's own engine would.
    reader: Connection,
    waiting: BTreeMap<u64, (Vec<u8>, bool)>,
    length: usize,
}

/// The peer's SETTINGS have come.
struct Begun {
    control: u64,
    /// What came of the control stream behind them, and of other streams.
    rest: Bytes,
    others: BTreeMap<u64, (Vec<u8>, bool)>,
    settings: Remembered,
}

impl Beginnings {
    fn take(&mut self, stream: u64, data: &Bytes, ends: bool) -> Result<Option<Begun>, Broken> {
        let id = h3wire::StreamId(stream);
        let broken = |_| {
            (
                H3Code::SETTINGS_ERROR,
                "the control stream begins otherwise",
            )
        };
        for at in 0..data.len() {
            self.reader
                .recv(id, &data[at..=at], false)
                .map_err(broken)?;
            if let Some(settings) = self.reader.peer_settings() {
                let settings = Remembered::of(settings);
                if !self.remembered.is_kept_by(settings) {
                    return Err((H3Code::SETTINGS_ERROR, "SETTINGS allow less than before"));
                }
                self.waiting.remove(&stream);
                return Ok(Some(Begun {
                    control: stream,
                    rest: data.slice(at + 1..),
                    others: core::mem::take(&mut self.waiting),
                    settings,
                }));
            }
        }
        if ends {
            self.reader.recv(id, &[], true).map_err(broken)?;
        }
        self.length += data.len();
        if self.length > WAITING {
            return Err((H3Code::EXCESSIVE_LOAD, "no SETTINGS come"));
        }
        let (waiting, ended) = self.waiting.entry(stream).or_default();
        waiting.extend_from_slice(data);
        *ended |= ends;
        Ok(None)
    }
}

impl<Q: Quic> Side<Q> {
    /// Near: a connection may carry requests before its handshake is through, if it is known what the peer allows.
    pub(crate) fn begin_early(&mut self, connection: ConnectionId, mut http: Http) {
        let remembered = self.settings.get(&http.peer).filter(|it| it.connect);
        let Some(&remembered) = remembered else {
            return;
        };
        http.beginnings = Some(Box::new(Beginnings {
            remembered,
            reader: Connection::new(h3wire::Role::Client, engine_config(self.role)),
            waiting: BTreeMap::new(),
            length: 0,
        }));
        // What an engine of ours has written is what one of ours reads.
        let _ = http
            .engine
            .recv(CONTROL, &remembered.control_stream(), false);
        self.connections.insert(connection, http);
        self.settle(connection);
    }

    /// The engine has heard SETTINGS, the peer's or remembered ones.
    pub(crate) fn settings_came(&mut self, connection: ConnectionId) {
        let Some(http) = self.connections.get_mut(&connection) else {
            return;
        };
        let settings = http.engine.peer_settings().map(Remembered::of);
        let proxy = settings.is_some_and(|settings| settings.connect);
        http.ready = proxy;
        let early = http.beginnings.is_some();
        let peer = http.peer;
        if self.role != Role::Near {
            return;
        }
        if let Some(settings) = settings.filter(|_| !early) {
            self.remember(peer, settings);
        }
        self.events.push_back(match (proxy, early) {
            (_, true) => Event::Early(connection),
            (true, false) => Event::Ready(connection),
            (false, false) => Event::NoProxy(connection),
        });
    }

    fn remember(&mut self, peer: SocketAddr, settings: Remembered) {
        if self.settings.len() < PEERS || self.settings.contains_key(&peer) {
            self.settings.insert(peer, settings);
        }
    }

    /// Something came on a stream of one way of a connection that began with remembered SETTINGS; whether it was taken here.
    pub(crate) fn take_beginning(&mut self, stream: StreamRef, data: &Bytes, ends: bool) -> bool {
        let connection = stream.connection;
        let Some(http) = self.connections.get_mut(&connection) else {
            return false;
        };
        let Some(beginnings) = &mut http.beginnings else {
            return false;
        };
        match beginnings.take(stream.stream.0, data, ends) {
            Ok(None) => {}
            Ok(Some(begun)) => {
                http.beginnings = None;
                http.control = Some(begun.control);
                let peer = http.peer;
                self.remember(peer, begun.settings);
                self.events.push_back(Event::Ready(connection));
                let others = begun.others.into_iter();
                let control = (begun.control, (begun.rest.to_vec(), ends));
                for (stream, (data, ends)) in others.chain([control]) {
                    let stream = StreamRef {
                        connection,
                        stream: StreamId(stream),
                    };
                    self.feed(stream, data.into(), ends);
                }
            }
            Err((code, reason)) => {
                let peer = http.peer;
                self.settings.remove(&peer);
                self.quic.close(connection, Code(code.0), reason, self.now);
                self.connections.remove(&connection);
                self.events.push_back(Event::Lost {
                    connection,
                    peer,
                    reason: format!("the peer broke HTTP/3: {reason}"),
                    may_return: false,
                });
            }
        }
        true
    }
}

impl Http {
    /// As the engine calls a stream.
    pub(crate) fn engine_id(&self, stream: StreamId) -> h3wire::StreamId {
        if self.control == Some(stream.0) {
            CONTROL
        } else {
            engine_id(stream)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Remembered = Remembered {
        connect: true,
        datagrams: true,
        fields: Some(16_384),
    };

    fn beginnings(remembered: Remembered) -> Beginnings {
        Beginnings {
            remembered,
            reader: Connection::new(h3wire::Role::Client, Config::default()),
            waiting: BTreeMap::new(),
            length: 0,
        }
    }

    #[test]
    fn what_is_written_is_read_as_it_was_however_it_is_cut() {
        let written = ALL.control_stream();
        for cut in 0..written.len() {
            let mut beginnings = beginnings(ALL);
            let whole = Bytes::from([&written[..], b"rest"].concat());
            assert!(
                beginnings
                    .take(7, &whole.slice(..cut), false)
                    .is_ok_and(|it| it.is_none())
            );
            // The peer's other streams may come before its control stream.
            assert!(
                beginnings
                    .take(3, &Bytes::from_static(&[2]), false)
                    .is_ok_and(|it| it.is_none())
            );
            let begun = beginnings
                .take(7, &whole.slice(cut..), false)
                .ok()
                .flatten()
                .unwrap();
            assert_eq!((begun.control, begun.settings), (7, ALL));
            assert_eq!(&begun.rest[..], b"rest");
            assert_eq!(begun.others, BTreeMap::from([(3, (vec![2], false))]));
        }
    }

    #[test]
    fn settings_that_allow_less_are_an_error_and_more_are_none() {
        let less = [
            Remembered {
                connect: false,
                ..ALL
            },
            Remembered {
                datagrams: false,
                ..ALL
            },
            Remembered {
                fields: Some(100),
                ..ALL
            },
        ];
        for less in less {
            let stream = Bytes::from(less.control_stream());
            let error = beginnings(ALL).take(3, &stream, false).err();
            assert_eq!(error.map(|(code, _)| code), Some(H3Code::SETTINGS_ERROR));
            let stream = Bytes::from(ALL.control_stream());
            assert!(
                beginnings(less)
                    .take(3, &stream, false)
                    .is_ok_and(|it| it.is_some())
            );
        }
    }

    #[test]
    fn what_is_no_beginning_is_an_error_and_what_waits_is_bounded() {
        let goaway = Bytes::from_static(&[0, 7, 1, 0]);
        assert!(beginnings(ALL).take(3, &goaway, false).is_err());
        let mut flooded = beginnings(ALL);
        // A stream of a kind that nobody knows.
        let flood = Bytes::from(vec![0x21; WAITING + 1]);
        assert!(flooded.take(7, &flood, false).is_err());
    }
}
