//! Watches the legs of split flows: every 100 ms it records the state of each gateway's TCP towards each flow's
//! receiver.

use crate::flow::SAMPLE;
use bentpipe_base::Instant;
use bentpipe_os::diag::{Diag, States};
use bentpipe_sockets::tcp::Info;
use bentpipe_sockets::timer;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What a flow looks like at a gateway: connections to `receiver` that have `port` on either side.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) port: u16,
    pub(crate) receiver: Vec<IpAddr>,
}

/// One look at one leg.
pub(crate) struct Look {
    pub(crate) gateway: String,
    /// Index of the flow.
    pub(crate) flow: usize,
    pub(crate) at: Instant,
    pub(crate) info: Info,
}

/// The last look at each leg, for who watches the run: by flow and gateway.
#[derive(Clone, Default)]
pub(crate) struct Latest(Arc<Mutex<BTreeMap<(usize, String), Info>>>);

impl Latest {
    /// The TCP by which the gateway of that name sends the flow of that index on, as it was seen last.
    pub(crate) fn of(&self, flow: usize, gateway: &str) -> Option<Info> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&(flow, gateway.to_owned())).copied()
    }

    fn note(&self, looks: &[Look]) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for look in looks {
            seen.insert((look.flow, look.gateway.clone()), look.info);
        }
    }
}

/// A thread that looks; ends with the value, for its sockets keep the gateways' namespaces alive.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    latest: Latest,
    thread: Option<JoinHandle<Vec<Look>>>,
}

impl Watch {
    /// Starts looking through `gateways` for the flows `traces`.
    pub(crate) fn start(
        mut gateways: Vec<(String, Diag)>,
        traces: Vec<Trace>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let latest = Latest::default();
        let noted = latest.clone();
        let thread = std::thread::Builder::new()
            .name("legs".to_owned())
            .spawn(move || {
                let mut looks = Vec::new();
                while !gateways.is_empty() && !stopped.load(Ordering::Relaxed) {
                    let before = looks.len();
                    for (name, diag) in &mut gateways {
                        look(name, diag, &traces, &mut looks);
                    }
                    noted.note(&looks[before..]);
                    std::thread::sleep(SAMPLE);
                }
                looks
            })?;
        let thread = Some(thread);
        Ok(Self {
            stop,
            latest,
            thread,
        })
    }

    /// What is seen while it goes on.
    pub(crate) fn latest(&self) -> Latest {
        self.latest.clone()
    }

    /// All that was seen.
    pub(crate) fn stop(mut self) -> Vec<Look> {
        self.end()
    }

    fn end(&mut self) -> Vec<Look> {
        self.stop.store(true, Ordering::Relaxed);
        let looks = self.thread.take().map(JoinHandle::join);
        looks.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

fn look(gateway: &str, diag: &mut Diag, traces: &[Trace], looks: &mut Vec<Look>) {
    // A failed look only leaves a gap in the samples.
    let Ok(connections) = diag.connections(States::CARRYING) else {
        return;
    };
    let at = timer::now();
    // One that only waits for its last acknowledgement has nothing more to tell.
    let telling = connections.into_iter().filter(|seen| seen.info.mss.0 > 0);
    for connection in telling {
        let ports = [connection.local.port(), connection.peer.port()];
        let flow = traces.iter().position(|trace| {
            ports.contains(&trace.port) && trace.receiver.contains(&connection.peer.ip())
        });
        looks.extend(flow.map(|flow| Look {
            gateway: gateway.to_owned(),
            flow,
            at,
            info: connection.info,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a run that fails or is cancelled: nobody asks for what was seen.
    #[test]
    fn a_watch_that_is_dropped_ends() {
        let gateway = ("gateway".to_owned(), Diag::open().unwrap());
        let watch = Watch::start(vec![gateway], Vec::new()).unwrap();
        let stop = Arc::clone(&watch.stop);
        assert_eq!(
            Arc::strong_count(&stop),
            3,
            "ours, the watch's, its thread's"
        );
        drop(watch);
        assert_eq!(Arc::strong_count(&stop), 1);
    }
}
