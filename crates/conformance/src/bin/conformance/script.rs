//! What a script says, as data.

/// Microseconds of script time.
pub(crate) type Micros = i64;

/// A whole script.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// `--name=value` lines.
    pub(crate) options: Vec<(String, String)>,
    pub(crate) events: Vec<Event>,
}

/// One thing that is done or expected.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Its line, from 1.
    pub(crate) line: usize,
    pub(crate) time: Time,
    pub(crate) action: Action,
}

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// Since the start of the script.
    At(Micros),
    /// Since the event before.
    After(Micros),
    /// Whenever it comes.
    Any,
    /// Between two times since the start.
    Between(Micros, Micros),
    /// Between two times since the event before.
    AfterBetween(Micros, Micros),
}

/// What.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// The stack gets a packet.
    Inbound(Packet),
    /// The stack sends a packet.
    Outbound(Packet),
    Call(Call),
    /// A shell command, which sets up the kernel. What it sets of TCP is heeded (`settings.rs`).
    Command(String),
    /// A block of code that asks the kernel about the socket.
    Code,
}

/// A packet.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Tcp(Tcp),
    /// An ICMP error: type and code, the next hop's MTU, and the numbers of the segment that it is about.
    Icmp {
        kind: u8,
        code: u8,
        mtu: u16,
        seq: u32,
        length: u32,
    },
}

/// The bits of the ECN field (RFC 3168).
pub(crate) const ECN_NAMES: [(&str, u8); 4] = [("noecn", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

/// A segment, with numbers as the script counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tcp {
    pub(crate) ecn: Option<u8>,
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) length: u32,
    pub(crate) ack: Option<u32>,
    pub(crate) window: Option<u16>,
    pub(crate) urgent: Option<u16>,
    /// `None`: whatever they are.
    pub(crate) options: Option<Vec<TcpOption>>,
}

/// The flags in the low octet of the header, and AE (RFC 9768) above them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u16);

/// Letters of flags, in the order in which they are written.
const LETTERS: [(char, u16); 9] = [
    ('S', 0x02),
    ('F', 0x01),
    ('R', 0x04),
    ('P', 0x08),
    ('U', 0x20),
    ('E', 0x40),
    ('W', 0x80),
    ('A', 0x100),
    ('.', 0x10),
];

impl Flags {
    pub(crate) const FIN: Self = Self(0x01);
    pub(crate) const SYN: Self = Self(0x02);
    pub(crate) const PSH: Self = Self(0x08);
    pub(crate) const ACK: Self = Self(0x10);
    pub(crate) const CWR: Self = Self(0x80);

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The flag of `letter`.
    pub(crate) fn of_letter(letter: char) -> Option<Self> {
        let found = LETTERS.iter().find(|(known, _)| *known == letter);
        found.map(|(_, bits)| Self(*bits))
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl core::fmt::Display for Flags {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut letters = LETTERS
            .iter()
            .filter(|(_, bits)| self.0 & bits != 0)
            .peekable();
        if letters.peek().is_none() {
            return f.write_str("-");
        }
        letters.try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

/// One TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TcpOption {
    Eol,
    Nop,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
    Timestamps { value: u32, echo: u32 },
    FastOpen(Cookie),
}

/// What the option of TCP Fast Open (RFC 7413) brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cookie {
    /// Nothing: it asks for a cookie.
    Request,
    /// `TFO_COOKIE`: the one that the stack under test gave.
    OfStack,
    Octets(Vec<u8>),
}

impl core::fmt::Display for TcpOption {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Eol => f.write_str("eol"),
            Self::Nop => f.write_str("nop"),
            Self::Mss(size) => write!(f, "mss {size}"),
            Self::WindowScale(shift) => write!(f, "wscale {shift}"),
            Self::SackPermitted => f.write_str("sackOK"),
            Self::Sack(blocks) => {
                f.write_str("sack")?;
                blocks.iter().try_for_each(|(a, b)| write!(f, " {a}:{b}"))
            }
            Self::Timestamps { value, echo } => write!(f, "TS val {value} ecr {echo}"),
            Self::FastOpen(Cookie::Request) => f.write_str("FO"),
            Self::FastOpen(Cookie::OfStack) => f.write_str("FO TFO_COOKIE"),
            Self::FastOpen(Cookie::Octets(octets)) => {
                f.write_str("FO ")?;
                octets.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
            }
        }
    }
}

/// A system call and what it shall come to.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: Vec<Value>,
    pub(crate) result: Expected,
    /// It blocks, and returns then: since the event before, or since the start of the script.
    pub(crate) end: Option<Time>,
}

/// What a call returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Anything,
    Value(i64),
    /// -1, and this `errno`.
    Error(String),
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// `...`: something that does what it should.
    Whatever,
    Number(i64),
    Text(String),
    List(Vec<Value>),
    /// `{name=value, ...}`; entries without a name have an empty one.
    Record(Vec<(String, Value)>),
}
