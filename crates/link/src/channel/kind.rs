//! The trait by which each channel's file declares its name, its keys in scenarios, and how it is made.

use super::Channel;
use crate::keys::{Fault, Key, Otherwise, Values};
use bentpipe_base::Bytes;

/// How a channel is written among the keys of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As the bare value of its only key, which has its name: `bit_error_rate = "1e-6"`. At its default there is
    /// no such channel.
    Bare,
    /// As a table of its keys, `gilbert = { … }`; "none" says that there is no such channel.
    Table,
    /// As an array of tables, each a channel by itself: `outage = [{ … }, { … }]`.
    List,
}

/// A kind of channel, as its file declares it.
pub trait ChannelKind: Channel + Sized + 'static {
    /// As documentation names it; part of the name of its stream of chance.
    const NAME: &'static str;
    /// One line about it.
    const SUMMARY: &'static str;
    /// The key of a link under which scenarios have it, and by which `bentpipe list` names it.
    const KEY: &'static str;
    /// How it stands there.
    const FORM: Form;
    /// Its keys: several sets where there are several ways to describe it, of which one is taken.
    const WAYS: &'static [&'static [Key]];

    /// What is wrong with a channel of these `values`.
    fn faults(_values: &Values) -> Vec<Fault> {
        Vec::new()
    }

    /// The share of packets of `size`, framing included, that pass it in the long run; 1 where its losses are not
    /// random.
    fn passes(_values: &Values, _size: Bytes) -> f64 {
        1.0
    }

    /// The channel.
    ///
    /// # Errors
    /// Values that [`faults`](Self::faults) would have refused.
    fn build(values: &Values) -> Result<Self, Fault>;
}

/// The entry of one kind of channel.
#[derive(Clone, Copy, Debug)]
pub struct ChannelSpec {
    /// As documentation names it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The key of a link under which scenarios have it, and by which `bentpipe list` names it.
    pub key: &'static str,
    /// How it stands there.
    pub form: Form,
    /// Its keys: several sets where there are several ways to describe it.
    pub ways: &'static [&'static [Key]],
    /// What is wrong with a channel of such values.
    pub faults: fn(&Values) -> Vec<Fault>,
    /// The share of packets of such a size, framing included, that pass it in the long run.
    pub passes: fn(&Values, Bytes) -> f64,
    /// The channel of such values.
    pub build: fn(&Values) -> Result<Box<dyn Channel>, Fault>,
}

impl PartialEq for ChannelSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl ChannelSpec {
    /// The entry of the kind `K`.
    pub(super) const fn of<K: ChannelKind>() -> Self {
        Self {
            name: K::NAME,
            summary: K::SUMMARY,
            key: K::KEY,
            form: K::FORM,
            ways: K::WAYS,
            faults: K::faults,
            passes: K::passes,
            build: |values| Ok(Box::new(K::build(values)?)),
        }
    }

    /// Whether `values` are those of no channel at all: a bare value at its default.
    pub fn is_none(&self, values: &Values) -> bool {
        let default = |key: &Key| {
            key.otherwise == Otherwise::Example && values.get(key.name) == Some(&(key.example)())
        };
        self.form == Form::Bare && self.ways.concat().iter().all(default)
    }
}
