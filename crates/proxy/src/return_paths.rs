//! Has servers dialled from clients' own addresses, where the configuration names networks of clients.

use crate::config::Config;
use bentpipe_interception::{InterceptError, Marks, ReturnPath};
use bentpipe_os::need::{Missing, Need};
use bentpipe_os::owner::OwnerError;
use bentpipe_os::sweep;
use bentpipe_tunnel_sockets::ClientAddresses;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Answers to dials from clients' addresses cannot be led here.
#[derive(Debug, Error)]
pub enum ReturnPathError {
    /// The kernel does not lead them.
    #[error(
        "cannot dial from clients' addresses: {0}; without `[[client]]` servers see the proxy's own"
    )]
    Kernel(#[from] InterceptError),
    /// The process may not.
    #[error("dials from clients' addresses (`[[client]]`): {0}")]
    Missing(#[from] Missing),
    /// Marks need this process's own name.
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

/// What leads the answers at present. Clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReturnPaths(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    marks: Option<Marks>,
    path: Option<ReturnPath>,
}

impl ReturnPaths {
    /// Leads the answers for the networks of `config` too from now on; gives what dials go by.
    ///
    /// # Errors
    /// [`ReturnPathError`]; then everything stays as it was.
    pub(crate) fn follow(&self, config: &Config) -> Result<ClientAddresses, ReturnPathError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if config.client_addresses.is_empty() {
            return Ok(ClientAddresses::default());
        }
        Need::NetAdmin.check()?;
        let marks = match state.marks {
            Some(marks) => marks,
            None => {
                for line in sweep::sweep().to_string().lines() {
                    tracing::info!("{line}");
                }
                Marks::of_this_process()?
            }
        };
        // What was led before is led on: flows that stand have such addresses.
        let mut led =
            { state.path.as_ref() }.map_or_else(Vec::new, |path| path.networks().to_vec());
        let before = led.len();
        for (_, network) in &config.client_addresses {
            if !led.contains(network) {
                led.push(*network);
            }
        }
        if led.len() > before {
            state.path = Some(ReturnPath::new(marks, led)?);
        }
        state.marks = Some(marks);
        Ok(ClientAddresses {
            networks: config.client_addresses.clone(),
            mark: marks.from_client(),
        })
    }

    /// Leads nothing any more.
    pub(crate) fn leave(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.path = None;
    }

    /// Makes again what others have removed; says whether there is anything to look after.
    pub(crate) fn look(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.path.as_mut().map(ReturnPath::restore) {
            None => return false,
            Some(Ok(false)) => {}
            Some(Ok(true)) => tracing::warn!(
                "somebody has removed what leads answers to clients' addresses here: it is made again"
            ),
            Some(Err(error)) => {
                tracing::warn!(%error, "answers to clients' addresses are not led here at present");
            }
        }
        true
    }
}
