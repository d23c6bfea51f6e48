//! A gateway with its manager.

use super::{PATIENCE, Stage};
use bentpipe_gateway::protocol::{self, AskError, Request};
use bentpipe_gateway::{Config, ConfigSource, ControlSocket, Gateway, Handle, Manager, Shutdown};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// A gateway in this process with its manager, whose configuration is `text`, to be changed.
pub struct Managed {
    pub handle: Handle,
    pub text: Arc<Mutex<String>>,
    pub path: PathBuf,
    pub shutdown: Arc<Shutdown>,
    thread: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

pub const QUICK: &str = "[sat]\ncongestion_control = \"cubic\"\n";

pub fn parse(text: &str) -> Result<Config, String> {
    let config = Config::parse("gateway.toml", text).map_err(|problems| problems.to_string())?;
    Ok(config.between("lan0", "sat0"))
}

pub fn managed(stage: &Stage) -> Managed {
    managed_by(stage, QUICK)
}

pub fn managed_by(stage: &Stage, text: &'static str) -> Managed {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run/gateway.sock");
    start(stage, folder, (path, text), None)
}

pub fn start(
    stage: &Stage,
    folder: tempfile::TempDir,
    (path, first): (PathBuf, &'static str),
    predecessor: Option<&Path>,
) -> Managed {
    let text = Arc::new(Mutex::new(first.to_owned()));
    let shutdown = Arc::new(Shutdown::new().unwrap());
    let (ready, readied) = mpsc::channel();
    let source = {
        let (text, path) = (Arc::clone(&text), path.clone());
        ConfigSource::new(move || {
            let mut config = parse(&text.lock().unwrap())?;
            config.control = ControlSocket::At(path.clone());
            Ok(config)
        })
    };
    let predecessor = predecessor.map(Path::to_owned);
    let work = {
        let (shutdown, path) = (Arc::clone(&shutdown), path.clone());
        move || {
            let mut config = parse(first).unwrap();
            config.control = ControlSocket::At(path);
            let gateway = Gateway::start(&config).unwrap();
            let manager =
                Manager::start(&config, &gateway.handle(), &source, predecessor.as_deref())
                    .unwrap();
            ready.send(gateway.handle()).unwrap();
            gateway.run_until(&shutdown).unwrap();
            drop(manager);
        }
    };
    let thread = stage.gateway.run(|| std::thread::spawn(work)).unwrap();
    Managed {
        handle: readied.recv_timeout(PATIENCE).unwrap(),
        text,
        path,
        shutdown,
        thread: Some(thread),
        _folder: folder,
    }
}

impl Managed {
    pub fn ask(&self, request: &Request) -> Result<Value, AskError> {
        protocol::ask(&self.path, request)
    }

    pub fn status(&self) -> Value {
        // What was seen a moment ago is told again.
        std::thread::sleep(Duration::from_millis(210));
        self.ask(&Request::Status).unwrap()["status"].clone()
    }

    pub fn accepted(&self) -> u64 {
        self.handle.counters().accepted
    }

    /// Waits for the gateway to end by itself.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shutdown.request();
            self.shutdown.request();
            let result = thread.join();
            if !std::thread::panicking() {
                result.unwrap();
                assert!(!self.path.exists(), "the control socket is left behind");
            }
        }
    }
}
