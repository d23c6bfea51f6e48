//! How a gateway splits.

use bentpipe_gateway_config::Config;

/// The split of a gateway: one text that the real gateway is configured with, and what it says, by which the simulator
/// makes the gateway's image.
#[derive(Clone, Debug)]
pub struct Split {
    written: toml::Table,
    config: Config,
}

impl Split {
    /// What `written` says is `config`: both were read from the same place.
    pub(crate) const fn new(written: toml::Table, config: Config) -> Self {
        Self { written, config }
    }

    /// As it was written, to be handed to a gateway as it is.
    pub const fn written(&self) -> &toml::Table {
        &self.written
    }

    /// What it says.
    pub const fn config(&self) -> &Config {
        &self.config
    }
}

impl PartialEq for Split {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}
