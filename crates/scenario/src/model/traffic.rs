//! Cross traffic, with which the scenario's flows share links.

use super::{Amount, Flow, FlowKind};
use bentpipe_base::Bytes;
use bentpipe_traffic::{Direction, Model, Profile, ProfileError};
use core::time::Duration;
use thiserror::Error;

/// Transfers between two hosts, one after another in each of a number of flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// What is sent.
    pub source: TrafficSource,
    /// The two hosts; the first sends forward, the second in reverse.
    pub between: [String; 2],
    /// A TCP of the papers by name; default as of the flows of these hosts.
    pub variant: Option<String>,
}

/// Where the first transfers come from.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficSource {
    /// They are drawn from a model by the run's seed.
    Model {
        /// The model.
        model: Model,
        /// How many flows there are.
        flows: usize,
    },
    /// They stand in a file; those that follow are drawn by the run's seed.
    Profile {
        /// Its path as the scenario gives it.
        file: String,
        /// What it holds, once it was read ([`Traffic::load`]).
        profile: Option<Profile>,
    },
}

/// The file of a traffic profile that nobody has read, as the scenario gives it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the traffic profile `{0}` was not read")]
pub struct UnreadProfile(pub String);

impl Traffic {
    /// Takes `text` for the content of the profile, if that is the source; `length` is that of the
    /// run.
    ///
    /// # Errors
    /// What is wrong with the profile, or with it in such a run.
    pub fn load(&mut self, text: &str, length: Duration) -> Result<(), ProfileError> {
        if let TrafficSource::Profile { file, profile } = &mut self.source {
            let read = Profile::parse(file, text)?;
            read.fits(file, length)?;
            *profile = Some(read);
        }
        Ok(())
    }

    /// The file to [`Self::load`], if any.
    pub fn file(&self) -> Option<&str> {
        match &self.source {
            TrafficSource::Profile { file, .. } => Some(file),
            TrafficSource::Model { .. } => None,
        }
    }

    /// A flow called `name` that goes that way; start and amount are those of no transfer yet.
    pub fn flow(&self, name: &str, direction: Direction) -> Flow {
        let [first, second] = &self.between;
        let (from, to) = match direction {
            Direction::Forward => (first, second),
            Direction::Reverse => (second, first),
        };
        Flow {
            name: name.to_owned(),
            kind: FlowKind::Bulk,
            app: None,
            from: from.clone(),
            to: to.clone(),
            opened_by: from.clone(),
            start: Duration::ZERO,
            amount: Amount::Bytes(Bytes(0)),
            congestion_control: None,
            variant: self.variant.clone(),
            path_rate: None,
        }
    }

    /// The first transfers in a run with `seed`.
    ///
    /// # Errors
    /// The profile stands in a file that was not read yet ([`Self::load`]).
    pub fn profile(&self, seed: u64) -> Result<Profile, UnreadProfile> {
        match &self.source {
            TrafficSource::Model { model, flows } => Ok(Profile::draw(*model, *flows, seed)),
            TrafficSource::Profile { file, profile } => {
                profile.clone().ok_or_else(|| UnreadProfile(file.clone()))
            }
        }
    }
}
