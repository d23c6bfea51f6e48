use crate::{Direction, Length, Settings};
use bentpipe_base::{Instant, Machine, Observer, Silent};
use core::convert::Infallible;

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The first.
    A,
    /// The second.
    B,
}

impl End {
    /// The other one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// A link of two directions that know nothing of each other. What enters at one end leaves at the
/// other.
pub struct Link<P, O = Silent> {
    from_a: Direction<P, O>,
    from_b: Direction<P, O>,
}

impl<P: Send, O: Observer> Link<P, O> {
    /// The link called `name`; its directions are called `name.a-b` and `name.b-a`.
    /// `from_a` describes what A sends, `from_b` what B sends.
    pub fn new(
        (from_a, observer_a): (Settings<P>, O),
        (from_b, observer_b): (Settings<P>, O),
        seed: u64,
        name: &str,
    ) -> Self {
        Self {
            from_a: Direction::new(from_a, seed, &format!("{name}.a-b"), observer_a),
            from_b: Direction::new(from_b, seed, &format!("{name}.b-a"), observer_b),
        }
    }

    /// The run begins at `at` ([`Direction::begin`]).
    pub fn begin(&mut self, at: Instant) {
        self.from_a.begin(at);
        self.from_b.begin(at);
    }

    /// Its two directions, that of what A sends first.
    pub fn into_directions(self) -> [Direction<P, O>; 2] {
        [self.from_a, self.from_b]
    }

    /// The direction of what is sent at `end`.
    pub const fn from(&self, end: End) -> &Direction<P, O> {
        match end {
            End::A => &self.from_a,
            End::B => &self.from_b,
        }
    }

    /// The direction of what is sent at `end`, to be changed.
    pub const fn from_mut(&mut self, end: End) -> &mut Direction<P, O> {
        match end {
            End::A => &mut self.from_a,
            End::B => &mut self.from_b,
        }
    }

    /// The next packet that arrives by `now`: the end it arrives at, when, and the packet.
    /// Earliest first; of two that arrive together, the one that A sent.
    pub fn deliver(&mut self, now: Instant) -> Option<(End, Instant, P)> {
        // First make up for departures: then the head of each ring is its next arrival.
        self.from_a.advance(now);
        self.from_b.advance(now);
        let a_first = match (self.from_a.deadline(), self.from_b.deadline()) {
            (Some(a), Some(b)) => a <= b,
            (_, b) => b.is_none(),
        };
        let order = if a_first {
            [End::A, End::B]
        } else {
            [End::B, End::A]
        };
        order.into_iter().find_map(|end| {
            let (arrival, packet) = self.from_mut(end).deliver(now)?;
            Some((end.opposite(), arrival, packet))
        })
    }
}

impl<P: Length + Send, O: Observer> Machine for Link<P, O> {
    type Packet = P;
    type Port = End;
    type Event = Infallible;

    fn input(&mut self, port: End, packet: P, now: Instant) {
        let len = packet.length();
        self.from_mut(port).push(packet, len, now);
    }

    fn timeout(&mut self, now: Instant) {
        self.from_a.advance(now);
        self.from_b.advance(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<(End, P)> {
        self.deliver(now).map(|(end, _, packet)| (end, packet))
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        match (self.from_a.deadline(), self.from_b.deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
