//! The channels of a link direction, as a scenario gives them.

use bentpipe_base::{Bytes, Probability};
use bentpipe_link::channel::{ChannelSpec, REGISTRY, find};
use bentpipe_link::keys::{Fault, Value, Values};

/// One channel: a kind of the link's [registry](REGISTRY), and the values of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    spec: &'static ChannelSpec,
    values: Values,
}

impl Channel {
    /// The channel that stands under `key` of a link, whose own keys are as in `said`; what is not said there has its
    /// default. A bare value is said under `key` itself.
    ///
    /// # Errors
    /// What is wrong with it, or that there is no such channel, or no such key, or that one lacks.
    pub fn new(key: &str, said: &[(&'static str, Value)]) -> Result<Self, Fault> {
        let spec = find(key).ok_or_else(|| Fault {
            key: "",
            what: format!("unknown channel `{key}`"),
            expected: "a key of a link that is a channel".to_owned(),
        })?;
        let ways = spec.ways.iter().map(|keys| Values::complete(keys, said));
        // If no set of keys fits, the problem is that of the last set.
        let values = ways
            .reduce(|earlier, later| earlier.or(later))
            .expect("every kind has a way, see the test")?;
        match (spec.faults)(&values).into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(Self::of(spec, values)),
        }
    }

    /// A channel whose values were checked when they were read.
    pub(crate) const fn of(spec: &'static ChannelSpec, values: Values) -> Self {
        Self { spec, values }
    }

    /// Its kind.
    pub const fn spec(&self) -> &'static ChannelSpec {
        self.spec
    }

    /// What its keys are.
    pub const fn values(&self) -> &Values {
        &self.values
    }

    /// The share of packets of `size`, framing included, that pass it in the long run.
    pub fn passes(&self, size: Bytes) -> f64 {
        (self.spec.passes)(&self.values, size)
    }
}

/// The channels of one direction, in the order of the registry. Default none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Channels(Vec<Channel>);

impl Channels {
    /// Puts `channel` behind those of its kind; a bare value that is no channel changes nothing.
    pub fn add(&mut self, channel: Channel) {
        if channel.spec.is_none(&channel.values) {
            return;
        }
        let place = |one: &Channel| REGISTRY.iter().position(|spec| spec == one.spec);
        let behind = self.0.partition_point(|one| place(one) <= place(&channel));
        self.0.insert(behind, channel);
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.0.iter()
    }

    /// The probability that the bare value `key` of the link is; 0 where it is not said.
    pub fn chance(&self, key: &str) -> Probability {
        let values = self.under(key).next();
        values.map_or_else(Probability::default, |values| values.chance(key))
    }

    /// What is said of the channels that stand under `key` of a link.
    pub fn under(&self, key: &str) -> impl Iterator<Item = &Values> {
        let these = self.0.iter().filter(move |one| one.spec.key == key);
        these.map(Channel::values)
    }
}

impl FromIterator<Channel> for Channels {
    fn from_iter<T: IntoIterator<Item = Channel>>(channels: T) -> Self {
        let mut all = Self::default();
        channels.into_iter().for_each(|channel| all.add(channel));
        all
    }
}
