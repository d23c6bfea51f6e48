//! What the points of a study are run on: `engine`.

use crate::parse::Known;
use bentpipe_config::{Table, Wrong, brief};

/// What runs the points of a study.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The simulator, in virtual time.
    #[default]
    Simulator,
    /// The lab: the kernel's TCP over emulated links, in wall time.
    Lab,
}

impl Engine {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Simulator, Self::Lab];

    /// As studies write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simulator => "simulator",
            Self::Lab => "lab",
        }
    }

    /// The names that it is sure to know, of those that the simulator has: which controls there are
    /// in the lab is known to the kernel alone.
    pub(super) const fn knowing(self, simulator: Known<'_>) -> Known<'_> {
        match self {
            Self::Simulator => simulator,
            Self::Lab => Known {
                variants: &[],
                controls: &[],
                apps: simulator.apps,
                measures: simulator.measures,
                renamed: simulator.renamed,
            },
        }
    }
}

/// What `root` says; the default where it says nothing.
pub(super) fn engine(root: &mut Table<'_, '_>) -> Engine {
    let Some(name) = root.optional::<String>("engine") else {
        return Engine::default();
    };
    let found = Engine::ALL.into_iter().find(|engine| engine.name() == name);
    found.unwrap_or_else(|| {
        let what = format!("unknown engine `{}`", brief(&name));
        let names = Engine::ALL.map(Engine::name);
        root.problem("engine", Wrong::name(what, &name, &names));
        Engine::default()
    })
}
