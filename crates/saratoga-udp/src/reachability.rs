//! What the network tells of peers by ICMP errors, and which errors of a socket pass.

use bentpipe_base::Instant;
use bentpipe_sockets::timer;
use bentpipe_sockets::udp::Received;
use core::time::Duration;
use std::io;

/// What the server's host has said of its port being closed (ICMP, which the kernel checks against what was
/// sent). A server that is just being started is no reason to give up: a second refusal somewhat later is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    first: Option<Instant>,
    believed: bool,
    /// When the log was told that the kernel had no memory.
    told: Option<Instant>,
}

/// Between the two.
const LATER: Duration = Duration::from_millis(500);
/// How long a socket is left alone for which the kernel has no memory.
const MOMENT: Duration = Duration::from_millis(10);
/// The least time between two log lines about that.
const TOLD: Duration = Duration::from_secs(60);

impl Refusals {
    /// What was received, as of [`Self::or_else`]. While the kernel has no memory for it, that is nothing, after a moment:
    /// what is in the socket stays there.
    pub(crate) fn received(
        &mut self,
        result: io::Result<Option<Received>>,
    ) -> io::Result<Option<Received>> {
        if let Err(error) = &result
            && is_want_of_memory(error)
        {
            let now = timer::now();
            if self.told.is_none_or(|told| now.since(told) >= TOLD) {
                self.told = Some(now);
                tracing::warn!(%error, "nothing can be received just now");
            }
            std::thread::sleep(MOMENT);
        }
        Ok(self.or_else(result)?.flatten())
    }

    /// Takes note of `result` where it is such a refusal, and passes over what passes: what else hosts and routers have
    /// said of what was sent before, and that the kernel has no memory just now. It then gives nothing. What is left are
    /// errors of the socket itself, which do not pass.
    pub(crate) fn or_else<T>(&mut self, result: io::Result<T>) -> io::Result<Option<T>> {
        match result {
            Err(error) if is_want_of_memory(&error) => {
                tracing::debug!(%error, "no memory");
                Ok(None)
            }
            Err(error) if is_of_the_way(&error) => {
                tracing::debug!(%error, "a host on the way");
                Ok(None)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let now = timer::now();
                let first = *self.first.get_or_insert(now);
                self.believed |= now.since(first) >= LATER;
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    pub(crate) const fn are_believed(self) -> bool {
        self.believed
    }
}

/// Whether `error` is an ICMP message, which the kernel tells a connected socket at whatever it does next: that a
/// packet was too long for a link (those to come are not), or that there is no way just now. Only silence ends a
/// transfer, for ways come again.
fn is_of_the_way(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(
            Errno::MSGSIZE
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
                | Errno::PROTO
                | Errno::ACCESS
        )
    )
}

fn is_want_of_memory(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOMEM | Errno::NOBUFS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn want_of_memory_ends_nothing() {
        let mut refusals = Refusals::default();
        for errno in [Errno::NOMEM, Errno::NOBUFS] {
            assert!(matches!(refusals.received(Err(errno.into())), Ok(None)));
            assert!(matches!(
                refusals.or_else::<()>(Err(errno.into())),
                Ok(None)
            ));
        }
        assert!(refusals.received(Err(Errno::BADF.into())).is_err());
    }

    #[test]
    fn what_is_said_of_the_way_ends_nothing_and_a_broken_socket_does() {
        let mut refusals = Refusals::default();
        let mut tell = |errno: Errno| refusals.or_else::<()>(Err(errno.into()));
        for errno in [Errno::MSGSIZE, Errno::HOSTUNREACH, Errno::ACCESS] {
            assert!(matches!(tell(errno), Ok(None)), "{errno}");
        }
        assert!(tell(Errno::BADF).is_err());
        assert!(tell(Errno::WOULDBLOCK).is_err());
        assert!(!refusals.are_believed());
    }
}
