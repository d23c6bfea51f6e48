//! What can be done about a link, and what is measured of each.

use crate::question::{Activity, Question};
use bentpipe_base::Bytes;
use serde::{Deserialize, Serialize};

/// A way to run TCP over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Alternative {
    /// End to end, by CUBIC, as most hosts do.
    Cubic,
    /// End to end, by BBR version 1, as mainline Linux has it.
    Bbr,
    /// A split whose satellite leg is CUBIC.
    SplitCubic,
    /// A split whose satellite leg is Hybla.
    SplitHybla,
    /// A split whose satellite leg is `bentpipe_rate`.
    SplitRate,
    /// End to end, and a Snoop agent before the satellite.
    Snoop,
    /// Splits at both ends of the satellite link, SCPS-TP between them.
    Scps,
}

impl Alternative {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Cubic,
        Self::Bbr,
        Self::SplitCubic,
        Self::SplitHybla,
        Self::SplitRate,
        Self::Snoop,
        Self::Scps,
    ];

    /// What it is called.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cubic => "no PEP, cubic",
            Self::Bbr => "no PEP, bbr",
            Self::SplitCubic => "split, cubic",
            Self::SplitHybla => "split, Hybla",
            Self::SplitRate => "split, bentpipe_rate",
            Self::Snoop => "Snoop",
            Self::Scps => "SCPS-TP pair",
        }
    }

    /// What it is, in a line.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Cubic => "end to end, as most hosts do today",
            Self::Bbr => "end to end; the sender, whoever that is, has to have it",
            Self::SplitCubic => "a gateway splits at the link, and uses what every kernel has",
            Self::SplitHybla => "a gateway splits at the link, with the control of PEPsal",
            Self::SplitRate => "a gateway splits at a link of your own, paced at its rate",
            Self::Snoop => "a gateway splits nothing, but sends again what the link loses",
            Self::Scps => "a gateway at each end of the link, SCPS-TP between them",
        }
    }

    /// Whether it takes a gateway.
    pub const fn is_pep(self) -> bool {
        !matches!(self, Self::Cubic | Self::Bbr)
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// A page of [`Measure::OBJECTS`] objects over [`Measure::CONNECTIONS`] connections.
    Page,
    /// 100 kB over a new connection.
    Small,
    /// 2 MB over a new connection.
    Medium,
    /// 100 MB in all over new connections.
    Long,
}

impl Measure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Page, Self::Small, Self::Medium, Self::Long];
    /// Connections that a browser opens to a server of HTTP/1.1.
    pub const CONNECTIONS: u32 = 6;
    /// Objects of a page.
    pub const OBJECTS: u32 = 30;
    /// One object of a page.
    pub const OBJECT: Bytes = Bytes(30_000);
    /// What all users together move for [`Measure::Long`].
    const LONG: Bytes = Bytes(100_000_000);

    /// What one connection moves.
    pub(crate) fn bytes(self, question: &Question) -> Bytes {
        match self {
            Self::Page => Self::OBJECT * u64::from(Self::OBJECTS / Self::CONNECTIONS),
            Self::Small => Bytes(100_000),
            Self::Medium => Bytes(2_000_000),
            Self::Long => Bytes(Self::LONG.0 / u64::from(question.users)),
        }
    }

    /// Connections of one user.
    pub(crate) const fn connections(self) -> u32 {
        match self {
            Self::Page => Self::CONNECTIONS,
            _ => 1,
        }
    }

    /// What it is called.
    pub fn label(self, question: &Question) -> String {
        match self {
            Self::Page => "a page".to_owned(),
            Self::Small => "100 kB".to_owned(),
            Self::Medium => "2 MB".to_owned(),
            Self::Long => {
                let megabytes = 100.0 / f64::from(question.users);
                // Whole, or with one digit.
                format!("{} MB", (megabytes * 10.0).round() / 10.0)
            }
        }
    }

    /// The measure that what the users do is judged by.
    pub const fn headline(question: &Question) -> Self {
        match question.activity {
            Activity::Pages => Self::Page,
            Activity::Download | Activity::Upload | Activity::Calls => Self::Long,
        }
    }

    /// Whether it has a meaning for what the users do.
    pub fn applies(self, question: &Question) -> bool {
        self != Self::Page || question.activity != Activity::Upload
    }

    /// Runs with different seeds, of which the one in the middle is shown. Several users are a sample by themselves.
    pub(crate) fn seeds(self, question: &Question) -> u64 {
        if !question.has_chance() {
            return 1;
        }
        let wanted = match self {
            Self::Small => 9,
            Self::Page | Self::Medium => 5,
            Self::Long => 1,
        };
        // Odd, so that there is a middle one.
        (wanted / u64::from(question.users)) | 1
    }
}
