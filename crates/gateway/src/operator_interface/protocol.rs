//! How a running gateway is asked by its control socket.

pub use bentpipe_management::control_protocol::{
    AskError as NoAnswer, LONGEST, ParseError, Request, parse,
};

use crate::config_file::ConfigError;
use bentpipe_management::control_protocol;
use serde_json::Value;
use std::path::Path;
use thiserror::Error;

/// A gateway did not answer, or answered no.
#[derive(Debug, Error)]
pub enum AskError {
    /// It did not answer, or answered no.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The configuration that is to say where it is cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no control socket, by its configuration.
    #[error(
        "`control` is \"off\" in this configuration: SIGHUP has the gateway read it again (`systemctl kill -s HUP bentpipe-gateway`)"
    )]
    Off,
}

/// Asks the gateway at `path`; gives its whole answer.
///
/// # Errors
/// See [`AskError`].
pub fn ask(path: &Path, request: &Request) -> Result<Value, AskError> {
    Ok(control_protocol::ask("gateway", path, request)?)
}

/// The same, at the control socket that the file `config` names, where one is given.
///
/// # Errors
/// See [`AskError`].
pub fn ask_by(control: &Path, config: Option<&Path>, request: &Request) -> Result<Value, AskError> {
    let Some(file) = config else {
        return ask(control, request);
    };
    let config = crate::load(file)?;
    ask(config.control.path().ok_or(AskError::Off)?, request)
}
