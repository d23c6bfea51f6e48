use crate::tcp::options_len;
use crate::{Flags, Payload, SackBlock, Tcp, TcpOptions, Timestamps};
use bentpipe_base::Seq;

/// One TCP segment, as endpoints and proxies speak of it: addresses and ports belong to whoever carries it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Number of the first payload byte, or of the SYN.
    pub seq: Seq,
    /// The byte expected next; means something with [`Flags::ACK`].
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// Room at the receiver, before scaling.
    pub window: u16,
    /// The timestamps option (RFC 7323).
    pub timestamps: Option<Timestamps>,
    /// The options that few segments carry; `None` where there are none.
    pub options: Option<Box<TcpOptions>>,
    /// The data.
    pub payload: Payload,
}

// The simulator moves segments by value.
const _: () = assert!(size_of::<Segment>() <= 48);

impl Segment {
    /// The segment of a header and its payload. The ports are not part of it, nor is the urgent pointer: who needs that
    /// sees [`Flags::URG`].
    pub fn of_header(tcp: Tcp, payload: Payload) -> Self {
        Self {
            seq: tcp.seq,
            ack: tcp.ack,
            flags: tcp.flags,
            window: tcp.window,
            timestamps: tcp.timestamps,
            options: tcp.options,
            payload,
        }
    }

    /// The header of this segment between two ports, and the payload behind it.
    pub fn into_header(self, source: u16, destination: u16) -> (Tcp, Payload) {
        let tcp = Tcp {
            source,
            destination,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: 0,
            timestamps: self.timestamps,
            options: self.options,
        };
        (tcp, self.payload)
    }

    /// Bytes of the TCP header, options and their padding included.
    #[inline]
    pub fn header_len(&self) -> usize {
        Tcp::BARE + options_len(self.timestamps, self.options.as_deref())
    }

    /// The SACK blocks, the latest first; a D-SACK block before them (RFC 2883).
    #[inline]
    pub fn sack(&self) -> &[SackBlock] {
        self.options.as_deref().map_or(&[], |options| &options.sack)
    }

    /// Whether it has nothing but what endpoints here speak: no option that is not typed, no urgent data.
    pub fn is_plain(&self) -> bool {
        is_plain(self.flags, self.options.as_deref())
    }
}

impl Tcp {
    /// As [`Segment::is_plain`], of a header.
    pub fn is_plain(&self) -> bool {
        is_plain(self.flags, self.options.as_deref())
    }

    /// As [`Segment::sack`], of a header.
    pub fn sack(&self) -> &[SackBlock] {
        self.options.as_deref().map_or(&[], |options| &options.sack)
    }
}

fn is_plain(flags: Flags, options: Option<&TcpOptions>) -> bool {
    let unknown = options.and_then(|options| options.unknown.as_ref());
    unknown.is_none() && !flags.contains(Flags::URG)
}
