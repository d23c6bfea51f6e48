//! Reads the configuration from its file, and puts its warnings into the log.

use bentpipe_base::read_text;
use bentpipe_config::Problems;
use bentpipe_gateway_config::{Config, Interface};
use std::fs::File;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {} ({source}): check the path and its permissions", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The file says something wrong; one line for each mistake.
    #[error(transparent)]
    Wrong(#[from] Problems),
}

/// Reads the configuration at `path`.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
    let path = path.as_ref();
    let text = File::open(path)
        .and_then(read_text)
        .map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
    Ok(Config::parse(&path.display().to_string(), &text)?)
}

/// Warns in the log of what in `config` will hardly do what was meant; its legs have these interfaces.
pub(crate) fn warn(config: &Config, interfaces: &[Vec<Interface>; 2]) {
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    for policy in &config.policies {
        let mut all = interfaces.iter().flatten();
        if policy.interfaces.is_empty() && !all.any(|interface| policy.includes(interface)) {
            tracing::warn!(
                "policy `{}` is never used: no interface of a leg is of its `vlan`",
                policy.name
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_file_says_which() {
        let error = load("/nonexistent/gw.toml").unwrap_err().to_string();
        assert!(error.contains("/nonexistent/gw.toml"), "{error}");
    }
}
