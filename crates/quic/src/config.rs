//! How an endpoint is set up, and what the stack is told of it.

use crate::address_validation_tokens::UsedTokens;
use crate::certificates::{Certificates, QuicTls};
use crate::clock::{Base, Calendar};
use crate::congestion::{CongestionControl, Maker};
use crate::keys::{self, Identity, PublicKey, TrustedKeys};
use crate::network_path::{LEAST_PAYLOAD, Path, TooManyGaps};
use crate::session_tickets::{HeldTickets, IssuedTickets};
use bentpipe_base::{Bytes, Stream};
use bentpipe_fec::Overhead;
use core::time::Duration;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, ConnectionId, ConnectionIdGenerator, EndpointConfig, IdleTimeout,
    MtuDiscoveryConfig, RandomConnectionIdGenerator, ServerConfig, TransportConfig,
    ValidationTokenConfig, VarInt,
};

use rustls::client::Resumption;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Bytes of an own connection id.
const CID_LENGTH: usize = 8;
/// Streams of one way that a peer may have open: HTTP/3 wants three, and others try out what is unknown.
const ONE_WAY_STREAMS: u32 = 8;
/// Bytes of DATAGRAM frames that came and are not read, which they are at the end of each turn.
const DATAGRAMS_RECEIVED: usize = 1 << 20;
/// Bytes of DATAGRAM frames that the stack has at a time, its own notes included: those of one batch.
const DATAGRAMS_HANDED: usize = 64 << 10;
/// Tokens that validate an address at once the next time, sent on each connection.
const TOKENS: u32 = 1;
/// How long they are good.
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Octets that repairs are longer than what they protect.
const REPAIR_HEADER: u16 = bentpipe_fec::REPAIR_HEADER as u16;
/// The part of the round-trip time after which a packet that has not come is lost (RFC 9002, section 6.1.2), and where repairs may come
/// first, at most.
const TIME_THRESHOLD: f32 = 9.0 / 8.0;
const TIME_THRESHOLD_MOST: f32 = 1.5;
/// The part of the round-trip time that the stack is told to begin with: it first repeats a packet after three times that.
const FIRST_PROBE_PART: u32 = 3;

/// How an endpoint is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The path of its connections.
    pub path: Path,
    /// Their congestion control.
    pub control: CongestionControl,
    /// Whose endpoint it is.
    pub identity: Identity,
    /// Whom it trusts.
    pub peers: Vec<PublicKey>,
    /// What it shows to peers that know no raw public keys, and whom else it trusts of these; `None`: there are none.
    pub certificates: Option<Certificates>,
    /// What it admits.
    pub limits: Limits,
    /// A connection of which nothing is heard for so long is lost.
    pub idle_timeout: Duration,
    /// So often something is sent, lest that happen; `None`: never, as where the peer does it.
    pub keep_alive: Option<Duration>,
    /// Packets of later ones that arrived after which one is lost. More where the path reorders.
    pub packet_threshold: u32,
    /// Forward error correction of what is sent, where the peer has it too (docs/fec.md).
    pub fec: Option<Overhead>,
    /// Datagrams of one length that may leave together, at least 1.
    pub segments: usize,
    /// All that is drawn by chance, keys excepted, follows from it; `None`: the system's randomness, as it must be where there
    /// is a network.
    pub seed: Option<u64>,
    /// The time of day at [`Instant::ZERO`](bentpipe_base::Instant::ZERO), since 1970.
    pub time_of_day: Duration,
    /// The stack's instant at [`Instant::ZERO`](bentpipe_base::Instant::ZERO).
    pub base: std::time::Instant,
}

/// What an endpoint admits, so that its memory is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Connections at once whose handshake is not through, beyond which addresses are validated first, which costs a round
    /// trip; twice as many are never admitted.
    pub half_open: usize,
    /// Streams of both ways that a peer may have open on a connection.
    pub streams: u32,
    /// Bytes that a connection holds each way: received and not read, or sent and not acknowledged. At least a stream's
    /// window; where it is not many times that, streams that are not read keep others waiting.
    pub memory: Bytes,
}

impl Default for Limits {
    /// 256 connections, 32 of them half open, 4,096 streams and 64 MB for each.
    fn default() -> Self {
        Self {
            connections: 256,
            half_open: 32,
            streams: 4096,
            memory: Bytes(64_000_000),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigError {
    /// Nobody is trusted.
    #[error("no peer's key is given: nobody could connect")]
    NoPeers,
    /// The path is faster than the stack is reliable on it.
    #[error(transparent)]
    Gaps(#[from] TooManyGaps),
    /// The bound of memory does not hold one stream's window.
    #[error(
        "{memory} for a connection is less than the window of one stream on this path, {window}: allow more"
    )]
    Memory {
        /// What was given.
        memory: Bytes,
        /// What is needed at least.
        window: Bytes,
    },
    /// TLS refuses keys or versions.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// What the stack is made from.
pub(crate) struct Parts {
    pub(crate) endpoint: Arc<EndpointConfig>,
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: ClientConfig,
    pub(crate) calendar: Calendar,
    pub(crate) trusted: TrustedKeys,
    pub(crate) issued: Arc<IssuedTickets>,
    pub(crate) held: Arc<HeldTickets>,
    pub(crate) maker: Arc<Maker>,
    pub(crate) fec: Option<bentpipe_fec::Config>,
}

impl Config {
    /// A configuration for `path`, of a side that connects: it keeps the connection alive.
    pub fn new(
        path: Path,
        control: CongestionControl,
        identity: Identity,
        peers: Vec<PublicKey>,
        base: std::time::Instant,
    ) -> Self {
        Self {
            path,
            control,
            identity,
            peers,
            certificates: None,
            limits: Limits::default(),
            idle_timeout: Duration::from_secs(30),
            keep_alive: Some(Duration::from_secs(10)),
            packet_threshold: 3,
            fec: None,
            segments: 1,
            seed: None,
            time_of_day: Duration::ZERO,
            base,
        }
    }

    /// Has a connection hold no more than an eighth of `process` each way, the memory that this process may have, though no
    /// less than a stream's window: what it holds for streams that nobody reads is several times [`Limits::memory`].
    pub fn bound_memory(&mut self, process: Bytes) {
        let part = Bytes(process.0 / 8).max(self.path.stream_window());
        self.limits.memory = self.limits.memory.min(part);
    }

    fn check(&self) -> Result<(), ConfigError> {
        let authorities =
            { self.certificates.as_ref() }.is_some_and(Certificates::have_authorities);
        if self.peers.is_empty() && !authorities {
            return Err(ConfigError::NoPeers);
        }
        self.path.check()?;
        let window = self.path.stream_window();
        if self.limits.memory < window {
            let memory = self.limits.memory;
            return Err(ConfigError::Memory { memory, window });
        }
        Ok(())
    }

    /// What the stack is made from.
    pub(crate) fn parts(&self) -> Result<Parts, ConfigError> {
        self.check()?;
        let calendar = Calendar::new(self.time_of_day);
        let tls = |reason: rustls::Error| ConfigError::Tls(reason.to_string());
        let suite = |reason: quinn_proto::crypto::rustls::NoInitialCipherSuite| {
            ConfigError::Tls(reason.to_string())
        };
        let trusted = TrustedKeys::new(self.peers.clone(), self.certificates.clone());
        let fec = self.fec.is_some();
        let known = || keys::protocols(fec);
        let (issued, held) = <(Arc<IssuedTickets>, Arc<HeldTickets>)>::default();
        let server = keys::server(&self.identity, &trusted, &calendar, known()).map_err(tls)?;
        let server = server.with_tickets(&issued);
        let mut client = keys::client(&self.identity, &trusted, &calendar, known()).map_err(tls)?;
        client.resumption = Resumption::store(Arc::<HeldTickets>::clone(&held));
        client.enable_early_data = true;
        let server = QuicTls::new(server).map_err(suite)?;
        let client = QuicClientConfig::try_from(client).map_err(suite)?;
        let maker = Arc::new(Maker {
            control: self.control.clone(),
            path: self.path.clone(),
            base: Base(self.base),
            made: Arc::default(),
            latest: Mutex::default(),
        });
        let transport = Arc::new(self.transport(Arc::clone(&maker)));
        Ok(Parts {
            endpoint: Arc::new(self.endpoint()),
            server: Arc::new(self.server(server, Arc::clone(&transport), &calendar)),
            client: self.client(client, transport, Arc::clone(&held)),
            calendar,
            trusted,
            issued,
            held,
            maker,
            fec: self.fec_config(),
        })
    }

    /// How the packets of a connection are protected.
    fn fec_config(&self) -> Option<bentpipe_fec::Config> {
        let rate = self.control.rate().unwrap_or(self.path.rate);
        self.fec.map(|overhead| bentpipe_fec::Config {
            overhead,
            silence: bentpipe_fec::silence(rate, self.path.mtu),
        })
    }

    /// Packets and, as a part of the round-trip time, the time after which one that has not come is lost (RFC 9002, section 6.1): later
    /// than repairs would give it back.
    fn thresholds(&self) -> (u32, f32) {
        let Some(overhead) = self.fec else {
            return (self.packet_threshold, TIME_THRESHOLD);
        };
        let packets = overhead.packet_threshold().max(self.packet_threshold);
        let rate = self.control.rate().unwrap_or(self.path.rate);
        let took = rate.serialisation(self.path.mtu) * packets;
        let part = took.as_secs_f32() / self.path.round_trip.as_secs_f32().max(0.001);
        (
            packets,
            (1.0 + part).clamp(TIME_THRESHOLD, TIME_THRESHOLD_MOST),
        )
    }

    fn transport(&self, maker: Arc<Maker>) -> TransportConfig {
        let payload = self.packet_payload();
        let (packets, time) = self.thresholds();
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(payload);
        let idle = VarInt::try_from(self.idle_timeout.as_millis().min(1 << 60) as u64);
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(self.limits.streams.into())
            .max_concurrent_uni_streams(ONE_WAY_STREAMS.into())
            .max_idle_timeout(idle.ok().map(IdleTimeout::from))
            .keep_alive_interval(self.keep_alive)
            .stream_receive_window(varint(self.path.stream_window()))
            .receive_window(varint(self.limits.memory))
            .send_window(self.limits.memory.0)
            .packet_threshold(packets)
            .time_threshold(time)
            .initial_rtt(self.path.round_trip / FIRST_PROBE_PART)
            .initial_mtu(payload)
            .mtu_discovery_config(Some(discovery))
            .datagram_receive_buffer_size(Some(DATAGRAMS_RECEIVED))
            .datagram_send_buffer_size(DATAGRAMS_HANDED)
            .congestion_controller_factory(maker);
        transport
    }

    /// The longest packet of QUIC: repairs are longer than what they protect.
    fn packet_payload(&self) -> u16 {
        let payload = self.path.datagram_payload();
        match self.fec {
            Some(_) => payload.saturating_sub(REPAIR_HEADER).max(LEAST_PAYLOAD),
            None => payload,
        }
    }

    fn endpoint(&self) -> EndpointConfig {
        // The same after a restart, so that peers of the process before learn at once that their connections are gone.
        let reset_key = self.identity.derived("stateless reset");
        let reset_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &reset_key);
        let mut config = EndpointConfig::new(Arc::new(reset_key));
        // A packet whose fixed bit is cleared may look like a frame of the layer below: peers are not asked for such (RFC 9287).
        config.grease_quic_bit(self.fec.is_none());
        match self.seed {
            Some(seed) => {
                let mut bytes = [0; 32];
                fill(&mut Stream::new(seed, "quic"), &mut bytes);
                config.rng_seed(Some(bytes));
                config.cid_generator(move || Box::new(SeededIds(Stream::new(seed, "quic.ids"))));
            }
            None => {
                config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(CID_LENGTH)));
            }
        }
        config
    }

    fn server(
        &self,
        crypto: QuicTls,
        transport: Arc<TransportConfig>,
        calendar: &Calendar,
    ) -> ServerConfig {
        let key = self.identity.derived("address validation");
        let key = ring::hkdf::Salt::new(ring::hkdf::HKDF_SHA256, &[]).extract(&key);
        let mut tokens = ValidationTokenConfig::default();
        tokens
            .lifetime(TOKEN_LIFETIME)
            .log(Arc::new(UsedTokens::default()))
            .sent(TOKENS);
        let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(key));
        config
            .transport_config(transport)
            .validation_token_config(tokens)
            .time_source(Arc::new(calendar.clone()))
            .max_incoming(self.limits.half_open.max(1));
        config
    }

    fn client(
        &self,
        crypto: QuicClientConfig,
        transport: Arc<TransportConfig>,
        held: Arc<HeldTickets>,
    ) -> ClientConfig {
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport).token_store(held);
        if let Some(seed) = self.seed {
            let ids = Mutex::new(SeededIds(Stream::new(seed, "quic.first ids")));
            config.initial_dst_cid_provider(Arc::new(move || {
                // Nothing panics midway, so what is poisoned is as good as any.
                let mut ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
                ids.generate_cid()
            }));
        }
        config
    }
}

pub(crate) fn varint(bytes: Bytes) -> VarInt {
    VarInt::from_u64(bytes.0).unwrap_or(VarInt::MAX)
}

fn fill(stream: &mut Stream, out: &mut [u8]) {
    for chunk in out.chunks_mut(8) {
        chunk.copy_from_slice(&stream.bits().to_le_bytes()[..chunk.len()]);
    }
}

/// Connection ids that follow from a seed.
struct SeededIds(Stream);

impl ConnectionIdGenerator for SeededIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut bytes = [0; CID_LENGTH];
        fill(&mut self.0, &mut bytes);
        ConnectionId::new(&bytes)
    }

    fn cid_len(&self) -> usize {
        CID_LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
