//! The congestion controls that a run's senders use: found with the kernel, or loaded into it.

use crate::LabError;
use bentpipe_bpf::{ConfigureError, HYBLA, LinkParams, RATE, available, is_ours, kernel_name};
use bentpipe_config::nearest;
use bentpipe_sockets::{socket, tcp};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Marks of the lab's own senders begin here, beyond those that the gateway gives out.
const FIRST_MARK: u32 = 0x6c61_0000;

/// `bentpipe_hybla` and `bentpipe_rate` in this process: loaded when a run first asks for one of
/// them, held until the last value of this type is dropped. Whoever makes several runs keeps one
/// meanwhile, so that the kernel checks the programs once.
#[derive(Clone, Debug, Default)]
pub struct Controls(Arc<Mutex<Option<bentpipe_bpf::Controls>>>);

impl Controls {
    /// Makes sure that the kernel has the control `name`, which `user` wants.
    pub(crate) fn ensure(&self, name: &str, user: &str) -> Result<(), LabError> {
        let error = |why: String| {
            let offered = available();
            let names = offered.iter().map(String::as_str).chain([HYBLA, RATE]);
            LabError::Control {
                user: user.to_owned(),
                name: name.to_owned(),
                why,
                suggestion: nearest(name, names).map(str::to_owned),
                offered: offered.join(", "),
            }
        };
        if is_ours(name) {
            self.load().map_err(|e| error(e.to_string()))?;
        }
        // The kernel loads a module that has the name, if there is one.
        probe(name).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => error("the kernel knows no such name".to_owned()),
            _ => error(e.to_string()),
        })
    }

    fn load(&self) -> Result<(), bentpipe_bpf::LoadError> {
        let mut controls = self.lock();
        if controls.is_none() {
            *controls = Some(bentpipe_bpf::Controls::load()?);
        }
        Ok(())
    }

    /// A mark for sockets that share a link of `params`.
    pub(crate) fn mark(&self, params: &LinkParams) -> Result<Mark, ConfigureError> {
        // Runs side by side in this process must not meet on a mark.
        static NEXT: AtomicU32 = AtomicU32::new(FIRST_MARK);
        let mark = NEXT.fetch_add(1, Ordering::Relaxed);
        if let Some(controls) = self.lock().as_mut() {
            controls.configure(mark, params)?;
        }
        let controls = self.clone();
        Ok(Mark { mark, controls })
    }

    fn lock(&self) -> MutexGuard<'_, Option<bentpipe_bpf::Controls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn probe(name: &str) -> io::Result<()> {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    tcp::set_congestion(socket::stream(any)?, kernel_name(name))
}

/// A socket mark that stands for a link; the kernel forgets it when this is dropped.
pub(crate) struct Mark {
    mark: u32,
    controls: Controls,
}

impl Mark {
    pub(crate) fn value(&self) -> u32 {
        self.mark
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(controls) = self.controls.lock().as_mut() {
            controls.forget(self.mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_kernel_has_is_refused_with_the_nearest() {
        let error = Controls::default()
            .ensure("rena", "flow `a`")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("flow `a`") && error.contains("`rena`"),
            "{error}"
        );
        assert!(error.contains("did you mean `reno`?"), "{error}");
        Controls::default().ensure("reno", "flow `a`").unwrap();
    }
}
