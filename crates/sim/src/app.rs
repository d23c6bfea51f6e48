//! Applications: what the two ends of a flow do with their connection, one file a pair.

mod bulk;
mod on_off;
mod request;

pub use bulk::{Bulk, Sink};
pub use on_off::{OnOff, Pattern};
pub use request::{Requester, Responder};

use crate::Socket;
use bentpipe_base::{Bytes, Instant};
use core::time::Duration;

/// One end's application.
pub trait App {
    /// Something happened at the socket, or [`Self::deadline`] has come: read, write, close.
    fn ready(&mut self, socket: &mut Socket<'_>, now: Instant);

    /// When it wants to be called, whatever happens.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether it has nothing left to do.
    fn done(&self) -> bool;
}

/// The applications that scenarios know; by value, so that calls are inlined.
pub(crate) enum Application {
    Bulk(Bulk),
    Sink(Sink),
    Requester(Box<Requester>),
    Responder(Responder),
    OnOff(Box<OnOff>),
}

impl Application {
    /// How long each answer took that it had asked for; nothing where it does not ask.
    pub(crate) fn responses(&self) -> &[Duration] {
        match self {
            Self::Requester(app) => app.responses(),
            Self::Bulk(_) | Self::Sink(_) | Self::Responder(_) | Self::OnOff(_) => &[],
        }
    }

    /// Makes it ready for a transfer of `amount` on a new connection. Only cross traffic is renewed,
    /// and that is bulk.
    pub(crate) fn renew(&mut self, amount: Bytes) {
        match self {
            Self::Bulk(app) => *app = app.renewed(amount),
            Self::Sink(app) => *app = app.renewed(amount),
            Self::Requester(_) | Self::Responder(_) | Self::OnOff(_) => {}
        }
    }
}

impl App for Application {
    #[inline]
    fn ready(&mut self, socket: &mut Socket<'_>, now: Instant) {
        match self {
            Self::Bulk(app) => app.ready(socket, now),
            Self::Sink(app) => app.ready(socket, now),
            Self::Requester(app) => app.ready(socket, now),
            Self::Responder(app) => app.ready(socket, now),
            Self::OnOff(app) => app.ready(socket, now),
        }
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Requester(app) => app.deadline(),
            Self::OnOff(app) => app.deadline(),
            Self::Bulk(_) | Self::Sink(_) | Self::Responder(_) => None,
        }
    }

    #[inline]
    fn done(&self) -> bool {
        match self {
            Self::Bulk(app) => app.done(),
            Self::Sink(app) => app.done(),
            Self::Requester(app) => app.done(),
            Self::Responder(app) => app.done(),
            Self::OnOff(app) => app.done(),
        }
    }
}
