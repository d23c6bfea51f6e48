//! The two ends of legs that QUIC carries: keys made for the run, and what each end is told of the other.

use crate::LabError;
use bentpipe_os::folder::Folder;
use bentpipe_plan::quic::{self, Pair};
use bentpipe_scenario::{Ip, Scenario};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use toml::{Table, Value};

/// All ends of a scenario.
pub(crate) struct Ends<'s> {
    pairs: Vec<Pair<'s>>,
    keys: BTreeMap<&'s str, Key>,
    ip: Ip,
    /// Holds the secret keys.
    _folder: Option<Folder>,
}

/// The key of one end.
struct Key {
    file: PathBuf,
    public: String,
}

impl<'s> Ends<'s> {
    /// Makes the keys of the ends of `scenario` by `program`.
    pub(crate) fn new(scenario: &'s Scenario, program: &Path) -> Result<Self, LabError> {
        let ends: Vec<&str> = { scenario.gateways.keys() }
            .map(String::as_str)
            .filter(|name| quic::end(scenario, name).is_some())
            .collect();
        let mut keys = BTreeMap::new();
        let mut held = None;
        if let Some(first) = ends.first() {
            let folder = Folder::create("keys").map_err(|error| LabError::Gateway {
                gateway: (*first).to_owned(),
                what: format!("has no folder for its keys ({error})"),
                stderr: String::new(),
            })?;
            for name in ends {
                keys.insert(name, Key::make(name, folder.path().join(name), program)?);
            }
            held = Some(folder);
        }
        Ok(Self {
            pairs: quic::pairs(scenario),
            keys,
            ip: scenario.ip,
            _folder: held,
        })
    }

    /// Whether the gateway called `name` has a far end.
    pub(crate) fn is_near(&self, name: &str) -> bool {
        self.pairs.iter().any(|pair| pair.near == name)
    }

    /// The configuration of the gateway called `name`, which is `split` but for its far end, where it has one.
    pub(crate) fn near(&self, name: &str, mut split: Table) -> Table {
        let pair = self.pairs.iter().find(|pair| pair.near == name);
        if let Some(pair) = pair
            && let Some(Value::Table(leg)) = split.get_mut("sat")
        {
            leg.insert("proxy".to_owned(), pair.listens.to_string().into());
            let file = self.keys[name].file.display().to_string();
            leg.insert("identity".to_owned(), file.into());
            let peer = self.keys[pair.far].public.clone();
            leg.insert("peer_key".to_owned(), peer.into());
        }
        split
    }

    /// The configuration of the proxy in the place of the gateway called `name`, whose own keys are `split`; `None` where that is no
    /// far end.
    pub(crate) fn far(&self, name: &str, split: &Table) -> Option<Table> {
        let key = self.keys.get(name).filter(|_| !self.is_near(name))?;
        let near = self.pairs.iter().filter(|pair| pair.far == name);
        let clients = near.map(|pair| self.keys[pair.near].public.clone());
        quic::proxy(
            split,
            self.ip,
            &key.file.display().to_string(),
            clients.collect(),
        )
    }
}

impl Key {
    fn make(name: &str, file: PathBuf, program: &Path) -> Result<Self, LabError> {
        let failed = |what: String, stderr: &[u8]| LabError::Gateway {
            gateway: name.to_owned(),
            what,
            stderr: String::from_utf8_lossy(stderr).into_owned(),
        };
        let mut command = Command::new(program);
        let made = command.args(["proxy", "keys"]).arg(&file).output();
        let made = made.map_err(|e| {
            failed(
                format!("cannot have {} make keys ({e})", program.display()),
                &[],
            )
        })?;
        if !made.status.success() {
            return Err(failed(
                format!("has no key ({})", made.status),
                &made.stderr,
            ));
        }
        let public = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        Ok(Self { file, public })
    }
}
