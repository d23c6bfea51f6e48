//! The `split` of a gateway, in the gateway's own keys.

use bentpipe_gateway_config::Config;

/// The split of a gateway, twice: as the text that configures the real gateway, and parsed, for the simulator.
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
