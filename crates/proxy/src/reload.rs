//! What may change in a running proxy.

use crate::config::Config;
use crate::return_paths::ReturnPaths;
use crate::server::policy;
use bentpipe_quic::Identity;
use bentpipe_tunnel_sockets::{Far, Handle};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Reads the configuration again, and has the proxy go by it.
#[derive(Clone, Debug)]
pub(crate) struct Reloader {
    file: PathBuf,
    handle: Handle,
    identity: Identity,
    current: Arc<Mutex<(Config, Far)>>,
    return_paths: ReturnPaths,
}

/// The keys that differ and take a restart.
fn fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    let changed = [
        ("`listen`", old.listen != new.listen),
        ("`identity`", old.identity != new.identity),
        ("`control`", old.control != new.control),
        ("`metrics`", old.metrics != new.metrics),
        ("`[link]`", old.link != new.link),
        (
            "`connections`",
            old.limits.connections != new.limits.connections,
        ),
        ("`buffered`", old.limits.buffered != new.limits.buffered),
    ];
    { changed.into_iter() }
        .filter(|(_, changed)| *changed)
        .map(|(key, _)| key)
        .collect()
}

impl Reloader {
    pub(crate) fn new(
        file: PathBuf,
        handle: Handle,
        identity: Identity,
        config: Config,
        far: Far,
        return_paths: ReturnPaths,
    ) -> Self {
        Self {
            file,
            handle,
            identity,
            current: Arc::new(Mutex::new((config, far))),
            return_paths,
        }
    }

    /// How long an ordinary end waits.
    pub(crate) fn drain(&self) -> Duration {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.0.drain
    }

    /// Reads it again. Policies, clients, certificates and limits of a client change for new tunnels; clients who are not among them any more are
    /// cut off.
    ///
    /// # Errors
    /// In words, which are in the log too; everything stays as it was.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let result = self.try_reload();
        match &result {
            Ok(()) => tracing::info!("reloaded: new tunnels go by the new configuration"),
            Err(error) => tracing::error!("not reloaded, everything stays as it was: {error}"),
        }
        result
    }

    fn try_reload(&self) -> Result<(), String> {
        let new = Config::load(&self.file).map_err(|error| error.to_string())?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let fixed = fixed(&current.0, &new);
        if !fixed.is_empty() {
            let keys = fixed.join(", ");
            return Err(format!(
                "{keys} cannot change in a running proxy: start it again"
            ));
        }
        let policy = policy(&new).map_err(|error| error.to_string())?;
        // They are read again even where their names are the old ones: certificates are renewed.
        let certificates = { new.certificates.as_ref() }
            .map(|files| files.read(&self.identity))
            .transpose()
            .map_err(|error| error.to_string())?;
        let client_addresses =
            { self.return_paths.follow(&new) }.map_err(|error| error.to_string())?;
        let far = Far {
            policy,
            dial_timeout: new.limits.dial,
            client: new.limits.client,
            idle: new.limits.idle,
            udp_idle: new.limits.udp_idle,
            templates: current.1.templates.clone(),
            client_addresses,
        };
        self.handle.serve(far.clone());
        self.handle.trust(new.clients.clone(), certificates);
        *current = (new, far);
        Ok(())
    }

    /// Makes again what leads answers to clients' addresses here, where others have removed it; says whether there is anything to look after.
    pub(crate) fn look_at_paths(&self) -> bool {
        self.return_paths.look()
    }

    /// Removes what leads answers to clients' addresses here, at the end of the last flow.
    pub(crate) fn leave_paths(&self) {
        self.return_paths.leave();
    }

    /// Looks for the addresses of this host again, which policies keep closed.
    pub(crate) fn look_at_addresses(&self) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match policy(&current.0) {
            Ok(policy) if policy != current.1.policy => {
                current.1.policy = policy;
                self.handle.serve(current.1.clone());
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("the proxy keeps the addresses that it knows: {error}"),
        }
    }
}
