use super::{Channel, Fate};
use bentpipe_base::{Instant, Stream};

/// The channels of one direction, each with its own stream.
///
/// Every channel draws for every packet, also for one that another already struck: so a channel's
/// draws follow from the packet's number alone, and putting a second channel beside the first does
/// not move them.
pub(crate) struct Stack {
    seed: u64,
    name: String,
    placed: Vec<Placed>,
    /// When the run began, if it has.
    began: Option<Instant>,
    /// Streams of channels taken off: one that is put back draws on where it stopped.
    idle: Vec<(String, Stream)>,
}

/// A channel with its stream.
struct Placed {
    channel: Box<dyn Channel>,
    key: String,
    draw: Stream,
}

impl Stack {
    pub(crate) fn new(seed: u64, name: &str, channels: Vec<Box<dyn Channel>>) -> Self {
        let mut stack = Self {
            seed,
            name: name.to_owned(),
            placed: Vec::new(),
            began: None,
            idle: Vec::new(),
        };
        stack.replace(channels);
        stack
    }

    /// Whether there is none.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// The run begins at `at`.
    pub(crate) fn begin(&mut self, at: Instant) {
        self.began = Some(at);
        self.placed.iter_mut().for_each(|own| own.channel.begin(at));
    }

    /// Puts `channels` in the place of the present ones. One of a name that is or was here draws on
    /// from the same stream.
    pub(crate) fn replace(&mut self, channels: Vec<Box<dyn Channel>>) {
        let old = self.placed.drain(..).map(|own| (own.key, own.draw));
        self.idle.extend(old);
        for mut channel in channels {
            if let Some(at) = self.began {
                channel.begin(at);
            }
            let same = |own: &&Placed| own.channel.name() == channel.name();
            let nth = self.placed.iter().filter(same).count();
            let key = format!("{}.channel.{}.{nth}", self.name, channel.name());
            let draw = match self.idle.iter().position(|(idle, _)| *idle == key) {
                Some(index) => self.idle.swap_remove(index).1,
                None => Stream::new(self.seed, &key),
            };
            self.placed.push(Placed { channel, key, draw });
        }
    }

    /// The worst that any channel does to the next packet.
    #[inline]
    pub(crate) fn strike(&mut self, bits: u64, now: Instant) -> Fate {
        self.placed.iter_mut().fold(Fate::Deliver, |worst, own| {
            worst.max(own.channel.strike(bits, now, &mut own.draw))
        })
    }
}
