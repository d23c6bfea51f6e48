//! Who decides what becomes of a new connection.

use crate::Side;
use bentpipe_gateway_config::Action;

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is split.
    pub action: Action,
    /// Which of [`Config::profiles`](super::Config::profiles) its legs have, if it is split; `None`: the plain ones.
    pub profile: Option<usize>,
}

impl Decision {
    /// It is split, between the plain legs.
    pub(super) const SPLIT: Self = Self {
        action: Action::Split,
        profile: None,
    };
}

/// Decides what becomes of a new connection: by the source and the destination of the first packet seen of it, and the
/// side from which that came.
pub type Admission<E> = Box<dyn Fn(E, E, Side) -> Decision + Send>;
