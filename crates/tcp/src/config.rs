//! The configuration of an endpoint: what today's RFCs ask for by default, and other rules as named presets.

use crate::ecn::EcnMode;
use crate::ns2::{self, WireSize};
use crate::recovery;
use crate::scps::{LossCause, Outage, Scps};
use crate::variants::{self, UnknownVariant};
use bentpipe_base::{Bytes, Rate, TimerWheel};
use bentpipe_cc as cc;
use bentpipe_receiver::MAX_SCALE;
use bentpipe_wire::{Flags, Ipv4, Ipv6, Segment, Tcp};
use std::time::Duration;

/// Bytes of the timestamps option with its padding (RFC 7323, appendix A).
const TIMESTAMPS: u16 = 12;
/// The least window of SCPS-TP, in time at its rate: longer than the timers and schedulers of a busy host are late.
const SCPS_WINDOW_FLOOR: Duration = Duration::from_millis(100);

/// Configuration of one endpoint; connections share it behind an `Arc`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The congestion control, of [`cc::REGISTRY`].
    pub congestion: &'static cc::Algorithm,
    /// What the congestion control is told about the link.
    pub settings: cc::Settings,
    /// The loss recovery, of [`recovery::REGISTRY`].
    pub recovery: &'static recovery::Algorithm,
    /// The largest payload of a segment in bytes, at least 1, the timestamps option included where it is used (RFC
    /// 6691). The peer's MSS option may lower it.
    pub mss: u16,
    /// The smallest MSS option of a peer that is heeded, counted as [`Self::mss`] is; a smaller one counts as this.
    /// With 1 every option is heeded (RFC 9293, MUST-16). Hosts on real networks refuse tiny ones, which cost a packet
    /// for each byte (Linux `TCP_MIN_SND_MSS`: 48).
    pub least_peer_mss: u16,
    /// First congestion window, in segments (RFC 6928: 10).
    pub initial_window: u32,
    /// Duplicate acknowledgements that mean a loss (RFC 5681: 3).
    pub dupthresh: u32,
    /// The first duplicate acknowledgements each release a new segment (RFC 3042).
    pub limited_transmit: bool,
    /// An acknowledgement waits at most this long for the segment that makes [`Self::ack_every`]; zero: never waits.
    pub delayed_ack: Duration,
    /// Segments in order that one acknowledgement answers (RFC 5681, section 4.2: 2).
    pub ack_every: u32,
    /// So many acknowledgements at the start of the stream, and after data that arrived twice, do not wait, unless the
    /// data is answered (Linux `TCP_MAX_QUICKACKS`: 16); 0: all wait.
    pub quick_acks: u32,
    /// RTO before the first sample (RFC 6298: 1 s).
    pub initial_rto: Duration,
    /// Least RTO.
    pub min_rto: Duration,
    /// The granularity of the clock that times round trips (G of RFC 6298): a round trip and 4 RTTVAR count as one tick
    /// at least. Zero: a nanosecond.
    pub clock_granularity: Duration,
    /// The least that the term 4 RTTVAR adds to the RTO. Linux takes 200 ms (`TCP_RTO_MIN`), so that a steady round-trip
    /// time leaves room for a queue. Where it is not zero, RTTVAR and what is timed follow Linux, too (`rto.rs`).
    pub rto_variance: Duration,
    /// When timers expire: to the moment, or as Linux's.
    pub timers: TimerWheel,
    /// Greatest RTO, backed off.
    pub max_rto: Duration,
    /// Consecutive timeouts of one segment (or of a SYN) after which the connection is given up.
    pub max_retries: u32,
    /// A connection whose peer acknowledges nothing for so long is given up, in place of [`Self::max_retries`] (R2 of RFC 9293,
    /// section 3.8.3; Linux `TCP_USER_TIMEOUT`); whole milliseconds count.
    pub user_timeout: Option<Duration>,
    /// SACK blocks in an acknowledgement, 0 to 4; 0: SACK is not offered.
    pub sack_blocks: u8,
    /// Tells the peer by SACK of what arrived twice (RFC 2883), and takes a reduction of the window back where the peer
    /// tells so of all that was sent again (RFC 3708; Linux `tcp_try_undo_dsack`).
    pub dsack: bool,
    /// Recoveries that read SACK blocks find out whether a retransmission timeout was spurious (F-RTO, RFC 5682), and
    /// take back what it did.
    pub frto: bool,
    /// Such recoveries find out by timestamps that what they sent again had not been lost, and take the reduction of the window
    /// back (Eifel detection, RFC 3522; Linux `tcp_packet_delayed`).
    pub eifel: bool,
    /// Whether ECN is asked for or agreed to (RFC 3168).
    pub ecn: EcnMode,
    /// Asks the peer for a Fast Open cookie when it connects (RFC 7413), and sends data with the SYN where it has one.
    pub fast_open: bool,
    /// Speaks SCPS-TP with a peer that does (CCSDS 714.0-B-2); `None`: does not offer it.
    pub scps: Option<Scps>,
    /// What losses mean where nothing else tells.
    pub loss_cause: LossCause,
    /// After a silence the window is halved for each timeout of it, down to the initial one (RFC 2861; Linux), and not at once the
    /// initial one (RFC 5681, section 4.1).
    pub halves_when_idle: bool,
    /// SACK blocks of the latest arrivals alone, and of a FIN beyond a gap, as Linux's receivers send them.
    pub linux_sack: bool,
    /// When the link is taken for out; `None`: never.
    pub outage: Option<Outage>,
    /// Offers timestamps (RFC 7323).
    pub timestamps: bool,
    /// Offers window scaling (RFC 7323).
    pub window_scaling: bool,
    /// Holds a small segment back while data is in flight (RFC 9293, section 3.7.4).
    pub nagle: bool,
    /// By Nagle's rule a small segment waits only while another small one is in flight (Minshall's, which Linux has).
    pub minshall: bool,
    /// Payload is sent no faster than this, from the first segment on, whatever congestion control
    /// says; `None`: no ceiling.
    pub pacing: Option<Rate>,
    /// Probes a connection that was idle this long.
    pub keep_alive: Option<Duration>,
    /// Bytes that the receiver holds until the application takes them.
    pub receive_buffer: Bytes,
    /// Bytes that [`crate::Connection::write`] takes until they are acknowledged; virtual ones are
    /// not bounded.
    pub send_buffer: Bytes,
    /// How long TIME-WAIT lasts: twice the maximum segment lifetime.
    pub time_wait: Duration,
    /// Bytes of an IP header: 20 for IPv4, 40 for IPv6. It is ignored where [`ns2::WireSize::Fixed`] gives the sizes.
    pub ip_header: u16,
    /// The size of a SYN on the link in bytes, headers included, in place of its true size; `None` keeps the true size.
    pub syn_length: Option<u16>,
    /// Which calculations follow ns-2 in place of the RFCs, for comparison with it; none in the preset `rfc`.
    pub ns2: ns2::Quirks,
}

/// A named configuration.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// How scenarios call it.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Makes it.
    pub new: fn() -> Config,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "rfc",
        summary: "what the RFCs ask for today: window of 10, SACK, timestamps, window scaling",
        new: Config::rfc,
    },
    Preset {
        name: "ns2",
        summary: "as ns-2 2.35 reckons, for comparison with its figures; no handshake",
        new: Config::ns2,
    },
    Preset {
        name: "scps",
        summary: "SCPS-TP for a link of known rate: SNACK, rate control, losses are corruption",
        new: Config::scps,
    },
];

impl Default for Config {
    fn default() -> Self {
        Self::rfc()
    }
}

impl Config {
    /// What the RFCs ask for today: Reno's window with SACK recovery, window of 10 segments of
    /// 1460 bytes, timestamps and window scaling, delayed acknowledgements of 40 ms.
    pub fn rfc() -> Self {
        Self {
            congestion: cc::find("reno").expect("the registry has it, see the test"),
            settings: cc::Settings::default(),
            recovery: recovery::find("sack").expect("the registry has it, see the test"),
            mss: 1460,
            least_peer_mss: 1,
            initial_window: 10,
            dupthresh: 3,
            limited_transmit: true,
            delayed_ack: Duration::from_millis(40),
            ack_every: 2,
            quick_acks: 0,
            initial_rto: Duration::from_secs(1),
            min_rto: Duration::from_secs(1),
            clock_granularity: Duration::ZERO,
            rto_variance: Duration::ZERO,
            timers: TimerWheel::default(),
            max_rto: Duration::from_secs(60),
            max_retries: 15,
            user_timeout: None,
            sack_blocks: 4,
            dsack: false,
            frto: false,
            eifel: false,
            ecn: EcnMode::Off,
            fast_open: false,
            scps: None,
            loss_cause: LossCause::Congestion,
            halves_when_idle: false,
            linux_sack: false,
            outage: None,
            timestamps: true,
            window_scaling: true,
            nagle: true,
            minshall: false,
            pacing: None,
            keep_alive: None,
            receive_buffer: Bytes(4 << 20),
            send_buffer: Bytes(4 << 20),
            time_wait: Duration::from_secs(60),
            ip_header: Ipv4::BARE as u16,
            syn_length: None,
            ns2: ns2::Quirks::NONE,
        }
    }

    /// As Linux 6.x behaves with its default settings, as far as this endpoint can: CUBIC, RACK with tail loss probes,
    /// D-SACK, F-RTO and Eifel detection, ECN where the peer asks for it, quick acknowledgements, Minshall's form of Nagle's rule, a window that is halved for each timeout of silence, an RTO of at least 200 ms more than the round trip and at most 2 minutes (`TCP_RTO_MIN`,
    /// `TCP_RTO_MAX`), a receive buffer that needs a window scale of 8.
    pub fn linux() -> Self {
        Self {
            congestion: cc::find("cubic").expect("the registry has it, see the test"),
            recovery: recovery::find("rack-tlp").expect("the registry has it, see the test"),
            dsack: true,
            frto: true,
            eifel: true,
            ecn: EcnMode::Accept,
            quick_acks: 16,
            minshall: true,
            halves_when_idle: true,
            linux_sack: true,
            min_rto: Duration::from_millis(200),
            rto_variance: Duration::from_millis(200),
            max_rto: Duration::from_secs(120),
            receive_buffer: Bytes(15_000_000),
            ..Self::rfc()
        }
    }

    /// SCPS-TP (CCSDS 714.0-B-2) as on a link whose rate is known and whose losses are corruption: SNACK with SACK beside
    /// it, rate control without a guard, a link that is out found after two timeouts. Timers are those of the reference
    /// implementation, but for the first RTO (there 6 s), which is the one of RFC 6298, and Linux's least of 4 RTTVAR. There is no
    /// congestion window in pure rate control; here it bounds what a wrong rate can do.
    pub fn scps() -> Self {
        Self {
            congestion: cc::find("rate").expect("the registry has it, see the test"),
            settings: cc::Settings {
                link: cc::LinkParams::default().pure_rate(),
                window_floor: SCPS_WINDOW_FLOOR,
                ..cc::Settings::default()
            },
            recovery: recovery::find("snack").expect("the registry has it, see the test"),
            scps: Some(Scps::default()),
            loss_cause: LossCause::Corruption,
            outage: Some(Outage {
                timeouts: 2,
                probe_interval: Duration::from_millis(500),
                most: Duration::from_secs(3600),
            }),
            delayed_ack: Duration::from_millis(200),
            min_rto: Duration::from_millis(250),
            rto_variance: Duration::from_millis(200),
            max_rto: Duration::from_secs(64),
            least_peer_mss: 48,
            ..Self::rfc()
        }
    }

    /// Bytes that a segment with payload takes on the link besides the payload.
    pub fn data_header(&self) -> u32 {
        match self.ns2.wire_size {
            WireSize::True => u32::from(self.ip_header + Tcp::BARE as u16 + self.options()),
            WireSize::Fixed { data, .. } => data,
        }
    }

    /// Bytes that a segment with `payload` bytes takes of the link's rate: headers, and what the link adds.
    pub fn on_the_wire(&self, payload: u32) -> Bytes {
        Bytes(u64::from(self.data_header()) + u64::from(payload)) + self.settings.link.overhead
    }

    /// Bytes of the options that every segment carries, which are part of [`Self::mss`].
    pub const fn options(&self) -> u16 {
        if self.timestamps { TIMESTAMPS } else { 0 }
    }

    /// The segment size for a peer that sends no MSS option: 536 bytes over IPv4, 1220 over IPv6 (RFC 9293, section
    /// 3.7.1).
    pub const fn default_mss(&self) -> u16 {
        if self.ip_header >= Ipv6::BARE as u16 {
            1220
        } else {
            536
        }
    }

    /// Payload of a full segment between ends of this configuration and of `peer`.
    pub fn payload(&self, peer: &Self) -> Bytes {
        let options = self.options().min(peer.options());
        Bytes(self.mss.min(peer.mss).saturating_sub(options).into())
    }

    /// The shift of the window field that the whole receive buffer needs (RFC 7323).
    pub fn window_scale(&self) -> u8 {
        if !self.window_scaling {
            return 0;
        }
        (0..MAX_SCALE)
            .find(|shift| self.receive_buffer.0 >> shift <= 65_535)
            .unwrap_or(MAX_SCALE)
    }

    /// What the receiving half of a connection is told.
    pub(crate) fn receiver(&self) -> bentpipe_receiver::Settings {
        bentpipe_receiver::Settings {
            mss: self.mss,
            receive_buffer: self.receive_buffer,
            scale: self.window_scale(),
            delayed_ack: self.delayed_ack,
            timers: self.timers,
            ack_every: self.ack_every,
            quick_acks: self.quick_acks,
            acks_first_byte: self.ns2.first_is_syn,
            linux_sack: self.linux_sack,
            tells_duplicates: self.dsack && self.sack_blocks > 0,
        }
    }

    /// Bytes that `segment` takes on the link, IP and TCP headers included.
    #[inline]
    pub fn wire_len(&self, segment: &Segment) -> usize {
        if let Some(length) = self.syn_length
            && segment.flags.contains(Flags::SYN)
        {
            return length.into();
        }
        match self.ns2.wire_size {
            WireSize::True => {
                usize::from(self.ip_header) + segment.header_len() + segment.payload.len()
            }
            fixed => fixed.of(segment),
        }
    }

    /// This configuration with the congestion control and the recovery that the papers call `name`,
    /// of [`variants::VARIANTS`].
    pub fn variant(mut self, name: &str) -> Result<Self, UnknownVariant> {
        let variant = variants::find(name).ok_or_else(|| UnknownVariant::new(name))?;
        self.congestion = variant.congestion(self.ns2.recovery_rules, name)?;
        self.recovery = variant.recovery(self.ns2.recovery_rules, name)?;
        if let Some(adapt) = self.recovery.adapt {
            adapt(&mut self);
        }
        // A variant whose recovery does not read SACK blocks does not negotiate SACK, as in ns-2 and the papers.
        if self.recovery.without_sack.is_none() {
            self.sack_blocks = 0;
        }
        Ok(self)
    }
}
